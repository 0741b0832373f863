"""The batch reader: it turns pieces of logs into Arrow batches, and raises an error at damage, or skips it.

A reader is planned in one Python process and read in others, so it holds plain values only.

It accepts no pushed-down filters, whatever `spark.sql.python.filterPushdown.enabled` says: Spark 4.3 plans a reader of a Python source
once for each DataFrame, with the filters of its first query, and every later query over that DataFrame would return only what passes
these filters.
"""

import json
import math
import os
import socket
from collections.abc import Iterator, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from kseg.inspection.arrow.log_ranges import LogPiece, Reading, ValidatedRanges
from kseg.internal_topics.secret_values import SecretValues
from kseg.recovery.verify.header_verdicts import check_headers, concerns
from kseg.segment import unreadable
from kseg.segment.errors import UnreadableInput
from kseg.segment.findings import ERROR, Finding
from kseg.segment.storage import places
from kseg.segment.storage.attached import attach_all, attached_paths
from kseg.spark.source.options import FINDINGS, SourceOptions
from kseg.spark.source.splits import DataLoss, tasks_of
from kseg.spark.visibility import (
    DirectorySample,
    check_directory_sample,
    check_file_sample,
    directory_sample,
    file_sample,
)

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Schema
    from pyspark.sql.types import StructType

    from kseg.internal_topics.registry.payload_decoder import PayloadDecoder
    from kseg.spark.source.payload_fields import Kinds


class LogPartition(InputPartition):
    """The input of one task, with samples of the files as the driver saw them during planning."""

    def __init__(self, pieces: Sequence[LogPiece], directory_sample: DirectorySample) -> None:
        super().__init__(None)
        self.pieces = tuple(pieces)
        self._outlook = directory_sample
        self._host = socket.gethostname()
        self._landmark = file_sample(pieces[0].path)
        self._identities = tuple(_identity(piece.path) for piece in pieces)
        self._attached = attached_paths()

    def check(self) -> None:
        """Raises UnreadableInput if this machine does not see the files that the driver saw during planning."""
        attach_all(self._attached)
        check_directory_sample(self._outlook)
        if socket.gethostname() != self._host:
            check_file_sample(self._landmark)
            return
        for piece, planned in zip(self.pieces, self._identities, strict=True):
            if _identity(piece.path) not in (planned, None):
                raise UnreadableInput(
                    f"{piece.path} was replaced after this DataFrame was planned: call load() again to read the new file"
                )


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = places.stat(path)
    except OSError:
        return None  # the read of the file reports it
    return status.st_dev, status.st_ino


class LogReader(DataSourceReader):
    """Reads records, or findings with table=findings. schema: columns accepted by `source_schema.check_schema`. decoder, kinds: the
    decoder of keys and values, and their column types; None if nothing is decoded."""

    def __init__(
        self,
        options: SourceOptions,
        schema: "StructType",
        decoder: "PayloadDecoder | None" = None,
        kinds: "Kinds | None" = None,
    ) -> None:
        self.options = options
        self.schema = schema
        self._decoder = decoder
        self._kinds = kinds or {}

    def partitions(self) -> Sequence[InputPartition]:
        outlooks: dict[str, DirectorySample] = {}
        planned = []
        for pieces in tasks_of(self.options):
            log_dir = os.path.dirname(os.path.dirname(pieces[0].path))
            seen = outlooks.get(log_dir) or outlooks.setdefault(log_dir, directory_sample(log_dir))
            planned.append(LogPartition(pieces, seen))
        return planned

    def read(self, partition: InputPartition) -> "Iterator[tuple[Any, ...]] | Iterator[RecordBatch]":
        if not isinstance(partition, LogPartition):
            return iter(())
        pieces = partition.pieces
        partition.check()
        if self.options.table == FINDINGS:
            return findings_in(pieces, self.options, self.schema)
        if self._decoder is None:
            return records_in(pieces, self.options, columns_of(self.schema))
        return self._decoded(pieces, self._decoder)

    def _decoded(self, pieces: Sequence[LogPiece], decoder: "PayloadDecoder") -> "Iterator[RecordBatch]":
        from kseg.spark.source.payloads import DecodedBatches

        topics = {piece.topic for piece in pieces}
        batches = DecodedBatches(columns_of(self.schema), decoder, self._kinds, sorted(topics))
        for piece in pieces:
            for batch in records_in([piece], self.options, batches.columns):
                yield batches.of(batch, piece.topic)


