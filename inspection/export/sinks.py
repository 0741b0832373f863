"""Writers of one export file: record batches in, bytes out to the file layer.

Rows for a Parquet file are buffered until there are enough of them for a row group, or until others need the memory
(`flush`): readers skip and fetch by row groups, so these should be neither small nor too large for memory. With more than one
job a thread encodes a row group while the rows of the next are read.
"""

from abc import ABC, abstractmethod
from concurrent.futures import Future
from typing import Any, Protocol

import pyarrow as pa

from kseg.inspection.export.json_writer import json_lines
from kseg.inspection.export.options import ExportOptions, Form
from kseg.jobs.forked_worker import has_free_processor
from kseg.jobs.threads import WorkerThreads

ROW_GROUP_ROWS = 1 << 20
_SUFFIXES = {"none": "", "gzip": ".gz", "bzip2": ".bz2"}
_STREAMS = {"gzip": "gzip", "bzip2": "bz2"}


def suffix_of(form: Form, compression: str) -> str:
    """The suffix of file names, as Spark uses it."""
    mark = _SUFFIXES.get(compression, f".{compression}")
    return f".{form}{mark}" if form in (Form.JSON, Form.CSV) else f"{mark}.{form}"


class ByteSink(Protocol):
    """Takes bytes and counts them: a `NewFile`, or a substitute."""

    @property
    def size_bytes(self) -> int: ...

    def write(self, data: Any) -> object: ...


class Stream:
    """A `ByteSink` with the file interface that pyarrow expects. is_abandoned: its content is discarded; writers that pyarrow
    closes on its own when it releases them write into nothing."""

    closed = False

    def __init__(self, file: ByteSink) -> None:
        self._file = file
        self.is_abandoned = False

    def write(self, data: Any) -> int:
        if not self.is_abandoned:
            self._file.write(data)
        return len(data)

    def tell(self) -> int:
        return self._file.size_bytes

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


class Sink(ABC):
    """waiting_bytes: size of the rows that are not written yet."""

    waiting_bytes = 0

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""

    def append_text(self, text: memoryview) -> None:
        """Append rows that are text already (`text_of`), in the text forms."""
        raise NotImplementedError

    def flush(self) -> None:
        """Write buffered rows."""
        return

    @abstractmethod
    def close(self) -> None:
        """Write buffered rows and the end of the file, as its form requires."""

    def abandon(self) -> None:
        """Discard the rest. When this returns, no thread is writing."""
        return


class _Parquet(Sink):
    def __init__(self, stream: Stream, schema: pa.Schema, compression: str, jobs: int) -> None:
        from pyarrow.parquet import ParquetWriter

        self._encoder = WorkerThreads(1) if jobs > 1 and has_free_processor() else None
        self._encoding: Future[None] | None = None
        self._schema = schema
        self._writer = ParquetWriter(stream, schema, compression=compression, version="2.6")
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self.waiting_bytes += batch.nbytes
        if self._rows >= ROW_GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        if self._rows:
            self._wait()
            rows = pa.Table.from_batches(self._waiting, self._schema)
            if self._encoder is None:
                self._writer.write_table(rows, row_group_size=self._rows)
            else:
                self._encoding = self._encoder.submit(
                    self._writer.write_table, rows, row_group_size=self._rows
                )
        self._waiting, self._rows, self.waiting_bytes = [], 0, 0

    def close(self) -> None:
        self.flush()
        self._wait()
        self._writer.close()
        self.abandon()

    def abandon(self) -> None:
        if self._encoder is not None:
            self._encoder.close()

    def _wait(self) -> None:
        """Wait until the previous row group is written. Raises the exception of writing it."""
        if self._encoding is not None:
            encoding, self._encoding = self._encoding, None
            encoding.result()


class _Arrow(Sink):
    def __init__(self, stream: Stream, schema: pa.Schema, compression: str) -> None:
        import pyarrow.ipc

        how = None if compression == "none" else compression
        options = pyarrow.ipc.IpcWriteOptions(compression=how)
        self._writer = pyarrow.ipc.new_file(stream, schema, options=options)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


class _Text(Sink):
    """The destination of the bytes, compressed or not."""

    def __init__(self, stream: Stream, compression: str) -> None:
        self._out: Any = stream
        if compression != "none":
            file = pa.PythonFile(stream, mode="w")
            self._out = pa.CompressedOutputStream(file, _STREAMS[compression])

    def append_text(self, text: memoryview) -> None:
        self._out.write(text)

    def close(self) -> None:
        self._out.close()


class _Json(_Text):
    def __init__(self, stream: Stream, compression: str, bytes_mode: str) -> None:
        super().__init__(stream, compression)
        self._mode = bytes_mode

    def write(self, batch: pa.RecordBatch) -> None:
        self._out.write(json_lines(batch, self._mode))


class _Csv(_Text):
    """With a header line; quotes are doubled; null is empty, an empty text a pair of quotes."""

    def __init__(self, stream: Stream, schema: pa.Schema, compression: str, has_header: bool) -> None:
        from pyarrow.csv import CSVWriter, WriteOptions

        super().__init__(stream, compression)
        self._writer = CSVWriter(self._out, schema, write_options=WriteOptions(include_header=has_header))

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()
        super().close()


def text_of(batch: pa.RecordBatch, options: ExportOptions) -> memoryview:
    """The rows as one of the text forms, without a header and uncompressed."""
    if options.form is Form.JSON:
        return json_lines(batch, options.bytes_mode).cast("B")  # Arrow's memory is of signed bytes
    from pyarrow.csv import CSVWriter, WriteOptions

    out = pa.BufferOutputStream()
    with CSVWriter(out, batch.schema, write_options=WriteOptions(include_header=False)) as writer:
        writer.write_batch(batch)
    return memoryview(out.getvalue()).cast("B")


def open_sink(stream: Stream, schema: pa.Schema, options: ExportOptions, *, has_header: bool = True) -> Sink:
    """A sink of the form that `options` name. has_header: CSV begins with the column names."""
    match options.form:
        case Form.PARQUET:
            return _Parquet(stream, schema, options.compression, options.jobs)
        case Form.ARROW:
            return _Arrow(stream, schema, options.compression)
        case Form.JSON:
            return _Json(stream, options.compression, options.bytes_mode)
        case Form.CSV:
            return _Csv(stream, schema, options.compression, has_header)
    raise AssertionError(f"{options.form} is written by Spark only")
