"""Decoded payloads as columns of a table.

The columns of a topic are those of all schemas that its records name, merged (`segment.column_types`); they are determined in
advance from the first bytes of each payload (`PayloadSurvey`). For text the values are JSON, and no survey is needed.
"""

from collections.abc import Iterable, Mapping, Sequence

from kseg.internal_topics.registry.column_fit import Fit, fit
from kseg.internal_topics.registry.payload_decoder import Format, PayloadDecoder
from kseg.internal_topics.registry.schema_columns import (
    avro_columns,
    json_columns,
    merged_all,
    protobuf_columns,
)
from kseg.internal_topics.registry.schema_store import AVRO, PROTOBUF, RegisteredSchema
from kseg.internal_topics.registry.wire_format import frame_of, message_indexes
from kseg.segment.column_types import JSON_COLUMN, ColumnType, Scalar
from kseg.segment.errors import FormatError
from kseg.segment.model import Headers
from kseg.segment.payload_table import DecodedColumn

_WITHOUT_SCHEMA = {
    Format.JSON: JSON_COLUMN,
    Format.STRING: Scalar("string"),
    Format.SHORT: Scalar("int32"),
    Format.INTEGER: Scalar("int32"),
    Format.LONG: Scalar("int64"),
    Format.FLOAT: Scalar("float"),
    Format.DOUBLE: Scalar("double"),
}
_PREFIX_BYTES = 5
_INDEXED_PREFIX_BYTES = 24  # prefix with message indexes, for any nesting to be expected
Shape = tuple[RegisteredSchema, tuple[int, ...]]


class PayloadColumns:
    """See `segment.payload_table.PayloadTable`. types: of keys and values by topic; None for text, where everything is JSON."""

    def __init__(
        self, decoder: PayloadDecoder, types: Mapping[tuple[str, bool], ColumnType] | None = None
    ) -> None:
        self.decoder = decoder
        self._types = types
        self._fits: dict[tuple[str, bool], Fit] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return PayloadColumns, (self.decoder, self._types)

    def is_decoded(self, is_key: bool) -> bool:
        return self.decoder.format(is_key) is not Format.BYTES

    def has_schemas(self, is_key: bool) -> bool:
        return self.decoder.has_schemas(is_key)

    def type_of(self, topic: str, is_key: bool) -> ColumnType:
        if self._types is None:
            return JSON_COLUMN
        form = self.decoder.format(is_key)
        if form in _WITHOUT_SCHEMA:
            return _WITHOUT_SCHEMA[form]
        return self._types.get((topic, is_key), JSON_COLUMN)

    def common_type(self, is_key: bool) -> ColumnType:
        """The type of the values of all topics, if their columns do not `differ`."""
        kinds = [kind for (_, of_key), kind in (self._types or {}).items() if of_key == is_key]
        return self.type_of("", is_key) if not kinds else kinds[0]

    @property
    def differ(self) -> str:
        """Two topics whose columns differ, "" if all are the same."""
        for is_key in (True, False):
            by_type = {
                kind: topic for (topic, of_key), kind in (self._types or {}).items() if of_key == is_key
            }
            if len(by_type) > 1:
                return " and ".join(sorted(by_type.values())[:2])
        return ""

    def decoded(
        self,
        topic: str,
        is_key: bool,
        payloads: Sequence[bytes | None],
        headers: Sequence[Headers] | None,
    ) -> DecodedColumn:
        place = (topic, is_key)
        if place not in self._fits:
            self._fits[place] = fit(self.type_of(topic, is_key))
        fitted, decode = self._fits[place], self.decoder.decode
        column = DecodedColumn()
        for at, data in enumerate(payloads):
            value = raw = error = schema_id = None
            if data is not None:
                try:
                    payload = decode(data, headers[at] if headers is not None else (), topic, is_key=is_key)
                    if payload is None:
                        raw = data
                    else:
                        value = fitted(payload.value)
                        schema_id = None if payload.schema is None else payload.schema.schema_id
                except FormatError as problem:
                    raw, error = data, str(problem)
            column.decoded.append(value)
            column.raw.append(raw)
            column.errors.append(error)
            column.schema_ids.append(schema_id)
        return column


class PayloadSurvey:
    """Collects the schemas that the records of topics refer to."""

    def __init__(self, decoder: PayloadDecoder) -> None:
        self._decoder = decoder
        self._found: dict[tuple[str, bool], dict[Shape, None]] = {}  # in order of their first records

    def note(
        self,
        topic: str,
        is_key: bool,
        payloads: Iterable[bytes | None],
        headers: Sequence[Headers] | None = None,
    ) -> None:
        """Record the schemas of some payloads; payloads without a schema are skipped."""
        if not self._decoder.has_schemas(is_key):
            return
        found = self._found.setdefault((topic, is_key), {})
        for data, own in self._distinct(topic, is_key, payloads, headers):
            shape = self._shape(data, own, topic, is_key)
            if shape is not None:
                found[shape] = None

    def _distinct(
        self,
        topic: str,
        is_key: bool,
        payloads: Iterable[bytes | None],
        headers: Sequence[Headers] | None,
    ) -> Iterable[tuple[bytes, Headers]]:
        """The distinct payloads to examine: of payloads that name their schema, only one for each prefix."""
        present = [data for data in payloads if data is not None] if headers is None else []
        if headers is not None:
            return [(data, own) for data, own in zip(payloads, headers, strict=True) if data is not None]
        found: list[tuple[bytes, Headers]] = [
            (prefix, ()) for prefix in {data[:_PREFIX_BYTES] for data in present}
        ]
        if any(self._is_protobuf(prefix, topic, is_key) for prefix, _ in found):
            return [(prefix, ()) for prefix in {data[:_INDEXED_PREFIX_BYTES] for data in present}]
        return found

    def _is_protobuf(self, prefix: bytes, topic: str, is_key: bool) -> bool:
        frame = frame_of(prefix, (), is_key)
        try:
            return frame is not None and self._decoder.schema_of(frame, topic).kind == PROTOBUF
        except FormatError:
            return False

    def columns(self) -> PayloadColumns:
        """The columns for the recorded schemas."""
        types = {}
        for place, shapes in self._found.items():
            ordered = sorted(shapes, key=lambda shape: (shape[0].schema_id, shape[1]))
            kind = merged_all(each for shape in ordered if (each := self._type(shape)) is not None)
            if kind is not None:
                types[place] = kind
        return PayloadColumns(self._decoder, types)

    def _shape(self, data: bytes, headers: Headers, topic: str, is_key: bool) -> Shape | None:
        frame = frame_of(data, headers, is_key)
        if frame is None:
            return None
        try:
            schema = self._decoder.schema_of(frame, topic)
            if schema.kind != PROTOBUF:
                return schema, ()
            indexes = frame.data if frame.indexes is None else frame.indexes or b"\0"
            return schema, message_indexes(indexes)[0]
        except FormatError:
            return None

    def _type(self, shape: Shape) -> ColumnType | None:
        from kseg.internal_topics.registry.json_text import read_json
        from kseg.internal_topics.registry.protobuf_decoder import message_descriptor

        schema, path = shape
        try:
            compiled = self._decoder.compiled(schema)
            if schema.kind == AVRO:
                return avro_columns(compiled.schema, compiled.named)
            if schema.kind == PROTOBUF:
                return protobuf_columns(message_descriptor(compiled.file, path))
            return json_columns(read_json(schema.text.encode("utf-8", "replace")))
        except FormatError:
            return None
