"""The column types of Avro, protobuf and JSON schemas.

Types that a table cannot hold become JSON text: types that contain themselves, records without fields, types nested deeper than
MAX_LEVELS, decimals of more digits than tables have, and JSON Schema that allows more than one type.
"""

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

from kseg.internal_topics.registry.avro_decoder import DECIMAL, LOGICAL
from kseg.internal_topics.registry.protobuf_decoder import extensions_of
from kseg.segment.column_types import (
    JSON_COLUMN,
    ColumnType,
    DecimalOf,
    ListOf,
    MapOf,
    Scalar,
    StructOf,
    merged,
)

MAX_LEVELS = 20
MAX_FIELDS = 5000
MAX_PRECISION = 76
_AVRO = {
    "boolean": "bool",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "bytes": "bytes",
    "string": "string",
}
_AVRO_LOGICAL = {
    ("int", "date"): "date",
    ("int", "time-millis"): "time-millis",
    ("long", "time-micros"): "time-micros",
    **{
        ("long", f"{local}timestamp-{unit}"): f"{local}timestamp-{unit}"
        for local in ("", "local-")
        for unit in ("millis", "micros", "nanos")
    },
}
# by the numbers of FieldDescriptorProto.Type
_PROTOBUF = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "uint64",
    7: "uint32",
    8: "bool",
    9: "string",
    12: "bytes",
    13: "uint32",
    15: "int32",
    16: "int64",
    17: "int32",
    18: "int64",
}
_JSON = {"string": "string", "integer": "int64", "number": "double", "boolean": "bool"}


def merged_all(types: Iterable[ColumnType]) -> ColumnType | None:
    """The type that can hold all of them, None for no types."""
    found = list(types)
    return reduce(merged, found) if found else None


def avro_columns(schema: Any, named: Mapping[str, Any]) -> ColumnType:
    """The type of a parsed Avro schema. named: the types by full name."""
    return _Avro(named).of(schema, ())


def protobuf_columns(descriptor: Any) -> ColumnType:
    """The type of a message."""
    return _Protobuf().message(descriptor, ())


def json_columns(schema: Any) -> ColumnType:
    """The type of values of a JSON Schema."""
    return _Json(schema if isinstance(schema, dict) else {}).of(schema, ())


class _Avro:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._fields = 0

    def of(self, schema: Any, around: tuple[str, ...]) -> ColumnType:
        if len(around) > MAX_LEVELS or self._fields > MAX_FIELDS:
            return JSON_COLUMN
        if isinstance(schema, str):
            if schema in self._named:
                return self.of(self._named[schema], around)
            return Scalar(_AVRO[schema]) if schema in _AVRO else JSON_COLUMN
        if isinstance(schema, list):
            branches = [self.of(each, around) for each in schema if each != "null"]
            return merged_all(branches) or JSON_COLUMN
        kind = schema["type"]
        match kind:
            case "record" | "error":
                return self._record(schema, around)
            case "enum":
                return Scalar("string")
            case "array":
                return ListOf(self.of(schema["items"], (*around, "")))
            case "map":
                return MapOf(self.of(schema["values"], (*around, "")))
            case "bytes" | "fixed":
                return _avro_decimal(schema) or Scalar("bytes")
            case str() if (kind, schema.get(LOGICAL)) in _AVRO_LOGICAL:
                return Scalar(_AVRO_LOGICAL[kind, schema[LOGICAL]])
        return self.of(kind, around)

    def _record(self, schema: Mapping[str, Any], around: tuple[str, ...]) -> ColumnType:
        name = schema["name"]
        if name in around or not schema["fields"]:
            return JSON_COLUMN
        self._fields += len(schema["fields"])
        inner = (*around, name)
        return StructOf(tuple((field["name"], self.of(field["type"], inner)) for field in schema["fields"]))


def _avro_decimal(schema: Mapping[str, Any]) -> ColumnType | None:
    if schema.get("logicalType") != DECIMAL:
        return None
    precision = schema["precision"]
    return DecimalOf(precision, schema.get("scale", 0)) if precision <= MAX_PRECISION else JSON_COLUMN


class _Protobuf:
    def __init__(self) -> None:
        self._fields = 0

    def message(self, descriptor: Any, around: tuple[str, ...]) -> ColumnType:
        fields = [*((field.name, field) for field in descriptor.fields), *extensions_of(descriptor)]
        if descriptor.full_name in around or not fields or len(around) > MAX_LEVELS:
            return JSON_COLUMN
        self._fields += len(fields)  # nested messages can double the fields at each level
        if self._fields > MAX_FIELDS:
            return JSON_COLUMN
        inner = (*around, descriptor.full_name)
        return StructOf(tuple((name, self._field(field, inner)) for name, field in fields))

    def _field(self, field: Any, around: tuple[str, ...]) -> ColumnType:
        descriptor = field.message_type
        if descriptor is not None and descriptor.GetOptions().map_entry:
            return MapOf(self._single(descriptor.fields_by_name["value"], around))
        single = self._single(field, around)
        return ListOf(single) if field.is_repeated else single

    def _single(self, field: Any, around: tuple[str, ...]) -> ColumnType:
        if field.message_type is not None:
            return self.message(field.message_type, around)
        return Scalar("string") if field.enum_type is not None else Scalar(_PROTOBUF[field.type])


class _Json:
    """root: the whole schema, for references within it."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._fields = 0

    def of(self, schema: Any, around: tuple[str, ...]) -> ColumnType:
        if not isinstance(schema, dict) or len(around) > MAX_LEVELS:
            return JSON_COLUMN
        reference = schema.get("$ref")
        if isinstance(reference, str):
            target = _json_target(reference, self._root)
            return JSON_COLUMN if reference in around else self.of(target, (*around, reference))
        kinds = schema.get("type")
        kinds = [each for each in kinds if each != "null"] if isinstance(kinds, list) else [kinds]
        if len(kinds) != 1:
            return JSON_COLUMN
        inner = (*around, "")
        properties, more = schema.get("properties"), schema.get("additionalProperties")
        match kinds[0]:
            case "object" if isinstance(properties, dict) and properties and not _is_open(schema):
                self._fields += len(properties)
                if self._fields > MAX_FIELDS:
                    return JSON_COLUMN
                return StructOf(tuple((str(name), self.of(each, inner)) for name, each in properties.items()))
            case "object" if not properties and isinstance(more, dict):
                return MapOf(self.of(more, inner))
            case "array" if isinstance(schema.get("items"), dict):
                return ListOf(self.of(schema["items"], inner))
            case str() as kind if kind in _JSON:
                return Scalar(_JSON[kind])
        return JSON_COLUMN


def _is_open(schema: Mapping[str, Any]) -> bool:
    """Whether a schema allows properties that it does not list."""
    return any(name in schema for name in ("oneOf", "anyOf", "allOf", "patternProperties")) or isinstance(
        schema.get("additionalProperties"), dict
    )


def _json_target(reference: str, root: Mapping[str, Any]) -> Any:
    """The target of a reference within the schema, None for any other reference."""
    if not reference.startswith("#"):
        return None
    place: Any = root
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        place = place.get(name) if isinstance(place, dict) else None
    return place
