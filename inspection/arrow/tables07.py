"""Read the messages of a Kafka 0.7 file as Arrow batches: the value, and the offset of its entry.

A 0.7 message has no key, no timestamp and no offset of its own: an offset is a byte position. All messages of a compressed set
have that of their entry; timestamps are −1 without a type, as with magic 0. Built value by value, since no 0.7 logs are
large enough for speed to matter.
"""

from collections.abc import Iterator

import pyarrow as pa

from kseg.inspection.arrow.arrow_schema import META
from kseg.inspection.arrow.batch_columns import printable
from kseg.inspection.arrow.log_ranges import LogPiece, Reading
from kseg.segment import layout as L
from kseg.segment.errors import FormatError
from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding
from kseg.segment.kafka07.findings07 import bad_crc07, bad_inner_crc07, invalid_bytes07, undecodable07
from kseg.segment.kafka07.messages07 import Damage07, Entry07, Message07, messages, walk

Line = tuple[Entry07, Message07]


def read_kafka07(piece: LogPiece, reading: Reading, schema: pa.Schema) -> Iterator[pa.RecordBatch | Finding]:
    """As `record_batches.read_piece`, of a whole `.kafka` file. Raises UnreadableInput."""
    bounds = piece.bounds
    if not bounds.from_ms <= L.NO_TIMESTAMP < bounds.to_ms:
        return
    lines: list[Line] = []
    size_bytes = 0
    with MappedFile(piece.path) as file:
        for item in _items(piece, file):
            if isinstance(item, Finding):
                yield from _batches(piece, schema, lines)
                lines, size_bytes = [], 0
                yield item
                continue
            entry, message = item
            if not reading.include_invalid and not (entry.crc_valid and message.crc_valid):
                continue
            full = size_bytes + len(message.payload) > reading.bytes_per_batch
            if lines and (full or len(lines) >= reading.records_per_batch):
                yield from _batches(piece, schema, lines)
                lines, size_bytes = [], 0
            lines.append(item)
            size_bytes += len(message.payload)
        yield from _batches(piece, schema, lines)


def _items(piece: LogPiece, file: MappedFile) -> Iterator[Line | Finding]:
    bounds, view = piece.bounds, file.view
    for item in walk(view, extents=file.extents):
        first = piece.base_offset + item.position
        if isinstance(item, Damage07):
            if first < bounds.to_offset and first + item.length > bounds.from_offset:
                yield invalid_bytes07(piece.path, piece.base_offset, item)
        elif bounds.from_offset <= first < bounds.to_offset:
            yield from _messages(piece, view, item)


def _messages(piece: LogPiece, view: memoryview, entry: Entry07) -> Iterator[Line | Finding]:
    path, base_offset = piece.path, piece.base_offset
    if not entry.crc_valid:
        yield bad_crc07(path, base_offset, entry)
    try:
        for message in messages(view, entry, base_offset):
            if entry.crc_valid and not message.crc_valid:
                yield bad_inner_crc07(path, base_offset, entry)
            yield entry, message
    except FormatError as error:
        yield undecodable07(path, base_offset, entry, error)


def _batches(piece: LogPiece, schema: pa.Schema, lines: list[Line]) -> Iterator[pa.RecordBatch]:
    if lines:
        columns = [_array(field, piece, lines) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _array(field: pa.Field, piece: LogPiece, lines: list[Line]) -> pa.Array:
    if field.name == META:
        members = list(field.type)
        arrays = [
            pa.array([_meta(piece, entry, message)[member.name] for entry, message in lines], member.type)
            for member in members
        ]
        return pa.StructArray.from_arrays(arrays, fields=members)
    if field.name == "timestamp":
        return pa.array([1000 * L.NO_TIMESTAMP] * len(lines), pa.int64()).cast(field.type)
    same: dict[str, object] = {
        "key": None,
        "topic": printable(piece.topic),
        "partition": piece.partition,
        "timestampType": -1,
        "headers": None,
    }
    if field.name == "value":
        return pa.array([bytes(message.payload) for _, message in lines], field.type)
    if field.name == "offset":
        return pa.array([message.offset for _, message in lines], field.type)
    return pa.array([same[field.name]] * len(lines), field.type)


def _meta(piece: LogPiece, entry: Entry07, message: Message07) -> dict[str, object]:
    return {
        "file": printable(piece.path),
        "position": entry.position,
        "base_offset": message.offset,
        "leader_epoch": L.NO_LEADER_EPOCH,
        "producer_id": L.NO_PRODUCER_ID,
        "producer_epoch": L.NO_PRODUCER_EPOCH,
        "sequence": L.NO_SEQUENCE,
        "transactional": False,
        "control": False,
        "codec": L.codec_name(entry.codec),
        "crc": message.crc,
        "valid": entry.crc_valid and message.crc_valid,
    }
