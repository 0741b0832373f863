"""What ends the start of a KRaft node that reads a damaged snapshot of its metadata log (observed with 4.3.1).

1. A node reads batch after batch, and fails on the first complete batch that is invalid (Kafka: RecordsIterator, DefaultRecordBatch).
2. A partial batch ends the snapshot (ByteBufferLogInputStream.nextBatch). If it contained only the footer, the node starts. If it
   contained records, the node fails on the first record of the log that refers to one of them.
3. Without any complete batch the header is missing (RecordsSnapshotReader.lastContainedLogTimestamp), or even a size (firstBatchSize).
"""

from kseg.recovery.loading.kafka_exceptions import CORRUPT, ILLEGAL_STATE, NO_SUCH_ELEMENT, NULL_POINTER
from kseg.segment import layout as L
from kseg.segment.crc import crc32c
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import MappedFile
from kseg.segment.values import dataclass

_UP_TO_ATTRIBUTES, _CRC_AT = 23, 17


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
