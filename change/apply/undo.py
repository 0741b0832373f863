"""Undo: restore a directory exactly as its journal found it.

1. Check: the directory is in the planned final state, or in a state that a killed change leaves; nothing was changed
   since (undo would discard what others wrote).
2. Hold: every file that the change touched gets a hard link in the local quarantine, as during the change. Files
   in a quarantine elsewhere are copied back and compared; so are the tails that truncations removed.
3. Write the line `undoing`: from now on only `undo` can continue.
4. Restore each touched file under its original name: append the removed tail, restore the modification time, one rename. Files
   that the change created are removed. Each of these is idempotent, and a crash may come between any two.
5. Check names, sizes and times against the files as found, and write the line `undone`. Then remove quarantine and
   journal, the journal last.

Undoing the journal of a data directory also undoes the partitions of its run, many at a time: all are checked before the first is
changed. It can name an earlier journal of its run, which is undone after it. Its own journal is removed last.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import ParamSpec, Protocol, TypeVar

from kseg.change.apply.disk import DISK, Disk
from kseg.change.apply.journal import (
    Journal,
    JournalState,
    former_location,
    has_traces,
    is_there,
    partition_journals,
    read_journal,
    spend_journals,
)
from kseg.change.apply.journal_lines import COPY, PLAN
from kseg.change.apply.journal_location import JournalLocation
from kseg.change.apply.journal_writer import append
from kseg.change.apply.keeping import DECIDED
from kseg.change.apply.lock import claimed_by_command
from kseg.change.apply.recorded_change import abandon, half_done_sentence, undo_command
from kseg.change.apply.room import out_of_room
from kseg.change.apply.signals import deferring_signals
from kseg.change.apply.undo_quarantine import UndoQuarantine
from kseg.segment.errors import Refused, disk_words
from kseg.segment.values import dataclass

_AT_A_TIME = 256  # partitions that are restored before their journals are removed

# called for the directories that are checked or restored: what is done with them, how many are done, and how many there are
Watch = Callable[[str, int, int], None]

P = ParamSpec("P")
R = TypeVar("R")
I = TypeVar("I")

_THREADS = 16
_OTHER_OPEN_FILES = 256  # those of threads, locks and journals, in addition to one per directory
_FEW = 8  # up to this number, directories are undone one after the other


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """The result of an undo. journal: the path of the one that was undone, removed by now. command: the one that made the change. files:
    names that were restored or removed. kept: the removed data, if only an unsigned journal claims that the change had written it (module
    undo_quarantine)."""

    directory: str
    journal: str
    command: str
    files: tuple[str, ...]
    kept: tuple[str, ...] = ()


class DirectoryUndo(Protocol):
    """The undo of one kind of journal; the methods are called in this order. All raise OSError and Refused. quarantine: keeps what
    it removes, where that is needed."""

    quarantine: UndoQuarantine

    def check(self) -> None:
        """Raise Refused if the undo would discard later writes. Changes nothing."""

    def hold(self) -> dict[str, int]:
        """Make sure that all originals are available; returns the inode that each name will hold."""

    def restore(self, holders: Mapping[str, int]) -> None:
        """Restore everything, and check that it is as found."""

    def clear(self) -> None:
        """Remove journal and quarantine."""

    def files(self) -> Iterator[str]:
        """The names that are restored or removed."""


def unwatched(_what: str, _done: int, _of: int) -> None:
    """For callers that do not show the progress of an undo."""


def undo(location: JournalLocation, disk: Disk = DISK, watch: Watch = unwatched) -> list[Undone]:
    """Undo a change, or continue undoing it, and then the change that preceded it in the same run. Returns one
    entry for each directory and change, the journal's own first.

    The caller holds the lock of the data directory. Raises Refused if there is no such journal, if a directory
    changed since, or with a sentence that explains how to continue.
    """
    if not has_traces(location, disk):
        raise Refused(f"there is no journal {location.journal}")
    former = former_location(read_journal(location, disk), disk)
    done, journal, undo_of = _all_back(location, disk, watch)
    mtime_ns = None
    if former is not None and is_there(former, disk):
        done += undo(former, disk, watch)
        with suppress(OSError):
            status = disk.status(location.directory)
            mtime_ns = None if status is None else status.st_mtime_ns
    with claimed_by_command(location.directory, disk.follow_links), deferring_signals():
        _clear(journal, undo_of, disk)
        # the time from before the former change, not from between the two
        if mtime_ns is not None:
            with suppress(OSError):
                disk.change_times(location.directory, mtime_ns)
    return done


def check_undo(
    location: JournalLocation, disk: Disk = DISK, watch: Watch = unwatched
) -> list[JournalLocation]:
    """Raises Refused if `undo` would, as far as that is known in advance. Returns the journals that it undoes: this one, those of
    the partitions, and the former one of the run with its partitions. The former one's own files can be checked only once this one
    is undone."""
    if not has_traces(location, disk):
        raise Refused(f"there is no journal {location.journal}")
    journal = read_journal(location, disk)
    locations = [location, *partition_journals(journal, disk)]
    former = former_location(journal, disk)
    if former is not None and is_there(former, disk):
        locations += partition_journals(read_journal(former, disk), disk)
    with ExitStack() as stack:
        _checked_undos(location, locations, disk, stack, watch)
    return locations if former is None else [*locations, former]


def _checked_undos(
    location: JournalLocation,
    locations: Sequence[JournalLocation],
    disk: Disk,
    stack: ExitStack,
    watch: Watch,
) -> "list[tuple[Journal, DirectoryUndo | None]]":
    """The undos of the journal at `location` and of others, all of which can be carried out; `stack` holds the claims on their
    directories."""
    directories = dict.fromkeys(each.directory for each in locations)
    _allow_open_files(len(directories))
    for directory in directories:
        stack.enter_context(claimed_by_command(directory, disk.follow_links))
    undos: list[tuple[Journal, DirectoryUndo | None]] = []
    for each in locations:
        undos.append(_undo_for(read_journal(each, disk), disk))
        watch("journals read", len(undos), len(locations))
    for number, (journal, undo_of) in enumerate(undos, 1):
        if undo_of is not None and journal.state is not JournalState.UNDONE:
            _guarded(location, False, undo_of.check)
        watch("directories checked", number, len(undos))
    return undos


def _allow_open_files(number: int) -> None:
    """Raise the limit of open files of this process, by default 1,024, if that is too low for the claims on so many directories. Raises
    Refused if the system does not allow as many."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = number + _OTHER_OPEN_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise Refused(
            f"cannot undo: {number:,} directories are undone together, which needs {needed:,} open files, and the limit is {hard:,}; "
            f"nothing was changed: repeat the command in a shell with a higher limit (`ulimit -n {needed}`)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _all_back(
    location: JournalLocation, disk: Disk, watch: Watch
) -> tuple[list[Undone], Journal, "DirectoryUndo | None"]:
    """Undo the change of one directory and of its partitions; only its own journal is left."""
    with ExitStack() as stack:
        locations = [location, *partition_journals(read_journal(location, disk), disk)]
        undos = _checked_undos(location, locations, disk, stack, watch)
        own, inside = undos[0], undos[1:]
        with deferring_signals():
            _put_back(*own, disk)
            done = [_undone(*own)]
            for at in range(0, len(inside), _AT_A_TIME):
                done += _inside_back(inside[at : at + _AT_A_TIME], disk)
                watch("directories restored", len(done), len(undos))
        return done, *own


