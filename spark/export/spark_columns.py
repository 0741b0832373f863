"""Convert the columns of an export to what the format supports; `inspection.export.output_columns` does that without a cluster."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from kseg.inspection.export.options import DERIVED, TEXT_FORMS, ExportOptions, Form
from kseg.spark.export.records_frame import decoded_fields, is_decoded
from kseg.spark.source.source_schema import META, META_TYPE, RECORD_FIELDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ENCODED = ("key", "value")


def shaped(frame: "DataFrame", options: ExportOptions) -> "DataFrame":
    """The columns to write, including those to partition by. The session's time zone is UTC."""
    chosen: list[Column] = []
    for field in RECORD_FIELDS:
        name = field.name
        if not options.has(name):
            continue
        if is_decoded(options, name):
            chosen += _decoded(name, options)
            continue
        chosen += _as_csv(name, options) if options.form is Form.CSV else [_as_json(name, options)]
        if name in _ENCODED and options.has_encoding_column:
            chosen.append(_encoding(F.col(name)).alias(f"{name}_encoding"))
    made = {"date": F.to_date("timestamp"), "hour": F.hour("timestamp")}
    chosen += [made[name].alias(name) for name in options.partition_by if name in DERIVED]
    return frame.select(chosen)


def _decoded(name: str, options: ExportOptions) -> "list[Column]":
    """The columns of a decoded side; in JSON lines its value is JSON itself."""
    chosen = {field.name: F.col(field.name) for field in decoded_fields(options, name)}
    if options.form is Form.JSON:
        chosen[name] = F.parse_json(F.col(name))
    if options.form in TEXT_FORMS and not (options.form is Form.JSON and options.bytes_mode == "base64"):
        chosen[f"{name}_raw"] = _as_text(F.col(f"{name}_raw"), options.bytes_mode)
    return [column.alias(each) for each, column in chosen.items()]


def _as_json(name: str, options: ExportOptions) -> "Column":
    """The column for JSON lines: unchanged, unless bytes are to be shown in another form than Spark's."""
    column, mode = F.col(name), options.bytes_mode
    if mode in ("", "base64"):
        return column
    if name in _ENCODED:
        return _as_text(column, mode).alias(name)
    return _headers(mode).alias(name) if name == "headers" else column


def _as_csv(name: str, options: ExportOptions) -> "list[Column]":
    if name in _ENCODED:
        return [_as_text(F.col(name), options.bytes_mode).alias(name)]
    if name == "headers":
        return [F.to_json(_headers(options.bytes_mode)).alias(name)]
    if name == META:
        return [
            F.col(META).getField(member.name).alias(f"{META}_{member.name}") for member in META_TYPE.fields
        ]
    return [F.col(name)]


def _headers(mode: str) -> "Column":
    def header(each: "Column") -> "Column":
        value = _as_text(each.getField("value"), mode)
        return F.struct(each.getField("key").alias("key"), value.alias("value"))

    return F.transform("headers", header)


def _as_text(column: "Column", mode: str) -> "Column":
    text = column.cast("string")
    match mode:
        case "base64":
            return _base64(column)
        case "hex":
            return F.lower(F.hex(column))
        case "utf8":
            return F.make_valid_utf8(text)
    return F.when(F.is_valid_utf8(text), text).otherwise(_base64(column))


def _base64(column: "Column") -> "Column":
    """Base64 on one line; Spark breaks it into many unless configured otherwise."""
    return F.replace(F.base64(column), F.lit("\r\n"), F.lit(""))


def _encoding(column: "Column") -> "Column":
    valid = F.is_valid_utf8(column.cast("string"))
    return F.when(column.isNull(), F.lit(None)).when(valid, F.lit("utf8")).otherwise(F.lit("base64"))
