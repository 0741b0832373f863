"""A planned change as recorded in its journal: the steps, the files staged for them, and their descriptions for the user."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from kseg.change.apply.anchors import anchored, open_without_links
from kseg.change.apply.disk import DISK, Disk
from kseg.change.apply.elsewhere import DONE
from kseg.change.apply.file_operations import remove_if_empty, remove_quietly
from kseg.change.apply.journal import Journal, JournalState, is_there, read_journal
from kseg.change.apply.journal_lines import COPY, PLAN
from kseg.change.apply.journal_location import JournalLocation
from kseg.change.apply.journal_scan import unfinished_in
from kseg.change.apply.journal_writer import discard
from kseg.change.apply.proof import check_copies, check_disposable
from kseg.change.apply.staging import Staged, look, tail_path
from kseg.change.apply.step_progress import ObservedFile, StepProgress, Token, is_alike, written
from kseg.change.plan.steps import FileIdentity, Plan, Remove, Rename, Step, Truncate, Write, step_row
from kseg.segment.counted import listed
from kseg.segment.errors import FormatError, KsegError, Refused, disk_words
from kseg.segment.terminal import shell_quoted
from kseg.segment.values import dataclass

_NAMED = 3


@dataclass(frozen=True, slots=True)
class Change:
    """journal: its journal. progress: of its steps. staged: the files staged for them, None before the commit.
    elsewhere: the directory of this change in a quarantine elsewhere."""

    journal: Journal
    progress: StepProgress
    staged: Staged | None
    elsewhere: str | None

    def files_elsewhere(self) -> Iterator[tuple[str, str, int]]:
        """Every file that the change puts into a quarantine elsewhere: its path, the found file that it
        copies, and the position in that file."""
        if self.elsewhere is not None:
            for name in self.progress.lost:
                yield os.path.join(self.elsewhere, name), name, 0
            for tail in self.progress.tails:
                if tail.length:
                    path = tail_path(self.journal.location, self.elsewhere, tail.name, tail.position)
                    yield path, tail.name, tail.position

    def quarantine_elsewhere(self) -> AbstractContextManager[bool]:
        """Open the quarantine elsewhere without following links; yields whether there is one. Raises Refused."""
        return quarantine_open(self.journal, self.elsewhere)

    def off_the_way(self, actual: Mapping[str, ObservedFile]) -> list[str]:
        """Names with content that neither the change nor its undo wrote, sorted."""
        may = self.progress.tokens()
        return sorted(
            name
            for name in {*may, *actual}
            if not any(self._can_be(actual.get(name), token) for token in may.get(name, {None}))
        )

    def _can_be(self, seen: ObservedFile | None, token: Token | None) -> bool:
        assert self.staged is not None
        if seen is None or token is None:
            return seen is None and token is None
        if isinstance(token, int):
            return is_alike(seen, self.staged.files.get(token))
        found = self.progress.inputs[token]
        if not any(tail.name == token and tail.length for tail in self.progress.tails):
            return (seen.size_bytes, seen.mtime_ns) == (found.size_bytes, found.mtime_ns)
        sizes = self.progress.sizes(token)
        is_growing = self.journal.state is JournalState.UNDOING
        return min(sizes) <= seen.size_bytes <= max(sizes) if is_growing else seen.size_bytes in sizes

    def clear(self, disk: Disk) -> None:
        """Remove journal, staging and quarantine. Only if the directory is as found: the removed bytes must exist there
        (module proof). Raises OSError and Refused."""
        check_disposable(self.journal, disk)
        _clear_elsewhere(self.journal, self.elsewhere, list(self.files_elsewhere()), disk)
        discard(self.journal.location, disk, _mtime_ns(self.journal))


@contextmanager
def quarantine_open(journal: Journal, elsewhere: str | None) -> Iterator[bool]:
    """Open a quarantine elsewhere without following links; yields whether there is one. Raises Refused."""
    if elsewhere is None:
        yield False
        return
    try:
        descriptor = open_without_links(elsewhere)
    except FileNotFoundError:
        yield False
        return
    except (OSError, ValueError) as error:
        raise Refused(f"{journal.path} names a quarantine elsewhere: {error}") from error
    try:
        with anchored(elsewhere, descriptor):
            yield True
    finally:
        os.close(descriptor)


def _clear_elsewhere(
    journal: Journal, elsewhere: str | None, files: Sequence[tuple[str, str, int]], disk: Disk
) -> None:
    """Remove the content of a quarantine elsewhere: each path with the found file that it copies, and the position in that
    file. Raises OSError and Refused."""
    with quarantine_open(journal, elsewhere) as is_there:
        if is_there:
            check_copies(journal.location, files, disk)
            for path, _, _ in files:
                remove_quietly(disk, path)
    if elsewhere is not None and os.path.realpath(elsewhere) == elsewhere:
        for path in (elsewhere, os.path.dirname(elsewhere)):
            remove_if_empty(disk, path)


def clear_guard(journal: Journal, disk: Disk) -> None:
    """Remove the journal of an append that did not commit, and what it kept; the directory is as found. Raises OSError and
    Refused."""
    try:
        elsewhere = journal.elsewhere(disk)
        names = [str(name) for name in journal.header.get("replaces", ())]
    except FormatError as error:
        raise Refused(f"{journal.path} is not a valid kseg journal: {error}") from error
    if elsewhere is not None:
        files = [(os.path.join(elsewhere, name), name, 0) for name in names]
        _clear_elsewhere(journal, elsewhere, files, disk)
    discard(journal.location, disk, _mtime_ns(journal))


def header_of(
    plan: Plan, steps: Sequence[Step], inputs: Sequence[FileIdentity], mtime_ns: int
) -> dict[str, object]:
    """The first line of a plan's journal, without what the journal itself adds."""
    return {
        "kind": PLAN,
        "command": plan.command,
        "directory": plan.directory,
        "directory_mtime_ns": mtime_ns,
        "inputs": [[file.name, file.size_bytes, file.mtime_ns, file.inode] for file in inputs],
        "steps": [step_row(step) for step in steps],
        "reasons": [finding.as_row() for finding in plan.reasons],
    }


