"""Write the records of one partition to files: one file, or with --partition-by one per directory.

At most MAX_OPEN_FILES of them are open, and at most WAITING_BYTES of rows are buffered. When another one is needed, the least
recently written file is finished; if more rows for its directory come, the next file is started there.
"""

import os

import pyarrow as pa

from kseg.inspection.export.options import ExportOptions
from kseg.inspection.export.output_columns import OutputColumns
from kseg.inspection.export.partition_by import split
from kseg.inspection.export.sinks import Sink, Stream, open_sink, suffix_of
from kseg.segment.new_files import NewFile, ensure_directory
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
