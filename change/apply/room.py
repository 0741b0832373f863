"""How much room a change needs on each file system before it begins, and how much there is.

Counted in whole blocks: the journal and the directories around it, new files, copies of what is cut off, and with a quarantine
elsewhere of all that is taken out. Second names take none. Files that were made while the change was planned have theirs already; a
plan that is only shown counts them, for they are gone when it is carried out. Bytes that a new file takes over from another count as far as they are no hole, and only where the file system cannot
share blocks (`_COPIES`). So a change may need less than this, and what a directory itself grows by comes on top: where the system
runs out of room all the same, what was begun is cleared away and the sentence is the same.
"""

import errno
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

from kseg.change.apply.disk import DISK
from kseg.change.apply.journal_lines import encoded
from kseg.change.apply.keeping import Keeping
from kseg.change.apply.step_progress import Course, written
from kseg.change.plan.content import Fresh, Made, Span
from kseg.change.plan.steps import Plan, Step, Write, step_row
from kseg.segment.errors import Refused
from kseg.segment.partition.names import Role, parse_file_name
from kseg.segment.values import dataclass

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_COPIES = frozenset(("ext2", "ext3", "ext4", "tmpfs", "vfat", "exfat"))  # file systems without shared blocks
_OURS = (Role.LOCK, Role.KSEG_JOURNAL)
_DIRECTORIES = 4  # around a journal in a partition
_LINE_BYTES = 160  # at most, of a file in the journal's later lines, names apart
_SECTOR_BYTES = 512  # of st_blocks


@dataclass(frozen=True, slots=True)
class Room:
    """On one file system. path: a directory on it that the user knows."""

    path: str
    needed_bytes: int
    free_bytes: int

    @property
    def is_enough(self) -> bool:
        return self.needed_bytes <= self.free_bytes

    def as_row(self) -> dict[str, object]:
        row: dict[str, object] = {"path": self.path, "needed": self.needed_bytes, "fits": self.is_enough}
        return row if self.is_enough else {**row, "free": self.free_bytes}


def rooms_of(plan: Plan, keeping: Keeping, steps: Sequence[Step] | None = None) -> tuple[Room, ...]:
    """What carrying out a plan needs. steps: those that are taken now; None: the plan is only shown. A file system that says
    nothing of itself is left out."""
    inputs = [file for file in plan.inputs if parse_file_name(file.name).role not in _OURS]
    course = Course(inputs, plan.steps if steps is None else steps)
    journal_at = keeping.journal_dir or plan.directory
    kept_at = keeping.quarantine or plan.directory
    needs = [(journal_at, length) for length in _of_journal(plan, course, keeping)]
    shares = not _copies(plan.directory)
    needs += [(plan.directory, _of_write(plan.directory, step, shares)) for _, step in written(course)]
    made, of_it_here = _made_bytes(plan.directory, course) if steps is None else (0, 0)
    needs += [(plan.directory, made)]
    needs += [(kept_at, tail.length) for tail in course.tails]
    if keeping.quarantine is not None:
        needs += [(kept_at, _occupied(plan.directory, name, 1 << 63)) for name in course.lost]
    rooms = _by_file_system(needs)
    # what was made lies there at this moment, and will be gone
    return tuple(
        replace(r, free_bytes=r.free_bytes + of_it_here) if r.path == plan.directory else r for r in rooms
    )


def refuse_without(rooms: Iterable[Room], directory: str, keeping: Keeping) -> None:
    """Raises Refused when a file system has too little; nothing has changed then."""
    for room in rooms:
        if not room.is_enough and not _can_be_had(room):
            raise Refused(f"{directory}: {_sentence(room)}; nothing was changed; {advice(keeping)}")


def _can_be_had(room: Room) -> bool:
    """Whether there is room all the same: root may use what a file system reserves for it, of which only the attempt tells how
    much that is. What is allocated for it has no name and is gone at once."""
    if os.geteuid() != 0:
        return False
    there = os.path.realpath(room.path)
    while not os.path.isdir(there):
        there = os.path.dirname(there)
    descriptor = DISK.create_nameless(there)
    if descriptor is None:
        return True  # nobody can tell before
    try:
        os.posix_fallocate(descriptor, 0, room.needed_bytes)
    except OSError as error:
        return error.errno not in _NO_ROOM
    finally:
        DISK.close(descriptor)
    return True


