"""`export` for one partition: `export(target, ExportOptions) -> Iterator[Event]`.

1. The live segments become pieces, read one after another as Arrow batches.
2. `RowFilter` keeps the requested records; the writers write them to files under the run's folder.
3. The files are finished, synced and listed in a result row. The run then moves them into place (`run`).
Damage is a finding, as everywhere, and reading continues after it.
"""

import os
from collections.abc import Iterator
from zlib import crc32

import pyarrow as pa

from kseg.inspection.arrow.log_ranges import LogPiece, Reading
from kseg.inspection.arrow.record_batches import read_piece
from kseg.inspection.export.export_ranges import identity, pieces_of
from kseg.inspection.export.options import ExportOptions
from kseg.inspection.export.row_filter import RowFilter
from kseg.inspection.export.text_parts import SharedText, can_be_shared
from kseg.inspection.export.to_stdout import STDOUT, StreamWriter
from kseg.inspection.export.writers import Writers
from kseg.jobs.events import Advance, Event, Row, Text
from kseg.segment.errors import UnreadableInput
from kseg.segment.findings import ERROR, Finding
from kseg.segment.partition.targets import LogTarget, directory_of
from kseg.segment.storage import places

RECORDS_PER_BATCH = 32 * 1024
_LONGEST_NAME = 120  # bytes for the partition in a file name, which may have 255


def export(target: LogTarget, options: ExportOptions) -> Iterator[Event]:
    """Findings, and one `result` row; with stdout as output also the records themselves. Raises UnreadableInput, and Refused when
    files cannot be written."""
    writers: Writers | StreamWriter
    topic, _ = identity(directory_of(target))
    if options.output == STDOUT:
        writers = StreamWriter(options, topic, is_first=target.path == options.first_path)
    else:
        writers = Writers(options, _stem(target.path, options.run_id), topic)
    partition_export = _PartitionExport(target, options, writers)
    try:
        yield from partition_export.events()
        writers.close()
        if data := writers.taken():
            yield Text(data)
    except pa.ArrowException as error:
        raise UnreadableInput(f"cannot export {target.path}: {error}") from error
    finally:
        writers.abandon()
    yield Row(partition_export.result())


class _PartitionExport:
    def __init__(self, target: LogTarget, options: ExportOptions, writers: Writers | StreamWriter) -> None:
        self._target = target
        self._options = options
        self._writers = writers
        self._row_filter = RowFilter(options)
        selection = options.selection
        with_control = options.with_control or bool(selection.control)
        self._reading = Reading(
            include_control=with_control and not selection.read_committed,
            records_per_batch=RECORDS_PER_BATCH,
            redactor=options.redactor,
        )
        self._records = 0
        self._damaged_bytes = 0

    def events(self) -> Iterator[Event]:
        findings: list[Finding] = []
        pieces = pieces_of(self._target, self._options.selection, findings)
        yield from findings
        for piece in pieces:
            yield from self._piece(piece)
            yield Advance(self._target.path, _size_of(piece.path))
            if self._row_filter.is_exhausted:
                return

    def _piece(self, piece: LogPiece) -> Iterator[Event]:
        damaged_to = 0  # the same bytes can have several findings
        for item in self._written(piece):
            if isinstance(item, Finding):
                if item.severity == ERROR and item.position is not None:
                    end = item.position + (item.length or 0)
                    self._damaged_bytes += max(0, end - max(item.position, damaged_to))
                    damaged_to = max(damaged_to, end)
                yield item
                continue
            self._records += item
            if data := self._writers.taken():
                yield Text(data)
            if self._row_filter.is_exhausted:
                return

    def _written(self, piece: LogPiece) -> Iterator[int | Finding]:
        """Write the requested rows; yields the number of rows of each batch, and findings."""
        if can_be_shared(self._options, piece):
            shared = SharedText(self._options, identity(directory_of(self._target))[0], piece, self._rows)
            for block in shared.blocks():
                if isinstance(block, Finding):
                    yield block
                else:
                    self._writers.append_text(block[0])
                    yield block[1]
            return
        for item in self._rows(piece):
            if isinstance(item, Finding):
                yield item
            else:
                self._writers.write(item)
                yield item.num_rows

    def _rows(self, piece: LogPiece) -> Iterator[pa.RecordBatch | Finding]:
        """The requested rows of a piece, and findings."""
        for item in read_piece(piece, self._reading, self._row_filter.schema):
            yield item if isinstance(item, Finding) else self._row_filter.filter_rows(item)

    def result(self) -> dict[str, object]:
        topic, partition = identity(directory_of(self._target))
        return {
            "type": "result",
            "command": "export",
            "path": self._target.path,
            "partition": f"{topic}-{partition}" if partition >= 0 else topic,
            "to": str(self._options.form),
            "output": self._options.output,
            "files": self._writers.names,
            "records": self._records,
            "bytes": self._writers.size_bytes,
            "damaged_bytes": self._damaged_bytes,
        }


def _stem(path: str, run_id: str) -> str:
    """The stem of file names: begins with `part-`, as Spark's do, and names the source of the records."""
    whole = places.abspath(path)
    name = os.path.basename(whole).encode(errors="surrogateescape")
    shown = (
        name[:_LONGEST_NAME].decode(errors="replace").encode("ascii", "replace").decode().replace("?", "_")
    )
    return f"part-{shown}-{crc32(os.fsencode(whole)):08x}-{run_id}"


def _size_of(path: str) -> int:
    try:
        return places.stat(path).st_size
    except OSError:
        return 0
