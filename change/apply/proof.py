"""Prove from the files on disk that no byte will be lost: a journal can be forged (module journal_lines).

    what is cleared         each file in `old` must be in the directory too: as another hard link, or as a file with
                            the same bytes; each in `new` must be one that the steps write
    what the steps remove   the file itself, or its bytes, must be in the quarantine before the first step
    what the steps add      inode, size, time and checksum must be as when it was staged, and it has no other name
    what an undo removes    the same, for files that the steps added

All checks use descriptors and names that no link can redirect (module anchors).
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping

from kseg.change.apply.disk import Disk, closing
from kseg.change.apply.file_operations import checksum, has_checksum, is_same_file
from kseg.change.apply.journal import Journal
from kseg.change.apply.journal_location import JournalLocation
from kseg.change.apply.staging import Staged, tail_path
from kseg.change.apply.step_progress import ObservedFile, StepProgress
from kseg.segment.errors import Refused

_BLOCK_BYTES = 64 * 1024
_SECTOR_BYTES = 512

# path of a file, name of the file in the directory whose bytes it duplicates, and the position of those bytes
Copy = tuple[str, str, int]


# --- what is cleared


def check_disposable(journal: Journal, disk: Disk) -> None:
    """Raises Refused if a file of a journal must not be removed: no change writes such a file, or its bytes are not in the directory."""
    location = journal.location
    new = {location.new(number) for number in _writes(journal)}
    for path in location.files(disk):
        if path == location.journal:
            continue
        if disk.file_status(path) is None:
            raise Refused(f"{path} is not a file that a change creates; inspect it, and remove it")
        if path in new:
            continue
        name = location.kept_name(path)
        if path != location.old(name):
            raise Refused(f"{path} is not a file that {journal.command} creates; inspect it, and remove it")
        _check_second_hand(location, path, list(_repeats(path, name)), disk)


def check_copies(location: JournalLocation, copies: Iterable[Copy], disk: Disk) -> None:
    """Like `check_disposable`, for the existing copies in a quarantine elsewhere."""
    for copy in copies:
        if disk.status(copy[0]) is not None:
            _check_second_hand(location, copy[0], [copy], disk)


def _writes(journal: Journal) -> Iterator[int]:
    for number, step in enumerate(journal.header.get("steps", ())):
        if step["do"] == "write":
            yield number


def _repeats(path: str, name: str) -> Iterator[Copy]:
    """The files of the directory of which a file in the quarantine can be a copy."""
    yield path, name, 0
    head, _, position = name.rpartition(".from-")
    if head and position.isascii() and position.isdigit() and len(position) < 20:
        yield path, head, int(position)


def _check_second_hand(location: JournalLocation, path: str, copies: Iterable[Copy], disk: Disk) -> None:
    status = disk.file_status(path)
    if status is not None:
        if (status.st_dev, status.st_ino) in _files_in(location, disk):
            return
        if any(is_copy(path, location.target(name), position, disk) for _, name, position in copies):
            return
    raise Refused(
        f"{path} is not cleared away, because its bytes are not in {location.directory} (any more); "
        "move it to where it belongs, or remove it, and run this again"
    )


def _files_in(location: JournalLocation, disk: Disk) -> set[tuple[int, int]]:
    """Device and inode of all regular files of the directory, except those of this journal."""
    found = (
        disk.file_status(path)
        for path in map(location.target, disk.names(location.directory))
        if not (location.is_flat and path.startswith(location.beginnings))
    )
    return {(status.st_dev, status.st_ino) for status in found if status is not None}


def is_copy(path: str, original: str, position: int, disk: Disk) -> bool:
    """Whether a file has the same bytes as another, up to its own size; zeros count as equal if the machine crashed while
    it was written."""
    if disk.file_status(original) is None:
        return False
    with (
        closing(disk, disk.open_to_read(path)) as copy,
        closing(disk, disk.open_to_read(original)) as source,
    ):
        size_bytes = os.fstat(copy).st_size
        return position + size_bytes <= os.fstat(source).st_size and all(
            _is_alike(disk.read(copy, length, start), disk.read(source, length, position + start))
            for start, length in _data_blocks(disk, copy, 0, size_bytes)
        )


def _data_blocks(disk: Disk, descriptor: int, position: int, count: int) -> Iterator[tuple[int, int]]:
    """A range of an open file in blocks (position, length), without its holes: they read as zeros, which match anything."""
    if not count:
        return  # the file may end before the range
    for start, length in disk.data_extents(descriptor, position, count):
        for at in range(start, start + length, _BLOCK_BYTES):
            yield at, min(_BLOCK_BYTES, start + length - at)


def _is_alike(copy: bytes, source: bytes) -> bool:
    """Whether all bytes of a copy are those of the source, or zeros."""
    if source.startswith(copy):
        return True
    for at in range(0, len(copy), _SECTOR_BYTES):
        one, other = copy[at : at + _SECTOR_BYTES], source[at : at + _SECTOR_BYTES]
        if other.startswith(one) or not any(one):
            continue
        if len(other) < len(one) or any(a not in (0, b) for a, b in zip(one, other, strict=False)):
            return False
    return True


# --- what steps remove and add


def check_steps(
    location: JournalLocation,
    progress: StepProgress,
    staged: Staged,
    elsewhere: str | None,
    done: int,
    disk: Disk,
) -> None:
    """Called before an incomplete change continues after its first `done` steps. Raises Refused if what they remove is not kept,
    or what they add is not what was staged for them."""
    for number in range(done, len(progress.steps)):
        if number in staged.files and not is_made(location.new(number), staged, number, disk):
            raise Refused(
                f"cannot continue: {location.new(number)} is not what was made there; nothing was changed"
            )
    now = {token: name for name, token in progress.names_after(done).items() if isinstance(token, str)}
    for name in progress.lost:
        if name in now and not _is_kept(location, elsewhere, name, location.target(now[name]), staged, disk):
            raise Refused(
                f"cannot continue: {location.target(now[name])} would be removed without a copy; nothing was changed"
            )
    for tail in progress.tails:
        if tail.number >= done and tail.length:
            path, target = (
                tail_path(location, elsewhere, tail.name, tail.position),
                location.target(now[tail.name]),
            )
            status = disk.file_status(path)
            is_kept = status is not None and status.st_size == tail.length
            if not is_kept or not _is_same(path, target, tail.position, disk):
                raise Refused(
                    f"cannot continue: {path} is not what is truncated from {target}; nothing was changed"
                )
            if has_other_names(target, [location.old(tail.name)], disk):
                raise Refused(
                    f"cannot continue: {target} has a second name elsewhere (a hard link), which would be cut too; "
                    "nothing was changed"
                )


def is_second_name(location: JournalLocation, name: str, now: str, disk: Disk) -> bool:
    """Whether the kept version of a file that stayed (as `now`) duplicates it: the same file, or a copy made before a
    truncation whose tail is kept too."""
    path, target = location.old(name), location.target(now)
    status, there = disk.file_status(path), disk.status(target)
    if status is None or there is None:
        return False
    return is_same_file(status, there) or _is_same(target, path, 0, disk)


def is_made(path: str, staged: Staged, number: int, disk: Disk) -> bool:
    """Whether a file is the one staged for a step, and has no other name."""
    status = disk.file_status(path)
    if status is None or status.st_nlink != 1:
        return False
    seen = ObservedFile(status.st_ino, status.st_size, status.st_mtime_ns)
    return seen == staged.files[number] and has_checksum(path, seen.size_bytes, staged.crcs[number], disk)


def has_other_names(path: str, known: Iterable[str], disk: Disk) -> bool:
    """Whether a file has a hard link that is neither `path` nor known."""
    status = disk.status(path)
    if status is None:
        return False
    own = {path, *known}
    same = [other for name in own if (other := disk.status(name)) and is_same_file(other, status)]
    return status.st_nlink > len(same)


def check_removable(
    location: JournalLocation, progress: StepProgress, staged: Staged, holders: Mapping[str, int], disk: Disk
) -> None:
    """Called before an undo restores files. holders: inodes by name. Raises Refused if a file to be restored is missing,
    or a name to be freed or restored has a file that is neither kept nor written by the change."""
    kept = set()
    for name, inode in holders.items():
        held = [disk.file_status(path) for path in (location.old(name), location.target(name))]
        if not any(status is not None and status.st_ino == inode for status in held):
            raise Refused(f"cannot undo: {location.old(name)} is not what was removed")
        kept.add(inode)
    may = progress.tokens()
    for name in (*progress.touched, *progress.made):
        path, tokens = location.target(name), may.get(name, set())
        status = disk.status(path)
        if status is None or status.st_ino in kept:
            continue
        is_ours = stat.S_ISREG(status.st_mode) and any(
            _holds_part_of(path, location.old(token), disk)
            if isinstance(token, str)
            else staged.files[token].size_bytes == status.st_size
            and has_checksum(path, status.st_size, staged.crcs[token], disk)
            for token in tokens
            if token is not None
        )
        if not is_ours:
            raise Refused(f"cannot undo: {path} is not what was written there")


def _is_kept(
    location: JournalLocation, elsewhere: str | None, name: str, target: str, staged: Staged, disk: Disk
) -> bool:
    path = location.old(name)
    if name in staged.copied and elsewhere is not None:
        path = os.path.join(elsewhere, name)
    status, there = disk.file_status(path), disk.status(target)
    if status is None or there is None:
        return False
    return is_same_file(status, there) or (
        status.st_size >= there.st_size and _is_same(target, path, 0, disk)
    )


def _holds_part_of(path: str, kept: str, disk: Disk) -> bool:
    """Whether a file is the beginning of another as it was found, which may be truncated now."""
    return disk.file_status(kept) is not None and _is_same(path, kept, 0, disk)


def may_grow(path: str, tail: str, position: int, disk: Disk) -> bool:
    """Whether the truncated tail of a file can be written back at `position`: nothing else was written there."""
    with closing(disk, disk.open_to_read(path)) as file, closing(disk, disk.open_to_read(tail)) as rest:
        end = min(os.fstat(file).st_size, position + os.fstat(rest).st_size)
        return all(
            _is_alike(disk.read(file, length, start), disk.read(rest, length, start - position))
            for start, length in _data_blocks(disk, file, position, max(0, end - position))
        )


def _is_same(path: str, original: str, position: int, disk: Disk) -> bool:
    """Whether a file duplicates bytes of another, without a hole for bytes that could not be written."""
    with (
        closing(disk, disk.open_to_read(path)) as copy,
        closing(disk, disk.open_to_read(original)) as source,
    ):
        size_bytes = os.fstat(copy).st_size
        return os.fstat(source).st_size >= position + size_bytes and checksum(
            disk, copy, 0, size_bytes
        ) == checksum(disk, source, position, size_bytes)
