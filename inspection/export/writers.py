"""Write the records of one partition to files: one file, or with --partition-by one per directory.

At most MAX_OPEN_FILES of them are open, and at most WAITING_BYTES of rows are buffered. When another one is needed, the least
recently written file is finished; if more rows for its directory come, the next file is started there.

The directories are named as Hive and Spark name them: `topic=orders/date=2024-05-01/hour=7`. `date` and `hour` are derived from the
timestamp, in UTC. Characters that a name cannot contain are escaped as Spark does it; so are characters that a terminal would interpret or
hide (C1 controls, Unicode's direction marks), byte by byte: topic names come from the disk.
"""

import os
import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from kseg.inspection.export.options import DERIVED, ExportOptions
from kseg.inspection.export.output_columns import OutputColumns
from kseg.inspection.export.sinks import Sink, Stream, open_sink, suffix_of
from kseg.inspection.export.timestamps import dates
from kseg.segment.new_files import NewFile, ensure_directory
from kseg.segment.terminal import CONTROL, FORMAT, RAW
from kseg.segment.values import dataclass

MAX_OPEN_FILES = 16
WAITING_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class _OpenFile:
    name: str
    file: NewFile
    stream: Stream
    sink: Sink


class Writers:
    """stem: prefix of the file names, unique in this folder. topic: of the records. names, size_bytes: of finished files."""

    def __init__(self, options: ExportOptions, stem: str, topic: str) -> None:
        self._options = options
        self._stem = stem
        self._output_columns = OutputColumns(options, topic)
        self._open_files: dict[str, _OpenFile] = {}  # by directory, the least recently written first
        self._begun: dict[str, int] = {}
        self.names: list[str] = []
        self.size_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Rows with all columns that were read."""
        for directory, rows in split(batch, self._options.partition_by):
            self._place(directory).sink.write(self._output_columns.of(rows))
            self._flush_largest()

    def append_text(self, text: memoryview) -> None:
        """Append rows that are text already, if all go to one file."""
        self._place("").sink.append_text(text)

    def taken(self) -> bytes:
        """Nothing: all bytes go to files."""
        return b""

    def begin_empty(self) -> None:
        """Create one file without rows, from which readers learn the columns."""
        self._open_files[""] = self._begin("")

    def close(self) -> None:
        """Finish all files: afterwards they are complete and synced."""
        for directory in list(self._open_files):
            self._finish(directory)

    def abandon(self) -> None:
        """Close open files without reporting them."""
        for place in self._open_files.values():
            place.stream.is_abandoned = True
            place.sink.abandon()
            place.file.close()
        self._open_files.clear()

    def _place(self, directory: str) -> _OpenFile:
        """The open file of a directory, which becomes the most recently written one."""
        place = self._open_files.pop(directory, None)
        if place is None:
            if len(self._open_files) == MAX_OPEN_FILES:
                self._finish(next(iter(self._open_files)))
            place = self._begin(directory)
        self._open_files[directory] = place
        return place

    def _begin(self, directory: str) -> _OpenFile:
        options = self._options
        folder = options.folder
        for step in directory.split("/") if directory else ():
            folder = os.path.join(folder, step)
            ensure_directory(folder)
        suffix = suffix_of(options.form, options.compression)
        number = self._begun.get(directory, 0)
        # an abandoned read of the partition may have left files, which are never published
        while os.path.lexists(os.path.join(folder, name := f"{self._stem}.c{number:03d}{suffix}")):
            number += 1
        self._begun[directory] = number + 1
        file = NewFile(os.path.join(folder, name), 0o666)
        relative = f"{directory}/{name}" if directory else name
        stream = Stream(file)
        return _OpenFile(relative, file, stream, open_sink(stream, self._output_columns.schema, options))

    def _finish(self, directory: str) -> None:
        place = self._open_files[directory]
        with place.file as file:
            place.sink.close()
            file.sync()
        del self._open_files[directory]
        self.names.append(place.name)
        self.size_bytes += place.file.size_bytes

    def _flush_largest(self) -> None:
        buffered = [place.sink for place in self._open_files.values()]
        if sum(sink.waiting_bytes for sink in buffered) >= WAITING_BYTES:
            max(buffered, key=lambda sink: sink.waiting_bytes).flush()


_NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(rf"[{CONTROL}{FORMAT}{RAW}\"#%'*/:=?\\{{\[\]^]")
_BETWEEN = "\x00"


def split(batch: pa.RecordBatch, columns: tuple[str, ...]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """(directory, its rows), in the order of their first rows; the order of the rows is kept."""
    if not batch.num_rows:
        return
    if not columns:
        yield "", batch
        return
    texts = [_text(batch, column) for column in columns]
    keys = pc.binary_join_element_wise(
        *texts, _BETWEEN, null_handling="replace", null_replacement=_NULL_DIRECTORY
    ).dictionary_encode()
    for number, key in enumerate(keys.dictionary.to_pylist()):
        values = key.split(_BETWEEN)
        directory = "/".join(
            f"{column}={_escaped(value)}" for column, value in zip(columns, values, strict=True)
        )
        single = len(keys.dictionary) == 1
        yield directory, batch if single else batch.filter(pc.equal(keys.indices, number))


def _text(batch: pa.RecordBatch, column: str) -> pa.Array:
    if column in DERIVED:
        times = batch.column("timestamp")
        return dates(times) if column == "date" else pc.hour(times).cast(pa.string())
    return batch.column(column).cast(pa.string())


def _escaped(value: str) -> str:
    return _ESCAPED.sub(_percent, value) or _NULL_DIRECTORY


def _percent(found: re.Match[str]) -> str:
    code = ord(found[0])
    numbers = [code] if code < 0x100 else found[0].encode("utf-8", "surrogateescape")
    return "".join(f"%{number:02X}" for number in numbers)
