"""Files at which the load of a partition fails before it reads the log."""

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from kseg.change.apply.file_flags import flag_of
from kseg.recovery.loading.kafka_exceptions import ACCESS_DENIED, FILE_NOT_FOUND, FILE_SYSTEM, IO
from kseg.segment import layout as L
from kseg.segment import unreadable
from kseg.segment.diagnosis import UnwritableFile
from kseg.segment.errors import UnreadableInput
from kseg.segment.findings import Finding
from kseg.segment.partition.names import Role, parse_file_name
from kseg.segment.probe import Probe
from kseg.segment.storage import places
from kseg.segment.terminal import shown_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kseg.segment.partition.directory import PartitionDirectory, SegmentFiles


def directory_of_a_file(
    directory: "PartitionDirectory", opened: "Sequence[SegmentFiles]"
) -> tuple[str, str] | None:
    """(exception, message) of a load that finds a directory in the place of a file (observed with 4.3.1), else None. A broker ignores a
    directory in the place of a log. opened: the segments whose indexes the load opens."""
    mapped = {segment.base_offset for segment in opened}
    bases = {segment.base_offset for segment in directory.segments}
    for entry in directory.entries:
        role, offset = entry.name.role, entry.name.base_offset
        # the listing has already reported every directory
        if entry.problem is None or not entry.name.is_live or not places.isdir(entry.path):
            continue
        is_opened = (
            # the indexes of other segments are mapped on first use
            (role in (Role.OFFSET_INDEX, Role.TIME_INDEX) and offset in mapped)
            or (role is Role.TXN_INDEX and offset in bases)
            or role in (Role.LEADER_EPOCHS, Role.PARTITION_METADATA)
        )
        if is_opened:
            exception = FILE_NOT_FOUND if role in (Role.OFFSET_INDEX, Role.TIME_INDEX) else FILE_SYSTEM
            exception = IO if role in (Role.LEADER_EPOCHS, Role.PARTITION_METADATA) else exception
            return exception, f"{entry.path} (Is a directory)"
    return None


def not_writable(
    directory: "PartitionDirectory", opened: "Sequence[SegmentFiles]", log_dir: str, *, is_clean: bool
) -> Finding | None:
    """The finding about what prevents a load because it cannot be written to. opened: the segments whose indexes the load opens."""
    return locked(_written(directory, opened, is_clean)) or _of_another_user(directory, log_dir)


def _written(
    directory: "PartitionDirectory", opened: "Sequence[SegmentFiles]", is_clean: bool
) -> "Iterator[str]":
    """What a load, or the replica once it is served, opens for writing, replaces or deletes (observed with 4.3.1). Other indexes
    are mapped on first use, and a partition.metadata stays as it is."""
    yield directory.path
    yield from (segment.log.path for segment in directory.segments)
    for segment in opened:
        indexes = segment.offset_index, segment.time_index, segment.txn_index
        yield from (entry.path for entry in indexes if entry is not None)
    for role in (Role.LEADER_EPOCHS, Role.QUORUM_STATE):
        yield from (entry.path for entry in (directory.entry(role),) if entry is not None)
    if not is_clean:
        yield from (entry.path for entry in directory.snapshots)


def locked(paths: "Iterable[str]") -> Finding | None:
    """The first of the given files and directories that nobody, not even root, can change."""
    for path in paths:
        flag = flag_of(path)
        if flag is not None:
            is_index = parse_file_name(os.path.basename(path)).role in (Role.OFFSET_INDEX, Role.TIME_INDEX)
            diagnosis = UnwritableFile(FILE_NOT_FOUND if is_index else FILE_SYSTEM, flag)
            return Finding(
                "not-writable", path, f"it is {flag}: a broker cannot change it", diagnosis=diagnosis
            )
    return None


def _of_another_user(directory: "PartitionDirectory", log_dir: str) -> Finding | None:
    """A log that a broker cannot open for writing, for example after root has copied it (observed with 4.3.1: AccessDeniedException). The
    user that the broker runs as is not known, but owns the data directory; a data directory that belongs to root proves nothing, and
    neither does a file that others may write."""
    with suppress(OSError):  # a broker may be running, and delete a segment
        owner = places.stat(log_dir).st_uid
        for segment in directory.segments if owner else ():
            path, status = segment.log.path, places.stat(segment.log.path)
            if status.st_uid != owner and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                whose = (
                    f"{shown_path(path)} belongs to uid {status.st_uid}, {shown_path(log_dir)} to uid {owner}"
                )
                message = f"{whose}: a broker that runs as uid {owner} cannot open it for writing"
                return Finding(
                    "not-writable", directory.path, message, diagnosis=UnwritableFile(ACCESS_DENIED)
                )
    return None


def faulting_index(opened: "Sequence[SegmentFiles]") -> str | None:
    """The first unreadable index among those that a loading broker touches; None if there is none.

    A broker maps an index on first use and reads its last slot (OffsetIndex.<init>, TimeIndex.<init>). It does so for every
    segment that it recovers, and always for the last one. Java reports the page fault as an InternalError.
    """
    for segment in opened:
        for entry, slot_bytes in (
            (segment.offset_index, L.OFFSET_INDEX_ENTRY),
            (segment.time_index, L.TIME_INDEX_ENTRY),
        ):
            if entry is not None and entry.size_bytes >= slot_bytes:
                start = (entry.size_bytes // slot_bytes - 1) * slot_bytes
                if _is_unreadable(entry.path, start, slot_bytes):
                    return entry.path
    return None


def _is_unreadable(path: str, position: int, count: int) -> bool:
    """Whether touching these mapped bytes faults: a page is mapped completely or not at all."""
    start = position // unreadable.PAGE_BYTES * unreadable.PAGE_BYTES
    stop = position + count + -(position + count) % unreadable.PAGE_BYTES
    try:
        with Probe(path) as file:
            file.read(start, stop - start)
            return bool(file.unreadable(start, stop))
    except UnreadableInput:
        return False  # the simulated load reports the reason
