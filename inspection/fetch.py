"""`read`: return what a broker's fetch from an offset would return.

    1. The position is that of a lookup by offset: the batch that contains N, else the next one. At the log end there is
       nothing; below the log start and beyond the log end a broker answers OFFSET_OUT_OF_RANGE.
    2. The bytes end with the segment. A broker cuts at `max_bytes`, even in the middle of a batch (Kafka: LogSegment.read,
       FileRecords.slice); `grow=False` does the same. Otherwise whole batches are returned, and while not even the first one
       fits, the size is doubled, as clients did, up to `max_message_bytes`.
    3. Raw: the bytes, in blocks. Otherwise a `read` row, then each whole batch and its records as in a dump.

Kafka 0.7: the bytes from any position on (Log.read), framed as the response (`kafka07.fetch_response`) for one partition ("message-set") or
for several ("multi"). A 0.7 frame around batches of later formats is possible, but means nothing to a 0.7 consumer.
"""

from collections.abc import Iterator
from contextlib import closing

from kseg.inspection.dump.dump07 import message_row
from kseg.inspection.lookup.by_offset import batches_reaching
from kseg.inspection.query import FRAMINGS, ReadQuery
from kseg.jobs.events import Event, Failure, Row, Text
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.errors import FormatError, Refused, UsageError
from kseg.segment.files import MappedFile
from kseg.segment.header_tables import Columns
from kseg.segment.json_rows import LogRowDecoder, batch_row, record_row
from kseg.segment.kafka07.fetch_response import OFFSET_OUT_OF_RANGE, message_set_header
from kseg.segment.kafka07.findings07 import invalid_bytes07, undecodable07
from kseg.segment.kafka07.log07 import Log07
from kseg.segment.kafka07.messages07 import Damage07, Entry07, entry_at, messages, walk
from kseg.segment.model import Batch
from kseg.segment.partition.log_segment import LogSegment
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import LogTarget
from kseg.segment.scanning.batches import batch_at
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.damage_findings import damage_finding, undecodable
from kseg.segment.scanning.decode import Decoder, record_at
from kseg.segment.scanning.scan import Scanner
from kseg.segment.values import dataclass

BLOCK_BYTES = 1 << 20
_NOTHING_FOUND = 1  # exit status
_RAW_SECRETS = "the raw bytes of {} hold {}; --show-secrets writes them, without --raw the records are shown"


@dataclass(frozen=True, slots=True)
class _Extent:
    """The bytes start … end - 1 to return from one file. max_bytes: after doubling. is_cut: the last message is incomplete."""

    start: int
    end: int
    max_bytes: int
    is_cut: bool


def read(target: LogTarget, query: ReadQuery) -> Iterator[Event]:
    """Text events with the bytes (raw, or framed), or a `read` row followed by `batch` and `record` rows.

    Framing "multi" yields the answer for this one target; `multi_message_set_send` joins several. An offset out of range and a
    message that does not fit are Failures with exit status 1. Raises UnreadableInput, and UsageError for an invalid query.
    """
    if query.framing not in FRAMINGS:
        raise UsageError(f"unknown framing: {query.framing}")
    if query.offset < 0 or not 0 <= query.max_bytes <= L.INT32_MAX:
        raise UsageError(f"invalid fetch of {query.max_bytes} bytes from offset {query.offset}")
    with PartitionLog(target, use_index=query.use_index) as log:
        yield from _read_kafka07(target, query) if log.is_kafka07 else _read(log, target.path, query)


def _is_raw(query: ReadQuery) -> bool:
    return query.raw or query.framing != "none"


def _send(view: memoryview, query: ReadQuery) -> Iterator[Event]:
    """The bytes of a response, framed if requested, in blocks."""
    if query.framing != "none":
        yield Text(message_set_header(len(view)))
    for start in range(0, len(view), BLOCK_BYTES):
        yield Text(bytes(view[start : start + BLOCK_BYTES]))


def _out_of_range(path: str, query: ReadQuery, start: int, end: int, remote: str = "") -> Iterator[Event]:
    """remote: where an offset below the local log may be, in words."""
    if query.framing != "none":
        yield Text(message_set_header(0, OFFSET_OUT_OF_RANGE))
    words = f"is empty at {start}" if start >= end else f"has {start} to {end}"
    sentence = f"{path}: offset {query.offset} is out of range: the log {words}{remote and f'; {remote}'}"
    yield Failure(path, sentence, _NOTHING_FOUND)


