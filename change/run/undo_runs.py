"""Runs that can be undone: a run leaves a journal in each directory that it changed, and is listed, undone or forgotten (`forget_runs`) as
one, by the path that was given to it.

A path stands for the directory itself, for the partitions of a data directory, and for all data directories below a parent. If there
are several runs, the newest is undone first; an incomplete one comes before all others. A run over several data
directories is checked as a whole before any of it is undone.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import NamedTuple

from kseg.change.apply.disk import DISK
from kseg.change.apply.journal import Journal, JournalState, has_traces, last_change_ns, read_journal
from kseg.change.apply.journal_location import ID_TIME
from kseg.change.apply.journal_scan import journals_in, location_of
from kseg.change.apply.lock import claimed_by_command, is_claimed, locked
from kseg.change.apply.recorded_change import abandon, half_done_sentence, quarantine_open
from kseg.change.apply.undo_command import (
    COMMAND,
    UndoOptions,
    check_journal,
    log_dirs_of_journals,
    undo_journal,
)
from kseg.jobs.events import Event, Failure, Row
from kseg.segment.counted import listed
from kseg.segment.errors import FormatError, KsegError, Refused, UnreadableInput, cannot_read
from kseg.segment.partition.directory import LogDirectory, ParentDirectory
from kseg.segment.partition.names import KSEG_DIRECTORY
from kseg.segment.partition.recognition import is_log_directory, list_directory
from kseg.segment.terminal import shell_quoted
from kseg.segment.values import dataclass

_DIRECTORIES_NAMED = 8
END_SUFFIX = "-end"  # of the second journal that a run leaves in a data directory


@dataclass(frozen=True, slots=True)
class ChangeRun:
    """The journals of one run below a path: those of data directories first, the newest before the others."""

    id: str
    journals: tuple[Journal, ...]

    @property
    def command(self) -> str:
        return self.journals[0].command

    @property
    def is_half_done(self) -> bool:
        return any(journal.is_half_done for journal in self.journals)

    @property
    def directories(self) -> list[str]:
        return list(dict.fromkeys(journal.location.directory for journal in self.journals))

    @property
    def changed_at_ns(self) -> int:
        """When its journal was last written. Raises UnreadableInput."""
        return max(map(last_change_ns, self.journals), default=0)

    @property
    def undone_by(self) -> list[str]:
        """The journals whose undo is that of the run: a data directory's newest one also undoes those of its partitions."""
        found: dict[str, str] = {}
        for location in (journal.location for journal in self.journals):
            if location.in_log_dir or (os.path.dirname(location.directory) or os.curdir) not in found:
                found.setdefault(location.directory, location.journal)
        return list(found.values())

    def held_bytes(self) -> int:
        """The disk space that forgetting the run frees."""
        paths = {path for journal in self.journals for path in all_files(journal)}
        return sum(map(_occupied, paths))

    def row(self) -> dict[str, object]:
        """The row of type `run`."""
        return {
            "command": COMMAND,
            "run": self.id,
            "changed_by": self.command,
            "changed_at": self.changed_at_ns // 1_000_000,
            "half_done": self.is_half_done,
            "directories": self.directories,
            "journals": [journal.path for journal in self.journals],
            "undone_by": self.undone_by,
            "bytes": self.held_bytes(),
        }


class Changes(NamedTuple):
    """The changes with journals in what a path stands for. runs: those that can be undone, oldest first. uncommitted: the directories in
    which one was interrupted before it changed anything; what it had staged lies there."""

    runs: list[ChangeRun]
    uncommitted: list[str]


def runs_below(path: str) -> list[ChangeRun]:
    """The runs of `changes_below`."""
    return changes_below(path).runs


