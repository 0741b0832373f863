"""The way back: a directory exactly as its journal found it.

1. Check: the directory is at the planned end, or in a state of the course when the change was killed; nothing was
   changed since (then going back would throw away what somebody wrote).
2. Hold: every file that the change touched gets a second name in the local quarantine, as during the change. What lies
   in a quarantine elsewhere is copied back and compared; so are the tails that truncations cut off.
3. Write the line `undoing`: from now on only `undo` again goes on.
4. Restore each touched file under its name as found: append what was cut off, take the time back, one rename. What the
   change made new goes. Each of these can be done twice, and their order does not matter to a kill.
5. Check names, sizes and times against the files as found, and write the line `undone`. Then remove quarantine and
   journal, the journal last.

The journal of a data directory also takes back what its run did in the partitions it names: all are checked before the
first is touched. And it can name an earlier journal of its run, which is undone behind it. Its own journal goes last.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import ParamSpec, Protocol, TypeVar

from kseg.change.apply.disk import DISK, Disk, checksum, copy, copy_file, link_or_copy, remove_quietly
from kseg.change.apply.journal import (
    Journal,
    JournalPlace,
    JournalState,
    append,
    former_place,
    has_traces,
    is_there,
    partition_places,
    read_journal,
)
from kseg.change.apply.journal_lines import COPY, PLAN
from kseg.change.apply.lock import claimed_by_command
from kseg.change.apply.proof import check_removable, has_other_names, is_copy, may_grow
from kseg.change.apply.recorded_change import (
    abandon,
    change_of,
    give_back_time,
    half_done_sentence,
    undo_command,
)
from kseg.change.apply.signals import undisturbed
from kseg.change.apply.staging import Staged, look, tail_path
from kseg.change.apply.step_progress import Seen, Tail, Token, is_alike
from kseg.segment.errors import Refused
from kseg.segment.values import dataclass

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What was taken back. directory: as it was before. journal: which is gone now. command: whose change it was.
    files: names that hold again what they held, or hold nothing again."""

    directory: str
    journal: str
    command: str
    files: tuple[str, ...]


class WayBack(Protocol):
    """How one kind of journal is undone; the methods are called in this order. All raise OSError and Refused."""

    def check(self) -> None:
        """Raise Refused when going back would throw away what somebody wrote since. Changes nothing."""

    def hold(self) -> dict[str, int]:
        """Make sure that everything needed is at hand; by name as found, the inode that the name will hold."""

    def restore(self, holders: Mapping[str, int]) -> None:
        """Put everything back, and check that it is as found."""

    def clear(self) -> None:
        """Remove journal and quarantine."""

    def files(self) -> Iterator[str]:
        """The names that are put back or taken away."""


def undo(place: JournalPlace, disk: Disk = DISK) -> list[Undone]:
    """Take back a change, or go on with taking it back, and then the change that it followed in the same run. One
    entry for each directory and change, the journal's own first.

    The lock of the data directory is the caller's. Raises Refused when there is no such journal, when a directory
    changed since, or with a sentence that says how to go on.
    """
    if not has_traces(place, disk):
        raise Refused(f"there is no journal {place.journal}")
    former = former_place(read_journal(place, disk), disk)
    done, journal, way = _all_back(place, disk)
    mtime_ns = None
    if former is not None and is_there(former, disk):
        done += undo(former, disk)
        status = disk.status(place.directory)
        mtime_ns = None if status is None else status.st_mtime_ns
    with claimed_by_command(place.directory, disk.follow_links), undisturbed():
        _clear(journal, way, disk)
        if mtime_ns is not None:  # from before the former change, not from between the two
            with suppress(OSError):
                disk.change_times(place.directory, mtime_ns)
    return done


def _all_back(place: JournalPlace, disk: Disk) -> tuple[list[Undone], Journal, "WayBack | None"]:
    """Put back what the change of one directory did there and in its partitions; only its own journal is left."""
    inside = partition_places(read_journal(place, disk), disk)
    begun = [
        replace(each, in_log_dir=True) for each in inside if each.home is None
    ]  # killed before its directory was made
    places = [
        place,
        *(each for each in inside if has_traces(each, disk)),
        *(each for each in begun if is_there(each, disk)),
    ]
    with ExitStack() as stack:
        for directory in dict.fromkeys(each.directory for each in places):
            stack.enter_context(claimed_by_command(directory, disk.follow_links))
        ways = [_way_back(read_journal(each, disk), disk) for each in places]
        for journal, way in ways:
            if way is not None and journal.state is not JournalState.UNDONE:
                _guarded(place, False, way.check)
        done = [_undone(journal, way) for journal, way in ways]
        with undisturbed():
            for journal, way in ways:
                _put_back(journal, way, disk)
                if journal.place != place:
                    _clear(journal, way, disk)
        return done, *ways[0]


