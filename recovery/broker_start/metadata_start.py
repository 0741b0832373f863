"""What the start of a KRaft node requires of the metadata log beyond its batches: quorum-state, and the snapshot to start from.

The node replays its own metadata log before it loads any other log, and any fault there is fatal; it meets a damaged batch before it reads
quorum-state. A batch of an unknown magic, an unreadable quorum-state, a newest snapshot with a damaged batch (older ones are not tried), or
a log that begins after the end of its snapshots ends the process (Kafka: FileQuorumStateStore, RecordsSnapshotReader, KafkaRaftLog). A log
that is older than the newest snapshot, for example after a truncation, is emptied (`loading.newest_snapshot`).

A newest snapshot that is cut short ends the process only because the log after it refers to what is lost. Without such a log, as after a
crash right after the snapshot was written, the node starts with what the snapshot still contains, and most partitions become stray. How a
node reads a damaged snapshot (observed with 4.3.1):

1. A node reads batch after batch, and fails on the first complete batch that is invalid (Kafka: RecordsIterator, DefaultRecordBatch).
2. A partial batch ends the snapshot (ByteBufferLogInputStream.nextBatch). If it contained only the footer, the node starts. If it
   contained records, the node fails on the first record of the log that refers to one of them.
3. Without any complete batch the header is missing (RecordsSnapshotReader.lastContainedLogTimestamp), or even a size (firstBatchSize).
"""

import os
from collections.abc import Sequence
from dataclasses import replace

from kseg.recovery.broker_start.partition_start import Loading, PartitionStart
from kseg.recovery.loading.kafka_exceptions import CORRUPT, ILLEGAL_STATE, NO_SUCH_ELEMENT, NULL_POINTER
from kseg.recovery.loading.newest_snapshot import empties_log, newest_snapshot
from kseg.segment import layout as L
from kseg.segment.crc import crc32c
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import MappedFile, read_small
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import PartitionDirectory
from kseg.segment.partition.names import Role
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.sidecar.metadata_files import QuorumStateFault, decode_quorum_state
from kseg.segment.values import dataclass

_UP_TO_ATTRIBUTES, _CRC_AT = 23, 17

UNCHECKED_IO = "UncheckedIOException"


@dataclass(frozen=True, slots=True)
class SnapshotFault:
    """exception: simple name of the Java class. why: what is wrong with the snapshot."""

    exception: str
    why: str


def snapshot_fault(path: str) -> SnapshotFault | None:
    """Why no node starts with this snapshot; None if nodes start."""
    try:
        with MappedFile(path) as file:
            return _fault(file.view)
    except UnreadableInput as error:
        return SnapshotFault(CORRUPT, str(error))


def _fault(view: memoryview) -> SnapshotFault | None:
    position, has_records, has_footer = 0, False, False
    while len(view) - position >= L.ENTRY_OVERHEAD:
        size = int.from_bytes(view[position + 8 : position + 12], "big", signed=True)
        if size < L.MIN_LEGACY_SIZE_FIELD:
            return SnapshotFault(CORRUPT, f"the batch at position {position} declares {size} bytes")
        if len(view) - position < L.HEADER_TO_MAGIC:
            break
        if view[position + L.MAGIC_POSITION] > L.MAGIC_V2:
            return SnapshotFault(CORRUPT, f"the batch at position {position} has an unknown magic")
        end = position + L.ENTRY_OVERHEAD + size
        if end > len(view):
            break
        if not _is_valid(view[position:end]):
            return SnapshotFault(CORRUPT, f"the batch at position {position} is damaged")
        is_control = _is_control(view[position:end])
        has_footer, has_records = has_records and is_control, has_records or not is_control
        position = end
    if not position:
        exception = NULL_POINTER if 0 < len(view) < L.HEADER_TO_MAGIC else NO_SUCH_ELEMENT
        return SnapshotFault(exception, "it has no complete batch")
    torn = view[position:]
    if has_footer or (has_records and (len(torn) < _UP_TO_ATTRIBUTES or _is_control(torn))):
        return None
    return SnapshotFault(
        ILLEGAL_STATE, f"it breaks off at position {position}, and the log refers to records that are lost"
    )


