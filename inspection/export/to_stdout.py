"""`export --output -`: write the records of a partition to stdout as one stream.

Text forms only (JSON lines, CSV), uncompressed. The CSV header line appears once, before the first partition.
"""

import pyarrow as pa

from kseg.inspection.export.options import ExportOptions, Form
from kseg.inspection.export.output_columns import OutputColumns
from kseg.inspection.export.sinks import Stream, open_sink
from kseg.segment.errors import UsageError

STDOUT = "-"


def check_stream(options: ExportOptions) -> None:
    """Raises UsageError for options that a stream does not support."""
    if options.form not in (Form.JSON, Form.CSV):
        raise UsageError(f"--output - writes json or csv; {options.form} needs a directory")
    if options.partition_by:
        raise UsageError("--partition-by creates directories, so it needs an --output directory")
    if options.compression != "none":
        raise UsageError("--output - is not compressed; pipe it through a compressor, or name a directory")


class _Pending:
    """Bytes that have not been taken yet."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._blocks: list[bytes] = []

    def write(self, data: object) -> None:
        block = bytes(memoryview(data))  # type: ignore[arg-type]  # what pyarrow hands over is a buffer
        self._blocks.append(block)
        self.size_bytes += len(block)

    def taken(self) -> bytes:
        data = b"".join(self._blocks)
        self._blocks.clear()
        return data


class StreamWriter:
    """The records of one partition as bytes, with the interface of `writers.Writers`. topic: of the records. is_first: begin with
    the header line."""

    def __init__(self, options: ExportOptions, topic: str, is_first: bool) -> None:
        self._output_columns = OutputColumns(options, topic)
        self._pending = _Pending()
        self._sink = open_sink(
            Stream(self._pending), self._output_columns.schema, options, has_header=is_first
        )
        self.names: list[str] = []

    @property
    def size_bytes(self) -> int:
        return self._pending.size_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        self._sink.write(self._output_columns.of(batch))

    def append_text(self, text: memoryview) -> None:
        self._sink.append_text(text)

    def close(self) -> None:
        self._sink.close()

    def abandon(self) -> None:
        pass

    def taken(self) -> bytes:
        """The bytes written since the last call."""
        return self._pending.taken()
