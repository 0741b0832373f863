"""The disk space that a change needs on each file system, checked before it begins.

Counted in whole blocks: the journal and its directories, new files, copies of truncated tails, and with a quarantine elsewhere copies
of all removed files. Hard links take no space. Files that were written during planning have their space already; a plan that is only
shown counts them, because they are gone when it is applied. Bytes that a new file takes over from another one count unless they
are a hole, and only if the file system cannot share blocks (`_COPIES`). So a change may need less than this. The growth of a
directory itself is not counted: if the system runs out of space all the same, the change is cleaned up with the same message.

A file system may have free bytes but no free inode for another file. The count of inodes is a minimum: if a hard link takes one
too (tmpfs), only the attempt shows it.
"""

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

from kseg.change.apply.disk import DISK, closing
from kseg.change.apply.keeping import DECIDED, Keeping
from kseg.change.apply.step_progress import StepProgress, Tail
from kseg.change.plan.content import Fresh, Made, Span
from kseg.change.plan.steps import Plan, Rename, Step, Truncate, Write
from kseg.segment.counted import counted
from kseg.segment.errors import Refused
from kseg.segment.json_line import json_line
from kseg.segment.mounts import mounts
from kseg.segment.values import dataclass

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_COPIES = frozenset(("ext2", "ext3", "ext4", "tmpfs", "vfat", "exfat"))  # file systems without shared blocks
_DIRECTORIES = 4  # directories created around a journal in a partition
# Upper bounds, without names and reasons, for an input and for a step (or a piece of one) in the journal's first line.
_INPUT_BYTES, _STEP_BYTES = 8, 96
_LINE_BYTES = 160  # upper bound, for a file in the journal's later lines
_SECTOR_BYTES = 512  # unit of st_blocks
_PRINTABLE = bytes(range(0x20, 0x7F))  # each is one byte in JSON
FEW_INODES = 1000  # with fewer, a change of a few dozen partitions may fail


@dataclass(frozen=True, slots=True)
class Room:
    """Needed and free space on one file system. path: a directory on it that the user knows. needed_files: the least number of new
    files. free_files: as in `FileSystem`."""

    path: str
    needed_bytes: int
    free_bytes: int
    needed_files: int = 0
    free_files: int | None = None

    @property
    def is_enough(self) -> bool:
        return self.needed_bytes <= self.free_bytes and not self.lacks_inodes

    @property
    def lacks_inodes(self) -> bool:
        return self.free_files is not None and self.needed_files > self.free_files

    def as_row(self) -> dict[str, object]:
        row: dict[str, object] = {"path": self.path, "needed": self.needed_bytes, "fits": self.is_enough}
        if self.lacks_inodes:
            row |= {"needed_files": self.needed_files, "free_files": self.free_files}
        return row if self.is_enough else {**row, "free": self.free_bytes}


def rooms_of(plan: Plan, keeping: Keeping, steps: Sequence[Step] | None = None) -> tuple[Room, ...]:
    """The space that a plan needs, by file system. steps: those that are taken now; None: the plan is only shown. A file system
    whose free space is unknown is left out."""
    taken = plan.steps if steps is None else steps
    journal_at = keeping.journal_dir or plan.directory
    kept_at = keeping.quarantine or plan.directory
    needs = [(journal_at, length) for length in _of_journal(plan, taken, keeping)]
    writes = [step for step in taken if isinstance(step, Write)]
    needs += [(plan.directory, length) for length in _of_writes(plan.directory, writes)]
    made, of_it_here = _made_bytes(plan.directory, writes) if steps is None else (0, 0)
    needs += [(plan.directory, made)]
    kept = _kept(plan, taken, keeping)
    needs += [(kept_at, length) for length in kept]
    around_journal = _directories_around_journal(keeping) + 1
    files = [(journal_at, around_journal), (plan.directory, len(writes)), (kept_at, len(kept))]
    rooms = rooms_for(needs, files)
    # the files staged so far exist now, and will be gone
    return tuple(
        replace(r, free_bytes=r.free_bytes + of_it_here) if of_it_here and r.path == plan.directory else r
        for r in rooms
    )


def refuse_without(rooms: Iterable[Room], directory: str, keeping: Keeping) -> None:
    """Raises Refused when a file system has too little; nothing has changed then."""
    for room in rooms:
        if not room.is_enough and not _can_be_had(room):
            raise Refused(
                f"{directory}: {_sentence(room)}; nothing was changed; {_advice_for([room], directory, keeping)}"
            )


def _can_be_had(room: Room) -> bool:
    """Whether there is enough room after all: root may use the reserved blocks of a file system, and only an attempt shows how many.
    The attempt allocates them for an unnamed file, which it closes immediately."""
    if os.geteuid() != 0 or room.lacks_inodes:
        return False
    there = os.path.realpath(room.path)
    while not os.path.isdir(there):
        there = os.path.dirname(there)
    descriptor = DISK.create_nameless(there)
    if descriptor is None:
        return True  # unknown without an attempt
    try:
        os.posix_fallocate(descriptor, 0, room.needed_bytes)
    except OSError as error:
        return error.errno not in _NO_ROOM
    finally:
        DISK.close(descriptor)
    return True


