"""Why a node does not start with a bootstrap.checkpoint (Kafka: BatchFileReader, BootstrapMetadata; observed with 4.3.1).

A node reads the file at every start, even when the metadata log has its records: batch after batch up to a partial one, without verifying
checksums. It must be able to decode all records, and one of them must set metadata.version.
"""

from kseg.internal_topics.metadata.metadata_replay import MetadataReplay
from kseg.internal_topics.metadata.refused_features import METADATA_VERSION
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.crc import crc32c
from kseg.segment.errors import FormatError, UnreadableInput
from kseg.segment.files import read_small
from kseg.segment.model import Record
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.decode import Decoder, record_at
from kseg.segment.scanning.scan import Scanner
from kseg.segment.state.control import parse_control_record
from kseg.segment.state.kraft_messages import LEADER_CHANGE, SNAPSHOT_FOOTER, SNAPSHOT_HEADER


def bootstrap_fault(path: str) -> tuple[str, str] | None:
    """The simple name of the Java exception that ends the start, and the reason; None if nodes start."""
    try:
        data = bytearray(read_small(path))
    except UnreadableInput as error:
        return "IOException", str(error)
    end = 0
    while len(data) - end > L.HEADER_TO_MAGIC:
        begin, size = end, int.from_bytes(data[end + 8 : end + 12], "big", signed=True)
        if size < L.MIN_LEGACY_SIZE_FIELD:
            return "CorruptRecordException", f"{path}: the batch at position {begin} declares {size} bytes"
        if begin + L.ENTRY_OVERHEAD + size > len(data):
            break
        end = begin + L.ENTRY_OVERHEAD + size
        _seal(data, begin, end)
    return _fault_of_batches(path, memoryview(data)[:end])


def _seal(data: bytearray, begin: int, end: int) -> None:
    """Correct the checksum of a batch, and replace an unknown magic with the newest one, as which a node reads it."""
    data[begin + L.MAGIC_POSITION] = min(data[begin + L.MAGIC_POSITION], L.MAGIC_V2)
    checksum = crc32c(data[begin + L.CRC_POSITION + 4 : end])
    data[begin + L.CRC_POSITION : begin + L.CRC_POSITION + 4] = checksum.to_bytes(4, "big")


def _is_known_control(record: Record) -> bool:
    try:
        kind = parse_control_record(record.key, record.value).kind
    except FormatError:
        return False
    return kind in (LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER)


def _fault_of_batches(path: str, whole: memoryview) -> tuple[str, str] | None:
    replay, decoder = MetadataReplay(everything=True), Decoder(whole)
    for block in Scanner(whole, 0).blocks():
        if isinstance(block, Damage):
            return "CorruptRecordException", f"{path}: no valid batch at position {block.position}"
        if 0 in block.column(C.COUNT):
            return "IllegalArgumentException", f"{path}: Batch must contain at least one record"
        for chunk in decoder.chunks(block):
            if chunk.problem is not None:
                return "InvalidRecordException", f"{path}: {chunk.problem.sentence}"
            for record in (record_at(chunk, at) for at in range(chunk.records.count)):
                if not chunk.control:
                    replay.take(record.offset, record.value, record.timestamp_ms)
                elif not _is_known_control(record):
                    return (
                        "RuntimeException",
                        f"Unable to read control record at offset {record.offset} of {path}",
                    )
    for offset, words in replay.problems:
        return "RuntimeException", f"unable to deserialize record at offset {offset} of {path}: {words}"
    if METADATA_VERSION in replay.features:
        return None
    source = f"the bootstrap metadata from the binary bootstrap metadata file: {path}"
    return "RuntimeException", f"No FeatureLevelRecord for {METADATA_VERSION} was found in {source}"