def change_of(journal: Journal, disk: Disk) -> Change:
    """The change that a plan's journal records. Raises Refused when the journal is inconsistent."""
    try:
        inputs = [FileIdentity(n, s, m, i) for n, s, m, i in journal.header["inputs"]]
        progress = StepProgress(inputs, [_step(row) for row in journal.header["steps"]])
        line = journal.line("staged")
        staged = None if line is None else Staged.of_line(line)
        change = Change(journal, progress, staged, journal.elsewhere(disk))
        if staged is not None:
            _check_complete(change, staged)
        return change
    except (KeyError, ValueError, TypeError, FormatError) as error:
        raise Refused(f"{journal.path} is not a valid kseg journal: {error}") from error
    except OSError as error:
        raise Refused(f"cannot read {journal.location.directory}: {error.strerror}") from error


def _check_complete(change: Change, staged: Staged) -> None:
    """Raises ValueError unless everything that the steps need was staged, and everything that they remove was kept."""
    progress = change.progress
    new = {number: int(change.journal.header["steps"][number]["size"]) for number, _ in written(progress)}
    kept = {*progress.touched} if change.elsewhere is None else {*progress.touched} - {*progress.lost}
    is_complete = (
        new == {number: seen.size_bytes for number, seen in staged.files.items()}
        and kept == staged.kept.keys()
        and {*progress.touched} - kept == staged.copied.keys()
        and {tail.number for tail in progress.tails if tail.length} == staged.tails.keys()
    )
    if not is_complete:
        raise ValueError("its steps need other files than those that were made for them")
    holders = change.journal.holders
    if change.journal.line("undoing") is not None and holders.keys() != {*progress.touched}:
        raise ValueError("its undo puts back other files than those that it took out")


def _step(row: Mapping[str, Any]) -> Step:
    """A step as far as it is needed to carry it out: the content of a file was fixed when it was staged."""
    name, why = str(row["file"]), str(row["why"])
    match row["do"]:
        case "write":
            return Write(name, (), why)
        case "truncate":
            return Truncate(name, int(row["size"]), why)
        case "rename":
            return Rename(name, str(row["to"]), why)
        case "remove":
            return Remove(name, why)
    raise ValueError(f"{row['do']!r} is not a step")


def undo_command(path: str, finish: bool = False) -> str:
    """The command that undoes the change, or finishes it."""
    return f"kseg undo {'--finish ' if finish else ''}{shell_quoted(path)}"


def remains_of(journal: Journal) -> list[str]:
    """What has to be moved out of the way when the journal of a change cannot be used: its directory, or its files in a data directory."""
    location = journal.location
    if not location.is_flat:
        return [os.path.dirname(location.journal)]
    pointer = location.pointer(DISK)
    return [*location.files(DISK), *([] if pointer is None else [pointer])] or [location.journal]


def overtaken_by(journal: Journal) -> list[str]:
    """The files that something else has changed since the change, or its undo, was interrupted, so that it can be neither finished nor
    undone. Empty if there are none, or that is unknown."""
    if journal.kind == PLAN and journal.state in (JournalState.APPLYING, JournalState.UNDOING):
        with suppress(Refused, OSError):
            names = change_of(journal, DISK).off_the_way(look(journal.location.directory, DISK))
            return [*map(journal.location.target, names)]
    return []


