"""A change of one directory in two phases, plan and apply, shared by all commands that plan.

1. `prepare` of a command reads the evidence, reports findings and the plan, and returns a `Prepared`.
2. `carried_out` applies the plan or writes the changed copy, if the options say so.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from kseg.change.apply.journal_probe import is_among, is_known_to_kseg
from kseg.change.plan.inputs import refuse_links
from kseg.change.plan.steps import FileIdentity, Plan, step_rows
from kseg.change.run.options import ChangeOptions
from kseg.change.run.results import ChangeOutcome
from kseg.jobs.events import Row
from kseg.segment.counted import counted
from kseg.segment.diagnosis import UnreadableBytes
from kseg.segment.errors import KsegError, Refused
from kseg.segment.findings import Finding
from kseg.segment.partition.names import KSEG_DIRECTORY
from kseg.segment.unreadable import findings_in

if TYPE_CHECKING:
    from kseg.change.apply.executor import Applied
    from kseg.change.apply.journal_location import JournalLocation

R = TypeVar("R")


class Closeable(Protocol):
    """A resource to be released."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared(Generic[R]):
    """A planned change that is not yet carried out.

    result: so far. copy: where the changed copy goes, None for a change in place; hard_link: unchanged files of
    it are links. sources: open files to which the plan refers.
    note: stored in the journal for a later attempt. done: the change, if an earlier
    attempt has made it.
    """

    plan: Plan
    result: R
    copy: str | None = None
    hard_link: bool = False
    sources: tuple[Closeable, ...] = ()
    note: Mapping[str, object] | None = None
    done: "Applied | None" = None
    # bytes of the files in the plan's directory that turned out to be unreadable meanwhile
    unreadable: tuple[Finding, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "unreadable", tuple(findings_in(self.plan.directory)))


def copy_path(output: str, directory: str) -> str:
    """Where the changed copy of a directory goes."""
    return os.path.join(output, os.path.basename(os.path.abspath(directory)))


def complete_or_refuse(
    directory: str, command: str, options: ChangeOptions, names: Sequence[str] | None = None
) -> bool:
    """Before `command` plans: with --apply, complete what an earlier run of the same command left incomplete; any other incomplete change
    is refused. names: of everything in the directory, if it was listed. Returns whether something was completed. Raises Refused."""
    if not options.apply and not (
        is_known_to_kseg(directory) if names is None else is_among(names, KSEG_DIRECTORY)
    ):
        return False
    from kseg.change.apply.unfinished import complete_unfinished, refuse_half_done

    if options.apply:
        from kseg.change.apply.disk import disk_for

        return bool(complete_unfinished(directory, command, disk_for(options.follow_links)))
    refuse_half_done(directory)
    return False


@contextmanager
def planning(directory: str, inputs: Sequence[FileIdentity]) -> Iterator[None]:
    """Context for reading a directory for a plan. Files that are written while they are read contradict each other, and a resulting failure
    is not a bug: raises Refused with the names of those that have changed. inputs: the files before they were read."""
    try:
        yield
    except KsegError:
        raise
    except Exception:
        from kseg.change.apply.disk import DISK
        from kseg.change.apply.staging import check_inputs

        check_inputs(directory, inputs, DISK)
        raise


def refuse_unreadable(directory: str, found: Sequence[Finding]) -> None:
    """Raises Refused if bytes of the directory to be changed are unreadable: other tools may still recover them, as
    long as nothing is written to that disk."""
    if not found:
        return
    lost_bytes = sum(finding.length or 0 for finding in found)
    files = len({finding.path for finding in found})
    where = os.path.basename(found[0].path) if files == 1 else counted(files, "file")
    diagnoses = (finding.diagnosis for finding in found)
    errors = ", ".join(sorted({each.error for each in diagnoses if isinstance(each, UnreadableBytes)}))
    raise Refused(
        f"{directory}: {counted(lost_bytes, 'byte')} of {where} cannot be read ({errors}), so nothing was changed; --output DIR copies "
        "what can be read, --accept-unreadable counts them as lost"
    )


def shown_steps(name: str, plan: Plan, copy: str | None) -> Iterator[Row]:
    """The rows of the steps of a plan for `name`. copy: where the changed copy is written, if one is. Raises Refused before the first row
    if files that are to be changed or copied are links."""
    if copy is not None or not plan.is_empty:
        refuse_links(plan.directory)
    return map(Row, step_rows(name, plan))


def carried_out(prepared: Prepared[R], options: ChangeOptions) -> ChangeOutcome:
    """Carry out the plan if the options say so. Raises Refused, also for a plan that could not be carried out because files are links."""
    try:
        if prepared.done is not None:
            return _applied(prepared.done)
        if prepared.copy is not None or not prepared.plan.is_empty:
            refuse_links(prepared.plan.directory)
        if prepared.copy is not None:
            _copied(prepared, prepared.copy, options)
            return ChangeOutcome(applied=True, output=prepared.copy)
        if not options.apply:
            return _only_planned(prepared, options)
        if prepared.plan.is_empty:
            return ChangeOutcome(applied=True)
        if not options.accept_unreadable:
            refuse_unreadable(prepared.plan.directory, prepared.unreadable)
        from kseg.change.apply.disk import disk_for
        from kseg.change.apply.executor import apply_plan

        return _applied(
            apply_plan(
                prepared.plan,
                journal_id=options.run_id,
                keeping=options.keeping,
                note=prepared.note,
                disk=disk_for(options.follow_links),
            )
        )
    finally:
        for source in prepared.sources:
            source.close()


def _only_planned(prepared: Prepared[R], options: ChangeOptions) -> ChangeOutcome:
    if prepared.plan.is_empty:
        return ChangeOutcome()
    from kseg.change.apply.room import rooms_of

    rooms = rooms_of(prepared.plan, options.keeping)
    return ChangeOutcome(room=tuple(room.as_row() for room in rooms))


def _applied(done: "Applied") -> ChangeOutcome:
    return ChangeOutcome(applied=True, journal=done.journal, quarantine=done.quarantine)


def copies_of(options: ChangeOptions) -> "JournalLocation | None":
    """The journal of the copies of a run; None for a run without one."""
    from kseg.change.apply.journal_location import JournalLocation

    if options.output is None or not options.run_id:
        return None
    return JournalLocation(os.path.abspath(options.output), options.run_id, in_log_dir=True)


def _copied(prepared: Prepared[R], copy: str, options: ChangeOptions) -> None:
    from kseg.change.apply.copy import is_copy, write_copy

    shared = options.shared
    if shared is None or copy in shared.there_before or not is_copy(prepared.plan, copy):
        write_copy(prepared.plan, copy, hard_link=prepared.hard_link, journal=copies_of(options))