def changes_below(path: str) -> Changes:
    """The changes below a path. Raises UnreadableInput and Refused, also for a partition that cannot be listed, unless each run names
    the partitions that it changed and this one is not among them."""
    found: dict[str, list[Journal]] = {}
    uncommitted: list[str] = []
    unlisted: list[tuple[str, UnreadableInput]] = []
    for directory in _directories(path):
        try:
            journals = journals_in(directory)
        except UnreadableInput as error:
            unlisted.append((directory, error))
            continue
        for journal in journals:
            if journal.state is not JournalState.ABANDONED:
                found.setdefault(journal.location.id.removesuffix(END_SUFFIX), []).append(journal)
        if any(each.state is JournalState.ABANDONED for each in journals) and not is_claimed(directory):
            uncommitted.append(directory)
    for directory, why in unlisted:
        if not found or not all(_is_known_without(directory, journals) for journals in found.values()):
            raise why
    runs = [ChangeRun(each, tuple(sorted(journals, key=_rank))) for each, journals in found.items()]
    return Changes(sorted(runs, key=lambda run: (run.id[:ID_TIME], run.changed_at_ns)), uncommitted)


def _is_known_without(directory: str, journals: Sequence[Journal]) -> bool:
    """Whether the journals of a run show that it has not changed a partition directory: the last one, that of the data directory, names all
    partitions that the run has changed."""
    log_dir, name = os.path.split(directory)
    named = {
        str(each)
        for journal in journals
        if journal.location.in_log_dir and journal.location.directory == (log_dir or os.curdir)
        for each in journal.header.get("partitions", ())
    }
    return bool(named) and name not in named


def _rank(journal: Journal) -> tuple[bool, bool, str]:
    """Sort key: a data directory's journal also undoes those of its partitions, and a later journal the earlier ones."""
    location = journal.location
    return not location.in_log_dir, not location.id.endswith(END_SUFFIX), location.directory


def _directories(path: str) -> Iterator[str]:
    yield path
    match list_directory(path):
        case LogDirectory() as log_dir:
            yield from (child.path for child in log_dir.partitions)
        case ParentDirectory() as parent:
            for log_dir in parent.log_directories:
                if log_dir.path != path:
                    yield log_dir.path
                yield from (child.path for child in log_dir.partitions)


def undo_paths(paths: Sequence[str], options: UndoOptions) -> Iterator[Event]:
    """Like `undo_path`, for all paths of one command. With several directories, the newest run of all is undone, not the newest of each: so
    the same command continues an interrupted undo, and undoes nothing else."""
    folders = [path.rstrip(os.sep) or path for path in paths if _is_folder(path)]
    yield from _undo_journals([path for path in paths if not _is_folder(path)], options)
    if len(folders) < 2:
        for path in folders:
            yield from undo_path(path, options)
        return
    found: list[Changes] = []
    try:
        for path in folders:
            found.append(changes_below(path))
        meant = _meant_in_reach(_together(run for each in found for run in each.runs), options)
    except KsegError as error:
        yield Failure(path, str(error), error.exit_status)
        return
    if meant is None:
        for path in folders:
            yield from undo_path(path, options)
        return
    uncommitted = [directory for each in found for directory in each.uncommitted]
    yield from _undo_run(_with_log_dirs(folders, meant, options), options, uncommitted)


def _undo_journals(paths: Sequence[str], options: UndoOptions) -> Iterator[Event]:
    """Undo single journals, as a shell's pattern lists them: the newest first, because an earlier change can only be undone after a later
    one. Those that were undone with another one of them are passed over."""
    times_ns = {} if len(paths) < 2 or options.go_on else {path: _changed_at_ns(path) for path in paths}
    for path in sorted(paths, key=lambda path: -times_ns.get(path, 0)):
        if times_ns.get(path) and not os.path.lexists(path):
            continue
        yield from undo_journal(path, options)


def _changed_at_ns(path: str) -> int:
    """When the journal at a path was last written; 0 if that is unknown, which undoing it reports."""
    try:
        location = location_of(path)
        return 0 if location is None else last_change_ns(read_journal(location))
    except KsegError:
        return 0


def undo_units(paths: Sequence[str]) -> int:
    """The number of units that succeed or fail separately; all directories are one."""
    folders = sum(map(_is_folder, paths))
    return len(paths) - folders + min(1, folders)


def _is_folder(path: str) -> bool:
    given = path.rstrip(os.sep) or path
    return os.path.isdir(path) and os.path.basename(given) != KSEG_DIRECTORY and location_of(path) is None


