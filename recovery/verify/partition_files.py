"""The small files of a partition, and what checkpoints of the data directory say about it."""

import os
from collections.abc import Iterator

from kseg.recovery.verify.index_check import used_slots
from kseg.recovery.verify.segment_check import SegmentFacts
from kseg.recovery.verify.topic_ids import missing_metadata
from kseg.recovery.verify.totals import Ledger
from kseg.segment.errors import FormatError, UnreadableInput
from kseg.segment.files import DISK, Reader
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import Entry, PartitionDirectory
from kseg.segment.partition.log_dir_state import Surroundings
from kseg.segment.partition.log_start_trace import log_start_trace
from kseg.segment.partition.names import NAME_BY_ROLE, PartitionName, PartitionState, Role
from kseg.segment.partition.topic_identity import NOBODY_SAYS, TopicIdentity
from kseg.segment.sidecar.checkpoint import decode_leader_epochs
from kseg.segment.sidecar.leader_epochs import EpochEntry
from kseg.segment.sidecar.metadata_files import decode_partition_metadata

# How many entries at the end of an index are asked where the last batch ends.
_ASKED_ENTRIES = 3

_CHECKPOINT_WORDS = {
    Role.RECOVERY_POINTS: "the recovery point",
    Role.HIGH_WATERMARKS: "the high watermark",
    Role.CLEANER_OFFSETS: "the cleaner's first dirty offset",
    Role.LOG_START_OFFSETS: "the log start offset",
}


def live(directory: PartitionDirectory, role: Role) -> Entry | None:
    """The file of that role that is in use."""
    found = (e for e in directory.entries if e.name.role is role and e.name.is_live and e.problem is None)
    return next(found, None)


def leader_epochs(
    directory: PartitionDirectory, ledger: Ledger, reader: Reader = DISK
) -> tuple[tuple[EpochEntry, ...] | None, Finding | None]:
    """The entries of leader-epoch-checkpoint, None when it is absent or cannot be read."""
    entry = live(directory, Role.LEADER_EPOCHS)
    if entry is None:
        return None, None
    try:
        data = reader.read_small(entry.path)
    except UnreadableInput as error:
        return None, Finding("unreadable-file", entry.path, str(error))
    try:
        entries = decode_leader_epochs(data)
    except FormatError as error:
        ledger.account(entry.path, len(data), len(data))
        return None, Finding("leader-epoch-file-corrupt", entry.path, str(error), 0, len(data))
    ledger.account(entry.path, len(data))
    return entries, None


def metadata_files(
    directory: PartitionDirectory,
    around: Surroundings | None,
    ledger: Ledger,
    reader: Reader = DISK,
    identity: TopicIdentity = NOBODY_SAYS,
) -> Iterator[Finding]:
    """partition.metadata: readable, present where a broker needs it, and of a topic that the metadata log has here."""
    entry = live(directory, Role.PARTITION_METADATA)
    if entry is None:
        finding = identity.finding if directory.segments else None
        if finding is None:
            finding = missing_metadata(directory, None if around is None else around.meta_version)
        if finding is not None:
            yield finding
        return
    try:
        data = reader.read_small(entry.path)
    except UnreadableInput as error:
        yield Finding("unreadable-file", entry.path, str(error))
        return
    try:
        decode_partition_metadata(data)
    except FormatError as error:
        ledger.account(entry.path, len(data), len(data))
        yield Finding("partition-metadata-corrupt", entry.path, str(error), 0, len(data))
        return
    ledger.account(entry.path, len(data))
    if identity.finding is not None:
        yield identity.finding


