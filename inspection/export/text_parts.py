"""Produce the text of one large log in several processes (`jobs.log_parts`): JSON lines and CSV rows do not depend on earlier ones.

A helper returns a stream of frames, one for each Arrow batch: the number of rows, the number of bytes, and the text.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import BytesIO

import pyarrow as pa

from kseg.inspection.arrow.log_ranges import LogPiece
from kseg.inspection.export.options import TEXT_FORMS, ExportOptions
from kseg.inspection.export.output_columns import OutputColumns
from kseg.inspection.export.sinks import Stream, open_sink
from kseg.jobs.events import Event, Text
from kseg.jobs.log_parts import in_parts
from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding

# reads the requested rows of a piece, and findings
Read = Callable[[LogPiece], Iterator[pa.RecordBatch | Finding]]
_FRAME = struct.Struct("<qq")


def can_be_shared(options: ExportOptions, piece: LogPiece) -> bool:
    """Whether the rows of a piece may be produced in any order, and by any process."""
    is_whole = piece.start == 0 and piece.stop is None and not piece.is_kafka07
    is_plain = options.selection.limit is None and not options.partition_by
    return options.jobs > 1 and options.form in TEXT_FORMS and is_whole and is_plain


class SharedText:
    """Produces the text of one piece. topic: of the records. read: reads a part of the piece."""

    def __init__(self, options: ExportOptions, topic: str, piece: LogPiece, read: Read) -> None:
        self._options = options
        self._columns = OutputColumns(options, topic)
        self._piece = piece
        self._read = read

    def blocks(self) -> Iterator[tuple[bytes, int] | Finding]:
        """(text, number of rows in it), and findings, in the order of the log."""
        waiting = bytearray()
        with MappedFile(self._piece.path) as file:
            for event in in_parts(file.view, self._part, self._options.jobs, include_uncompressed=True):
                if not isinstance(event, Text):
                    assert isinstance(event, Finding)
                    yield event
                    continue
                waiting += event.data
                yield from _taken(waiting)

    def _part(self, start: int, stop: int | None) -> Iterator[Event]:
        for item in self._read(replace(self._piece, start=start, stop=stop)):
            if isinstance(item, Finding):
                yield item
            elif item.num_rows:
                text = self._text(item)
                yield Text(_FRAME.pack(item.num_rows, len(text)) + text)

    def _text(self, rows: pa.RecordBatch) -> bytes:
        out = _Bytes()
        sink = open_sink(
            Stream(out), self._columns.schema, replace(self._options, compression="none"), has_header=False
        )
        sink.write(self._columns.of(rows))
        sink.close()
        return out.getvalue()


class _Bytes(BytesIO):
    """A `ByteSink` in memory."""

    @property
    def size_bytes(self) -> int:
        return self.tell()


def _taken(waiting: bytearray) -> Iterator[tuple[bytes, int]]:
    """Take complete frames off the front."""
    at = 0
    while len(waiting) - at >= _FRAME.size:
        rows, size_bytes = _FRAME.unpack_from(waiting, at)
        end = at + _FRAME.size + size_bytes
        if end > len(waiting):
            break
        yield bytes(memoryview(waiting)[at + _FRAME.size : end]), rows
        at = end
    del waiting[:at]