def _together(runs: Iterable[ChangeRun]) -> list[ChangeRun]:
    """Runs below several paths, each once with all of its journals, oldest first."""
    found: dict[str, dict[str, Journal]] = {}
    for run in runs:
        found.setdefault(run.id, {}).update({journal.path: journal for journal in run.journals})
    joined = [ChangeRun(each, tuple(sorted(of.values(), key=_rank))) for each, of in found.items()]
    return sorted(joined, key=lambda run: (run.id[:ID_TIME], run.changed_at_ns))


def _meant(runs: Sequence[ChangeRun], options: UndoOptions) -> ChangeRun | None:
    """The run to finish or to undo: an incomplete one, otherwise the newest. A later run that changed one of its directories again is
    undone first: afterwards it could not be, because files that it found would have changed."""
    run = next((run for run in reversed(runs) if run.is_half_done), runs[-1] if runs else None)
    while run is not None and not options.go_on and (later := _later(runs, run)) is not None:
        run = later
    return run


def _meant_in_reach(runs: Sequence[ChangeRun], options: UndoOptions) -> ChangeRun | None:
    """The same of the runs whose journals are there. Raises Refused if that leaves out a newer one than a complete run, or all of them."""
    away = [run for run in runs if all(each.state is JournalState.OUT_OF_REACH for each in run.journals)]
    run = _meant([run for run in runs if run not in away], options)
    if run is None and away:
        raise Refused(half_done_sentence(away[-1].journals[0]))
    if run is not None and not run.is_half_done and away and runs.index(run) < runs.index(away[-1]):
        why, older = half_done_sentence(away[-1].journals[0]), " ".join(map(shell_quoted, run.undone_by))
        raise Refused(f"{why}; without it, the change before is undone with: kseg undo {older}")
    return run


def _later(runs: Sequence[ChangeRun], run: ChangeRun) -> ChangeRun | None:
    """The newest run after `run` that changed one of its directories again."""
    directories = set(run.directories)
    newer = runs[runs.index(run) + 1 :]
    return next((each for each in reversed(newer) if not directories.isdisjoint(each.directories)), None)


def undo_path(path: str, options: UndoOptions) -> Iterator[Event]:
    """Undo the newest run below a directory, or the run of a journal; or finish it. What is not possible is a Failure."""
    given = path.rstrip(os.sep) or path
    try:
        is_journal = os.path.basename(given) == KSEG_DIRECTORY or location_of(path) is not None
        if is_journal or not os.path.isdir(path):
            yield from undo_journal(path, options)
            return
        runs, found = changes_below(given)
        run = _meant_in_reach(runs, options)
        uncommitted = [] if options.go_on else found
        if run is None:
            for each in uncommitted or [path]:
                yield from undo_journal(each, options)
            return
    except KsegError as error:
        yield Failure(path, str(error), error.exit_status)
        return
    run = _with_log_dirs([given], run, options)
    if [given] == run.directories and len(runs) == 1 and set(uncommitted) <= {given}:
        yield from undo_journal(path, options)
        return
    yield from _undo_run(run, options, uncommitted)


def _with_log_dirs(given: Sequence[str], run: ChangeRun, options: UndoOptions) -> ChangeRun:
    """A run over the given partitions with its changes to their data directories, if those were for these partitions alone. The run as
    given if those can no longer be undone because a later run has changed a data directory again, or if a marker covers them, which is
    refused."""
    if not set(run.directories) <= set(given):
        return run
    names: dict[str, set[str]] = {}
    for partition in run.directories:
        around = os.path.dirname(partition) or os.curdir
        names.setdefault(around, set()).add(os.path.basename(os.path.abspath(partition)))
    own: list[Journal] = []
    for around in filter(is_log_directory, names):
        its = [each for each in journals_in(around) if each.location.id.removesuffix(END_SUFFIX) == run.id]
        if its and {str(each) for one in its for each in one.header.get("partitions", ())} != names[around]:
            return run
        own += its
    if not own:
        return run
    whole = ChangeRun(run.id, tuple(sorted((*own, *run.journals), key=_rank)))
    paths = [journal.path for journal in whole.journals]
    try:
        with locked(log_dirs_of_journals(journal.location for journal in whole.journals)):
            for journal in run.journals:
                check_journal(journal.path, options)
            _check_all(paths, options)
    except KsegError:
        return run
    return whole


