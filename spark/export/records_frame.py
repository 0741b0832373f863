"""The records of an export, as a DataFrame with the columns of `kafka-log`.

Offsets and times become options of the data source, the other filters become expressions of Spark. Regular expressions are
evaluated by Python there too, so they match the same bytes.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kseg.inspection.export.options import TEXT_FORMS, ExportOptions
from kseg.inspection.record_filter import Selection
from kseg.internal_topics.registry.payload_columns import PayloadColumns
from kseg.internal_topics.secret_values import SecretValues
from kseg.segment.findings import Finding
from kseg.segment.partition.targets import Target
from kseg.segment.storage import places
from kseg.spark.source.options import COLUMNS, JSON
from kseg.spark.source.payload_fields import SIDES, bytes_field, fields_of, without_large_decimals
from kseg.spark.source.source_schema import META, META_TYPE, RECORD_FIELDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructField, StructType


def records(session: "SparkSession", targets: Sequence[Target], options: ExportOptions) -> "DataFrame":
    """The records of the targets that `options` select; damage is skipped."""
    want = options.selection
    bounds = {
        "fromOffset": want.from_offset,
        "toOffset": want.to_offset,
        "fromTimestamp": want.from_time_ms,
        "toTimestamp": want.to_time_ms,
    }
    reader = _reader(session, options).schema(_schema(options)).option("paths", _paths(targets))
    for name, bound in bounds.items():
        if bound is not None:
            reader = reader.option(name, bound)
    frame = _asked(reader.load(), want, "key_bytes" if is_decoded(options, "key") else "key")
    return frame if want.limit is None else _limited(frame, want.limit)


def findings(
    session: "SparkSession", targets: Sequence[Target], options: ExportOptions
) -> Iterator[tuple[Finding, str]]:
    """The damage in requested ranges, in the order of the targets, each with the path of its target."""
    shown = {places.abspath(target.path): target.path for target in targets}
    reader = _reader(session, options).option("table", "findings").option("paths", _paths(targets))
    for row in reader.load().toLocalIterator():
        values = row.asDict()
        path = values["path"]
        place = path if path in shown else os.path.dirname(path)
        given = shown.get(place, place)
        finding = Finding(
            values["id"],
            given if path == place else os.path.join(given, os.path.basename(path)),
            values["message"].replace(place, given),
            position=values["position"],
            length=values["length"],
            first_offset=values["first_offset"],
            last_offset=values["last_offset"],
            numbers=json.loads(values["numbers"]),
        )
        if _concerns(finding, options.selection):
            yield finding, given


def _reader(session: "SparkSession", options: ExportOptions) -> "DataFrameReader":
    committed = options.selection.read_committed
    redactor = options.redactor
    wishes: dict[str, bool | str] = {
        "failOnDataLoss": False,
        "includeDeleted": True,  # like an export without a cluster
        "checkHeaders": False,  # likewise: headers are trusted
        "includeControl": (options.with_control or bool(options.selection.control)) and not committed,
    }
    if redactor is None:
        wishes["showSecrets"] = True
    elif isinstance(redactor, SecretValues) and redactor.connect_topics:
        wishes["connectTopics"] = ",".join(redactor.connect_topics)
    if isinstance(options.payloads, PayloadColumns):
        wishes |= _decoding(options.payloads, options)
    reader = session.read.format("kafka-log")
    for name, value in wishes.items():
        reader = reader.option(name, value)
    return reader.option("isolation.level", "read_committed" if committed else "read_uncommitted")


def _decoding(payloads: PayloadColumns, options: ExportOptions) -> dict[str, bool | str]:
    """The options of the data source for decoding payloads."""
    decoder = payloads.decoder
    wishes: dict[str, bool | str] = {
        "keyFormat": str(decoder.format(is_key=True)),
        "valueFormat": str(decoder.format(is_key=False)),
        "decodedAs": JSON if options.form in TEXT_FORMS else COLUMNS,
    }
    if decoder.schemas is not None:
        wishes["schemas"] = places.abspath(decoder.schemas.path)
    return wishes


def is_decoded(options: ExportOptions, name: str) -> bool:
    """Whether a column belongs to decoded keys or values."""
    return name in SIDES and options.payloads is not None and options.payloads.is_decoded(name == "key")


def decoded_fields(options: ExportOptions, side: str) -> "list[StructField]":
    """The columns of the data source for a side that is decoded."""

    assert isinstance(options.payloads, PayloadColumns)
    is_key = side == "key"
    kind = without_large_decimals(options.payloads.common_type(is_key))
    return fields_of(side, kind, has_schemas=options.payloads.has_schemas(is_key))


def _paths(targets: Sequence[Target]) -> str:
    return json.dumps([places.abspath(target.path) for target in targets])


def _schema(options: ExportOptions) -> "StructType":
    """The columns that are written, and those that a filter needs."""
    from pyspark.sql.types import StructField, StructType

    from kseg.inspection.export.row_filter import RowFilter

    wanted = RowFilter(options).schema
    if options.selection.limit is not None and META not in wanted.names:
        wanted = RowFilter(replace(options, with_meta=True)).schema
    needs_key = bool(options.selection.keys) or options.selection.key_regex is not None
    fields = []
    for field in RECORD_FIELDS:
        if field.name == META and META in wanted.names:
            members = {member.name for member in wanted.field(META).type}
            kept = [member for member in META_TYPE.fields if member.name in members]
            fields.append(StructField(META, StructType(kept), field.nullable))
        elif is_decoded(options, field.name):
            fields += decoded_fields(options, field.name) if options.has(field.name) else []
            if field.name == "key" and needs_key:
                fields.append(bytes_field("key"))
        elif field.name in wanted.names and (options.has(field.name) or field.name == "key"):
            fields.append(field)
    return StructType(fields)


def _asked(frame: "DataFrame", want: Selection, key: str) -> "DataFrame":
    """The records that match the filters on keys and on members of `_meta`. key: the column with the bytes of keys."""
    from pyspark.sql.functions import col, lit, udf

    meta: Any = col(META)
    members = {"producer_id": want.producer_id, "leader_epoch": want.leader_epoch}
    if want.control:
        members["control"] = True
    for name, value in members.items():
        if value is not None:
            frame = frame.where(meta.getField(name) == lit(value))
    if want.keys:
        frame = frame.where(col(key).isin(*[lit(each) for each in want.keys]))
    if want.key_regex is not None:
        # not with Arrow, which would require pandas
        frame = frame.where(udf(_Search(want.key_regex), "boolean", useArrow=False)(col(key)))
    return frame


class _Search:
    """The search for a key pattern, sent to the tasks."""

    def __init__(self, pattern: bytes) -> None:
        self._pattern = re.compile(pattern)

    def __call__(self, key: bytes | None) -> bool:
        return key is not None and self._pattern.search(key) is not None


def _limited(frame: "DataFrame", limit: int) -> "DataFrame":
    """The first records of each partition directory; two directories with one name count as two."""
    from pyspark.sql import Window
    from pyspark.sql.functions import col, regexp_replace, row_number

    meta: Any = col(META)
    directory = regexp_replace(meta.getField("file"), "/[^/]*$", "")
    place = Window.partitionBy(directory).orderBy("offset", meta.getField("position"))
    return frame.withColumn("_row", row_number().over(place)).where(col("_row") <= limit).drop("_row")


def _concerns(finding: Finding, want: Selection) -> bool:
    """Whether a requested record may have been lost there."""
    first, last = finding.first_offset, finding.last_offset
    is_behind = want.to_offset is not None and first is not None and first >= want.to_offset
    is_before = want.from_offset is not None and last is not None and last < want.from_offset
    return not (is_behind or is_before)