def _way_back(journal: Journal, disk: Disk) -> tuple[Journal, "WayBack | None"]:
    """None for a change that was never decided."""
    if journal.state in (JournalState.UNREADABLE, JournalState.OUT_OF_REACH):
        raise Refused(half_done_sentence(journal))
    if journal.state is JournalState.ABANDONED:
        return journal, None
    if journal.kind == COPY:
        from kseg.change.apply.copy_journal import CopyWayBack

        return journal, CopyWayBack(journal, disk)
    if journal.kind != PLAN:
        from kseg.change.apply.append_undo import GuardWayBack

        return journal, GuardWayBack(journal, disk)
    return journal, _PlanWayBack(journal, disk)


def _undone(journal: Journal, way: WayBack | None) -> Undone:
    return Undone(
        directory=journal.place.directory,
        journal=journal.path,
        command=journal.command,
        files=() if way is None else tuple(way.files()),
    )


def _put_back(journal: Journal, way: WayBack | None, disk: Disk) -> None:
    if way is None or journal.state is JournalState.UNDONE:
        return
    if journal.state is not JournalState.UNDOING:
        holders: Mapping[str, int] = _guarded(journal.place, False, way.hold)
        line = {"type": "undoing", "holders": dict(holders)}
        _guarded(journal.place, False, append, journal, line, disk)
    else:
        holders = journal.holders
    _guarded(journal.place, True, way.restore, holders)
    _guarded(journal.place, True, append, journal, {"type": "undone"}, disk)


def _clear(journal: Journal, way: WayBack | None, disk: Disk) -> None:
    if way is None:
        abandon(journal, disk)
    else:
        _guarded(journal.place, True, way.clear)


def _guarded(
    place: JournalPlace, is_decided: bool, action: Callable[P, R], *args: P.args, **kwargs: P.kwargs
) -> R:
    """An error of the system as one sentence that says how things stand."""
    try:
        return action(*args, **kwargs)
    except OSError as error:
        where = place.directory if error.filename is None else str(error.filename)
        stands = "the undo is half done and nothing is lost" if is_decided else "nothing was changed"
        sentence = (
            f"cannot undo: {where}: {error.strerror}; {stands}: `{undo_command(place.journal)}` goes on"
        )
        raise Refused(sentence) from error