def advice(keeping: Keeping) -> str:
    """The sentence that suggests what to do."""
    options = [
        name
        for name, value in (("--journal DIR", keeping.journal_dir), ("--quarantine DIR", keeping.quarantine))
        if value is None
    ]
    elsewhere = f"{' and '.join(options)} put what is kept on another file system, " if options else ""
    return f"{elsewhere}`kseg retain --purge --apply` deletes what is marked, and `kseg retain --free SIZE` chooses what to delete"


def _advice_for(short: Sequence[Room], directory: str, keeping: Keeping) -> str:
    """Like `advice`, where file systems are too small for a change of `directory`: if it is on none of them, nothing is deleted there."""
    own = file_system_of(directory)
    if (
        own is None
        or not short
        or own.device in {on.device for room in short if (on := file_system_of(room.path))}
    ):
        return advice(keeping)
    return "make room there, or name a directory on another file system with --journal and --quarantine"


def out_of_room(error: OSError, rooms: Sequence[Room], keeping: Keeping, directory: str = "") -> str:
    """The text to add to an OSError if the file system is full; otherwise empty. directory: the one that changes."""
    if error.errno not in _NO_ROOM:
        return ""
    if error.errno == errno.EDQUOT:  # a quota is used up, not the file system
        return f"; {advice(keeping)}"
    now = list(map(_as_it_is_now, rooms))
    short = [room for room in now if not room.is_enough]
    needed = "".join(f"; {_sentence(room)}" for room in short or now)
    return f"{needed}; {_advice_for(short, directory, keeping)}"


def _as_it_is_now(room: Room) -> Room:
    """`room` with the space that is free now; if the bytes would suffice, inodes are missing."""
    now = file_system_of(room.path)
    if now is None:
        return room
    needed_files, free_files = room.needed_files, now.free_files
    if now.free_bytes >= room.needed_bytes and free_files is not None and free_files < FEW_INODES:
        needed_files = max(needed_files, free_files + 1)
    return replace(room, free_bytes=now.free_bytes, needed_files=needed_files, free_files=now.free_files)


def out_of_room_writing(error: OSError, path: str, least_bytes: int) -> str:
    """Like `out_of_room`, for a file that is written while a change is planned. least_bytes: the minimum that it needs."""
    if error.errno not in _NO_ROOM:
        return ""
    if error.errno == errno.EDQUOT:
        return f"; {advice(DECIDED)}"
    rooms = map(_as_it_is_now, rooms_for([(path, least_bytes)], [(path, 1)]))
    needed = "".join(
        f"; {_sentence(room, 'there', ' or more')}"
        for room in rooms
        if room.needed_bytes or room.lacks_inodes
    )
    return f"{needed}; {advice(DECIDED)}"


def _sentence(room: Room, where: str = "", or_more: str = "") -> str:
    where = where or f"on the file system of {room.path}"
    if room.lacks_inodes:
        files = counted(room.needed_files, "new file")
        return f"inodes for {files} or more are needed {where}, and {room.free_files:,} are free"
    return f"{room.needed_bytes:,} bytes{or_more} are needed {where}, and {room.free_bytes:,} are free"


def _of_journal(plan: Plan, steps: Sequence[Step], keeping: Keeping) -> list[int]:
    """The sizes that the journal takes, counted without encoding it: a plan may have tens of thousands of files."""
    changed = {step.name for step in steps} | {step.new_name for step in steps if isinstance(step, Rename)}
    numbers = [f"{file.size_bytes}{file.mtime_ns}{file.inode}" for file in plan.inputs]
    texts = [*numbers, *(file.name for file in plan.inputs), *changed, plan.directory]
    items = len(steps)
    for step in steps:
        texts += (step.name, step.why)
        if isinstance(step, Rename):
            texts.append(step.new_name)
        elif isinstance(step, Write):
            texts += (piece.name for piece in step.content if isinstance(piece, Span))
            items += len(step.content)
    text = "".join(texts)
    is_plain = text.isascii() and not text.encode().translate(None, _PRINTABLE)
    text_bytes = len(text) if is_plain else 6 * len(text)  # upper bound as JSON
    reasons = sum(len(json_line(finding.as_row())) for finding in plan.reasons)
    lines = len(plan.inputs) * _INPUT_BYTES + items * _STEP_BYTES + (len(changed) + 2) * _LINE_BYTES
    directories = [1] * _directories_around_journal(keeping)
    return [text_bytes + reasons + lines, *directories]


def _directories_around_journal(keeping: Keeping) -> int:
    return 2 if keeping.journal_dir else _DIRECTORIES


