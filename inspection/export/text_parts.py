"""Produce the text of one large log in several processes (`jobs.log_parts`): JSON lines and CSV rows do not depend on earlier ones.

A helper returns a stream of frames, one for each Arrow batch:

    frame   rows (8 bytes), number of bytes (8 bytes), text
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from kseg.inspection.arrow.log_ranges import LogPiece
from kseg.inspection.export.options import TEXT_FORMS, ExportOptions
from kseg.inspection.export.output_columns import OutputColumns
from kseg.inspection.export.sinks import text_of
from kseg.jobs.events import Event, Text
from kseg.jobs.log_parts import in_parts
from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding

# reads the requested rows of a piece, and findings
Read = Callable[[LogPiece], Iterator[pa.RecordBatch | Finding]]
_HEAD = struct.Struct("<qq")


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

    def blocks(self) -> Iterator[tuple[memoryview, int] | Finding]:
        """(text, number of rows in it), and findings, in the order of the log. A text is released when the next one is requested."""
        frames = _Frames()
        with MappedFile(self._piece.path) as file:
            for event in in_parts(file.view, self._part, self._options.jobs, include_uncompressed=True):
                if isinstance(event, Text):
                    yield from frames.of(event.data)
                else:
                    assert isinstance(event, Finding)
                    yield event

    def _part(self, start: int, stop: int | None) -> Iterator[Event]:
        for item in self._read(replace(self._piece, start=start, stop=stop)):
            if isinstance(item, Finding):
                yield item
            elif item.num_rows:
                text = text_of(self._columns.of(item), self._options)
                yield Text(_HEAD.pack(item.num_rows, len(text)))
                yield Text(text)


class _Frames:
    """Takes the frames out of a stream that arrives in pieces. What arrives in one piece is not copied."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._text = bytearray()  # the beginning of a text that continues in the next piece
        self._rows = 0
        self._left_bytes = 0  # of that text

    def of(self, piece: bytes | memoryview) -> Iterator[tuple[memoryview, int]]:
        """The frames that this piece completes."""
        at = 0
        with memoryview(piece) as view:
            while at < len(view):
                if not self._left_bytes:
                    end = min(len(view), at + _HEAD.size - len(self._head))
                    self._head += view[at:end]
                    if len(self._head) == _HEAD.size:
                        self._rows, self._left_bytes = _HEAD.unpack(self._head)
                        self._head.clear()
                else:
                    end = min(len(view), at + self._left_bytes)
                    self._left_bytes -= end - at
                    with view[at:end] as text:
                        yield from self._completed(text)
                at = end

    def _completed(self, text: memoryview) -> Iterator[tuple[memoryview, int]]:
        if self._text or self._left_bytes:
            self._text += text
            if not self._left_bytes:
                whole, self._text = self._text, bytearray()
                yield memoryview(whole), self._rows
        else:
            yield text, self._rows