class _PlanWayBack:
    """The way back of a planned change."""

    def __init__(self, journal: Journal, disk: Disk) -> None:
        change = change_of(journal, disk)
        assert change.staged is not None
        self._change = change
        self._staged: Staged = change.staged
        self._course = change.course
        self._place = journal.place
        self._disk = disk
        self._tails: dict[str, list[Tail]] = {}
        for tail in change.course.tails:
            if tail.length:
                self._tails.setdefault(tail.name, []).append(tail)

    def files(self) -> Iterator[str]:
        yield from self._course.touched
        yield from self._course.made

    # --- before

    def check(self) -> None:
        actual = look(self._place.directory, self._disk)
        if self._change.journal.state is JournalState.DONE:
            expected = self._course.end_state(self._staged.files)
            wrong = [
                name for name in {*actual, *expected} if not is_alike(actual.get(name), expected.get(name))
            ]
        else:
            wrong = self._off_the_way(actual)
        if wrong:
            more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            raise Refused(
                f"{self._place.target(min(wrong))}{more} changed since {self._change.journal.command} was here; "
                f"undoing {self._place.journal} would throw that away"
            )

    def _off_the_way(self, actual: Mapping[str, Seen]) -> list[str]:
        """Names that hold what neither the change nor its undo has put there."""
        may = self._course.tokens()
        return [
            name
            for name in {*may, *actual}
            if not any(self._can_be(actual.get(name), token) for token in may.get(name, {None}))
        ]

    def _can_be(self, seen: Seen | None, token: Token | None) -> bool:
        if seen is None or token is None:
            return seen is None and token is None
        if isinstance(token, int):
            return is_alike(seen, self._staged.files.get(token))
        found = self._course.inputs[token]
        if token not in self._tails:
            return (seen.size_bytes, seen.mtime_ns) == (found.size_bytes, found.mtime_ns)
        sizes = self._course.sizes(token)
        is_growing = self._change.journal.state is JournalState.UNDOING
        return min(sizes) <= seen.size_bytes <= max(sizes) if is_growing else seen.size_bytes in sizes

    def hold(self) -> dict[str, int]:
        with self._change.quarantine_elsewhere():
            return self._held()

    def _held(self) -> dict[str, int]:
        for tails in self._tails.values():
            for tail in tails:
                self._check_tail(tail)
        made: list[str] = []
        try:
            now = self._survivors()
            holders = {name: self._hold(name, now.get(name), made) for name in self._course.touched}
            for path in self._place.directories[-1:] or (self._place.directory,):
                self._disk.sync_directory(path)
            check_removable(self._place, self._course, self._staged, holders, self._disk)
        except BaseException:
            for path in made:
                remove_quietly(self._disk, path)
            raise
        return holders

    def _check_tail(self, tail: Tail) -> None:
        path = tail_path(self._place, self._change.elsewhere, tail.name, tail.position)
        try:
            descriptor = self._disk.open_to_read(path)
            try:
                crc = checksum(self._disk, descriptor, 0, tail.length)
            finally:
                self._disk.close(descriptor)
        except OSError as error:
            raise Refused(f"cannot undo: {path}: {error.strerror}; nothing was changed") from error
        if crc != self._staged.tails[tail.number]:
            raise Refused(f"cannot undo: {path} is not what was taken out; nothing was changed")

    def _survivors(self) -> dict[str, str]:
        """What the found files that are in the directory are called now."""
        if self._change.journal.state is JournalState.DONE:
            return self._course.survivors
        actual = look(self._place.directory, self._disk)
        names = {seen.inode: name for name, seen in actual.items()}
        return {name: names[file.inode] for name, file in self._course.inputs.items() if file.inode in names}

    def _hold(self, name: str, now: str | None, made: list[str]) -> int:
        """See to it that the quarantine beside the journal has a found file; its inode there. now: its name in the
        directory, None when it is not there."""
        disk, path, found = self._disk, self._place.old(name), self._course.inputs[name]
        status = disk.status(path)
        is_copied = name in self._staged.copied
        if (
            status is not None
            and stat.S_ISREG(status.st_mode)
            and not is_copied
            and status.st_ino in (found.inode, self._staged.kept.get(name))
        ):
            is_as_found = (status.st_size, status.st_mtime_ns) == (found.size_bytes, found.mtime_ns)
            if not is_as_found and name not in self._tails:
                raise Refused(f"cannot undo: {path} is not what was taken out; nothing was changed")
            return status.st_ino
        if is_copied and self._change.elsewhere is not None:
            source = os.path.join(self._change.elsewhere, name)
        elif now is not None:
            source = self._place.target(now)
        else:
            raise Refused(f"cannot undo: {path} is gone; nothing was changed")
        if status is not None:  # left by an undo that was killed while it copied
            if not stat.S_ISREG(status.st_mode) or not is_copy(path, source, 0, disk):
                raise Refused(f"cannot undo: {path} is not what was taken out; nothing was changed")
            disk.unlink(path)
        made.append(path)
        if not is_copied:
            return link_or_copy(disk, source, path)
        if copy_file(disk, source, path) != self._staged.copied[name]:
            raise Refused(f"cannot undo: {source} is not what was taken out; nothing was changed")
        held = disk.status(path)
        return -1 if held is None else held.st_ino

    # --- decided

    def restore(self, holders: Mapping[str, int]) -> None:
        if self._change.journal.state is JournalState.UNDOING:  # else `hold` has just looked
            check_removable(self._place, self._course, self._staged, holders, self._disk)
        with self._change.quarantine_elsewhere():
            self._restore(holders)

    def _restore(self, holders: Mapping[str, int]) -> None:
        disk = self._disk
        for name in self._course.touched:
            target, holder = self._place.target(name), self._place.old(name)
            status = disk.status(target)
            is_there = status is not None and status.st_ino == holders[name]
            path = target if is_there else holder
            for tail in self._tails.get(name, ()):
                self._append_tail(tail, path)
            disk.change_times(path, self._course.inputs[name].mtime_ns)
            if not is_there:
                disk.rename(holder, target)
        for name in self._course.made:
            remove_quietly(disk, self._place.target(name))
        disk.sync_directory(self._place.directory)
        if not self._is_restored_by(holders):
            journal = self._place.journal
            raise Refused(f"{self._place.directory} is not as it was found, though {journal} was undone")

    def _is_restored_by(self, holders: Mapping[str, int]) -> bool:
        """Whether every file is as found; one that was touched is told from what replaced it by its inode."""
        actual = look(self._place.directory, self._disk)
        return actual.keys() == self._course.inputs.keys() and all(
            (seen.size_bytes, seen.mtime_ns) == (file.size_bytes, file.mtime_ns)
            and seen.inode == holders.get(name, seen.inode)
            for name, seen in actual.items()
            for file in (self._course.inputs[name],)
        )

    def _append_tail(self, tail: Tail, path: str) -> None:
        disk, tail_file = self._disk, tail_path(self._place, self._change.elsewhere, tail.name, tail.position)
        if not may_grow(path, tail_file, tail.position, disk):
            raise Refused(f"cannot undo: {path} goes on with something else than {tail_file}")
        names = map(self._place.target, (*self._course.touched, *self._course.made))
        if has_other_names(path, (self._place.old(tail.name), *names), disk):
            raise Refused(
                f"cannot undo: {path} has a second name elsewhere (a hard link), which would grow too"
            )
        source = disk.open_to_read(tail_file)
        try:
            target = disk.open_to_write(path)
            try:
                copy(disk, source, 0, tail.length, target, tail.position)
                disk.sync(target)
            finally:
                disk.close(target)
        finally:
            disk.close(source)

    def clear(self) -> None:
        self._change.clear(self._disk)
        give_back_time(self._change.journal, self._disk)