def _inside_back(undos: "Sequence[tuple[Journal, DirectoryUndo | None]]", disk: Disk) -> list[Undone]:
    """Undo the changes of partitions; if one of them fails, the journals of the others are still removed."""
    restored: list[tuple[Journal, DirectoryUndo | None]] = []

    def put_back(undo_of: "tuple[Journal, DirectoryUndo | None]") -> Undone:
        _put_back(*undo_of, disk)
        restored.append(undo_of)
        return _undone(*undo_of)

    try:
        return _side_by_side(put_back, undos)
    finally:
        spend_journals([journal for journal, undo_of in restored if undo_of is not None], disk)
        _side_by_side(lambda undo_of: _remove(*undo_of, disk), restored)


def _undo_for(journal: Journal, disk: Disk) -> tuple[Journal, "DirectoryUndo | None"]:
    """The journal and its undo, which is None for a change that was never committed."""
    if journal.state in (JournalState.UNREADABLE, JournalState.OUT_OF_REACH):
        raise Refused(half_done_sentence(journal))
    if journal.state is JournalState.ABANDONED:
        return journal, None
    if journal.kind == COPY:
        from kseg.change.apply.copy_journal import CopyUndo

        return journal, CopyUndo(journal, disk)
    if journal.kind != PLAN:
        from kseg.change.apply.append_undo import AppendUndo

        return journal, AppendUndo(journal, disk)
    from kseg.change.apply.plan_undo import PlanUndo

    return journal, PlanUndo(journal, disk)