def _kept(plan: Plan, steps: Sequence[Step], keeping: Keeping) -> list[int]:
    """The sizes of the copies of what the plan removes."""
    if keeping.quarantine is None and not any(isinstance(step, Truncate) for step in steps):
        return []  # hard links keep everything that is removed
    progress = StepProgress(plan.inputs, steps)
    lost = progress.lost if keeping.quarantine is not None else ()
    return [
        *(_data_bytes(plan.directory, tail) for tail in progress.tails),
        *(_occupied(plan.directory, name, 1 << 63) for name in lost),
    ]


def _data_bytes(directory: str, tail: Tail) -> int:
    """The size of a tail without holes: copies keep holes, which preallocated logs have."""
    with (
        suppress(OSError),
        closing(DISK, DISK.open_to_read(os.path.join(directory, tail.name))) as descriptor,
    ):
        return sum(length for _, length in DISK.data_extents(descriptor, tail.position, tail.length))
    return tail.length


def _made_bytes(directory: str, writes: Sequence[Write]) -> tuple[int, int]:
    """(bytes staged in advance, how many of them are on the file system of the directory)."""
    pieces = [piece for step in writes for piece in step.content if isinstance(piece, Made)]
    if not pieces:
        return 0, 0
    total = sum(piece.length for piece in pieces)
    with suppress(OSError):
        device = os.stat(directory).st_dev
        return total, sum(p.length for p in pieces if os.fstat(p.descriptor).st_dev == device)
    return total, 0


def _of_writes(directory: str, writes: Sequence[Write]) -> Iterator[int]:
    shares: bool | None = None
    for step in writes:
        if len(step.content) == 1 and isinstance(step.content[0], Made):
            continue
        yield sum(piece.length for piece in step.content if isinstance(piece, Fresh))
        spans = [piece for piece in step.content if isinstance(piece, Span)]
        if spans and shares is None:
            shares = not _copies(directory)
        if not shares:
            for name in {piece.name for piece in spans}:
                wanted = sum(piece.length for piece in spans if piece.name == name)
                yield _occupied(directory, name, wanted)


def _occupied(directory: str, name: str, most: int) -> int:
    with suppress(OSError):
        status = os.lstat(os.path.join(directory, name))
        return min(most, status.st_size, status.st_blocks * _SECTOR_BYTES)
    return 0


def rooms_for(needs: Iterable[tuple[str, int]], files: Iterable[tuple[str, int]] = ()) -> tuple[Room, ...]:
    """The space that files of these lengths need in directories, by file system. files: how many new ones there are, by directory."""
    lengths: dict[str, list[int]] = {}
    for path, length in needs:
        if length:
            lengths.setdefault(path, []).append(length)
    counts: dict[str, int] = {}
    for path, number in files:
        counts[path] = counts.get(path, 0) + number
    found: dict[int, Room] = {}
    for path in dict.fromkeys([*lengths, *(path for path, number in counts.items() if number)]):
        on = file_system_of(path)
        if on is not None:
            blocks = sum([-(-length // on.block_bytes) for length in lengths.get(path, ())])
            needed_bytes, needed_files = blocks * on.block_bytes, counts.get(path, 0)
            room = found.get(on.device)
            found[on.device] = (
                Room(path, needed_bytes, on.free_bytes, needed_files, on.free_files)
                if room is None
                else replace(
                    room,
                    needed_bytes=room.needed_bytes + needed_bytes,
                    needed_files=room.needed_files + needed_files,
                )
            )
    return tuple(found.values())


def rooms_for_copy(source: str, path: str) -> tuple[Room, ...]:
    """The space that a copy of a directory with its holes needs at `path`; nothing if the directory cannot be listed."""
    names: list[str] = []
    with suppress(OSError):
        names = DISK.names(source)
    return rooms_for((os.path.dirname(path), _occupied(source, name, 1 << 63)) for name in names)


@dataclass(frozen=True, slots=True)
class FileSystem:
    """free_bytes: for an ordinary user. free_files: how many can be created; None without such a limit."""

    device: int
    block_bytes: int
    free_bytes: int
    free_files: int | None = None


def file_system_of(path: str) -> FileSystem | None:
    """The file system of a path that exists or will be created; None where its free space is unknown."""
    with suppress(OSError):
        try:
            status = os.statvfs(path)
        except FileNotFoundError:
            path = os.path.realpath(path)
            while not os.path.lexists(path):
                path = os.path.dirname(path)
            status = os.statvfs(path)
        return FileSystem(
            os.stat(path).st_dev,
            status.f_frsize,
            status.f_bavail * status.f_frsize,
            status.f_favail if status.f_files else None,
        )
    return None


def _copies(directory: str) -> bool:
    """Whether a file system is known to copy bytes that another would share."""
    with suppress(OSError):
        return _is_of_copies(os.stat(directory).st_dev)
    return False


@lru_cache(maxsize=64)
def _is_of_copies(device: int) -> bool:
    """Like `_copies`, for a device; determined once per process."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    return any(mount.type in _COPIES for mount in mounts() if mount.device == wanted)
