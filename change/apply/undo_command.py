"""`undo`: roll one journal back, or finish its change, as a stream of events."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from errno import ENOENT

from kseg.change.apply.copy_journal import clear_begun
from kseg.change.apply.disk import DISK, disk_for
from kseg.change.apply.executor import finish
from kseg.change.apply.journal import (
    Journal,
    JournalState,
    former_location,
    is_there,
    last_change_ns,
    read_journal,
)
from kseg.change.apply.journal_lines import COPY
from kseg.change.apply.journal_location import ID_TIME, JournalLocation
from kseg.change.apply.journal_scan import journals_in, location_of, locations_in
from kseg.change.apply.lock import claimed_by_command, lock_path, locked
from kseg.change.apply.recorded_change import abandon, half_done_sentence
from kseg.change.apply.undo import Watch, check_undo, undo, unwatched
from kseg.jobs.events import Event, Failure, Row
from kseg.segment.errors import KsegError, Refused, UnreadableInput, cannot_read
from kseg.segment.partition.names import KSEG_DIRECTORY, NAME_BY_ROLE, Role
from kseg.segment.partition.recognition import is_log_directory
from kseg.segment.partition.targets import PartitionTarget, log_dirs_around
from kseg.segment.terminal import shell_quoted
from kseg.segment.values import dataclass

COMMAND = "undo"
_MARKER = NAME_BY_ROLE[Role.CLEAN_SHUTDOWN]


@dataclass(frozen=True, slots=True)
class UndoOptions:
    """go_on: finish an incomplete change instead. follow_links: a directory may be a link. watch: called with the progress."""

    go_on: bool = False
    follow_links: bool = False
    watch: Watch = unwatched


def undo_journal(path: str, options: UndoOptions) -> Iterator[Event]:
    """Undo the change of a journal, or finish it. One row for each directory, whose result is the directory's path.

    path: of the journal, of its directory, or of a directory with a single journal. An undo that is not possible is a Failure.
    """
    disk = disk_for(options.follow_links)
    try:
        if _status(path, follow=False) is None and (begun := _begun_at(path)):
            for folder in begun:
                yield Row(_row(path, folder, "undone") | {"undid": "the copy", "files": []})
            return
        *abandoned, location = _journals_at(path)
        log_dirs = _log_dirs_of(location)
        with locked(log_dirs):
            if options.go_on:
                for applied in finish(location, disk):
                    row = _row(applied.directory, applied.journal, "finished")
                    yield Row(row | {"quarantine": applied.quarantine}, applied.directory)
            else:
                for log_dir in log_dirs:
                    _refuse_below_a_marker(location, log_dir)
                whole = next(filter(None, (_journal_around(location, log_dir) for log_dir in log_dirs)), None)
                for each in abandoned:
                    with claimed_by_command(each.directory, options.follow_links):
                        abandon(read_journal(each), DISK)
                for undone in undo(location, disk, options.watch):
                    row = {"undid": undone.command, "files": list(undone.files)}
                    if undone.kept:
                        row["kept"] = list(undone.kept)
                    more = (
                        {}
                        if whole is None
                        else {"whole_run": whole, "whole_run_lost": not os.path.lexists(whole)}
                    )
                    yield Row(_row(undone.directory, undone.journal, "undone") | row | more, undone.directory)
    except KsegError as error:
        yield Failure(path, str(error), error.exit_status)


def check_journal(path: str, options: UndoOptions) -> set[str]:
    """Raises Refused and UnreadableInput if `undo_journal` would be a Failure, as far as that is known in advance. Returns the paths of the
    journals that it undoes. The caller holds the locks of the data directories."""
    *_, location = _journals_at(path)
    for log_dir in _log_dirs_of(location):
        _refuse_below_a_marker(location, log_dir)
    return {each.journal for each in check_undo(location, disk_for(options.follow_links), options.watch)}


def log_dirs_of_journals(locations: Iterable[JournalLocation]) -> set[str]:
    """The data directories whose locks an undo of these journals needs, each checked once. Raises UnreadableInput."""
    one_of_each = {
        location if location.in_log_dir else os.path.dirname(os.path.abspath(location.directory)): location
        for location in locations
    }
    return {log_dir for each in one_of_each.values() for log_dir in _log_dirs_of(each)}


def _begun_at(path: str) -> list[str]:
    """Remove what a run that was killed at its start left for an output that does not exist. Raises Refused."""
    try:
        return clear_begun(path)
    except OSError as error:
        raise Refused(f"cannot remove the files kept with {path}: {error.strerror}") from error


def _row(directory: str, journal: str, state: str) -> dict[str, object]:
    return {"type": "result", "command": COMMAND, "directory": directory, "journal": journal, "state": state}


def _journal_around(location: JournalLocation, log_dir: str) -> str | None:
    """The journal of the data directory's own files from the run of a partition's journal: these files stay as the run set
    them if only the partition is undone. It may be missing."""
    if location.in_log_dir:
        return None
    around = os.path.dirname(location.directory) or os.curdir
    shown = around if os.path.abspath(around) == log_dir else log_dir  # as given by the user
    ours = [whole for whole in locations_in(shown) if whole.id.split("-end")[0] == location.id]
    return ours[-1].journal if ours else None


def _journals_at(path: str) -> list[JournalLocation]:
    """The journal at a path, after those of uncommitted changes next to it."""
    location = location_of(path)
    status = _status(path, follow=True)
    is_directory = status is not None and stat.S_ISDIR(status.st_mode)
    if location is not None:
        if not is_there(location, DISK) and not is_directory:
            lost = read_journal(location)
            if lost.state is JournalState.UNREADABLE:  # the files it kept are still there
                raise Refused(half_done_sentence(lost))
            raise UnreadableInput(f"cannot read {path}: there is no such journal")
        return [location]
    if status is None:
        raise UnreadableInput(f"cannot read {path}: {os.strerror(ENOENT)}")
    if not is_directory:
        # as after `recover FILE`
        words = "what was changed in its directory is undone with"
        more = _also_undone(path, lambda each: each.state is not JournalState.ABANDONED, words)
        raise UnreadableInput(f"{path} is not a kseg journal{more}")
    directory = path.rstrip(os.sep) or path
    if os.path.basename(directory) == KSEG_DIRECTORY:
        directory = os.path.dirname(directory) or os.curdir
    journals = journals_in(directory)
    abandoned = [journal.location for journal in journals if journal.state is JournalState.ABANDONED]
    journals = [journal for journal in journals if journal.state is not JournalState.ABANDONED]
    in_reach = [journal for journal in journals if journal.state is not JournalState.OUT_OF_REACH]
    if journals and not in_reach:
        raise Refused(half_done_sentence(journals[-1]))
    journals = [journal for journal in in_reach if journal.is_half_done] or in_reach
    followed = {former.id for journal in journals if (former := former_location(journal)) is not None}
    # a journal that another one follows is undone after that one
    journals = [journal for journal in journals if journal.location.id not in followed]
    if len(journals) > 1:
        journals.sort(key=last_change_ns)  # several can have ended within one second
        raise Refused(
            f"{path} contains {len(journals)} journals; name one of them, the newest first: {journals[-1].path}"
        )
    if not journals and not abandoned:
        words = "it was copied with others, which are removed together with"
        more = _also_undone(directory, lambda each: each.kind == COPY, words)
        raise UnreadableInput(f"{path} contains no kseg journal{more}")
    return [*abandoned, *(journal.location for journal in journals)]


def _also_undone(path: str, is_meant: Callable[[Journal], bool], words: str) -> str:
    """The end of a sentence about a path without a journal: what to undo instead, if the directory around it has such a journal."""
    around = os.path.dirname(path) or os.curdir
    try:
        is_there = any(map(is_meant, journals_in(around)))
    except KsegError:
        is_there = False
    return f"; {words}: kseg undo {shell_quoted(around)}" if is_there else ""


def _status(path: str, *, follow: bool) -> os.stat_result | None:
    """None if there is no such path. Raises UnreadableInput if that is unknown: a failing disk is not a missing file."""
    try:
        return os.stat(path, follow_symlinks=follow)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise cannot_read(path, error) from error


def _log_dirs_of(location: JournalLocation) -> list[str]:
    """The data directories whose locks exclude a broker: for a partition that was named through a link, also the one that really contains
    it."""
    if location.in_log_dir:
        # a lock file created here would keep the directory from being removed
        is_of_copies = read_journal(location).kind == COPY
        is_locked = not is_of_copies or os.path.lexists(lock_path(location.directory))
        return [location.directory] if is_locked else []
    return [*filter(is_log_directory, log_dirs_around(PartitionTarget(os.path.abspath(location.directory))))]


def _refuse_below_a_marker(location: JournalLocation, log_dir: str) -> None:
    """Raises Refused if a data directory was marked clean because of a repair that is to be undone: the
    broker would trust the marker, and a log that it does not check can lose its records (fact sheet §6.3d).

    A marker that was only restored, by the journal that had removed it, was there before the repair too."""
    marker = os.path.join(log_dir, _MARKER)
    if location.in_log_dir or not os.path.lexists(marker):
        return
    command = read_journal(location).command
    for journal in journals_in(log_dir):
        is_since = journal.location.id[:ID_TIME] >= location.id[:ID_TIME]
        is_new = former_location(journal) is None
        if is_since and is_new and journal.command == command and _has_written(journal, _MARKER):
            raise Refused(
                f"{marker} was written because of this repair, and would not be true without it: "
                f"`kseg undo {journal.path}` reverts both; without the marker, this can be undone alone"
            )


def _has_written(journal: Journal, name: str) -> bool:
    """Whether a completed change wrote a file of this name."""
    steps = journal.header.get("steps") or ()
    return journal.state is JournalState.DONE and any(
        isinstance(step, dict) and (step.get("do"), step.get("file")) == ("write", name) for step in steps
    )