def _undone(journal: Journal, undo_of: DirectoryUndo | None) -> Undone:
    return Undone(
        directory=journal.location.directory,
        journal=journal.path,
        command=journal.command,
        files=() if undo_of is None else tuple(undo_of.files()),
        kept=() if undo_of is None else _guarded(journal.location, True, undo_of.quarantine.paths),
    )


def _put_back(journal: Journal, undo_of: DirectoryUndo | None, disk: Disk) -> None:
    if undo_of is None or journal.state is JournalState.UNDONE:
        return
    if journal.state is not JournalState.UNDOING:
        holders: Mapping[str, int] = _guarded(journal.location, False, undo_of.hold)
        line = {"type": "undoing", "holders": dict(holders)}
        _guarded(journal.location, False, append, journal, line, disk)
    else:
        holders = journal.holders
    _guarded(journal.location, True, undo_of.restore, holders)
    _guarded(journal.location, True, append, journal, {"type": "undone"}, disk)


def _clear(journal: Journal, undo_of: DirectoryUndo | None, disk: Disk) -> None:
    if undo_of is not None:
        spend_journals([journal], disk)
    _remove(journal, undo_of, disk)


def _remove(journal: Journal, undo_of: DirectoryUndo | None, disk: Disk) -> None:
    """Remove a journal that is spent, and what it kept."""
    if undo_of is None:
        abandon(journal, disk)
    else:
        _guarded(journal.location, True, undo_of.clear)


def _guarded(
    location: JournalLocation, is_decided: bool, action: Callable[P, R], *args: P.args, **kwargs: P.kwargs
) -> R:
    """Turn an OSError into a sentence that describes the state of the directory."""
    try:
        return action(*args, **kwargs)
    except OSError as error:
        where = location.directory if error.filename is None else str(error.filename)
        stands = "the undo is half done and nothing is lost" if is_decided else "nothing was changed"
        sentence = (
            f"cannot undo: {where}: {error.strerror}; {stands}: `{undo_command(location.journal)}` continues"
            f"{out_of_room(error, (), DECIDED)}{disk_words(error)}"
        )
        raise Refused(sentence) from error


def _side_by_side(work: Callable[[I], R], items: Sequence[I]) -> list[R]:
    """The result of `work` for each item, in order, with many items in threads: nearly all the time is spent waiting for the disk, and a
    file system commits the syncs of several threads together. An exception is raised once the items that have begun are done; no further
    item begins after it."""
    if len(items) <= _FEW:
        return list(map(work, items))
    from concurrent.futures import FIRST_EXCEPTION, wait

    from kseg.jobs.threads import WorkerThreads

    with WorkerThreads(_THREADS) as threads:
        results = [threads.submit(work, item) for item in items]
        done = wait(results, return_when=FIRST_EXCEPTION).done
        for result in results:
            if result in done:
                result.result()
    return [result.result() for result in results]