def _too_large(path: str, query: ReadQuery, size_bytes: int) -> Iterator[Event]:
    if query.framing != "none":
        yield Text(message_set_header(0))
    sentence = (
        f"{path}: the message at offset {query.offset} needs {size_bytes} bytes, "
        f"more than the {query.max_message_bytes} allowed"
    )
    yield Failure(path, sentence, _NOTHING_FOUND)


def grown_max_bytes(max_bytes: int, first_bytes: int, query: ReadQuery) -> int | None:
    """The size that a client reaches by doubling `max_bytes` until `first_bytes` fit; None if the limit comes first."""
    size = max(1, max_bytes)
    while size < first_bytes:
        if size >= query.max_message_bytes:
            return None
        size = min(size * 2, query.max_message_bytes)
    return max(max_bytes, size)


def _summary(
    partition: str, path: str | None, query: ReadQuery, extent: _Extent | None, offset: int | None
) -> Row:
    return Row(
        {
            "type": "read",
            "partition": partition,
            "offset": query.offset,
            "segment": path,
            "position": None if extent is None else extent.start,
            "size": 0 if extent is None else extent.end - extent.start,
            "first_offset": offset,
            "max_bytes": query.max_bytes if extent is None else extent.max_bytes,
            "cut": extent is not None and extent.is_cut,
        }
    )


# --- segments


def _read(log: PartitionLog, path: str, query: ReadQuery) -> Iterator[Event]:
    start_offset = log.start_offset
    start_batch = None
    if query.offset >= start_offset and log.segments:
        with closing(batches_reaching(log, query.offset)) as batches_from:
            start_batch = next(batches_from, None)
    if start_batch is None:
        if not start_offset <= query.offset <= log.end_offset:
            yield from log.findings
            remote = log.remote_words(query.offset)
            yield from _out_of_range(path, query, start_offset, log.end_offset, remote)
        elif _is_raw(query):
            yield from _send(memoryview(b""), query)
        else:
            yield _summary(_partition(log), None, query, None, None)
        return
    segment, batch = start_batch
    extent = _extent(segment, batch, query)
    yield from log.findings
    if extent is None:
        yield from _too_large(path, query, batch.size_bytes)
    elif _is_raw(query):
        _refuse_secrets(segment, extent, query)
        yield from _send(segment.file.view[extent.start : extent.end], query)
    else:
        yield _summary(_partition(log), segment.path, query, extent, segment.first_offset_of(batch))
        yield from _rows(segment, extent, query)


def _refuse_secrets(segment: LogSegment, extent: _Extent, query: ReadQuery) -> None:
    """Raises Refused if raw bytes would contain a secret: nothing can be replaced under a checksum."""
    redactor = query.redactor
    if redactor is None or not redactor.concerns(segment.path):
        return
    decoder = Decoder(segment.file.view)
    for block in Scanner.over(segment.file, segment.base_offset).blocks(extent.start, extent.end):
        if isinstance(block, Damage):
            raise Refused(_RAW_SECRETS.format(segment.path, "damaged bytes, which may hold secrets"))
        for chunk in decoder.chunks(block):
            if chunk.control:
                continue
            for record in (record_at(chunk, at) for at in range(chunk.records.count)):
                if redactor.redacted(segment.path, record.key, record.value) is not None:
                    raise Refused(
                        _RAW_SECRETS.format(segment.path, f"a secret in the record at offset {record.offset}")
                    )


def _partition(log: PartitionLog) -> str:
    return log.directory if log.name is None else log.name.text


def _extent(segment: LogSegment, first: Batch, query: ReadQuery) -> _Extent | None:
    """The bytes to send from `first` on, None if not even that batch may be sent whole."""
    size_bytes = segment.file.size_bytes
    if not query.grow:
        end = min(size_bytes, first.position + query.max_bytes)
        return _Extent(first.position, end, query.max_bytes, _whole_end(segment, first.position, end) != end)
    max_bytes = grown_max_bytes(query.max_bytes, first.size_bytes, query)
    if max_bytes is None:
        return None
    end = _whole_end(segment, first.position, min(size_bytes, first.position + max_bytes))
    return _Extent(first.position, end, max_bytes, False)