def records_in(
    pieces: Sequence[LogPiece], options: SourceOptions, columns: "Schema"
) -> "Iterator[RecordBatch]":
    """The records of some pieces. Raises DataLoss at damage, unless failOnDataLoss is false."""
    import pyarrow as pa

    for result in _results(pieces, options, columns):
        if isinstance(result, pa.RecordBatch):
            yield result
        elif options.fail_on_data_loss and result.severity == ERROR:
            raise DataLoss(
                f"data may be lost in {result.path}: {result.message}; with failOnDataLoss=false the remaining "
                "records are read, and table=findings lists what is skipped"
            )


def findings_in(
    pieces: Sequence[LogPiece], options: SourceOptions, schema: "StructType"
) -> Iterator[tuple[object, ...]]:
    """The findings of some pieces, as rows of `schema`."""
    from pyspark.sql.types import BinaryType, LongType, StructField, StructType

    offset, value = StructField("offset", LongType()), StructField("value", BinaryType())
    redactor = redactor_of(options)
    for piece in pieces:
        may_hold_secrets = redactor is not None and redactor.concerns(piece.path)
        columns = StructType([offset, value] if may_hold_secrets else [offset])
        for result in _results([piece], options, columns_of(columns)):
            if isinstance(result, Finding):
                row = finding_row(result, piece)
                yield tuple(row[name] for name in schema.names)


def finding_row(finding: Finding, piece: LogPiece) -> dict[str, object]:
    """A finding as values by column name."""
    known = finding.as_row()
    numbers = {name: value for name, value in finding.numbers.items() if value is not None}
    return known | {
        "topic": piece.topic,
        "partition": piece.partition,
        "numbers": json.dumps(numbers, ensure_ascii=True),
    }


def columns_of(schema: "StructType") -> "Schema":
    """The Arrow schema of a Spark schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    knows_zones = "timezone" in signature(to_arrow_schema).parameters
    # before Spark 4.3 the time zone is always UTC
    return to_arrow_schema(schema, timezone="UTC") if knows_zones else to_arrow_schema(schema)


def reading_of(options: SourceOptions) -> Reading:
    """What to read of each piece."""
    return Reading(
        include_control=options.include_control,
        include_invalid=options.include_invalid,
        records_per_batch=options.records_per_batch,
        bytes_per_batch=options.bytes_per_batch,
        redactor=redactor_of(options),
    )


def redactor_of(options: SourceOptions) -> SecretValues | None:
    """The redactor that removes secrets from records; None if the options request the secrets."""
    return None if options.show_secrets else SecretValues(connect_topics=options.connect_topics)


def _results(
    pieces: Sequence[LogPiece], options: SourceOptions, columns: "Schema"
) -> "Iterator[RecordBatch | Finding]":
    reading = reading_of(options)
    for piece in pieces:
        try:
            yield from results_of(piece, reading, columns, checks_headers=options.check_headers)
        except UnreadableInput as error:
            yield Finding("unreadable-file", piece.path, str(error))


def results_of(
    piece: LogPiece, reading: Reading, columns: "Schema", *, checks_headers: bool
) -> "Iterator[RecordBatch | Finding]":
    """The records of a piece and its findings: first those about its headers, as in `verify`, then those about damage, and finally those
    about bytes that cannot be read. Raises UnreadableInput."""
    unreadable.begin()
    yield from _results_of(piece, reading, columns, checks_headers=checks_headers)
    for finding in unreadable.taken():
        if finding.path == piece.path and piece.start <= (finding.position or 0) < (piece.stop or math.inf):
            yield finding  # findings in other pieces are reported with those


def _results_of(
    piece: LogPiece, reading: Reading, columns: "Schema", *, checks_headers: bool
) -> "Iterator[RecordBatch | Finding]":
    from kseg.inspection.arrow.record_batches import read_piece

    if not checks_headers or piece.is_kafka07 or piece.bounds.is_empty:
        yield from read_piece(piece, reading, columns)
        return
    found = check_headers(piece.path, piece.base_offset, piece.start, piece.stop)
    for finding in found.findings:
        if concerns(finding, piece.bounds):
            yield finding
    yield from read_piece(piece, reading, columns, ValidatedRanges(found.misplaced, found.spans))
