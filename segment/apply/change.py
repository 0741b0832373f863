"""A planned change as its journal tells it: the steps, what was made for them, and how to name them to the user."""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kseg.segment.apply.course import Course
from kseg.segment.apply.disk import Disk, remove_if_empty, remove_quietly
from kseg.segment.apply.journal import PLAN, Journal, State, discard
from kseg.segment.apply.journals import unfinished_in
from kseg.segment.apply.staging import Staged, tail_path
from kseg.segment.errors import FormatError, Refused
from kseg.segment.plan.steps import FileIdentity, Plan, Remove, Rename, Step, Truncate, Write, step_row


@dataclass(frozen=True, slots=True)
class Change:
    """journal: where it is told. course: its steps. staged: what was made for them, None before it is decided.
    elsewhere: the directory of this change in a quarantine elsewhere."""

    journal: Journal
    course: Course
    staged: Staged | None
    elsewhere: str | None

    def files_elsewhere(self) -> Iterator[str]:
        """Every file that the change puts into a quarantine elsewhere."""
        if self.elsewhere is not None:
            for name in self.course.lost:
                yield os.path.join(self.elsewhere, name)
            for tail in self.course.tails:
                if tail.length:
                    yield tail_path(self.journal.place, self.elsewhere, tail.name, tail.position)

    def clear(self, disk: Disk) -> None:
        """Remove journal, staging and quarantine. Only when the directory is as found. Raises OSError."""
        for path in self.files_elsewhere():
            remove_quietly(disk, path)
        if self.elsewhere is not None:
            for path in (self.elsewhere, os.path.dirname(self.elsewhere)):
                remove_if_empty(disk, path)
        discard(self.journal.place, disk)


def header_of(
    plan: Plan, steps: Sequence[Step], inputs: Sequence[FileIdentity], mtime_ns: int
) -> dict[str, object]:
    """The first line of a plan's journal, but for what the journal itself adds."""
    return {
        "kind": PLAN,
        "command": plan.command,
        "directory": plan.directory,
        "directory_mtime_ns": mtime_ns,
        "inputs": [[file.name, file.size_bytes, file.mtime_ns, file.inode] for file in inputs],
        "steps": [step_row(step) for step in steps],
        "reasons": [finding.as_row() for finding in plan.reasons],
    }


def change_of(journal: Journal) -> Change:
    """The change that a plan's journal tells. Raises Refused when the journal makes no sense."""
    try:
        inputs = [FileIdentity(str(n), int(s), int(m), int(i)) for n, s, m, i in journal.header["inputs"]]
        for file in inputs:
            check_name(file.name)
        course = Course(inputs, [_step(row) for row in journal.header["steps"]])
        line = journal.line("staged")
        staged = None if line is None else Staged.of_line(line)
        return Change(journal, course, staged, journal.elsewhere)
    except (KeyError, ValueError, TypeError, FormatError) as error:
        raise Refused(f"{journal.path} is no journal that can be followed: {error}") from error


def check_name(name: str) -> None:
    """A journal may name files of its directory only. Raises ValueError."""
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise ValueError(f"{name!r} is no name of a file")


def _step(row: Mapping[str, Any]) -> Step:
    """A step as far as carrying it out needs it: what a file is made of was settled when it was staged."""
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
    raise ValueError(f"{row['do']!r} is no step")


def undo_command(path: str, finish: bool = False) -> str:
    """What to type to go back, or on."""
    return f"kseg undo {'--finish ' if finish else ''}{shlex.quote(path)}"


def half_done_sentence(journal: Journal) -> str:
    """What a journal in the way is, and both ways out."""
    path = journal.path
    if journal.state is State.UNREADABLE:
        return (
            f"{path} cannot be read as a journal, and files that belong to it lie there; look at them first"
        )
    if journal.state in (State.UNDOING, State.UNDONE):
        return f"{path}: an undo of {journal.command} was interrupted; `{undo_command(path)}` goes on with it"
    if journal.kind != PLAN:
        return (
            f"{path}: {journal.command} was interrupted; `{undo_command(path)}` takes back what it wrote, "
            f"`{undo_command(path, finish=True)}` keeps it"
        )
    return (
        f"{path}: {journal.command} was interrupted; `{undo_command(path, finish=True)}` goes on with it, "
        f"`{undo_command(path)}` goes back"
    )


def clear_the_way(directory: str, disk: Disk) -> None:
    """Remove what was never decided. Raises Refused when a half-done change lies there. Needs the claim."""
    for journal in unfinished_in(directory, disk):
        if journal.is_half_done:
            raise Refused(half_done_sentence(journal))
        if journal.state is State.ABANDONED:
            abandon(journal, disk)


def abandon(journal: Journal, disk: Disk) -> None:
    """Clear away a change that was not decided: journal, staging, copies. Raises Refused when that cannot be done."""
    try:
        if journal.header and journal.kind == PLAN:
            change_of(journal).clear(disk)
        else:
            discard(journal.place, disk)
    except OSError as error:
        raise Refused(f"cannot clear away {journal.path}: {error.strerror}") from error