def _whole_end(segment: LogSegment, start: int, limit: int) -> int:
    """The end of the last batch that ends at or before `limit`."""
    end = start
    for block in segment.walk.blocks(start):
        if isinstance(block, Damage):
            if end < limit:
                segment.report_damage(block)
            return end  # data after damage is not sent together with data before it
        for row in range(block.count):
            batch_end = block.at(C.POSITION, row) + block.at(C.SIZE, row)
            if batch_end > limit:
                return end
            end = batch_end
    return end


def _rows(segment: LogSegment, extent: _Extent, query: ReadQuery) -> Iterator[Event]:
    decoder = Decoder(segment.file.view)
    row_decoder = None if query.row_decoder is None else query.row_decoder.for_log(segment.path)
    end = extent.end if not extent.is_cut else _whole_end(segment, extent.start, extent.end)
    scanner = Scanner.over(segment.file, segment.base_offset, next_base=segment.following_base)
    for block in scanner.blocks(extent.start, end):
        if isinstance(block, Damage):
            yield damage_finding(segment.path, block)
            continue
        decoder.note_sets(block)
        for row in range(block.count):
            yield from _batch_rows(segment.path, decoder, block, row, query.bytes_mode, row_decoder)


def _batch_rows(
    path: str, decoder: Decoder, table: Columns, row: int, bytes_mode: str, row_decoder: LogRowDecoder | None
) -> Iterator[Event]:
    batch = batch_at(table, row)
    yield Row(batch_row(path, batch))
    for chunk in decoder.chunks(table, row, row + 1):
        for at in range(chunk.records.count):
            record = record_at(chunk, at)
            yield Row(record_row(path, batch, record, bytes_mode, row_decoder))
        if chunk.problem is not None:
            yield undecodable(path, table, chunk.problem)


# --- 0.7


def _read_kafka07(target: LogTarget, query: ReadQuery) -> Iterator[Event]:
    with Log07(target) as log:
        if not log.start_offset <= query.offset <= log.end_offset:
            yield from _out_of_range(target.path, query, log.start_offset, log.end_offset)
            return
        file = log.file_with(query.offset)
        if file is None:  # at the end, or in a gap
            if _is_raw(query):
                yield from _send(memoryview(b""), query)
            else:
                yield _summary(log.name, None, query, None, None)
            return
        opened = log.opened(file)
        view = opened.view
        position = query.offset - file.base_offset
        extent = _kafka07_extent(view, position, query)
        if extent is None:
            first = entry_at(view, position, len(view))
            size_bytes = first.size_bytes if isinstance(first, Entry07) else 0
            yield from _too_large(target.path, query, size_bytes)
        elif _is_raw(query):
            yield from _send(view[extent.start : extent.end], query)
        else:
            yield _summary(log.name, file.path, query, extent, query.offset)
            yield from _kafka07_rows(opened, extent.end, position, file.base_offset, query)


def _kafka07_extent(view: memoryview, position: int, query: ReadQuery) -> _Extent | None:
    limit = min(len(view), position + query.max_bytes)
    if not query.grow:
        return _Extent(position, limit, query.max_bytes, _kafka07_whole_end(view, position, limit) != limit)
    first = entry_at(view, position, len(view))
    if isinstance(first, str):  # no complete message here; a 0.7 broker sent such bytes all the same
        return _Extent(position, limit, query.max_bytes, True)
    max_bytes = grown_max_bytes(query.max_bytes, first.size_bytes, query)
    if max_bytes is None:
        return None
    end = _kafka07_whole_end(view, position, min(len(view), position + max_bytes))
    return _Extent(position, end, max_bytes, False)


def _kafka07_whole_end(view: memoryview, position: int, limit: int) -> int:
    while position < limit:
        entry = entry_at(view, position, len(view))
        if isinstance(entry, str) or entry.end_position > limit:
            break
        position = entry.end_position
    return position


def _kafka07_rows(
    file: MappedFile, end: int, position: int, base_offset: int, query: ReadQuery
) -> Iterator[Event]:
    path, view = file.path, file.view[:end]
    for item in walk(view, position, extents=file.extents):
        if isinstance(item, Damage07):
            if item.kind != "torn-tail":  # a torn tail is only due to the size of the read
                yield invalid_bytes07(path, base_offset, item)
            continue
        try:
            for message in messages(view, item, base_offset):
                yield Row(message_row(path, item, message, query.bytes_mode))
        except FormatError as error:
            yield undecodable07(path, base_offset, item, error)