def known_last_offsets(
    directory: PartitionDirectory, around: Surroundings | None, reader: Reader = DISK
) -> frozenset[int]:
    """Offsets at which a batch of the last segment ends according to what lies beside it."""
    segment = directory.segments[-1]
    known = {
        entry.name.base_offset - 1
        for entry in directory.snapshots
        if entry.name.base_offset is not None and entry.name.base_offset > segment.base_offset
    }
    for entry, width, at in ((segment.offset_index, 8, 0), (segment.time_index, 12, 8)):
        if entry is not None:
            known |= _last_indexed(reader, entry, width, at, segment.base_offset)
    if around is not None and directory.name is not None:
        for role in (Role.RECOVERY_POINTS, Role.HIGH_WATERMARKS):
            offset = around.offset(role, directory.name.topic, directory.name.partition)
            if offset is not None and offset > segment.base_offset:
                known.add(offset - 1)
    return frozenset(known)


def _last_indexed(reader: Reader, entry: Entry, width: int, at: int, base_offset: int) -> set[int]:
    try:
        with reader.open(entry.path) as file:
            used = used_slots(file.view, width)
            return {
                base_offset
                + int.from_bytes(file.view[slot * width + at : slot * width + at + 4], "big", signed=True)
                for slot in range(max(0, used - _ASKED_ENTRIES), used)
            }
    except UnreadableInput:
        return set()


def checkpoints(
    name: PartitionName, around: Surroundings, first_base: int, last: SegmentFacts
) -> Iterator[Finding]:
    """The data directory's checkpoints against the log's ends. A damaged end is not known, so nothing is beyond it.

    A log start below the first segment is right where older segments are tiered, and without effect elsewhere.
    """
    if name.state not in (PartitionState.LIVE, PartitionState.FUTURE):
        return
    for role, words in _CHECKPOINT_WORDS.items():
        offset = around.offset(role, name.topic, name.partition)
        if offset is None:
            continue
        path = os.path.join(around.path, NAME_BY_ROLE[role])
        numbers: dict[str, int | str | bool | None] = {
            "topic": name.topic,
            "partition": name.partition,
            "checkpoint": offset,
            "log_start_offset": first_base,
            "log_end_offset": last.end_offset,
        }
        if offset > last.end_offset and not last.damage:
            kind = "log-start-beyond-end" if role is Role.LOG_START_OFFSETS else "checkpoint-beyond-log"
            message = f"{words} of {name.text} is {offset}, its log ends at {last.end_offset}"
            yield Finding(kind, path, message, first_offset=offset, numbers=numbers)
        elif offset < first_base and offset != 0 and role is not Role.LOG_START_OFFSETS:
            message = f"{words} of {name.text} is {offset}, its log starts at {first_base}"
            yield Finding("checkpoint-below-log", path, message, first_offset=offset, numbers=numbers)


def log_start(directory: PartitionDirectory, around: Surroundings) -> Iterator[Finding]:
    """Where the checkpoint of the log start says nothing of a log whose leader epochs begin like behind one."""
    name = directory.name
    if name is None or name.state not in (PartitionState.LIVE, PartitionState.FUTURE) or name.is_metadata_log:
        return
    if around.offset(Role.LOG_START_OFFSETS, name.topic, name.partition) is not None:
        return
    trace = log_start_trace(directory.path)
    if trace is None:
        return
    numbers: dict[str, int | str | bool | None] = {"log_start_offset": trace.offset}
    begin = f"the leader epochs begin at offset {trace.offset}, within epoch {trace.epoch} of the batches"
    if Role.LOG_START_OFFSETS in around.lost:
        message = (
            f"{begin}: the log started there, {NAME_BY_ROLE[Role.LOG_START_OFFSETS]} is lost, and the records before come "
            "back when a broker starts"
        )
        yield Finding(
            "log-start-lost", directory.path, message, last_offset=trace.offset - 1, numbers=numbers
        )
    elif trace.is_certain:
        message = (
            f"{begin}, as behind a log start there, but {NAME_BY_ROLE[Role.LOG_START_OFFSETS]} has no entry; if records "
            f"before it were deleted: kseg recover --log-start-offset {trace.offset}"
        )
        yield Finding("log-start-doubtful", directory.path, message, numbers=numbers)