def _check_all(paths: Sequence[str], options: UndoOptions) -> None:
    """Raises Refused and UnreadableInput if a journal cannot be undone."""
    covered: set[str] = set()
    for path in paths:
        if path not in covered:
            covered |= check_journal(path, options)


def _undo_run(run: ChangeRun, options: UndoOptions, uncommitted: Sequence[str]) -> Iterator[Event]:
    """Undo all journals of a run, holding the locks of all its data directories. All are checked first; if one is refused later,
    the result names those that were undone. uncommitted: further directories, in which a change was interrupted before it changed
    anything."""
    meant = [journal for journal in run.journals if journal.is_half_done or not options.go_on]
    paths = [journal.path for journal in meant]
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(log_dirs_of_journals(journal.location for journal in meant)))
            _check_all(() if options.go_on else paths, options)
        except KsegError as error:
            nothing = "" if len(paths) == 1 else f"; nothing of this run ({run.id}) was taken back"
            yield Failure(paths[0], f"{error}{nothing}", error.exit_status)
            return
        try:
            for directory in () if options.go_on else dict.fromkeys((*run.directories, *uncommitted)):
                _clear_undecided(directory, options)
        except KsegError as error:
            yield Failure(paths[0], str(error), error.exit_status)
            return
        for journal in run.journals:
            if journal.path not in paths or not has_traces(journal.location, DISK):
                continue  # already undone with the journal of its data directory
            for event in undo_journal(journal.path, options):
                if isinstance(event, Failure):
                    yield replace(event, sentence=event.sentence + _so_far(run))
                    return
                yield event


def _clear_undecided(directory: str, options: UndoOptions) -> None:
    """Remove uncommitted changes from a directory, keeping its modification time. Raises Refused."""
    for journal in journals_in(directory):
        if journal.state is JournalState.ABANDONED:
            with claimed_by_command(directory, options.follow_links):
                abandon(journal, DISK)


def _so_far(run: ChangeRun) -> str:
    """The part of a run that was undone, if a journal of it was refused."""
    left = [journal.location.directory for journal in run.journals if has_traces(journal.location, DISK)]
    done = [directory for directory in run.directories if directory not in left]
    if not done:
        return "; nothing else of this run was taken back"
    taken, waiting = listed(done, _DIRECTORIES_NAMED), listed([*dict.fromkeys(left)], _DIRECTORIES_NAMED)
    return f"; taken back: {taken}; not taken back: {waiting}; repeat the command to continue"


def list_runs(path: str) -> Iterator[Event]:
    """A row for each run that can be undone, newest first, and one with their totals."""
    try:
        runs, uncommitted = changes_below(path)
        held = 0
        for run in reversed(runs):
            row = run.row()
            held += int(str(row["bytes"]))
            yield Row({"type": "run"} | row)
        row = {"type": "runs", "command": COMMAND, "path": path, "runs": len(runs), "bytes": held}
        yield Row(row | {"uncommitted": uncommitted})
    except KsegError as error:
        yield Failure(path, str(error), error.exit_status)


# --- forgetting


def all_files(journal: Journal) -> list[str]:
    """All files of a journal, also those elsewhere: the journal itself, and what is kept for an undo. Raises UnreadableInput."""
    try:
        found = list(journal.location.files(DISK))
        with suppress(FormatError, Refused):
            elsewhere = journal.elsewhere(DISK)
            with quarantine_open(journal, elsewhere) as is_there:
                if is_there and elsewhere is not None:
                    found += [os.path.join(elsewhere, name) for name in DISK.names(elsewhere)]
    except OSError as error:
        raise cannot_read(journal.path, error) from error
    return list(dict.fromkeys(found))


def _occupied(path: str) -> int:
    """Disk space that removing this name would free. Raises UnreadableInput."""
    try:
        status = DISK.file_status(path)
    except OSError as error:
        raise cannot_read(path, error) from error
    if status is None or status.st_nlink > 1:
        return 0
    return min(status.st_size, status.st_blocks * 512)