def advice(keeping: Keeping) -> str:
    """What helps."""
    options = [
        name
        for name, value in (("--journal DIR", keeping.journal_dir), ("--quarantine DIR", keeping.quarantine))
        if value is None
    ]
    elsewhere = f"{' and '.join(options)} put what is kept on another file system, " if options else ""
    return f"{elsewhere}`kseg retain --purge --apply` deletes what is marked, and `kseg retain --free SIZE` chooses what to delete"


def out_of_room(error: OSError, rooms: Iterable[Room], keeping: Keeping) -> str:
    """What to add to the sentence about an error of the system, when it is that there is no room."""
    if error.errno not in _NO_ROOM:
        return ""
    needed = "".join(f"; {_sentence(room)}" for room in rooms)
    return f"{needed}; {advice(keeping)}"


def out_of_room_writing(error: OSError, path: str, least_bytes: int) -> str:
    """The same of a file that is written while a change is planned. least_bytes: what it needs at least."""
    if error.errno not in _NO_ROOM:
        return ""
    rooms = _by_file_system([(path, least_bytes)])
    free = (
        f"; {least_bytes:,} bytes or more are needed there, and {rooms[0].free_bytes:,} are free"
        if rooms
        else ""
    )
    return f"{free}; {advice(Keeping('', ''))}"


def _sentence(room: Room) -> str:
    return f"{room.needed_bytes:,} bytes are needed on the file system of {room.path}, and {room.free_bytes:,} are free"


def _of_journal(plan: Plan, course: Course, keeping: Keeping) -> list[int]:
    header = {
        "inputs": [
            [file.name, file.size_bytes, file.mtime_ns, file.inode] for file in course.inputs.values()
        ],
        "steps": [step_row(step) for step in course.steps],
        "reasons": [finding.as_row() for finding in plan.reasons],
        "directory": plan.directory,
    }
    later = sum(len(name) + _LINE_BYTES for name in (*course.touched, *course.made)) + 2 * _LINE_BYTES
    directories = [1] * (2 if keeping.journal_dir else _DIRECTORIES)
    return [len(encoded(header, b"")) + later, *directories]


def _made_bytes(directory: str, course: Course) -> tuple[int, int]:
    """(of what was made ahead, how much of that lies on the file system of the directory)."""
    pieces = [piece for _, step in written(course) for piece in step.content if isinstance(piece, Made)]
    total = sum(piece.length for piece in pieces)
    with suppress(OSError):
        device = os.stat(directory).st_dev
        return total, sum(p.length for p in pieces if os.fstat(p.descriptor).st_dev == device)
    return total, 0


def _of_write(directory: str, step: Write, shares: bool) -> int:
    if len(step.content) == 1 and isinstance(step.content[0], Made):
        return 0
    length = sum(piece.length for piece in step.content if isinstance(piece, Fresh))
    if not shares:
        for name in {piece.name for piece in step.content if isinstance(piece, Span)}:
            wanted = sum(
                piece.length for piece in step.content if isinstance(piece, Span) and piece.name == name
            )
            length += _occupied(directory, name, wanted)
    return length


def _occupied(directory: str, name: str, most: int) -> int:
    with suppress(OSError):
        status = os.lstat(os.path.join(directory, name))
        return min(most, status.st_size, status.st_blocks * _SECTOR_BYTES)
    return 0


def _by_file_system(needs: Iterable[tuple[str, int]]) -> tuple[Room, ...]:
    lengths: dict[str, list[int]] = {}
    for path, length in needs:
        if length:
            lengths.setdefault(path, []).append(length)
    found: dict[int, tuple[str, int, os.statvfs_result]] = {}
    for path, of_path in lengths.items():
        with suppress(OSError):
            there = os.path.realpath(path)
            while not os.path.lexists(there):
                there = os.path.dirname(there)
            device = os.stat(there).st_dev
            shown, needed, status = found.get(device) or (path, 0, os.statvfs(there))
            blocks = sum(-(-length // status.f_frsize) for length in of_path)
            found[device] = shown, needed + blocks * status.f_frsize, status
    return tuple(
        Room(path, needed, status.f_bavail * status.f_frsize) for path, needed, status in found.values()
    )


def _copies(directory: str) -> bool:
    """Whether a file system is known to copy bytes that another would share."""
    with suppress(OSError):
        return _is_of_copies(os.stat(directory).st_dev)
    return False


@lru_cache(maxsize=64)
def _is_of_copies(device: int) -> bool:
    """The same of a device; asked once a process, for all partitions on it."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with (
        suppress(OSError, ValueError, IndexError),
        open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts,
    ):
        for line in mounts:
            fields = line.split()
            if fields[2] == wanted:
                return fields[fields.index("-") + 1] in _COPIES
    return False
