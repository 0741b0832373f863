"""Decode the keys and values that `kafka-log` reads: determine the resulting columns, and produce batches with them.

Unless the schema of the read specifies the column types (`payload_fields`), a first scan of all records collects the schemas that they
refer to. JSON text needs no scan.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from kseg.inspection.arrow.arrow_schema import RECORD_SCHEMA
from kseg.inspection.arrow.log_ranges import LogPiece, Reading
from kseg.inspection.arrow.record_batches import read_piece
from kseg.inspection.export.payload_types import arrow_type, decoded_arrays, headers_of
from kseg.internal_topics.registry.decoder_choice import DecoderChoice
from kseg.internal_topics.registry.payload_columns import PayloadColumns, PayloadSurvey
from kseg.internal_topics.registry.payload_decoder import Format, PayloadDecoder
from kseg.segment.column_types import JSON_COLUMN, ColumnType
from kseg.segment.errors import UnreadableInput, UsageError
from kseg.segment.findings import Finding
from kseg.segment.unreadable import begin
from kseg.spark.source.options import JSON, SourceOptions
from kseg.spark.source.partitions import places_of
from kseg.spark.source.payload_fields import SIDES, Kinds, kind_in, without_large_decimals
from kseg.spark.source.splits import tasks_of


def decoder_of(options: SourceOptions) -> PayloadDecoder:
    """The decoder that the options request. Raises UsageError, UnreadableInput."""
    choice = DecoderChoice(
        key_format=Format(options.key_format),
        value_format=Format(options.value_format),
        schemas=options.schemas,
        paths=options.paths,
        option="the option schemas",
    )
    return choice.decoder([place.target for place in places_of(options)], lambda _problem: None)


def kinds_of(options: SourceOptions, decoder: PayloadDecoder, schema: StructType | None = None) -> Kinds:
    """The column types of decoded keys and values. schema: the explicit schema of the read. Raises UsageError if topics have different
    columns."""
    sides = [side for side in SIDES if options.decodes(side == "key")]
    if options.decoded_as == JSON:
        return dict.fromkeys(sides, JSON_COLUMN)
    said = {} if schema is None else {side: kind_in(schema, side) for side in sides}
    known = {side: kind for side, kind in said.items() if kind is not None}
    if len(known) == len(sides):
        return known
    columns = _surveyed(options, decoder)
    if columns.differ:
        raise UsageError(
            f"the payloads of topics {columns.differ} have different columns: choose one with subscribe, or decodedAs=json"
        )
    return {side: without_large_decimals(columns.common_type(side == "key")) for side in sides}


def _surveyed(options: SourceOptions, decoder: PayloadDecoder) -> PayloadColumns:
    survey = PayloadSurvey(decoder)
    if decoder.has_schemas(is_key=True) or decoder.has_schemas(is_key=False):
        for piece in (piece for task in tasks_of(options) for piece in task):
            for batch in _payloads(piece):
                headers = headers_of(batch)
                for side in SIDES:
                    survey.note(piece.topic, side == "key", batch.column(side).to_pylist(), headers)
    return survey.columns()


def _payloads(piece: LogPiece) -> Iterator[pa.RecordBatch]:

    begin()
    columns = pa.schema([RECORD_SCHEMA.field(name) for name in (*SIDES, "headers")])
    try:
        for item in read_piece(piece, Reading(), columns):
            if not isinstance(item, Finding):
                yield item
    except UnreadableInput:
        return  # the read itself reports it


class DecodedBatches:
    """Produces the batches of a read whose keys or values are decoded. asked: its columns. columns: the columns to read for them."""

    def __init__(
        self, asked: pa.Schema, decoder: PayloadDecoder, kinds: Kinds, topics: Sequence[str]
    ) -> None:
        self._asked = asked
        self._sides = [side for side in kinds if _is_asked(asked, side)]
        types: dict[tuple[str, bool], ColumnType] = {
            (topic, side == "key"): kind for side, kind in kinds.items() for topic in topics
        }
        self._kinds = kinds
        self._payloads = PayloadColumns(decoder, types)
        self.columns = self._read_columns()

    def of(self, batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
        decoded: dict[str, pa.Array] = {}
        for side in self._sides:
            decoded |= decoded_arrays(self._payloads, topic, side, batch, arrow_type(self._kinds[side]))
            if side in self._asked.names:
                _fit_to_spark(side, decoded, batch, self._asked.field(side).type)
        arrays = []
        for field in self._asked:
            name = field.name
            if name in decoded:
                arrays.append(decoded[name])
            else:
                arrays.append(batch.column(name.removesuffix("_bytes")))
        return pa.RecordBatch.from_arrays(arrays, schema=self._asked)

    def _read_columns(self) -> pa.Schema:
        fields: dict[str, pa.Field] = {}
        for field in self._asked:
            own = field.name.removesuffix("_bytes")
            if own in SIDES:
                fields[own] = RECORD_SCHEMA.field(own)
            elif not field.name.startswith(tuple(f"{side}_" for side in SIDES)):
                fields[own] = field
        for side in self._sides:
            fields[side] = RECORD_SCHEMA.field(side)
            fields["headers"] = RECORD_SCHEMA.field("headers")
        return pa.schema(list(fields.values()))


def _is_asked(asked: pa.Schema, side: str) -> bool:
    return any(name in asked.names for name in (side, f"{side}_raw", f"{side}_error", f"{side}_schema_id"))


def _fit_to_spark(
    side: str, decoded: dict[str, pa.Array], batch: pa.RecordBatch, wanted: pa.DataType
) -> None:
    """Convert decoded values to Spark's type. A value outside its range (a timestamp in 300,000 years) counts as not decodable."""
    values = decoded[side]
    try:
        decoded[side] = values.cast(wanted, safe=not _has_nanos(values.type))
        return
    except pa.ArrowInvalid:
        pass
    shown: list[Any] = []
    raw, errors = decoded[f"{side}_raw"].to_pylist(), decoded[f"{side}_error"].to_pylist()
    for at in range(len(values)):
        try:
            shown.append(values.slice(at, 1).cast(wanted, safe=not _has_nanos(values.type)))
        except pa.ArrowInvalid as error:
            shown.append(pa.nulls(1, wanted))
            raw[at], errors[at] = batch.column(side)[at].as_py(), f"Spark cannot hold it: {error}"
    decoded[side] = pa.concat_arrays(shown)
    decoded[f"{side}_raw"], decoded[f"{side}_error"] = (
        pa.array(raw, pa.binary()),
        pa.array(errors, pa.string()),
    )


def _has_nanos(kind: pa.DataType) -> bool:
    """Whether times have more digits than microseconds; they are truncated, not refused."""
    if pa.types.is_timestamp(kind):
        return bool(kind.unit == "ns")
    return any(_has_nanos(kind.field(at).type) for at in range(kind.num_fields))