def refuse_changed(journal: Journal, wrong: Sequence[str]) -> None:
    """Raises Refused if files changed after the change that would be undone. wrong: their names."""
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise Refused(
            f"{journal.location.target(min(wrong))}{more} changed since {journal.command} was here; "
            f"undoing {journal.path} would discard that"
        )


def half_done_sentence(journal: Journal, overtaken: Sequence[str] | None = None) -> str:
    """The sentence about an incomplete change, with the commands that finish and undo it. overtaken: see `overtaken_by`, which is asked if
    it is None."""
    path = journal.path
    if journal.state is JournalState.OUT_OF_REACH:
        directory, pointer = journal.location.directory, journal.location.pointer(DISK) or path
        if pointer.endswith(DONE):
            return f"{pointer}: its journal {path} is not there: mount what it lies on"
        return (
            f"{pointer}: a change of {directory} is unfinished, and its journal {path} is not there: mount what it lies on, "
            f"then `{undo_command(directory)}` undoes it, `{undo_command(directory, finish=True)}` finishes it"
        )
    if journal.state is JournalState.UNREADABLE:
        remains = listed(remains_of(journal), _NAMED)
        if is_there(journal.location, DISK):
            return (
                f"{path} is not a valid kseg journal: {journal.fault}; inspect it, then move {remains} away"
            )
        around = ""
        if journal.location.in_log_dir:
            around = "; the partitions of a run can be undone one by one (`kseg undo` of each directory)"
        return (
            f"{path} is missing, and without it kseg can neither undo nor finish that change{around}. "
            f"What it removed is kept in {remains}: put back by hand what is wanted, and move the rest "
            "away"
        )
    what = journal.command if journal.state is JournalState.APPLYING else f"an undo of {journal.command}"
    changed = overtaken_by(journal) if overtaken is None else overtaken
    if changed:
        return (
            f"{path}: {what} was interrupted, and {listed(changed, 1)} changed since, as when a broker is started: it can be neither "
            f"finished nor undone. What it removed is kept in {listed(remains_of(journal), _NAMED)}: put back by hand what is wanted, and "
            "move the rest away"
        )
    if journal.state in (JournalState.UNDOING, JournalState.UNDONE):
        return f"{path}: {what} was interrupted; `{undo_command(path)}` finishes it"
    if journal.kind == COPY:
        return (
            f"{path}: {journal.command} --output is unfinished; the same command makes the copies that are missing, "
            f"`{undo_command(path)}` removes what it has made, `{undo_command(path, finish=True)}` keeps that"
        )
    if journal.kind != PLAN:
        return (
            f"{path}: {journal.command} was interrupted; `{undo_command(path)}` removes what it wrote, "
            f"`{undo_command(path, finish=True)}` keeps it"
        )
    return (
        f"{path}: {journal.command} was interrupted; `{undo_command(path, finish=True)}` finishes it, "
        f"`{undo_command(path)}` undoes it"
    )


def clear_the_way(directory: str, disk: Disk) -> None:
    """Remove changes that did not commit. Raises Refused when there is an incomplete change. The caller holds the claim."""
    for journal in unfinished_in(directory, disk):
        if journal.is_half_done:
            raise Refused(half_done_sentence(journal))
        if journal.state is JournalState.ABANDONED:
            abandon(journal, disk)


def abandon(journal: Journal, disk: Disk) -> None:
    """Clean up a change that did not commit: journal, staging, copies; restores the directory's modification time. Raises
    Refused when that fails, or a file there exists nowhere else."""
    try:
        if journal.header and journal.kind == PLAN:
            change_of(journal, disk).clear(disk)
        else:
            check_disposable(journal, disk)
            clear_guard(journal, disk)
        if journal.header.get("is_new") is True:  # created for this change
            remove_if_empty(disk, journal.location.directory)
    except OSError as error:
        raise Refused(f"cannot clear away {journal.path}: {error.strerror}") from error


def roll_back(location: JournalLocation, disk: Disk) -> None:
    """`abandon` a change that failed before its commit; the next run removes what cannot be removed now."""
    with suppress(OSError, KsegError):
        journal = read_journal(location, disk)
        if journal.state is JournalState.ABANDONED:
            abandon(journal, disk)


def cannot_change(directory: str, error: OSError, stands: str) -> Refused:
    """The refusal after a failed call of the system. stands: a clause about the state in which the directory is."""
    where = directory if error.filename is None else error.filename
    return Refused(f"cannot change {where}: {error.strerror}; {stands}{disk_words(error)}")


def _mtime_ns(journal: Journal) -> int | None:
    mtime_ns = journal.header.get("directory_mtime_ns")
    return mtime_ns if isinstance(mtime_ns, int) else None