def _is_valid(batch: memoryview) -> bool:
    stored = int.from_bytes(batch[_CRC_AT : _CRC_AT + 4], "big")
    return len(batch) >= L.BATCH_HEADER and crc32c(batch[_CRC_AT + 4 :]) == stored


def _is_control(batch: memoryview) -> bool:
    return bool(int.from_bytes(batch[_UP_TO_ATTRIBUTES - 2 : _UP_TO_ATTRIBUTES], "big") & L.CONTROL_BIT)


def with_quorum_files(
    start: PartitionStart, directory: PartitionDirectory, errors: Sequence[Finding]
) -> PartitionStart:
    """The start of the metadata log, including the files beside it. errors: those of the log and of these files."""
    if start.exception is not None:
        return start
    snapshot = newest_snapshot(entry.name for entry in directory.entries)
    path = os.path.join(directory.path, "" if snapshot is None else snapshot.name)
    fault = snapshot_fault(path) if path in {error.path for error in errors} else None
    of_snapshot = None
    if snapshot is not None and fault is not None:
        message = f"{path} is damaged, and no older snapshot is tried: {fault.why}"
        of_snapshot = _failed(start, fault.exception, message)
        if fault.exception in (CORRUPT, NULL_POINTER):
            return of_snapshot
    end = -1 if snapshot is None else snapshot.base_offset or 0
    log_start, log_end = start.log_start_offset or 0, start.log_end_offset or 0
    if of_snapshot is not None and of_snapshot.exception == ILLEGAL_STATE and log_end <= end:
        of_snapshot = None
        start = replace(start, outcome=Loading.TRUNCATED, records_lost=None, is_of_torn_snapshot=True)
    read = range(end, log_end)
    for error in errors:
        # a load treats it as a batch of magic 2, whose checksum does not cover the magic byte
        if error.id == "bad-magic" and error.first_offset in read and of_snapshot is None:
            return _failed(start, CORRUPT, f"Invalid magic found in record: {error.message}")
    of_quorum = _quorum_fault(start, directory)
    if of_quorum is not None or of_snapshot is not None:
        return of_quorum or of_snapshot or start
    if log_start > 0 and end < log_start:
        message = (
            "Inconsistent snapshot state: there must be a snapshot at an offset larger then the current log start offset "
            f"{log_start}, but the latest snapshot is {'missing' if snapshot is None else snapshot.name}"
        )
        return _failed(start, ILLEGAL_STATE, message)
    if snapshot is not None and empties_log(snapshot, _latest_epoch(directory, log_end), log_end):
        return replace(start, outcome=Loading.TRUNCATED, log_start_offset=end, log_end_offset=end)
    return start


def _quorum_fault(start: PartitionStart, directory: PartitionDirectory) -> PartitionStart | None:
    quorum_state = directory.entry(Role.QUORUM_STATE)
    if quorum_state is None:
        return None
    try:
        decode_quorum_state(read_small(quorum_state.path))
    except (QuorumStateFault, UnreadableInput) as error:
        exception = error.kafka_exception if isinstance(error, QuorumStateFault) else UNCHECKED_IO
        message = f"Error while reading the Quorum status from the file {quorum_state.path}: {error}"
        return _failed(start, exception, message)
    return None


def _latest_epoch(directory: PartitionDirectory, end_offset: int) -> int:
    """The latest leader epoch of a log that is loaded up to end_offset; -1 if there is none."""
    from kseg.segment.partition.derived_state import epoch_history  # most data directories have no snapshot

    names = [entry.name.name for entry in directory.entries if entry.problem is None]
    with PartitionLog(PartitionTarget(directory.path, None), names=names) as log:
        entries = epoch_history(log).entries
    return max((entry.epoch for entry in entries if entry.start_offset < end_offset), default=-1)


def _failed(start: PartitionStart, exception: str, message: str) -> PartitionStart:
    return PartitionStart(
        partition=start.partition, outcome=Loading.FAILS, exception=exception, message=message
    )
