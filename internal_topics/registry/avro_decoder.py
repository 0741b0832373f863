"""Avro payloads, read by fastavro with the writer's schema.

A schema is prepared before it is passed to fastavro (`_prepared`):

1. Logical types are not applied, since fastavro raises for a time beyond year 9999 and rounds decimals: numbers stay as
   stored. Only decimals become `Decimal`, by a logical type of kseg's own, so that fastavro reports the branch of a union.
   An invalid one (a scale above the precision) is ignored, as the specification requires.
2. Defaults are left out: they matter only to readers with another schema, and registries contain invalid ones.
3. `{"type": "Name"}` is the type of that name, as in Java.
4. The schema is wrapped in a record with one field, which adds no byte: otherwise fastavro drops the types that other schemas
   define if a schema is not a record (`["shop.Order","shop.Refund"]`, the schema of a topic with several kinds of events).

Bytes after the value mean that it was not written with this schema, or is damaged. So does an int beyond 32 bits, which fastavro accepts.
"""

import io
import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from kseg.internal_topics.registry.avro_bounds import PRIMITIVES, AvroBounds
from kseg.internal_topics.registry.json_text import MAX_DEPTH
from kseg.internal_topics.registry.schema_store import AVRO, RegisteredSchema, SchemaStore
from kseg.segment.errors import FormatError
from kseg.segment.layout import INT32_MAX

MAX_REFERENCED = 1000
_NAMED = "__named_schemas"  # attribute that fastavro adds to a parsed record
LOGICAL = "logical"  # attribute that names the logical type in a prepared schema
DECIMAL = "kseg-decimal"
_INT32 = "kseg-int32"
_MAX_DECIMAL_BYTES = 1024  # converting takes quadratic time
_MAX_SCALE = 10_000
_NEEDS_CONVERSION = ("bytes", "fixed", "float", "double")
# no namespace: names without one, in the schema inside, would inherit it
_FRAME = {
    "type": "record",
    "name": "kseg_frame",
}
_COMPLEX = ("record", "error", "enum", "fixed", "array", "map")


class AvroDecoder:
    """Decodes payloads of one schema. schema: parsed; named: the types by full name. converts: whether its values may contain what JSON
    does not support."""

    encoding = "avro"

    def __init__(self, registered: RegisteredSchema, store: SchemaStore) -> None:
        """Raises FormatError for a schema that cannot be used."""
        import fastavro
        from fastavro.read import LOGICAL_READERS

        for kind in ("bytes", "fixed"):
            LOGICAL_READERS.setdefault(f"{kind}-{DECIMAL}", _decimal)
        LOGICAL_READERS.setdefault(f"int-{_INT32}", _int32)
        self._read = fastavro.schemaless_reader
        self.named: dict[str, Any] = {}
        sources = _Sources(registered, store)
        try:
            frame = sources.parsed(self.named)
            self.schema = frame["fields"][0]["type"]
            self._frame = _with_checks(frame)
        except FormatError:
            raise
        except RecursionError:
            raise FormatError("its schema is nested too deeply") from None
        except Exception as error:  # noqa: BLE001  # fastavro's exceptions share no base
            raise FormatError(f"its schema is not an Avro schema: {error}") from None
        self._bounds = AvroBounds(self.schema, self.named)
        self._is_bytes = _is_plain_bytes(self.schema)
        text = "".join(sources.texts)
        self.converts = any(f'"{kind}"' in text for kind in _NEEDS_CONVERSION)

    def decode(self, data: bytes, indexes: bytes | None = None) -> Any:
        """The value as fastavro returns it, bytes as bytes. Raises FormatError.

        Java's serializer writes a byte array of the schema "bytes" without its length, others with it.
        """
        try:
            return self._decoded(data)
        except FormatError:
            if self._is_bytes:
                return data
            raise

    def _decoded(self, data: bytes) -> Any:
        self._bounds.check(data)
        stream = io.BytesIO(data)
        try:
            value: Any = self._read(stream, self._frame, None)
        except FormatError:
            raise
        except (EOFError, IndexError):
            raise FormatError("its bytes end before the value that the schema asks for") from None
        except KeyError as error:
            raise FormatError(f"{error} is not a valid branch of a union or symbol of an enum") from None
        except Exception as error:  # noqa: BLE001  # whatever a hostile payload leads fastavro to
            raise FormatError(f"{type(error).__name__}: {error}") from None
        if stream.tell() != len(data):
            raise FormatError(f"{len(data) - stream.tell()} bytes follow the value")
        return value["value"]


class _Sources:
    """The texts of a schema: its references, then the schema itself."""

    def __init__(self, registered: RegisteredSchema, store: SchemaStore) -> None:
        self._store = store
        self._ordered: list[RegisteredSchema] = []
        self._collect(registered, [])
        self.texts = [each.text for each in self._ordered]

    def _collect(self, schema: RegisteredSchema, around: list[RegisteredSchema]) -> None:
        if schema in around or schema in self._ordered:
            return
        if len(self._ordered) + len(around) > MAX_REFERENCED or len(around) > MAX_DEPTH:
            raise FormatError("its schema refers to too many others")
        if schema.kind != AVRO:
            raise FormatError(f"its schema refers to one of type {schema.kind}")
        for reference in schema.references:
            self._collect(self._store.referenced(reference, schema), [*around, schema])
        self._ordered.append(schema)

    def parsed(self, named: dict[str, Any]) -> Any:
        """The wrapper record of the last schema, parsed after the others; `named` gets all named types."""
        from fastavro.schema import UnknownType, parse_schema

        parsed: Any = None
        last = len(self.texts) - 1
        for at, text in enumerate(tuple(self.texts)):
            schema = _prepared(json.loads(text))
            if at == last:
                schema = _FRAME | {"fields": [{"name": "value", "type": schema}]}
            for _ in range(len(self._store.files) + 1):
                try:
                    parsed = parse_schema(schema, named)
                    break
                except UnknownType as error:
                    self._define(str(error.name), named)
        if parsed is None:
            raise FormatError("its schema names types that no file defines")
        return parsed

    def _define(self, name: str, named: dict[str, Any]) -> None:
        """Parse a type that another file of the folder defines."""
        from fastavro.schema import parse_schema

        for text in self._store.files.values():
            try:
                schema = json.loads(text)
            except ValueError:
                continue
            if isinstance(schema, dict) and "name" in schema and _full_name(schema) == name:
                if name in named:
                    break
                parse_schema(_prepared(schema), named)
                self.texts.insert(0, text)
                return
        raise FormatError(f"its schema names the type {name}, which is not defined anywhere")


def _full_name(schema: Mapping[str, Any]) -> str:
    name, namespace = str(schema["name"]), schema.get("namespace")
    return f"{namespace}.{name}" if namespace and "." not in name else name


def _prepared(schema: Any, depth: int = 0) -> Any:
    """A copy of the schema for fastavro, limited to the depth that it may reach. Raises FormatError."""
    if depth > 2 * MAX_DEPTH:
        raise FormatError("its schema is nested too deeply")
    if isinstance(schema, list):
        return [_prepared(each, depth + 1) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    if isinstance(kind, (dict, list)):
        return _prepared(kind, depth + 1)
    if kind not in _COMPLEX and kind not in PRIMITIVES:
        return kind
    made = {name: each for name, each in schema.items() if name not in ("logicalType", LOGICAL, "default")}
    for name in ("items", "values"):
        if name in made:
            made[name] = _prepared(made[name], depth + 1)
    if kind in ("record", "error"):
        made["fields"] = _fields(schema, depth)
    if kind == "fixed" and not (type(schema.get("size")) is int and 0 <= schema["size"] <= INT32_MAX):
        raise FormatError(f"its schema has a fixed type of size {schema.get('size')!r:.40}")
    logical = schema.get("logicalType")
    if isinstance(logical, str):
        made[LOGICAL] = logical
        if _is_valid_decimal(schema):
            made["logicalType"] = DECIMAL
    return made


def _fields(schema: Mapping[str, Any], depth: int) -> list[Any]:
    fields = schema.get("fields")
    if not isinstance(fields, list):
        raise FormatError("its schema has a record without fields")
    made: dict[str, Any] = {}
    for field in fields:
        name = field.get("name") if isinstance(field, dict) else None
        if not isinstance(name, str) or "type" not in field or name in made:
            raise FormatError(
                f"its schema has a field without a name of its own, or without a type: {field!r:.80}"
            )
        kept = {key: each for key, each in field.items() if key != "default"}
        made[name] = kept | {"type": _prepared(field["type"], depth + 1)}
    return list(made.values())


def _with_checks(parsed: Any, known: dict[int, Any] | None = None) -> Any:
    """A copy of a parsed schema for reading. Unions and symbols become dictionaries, since their indexes come from the payload, and −1 must
    not select the last element. The numbers of an int are checked by a logical type of kseg's own.

    known: copies by identity, since a type occurs in several places.
    """
    known = {} if known is None else known
    if parsed == "int":
        return {"type": "int", "logicalType": _INT32}
    if not isinstance(parsed, (dict, list)):
        return parsed
    if isinstance(parsed, dict) and parsed.get("type") == "int":
        return parsed | {"logicalType": _INT32}
    if id(parsed) not in known:
        if isinstance(parsed, list):
            branches = enumerate(_with_checks(each, known) for each in parsed)
            known[id(parsed)] = {"type": "union", **dict(branches)}
        else:
            made = known[id(parsed)] = dict(parsed)
            for name, each in parsed.items():
                if name == "symbols":
                    made[name] = dict(enumerate(each))
                elif name == "fields":
                    made[name] = [field | {"type": _with_checks(field["type"], known)} for field in each]
                elif name == _NAMED:
                    made[name] = {full: _with_checks(type_, known) for full, type_ in each.items()}
                elif name in ("type", "items", "values"):
                    made[name] = _with_checks(each, known)
    return known[id(parsed)]


def _is_valid_decimal(schema: Mapping[str, Any]) -> bool:
    """As Java checks it (Avro: LogicalTypes.Decimal)."""
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if schema.get("logicalType") != "decimal" or schema["type"] not in ("bytes", "fixed"):
        return False
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= min(precision, _MAX_SCALE):
        return False
    is_too_small = schema["type"] == "fixed" and precision > math.log10(2) * (8 * schema["size"] - 1)
    return precision > 0 and not is_too_small


def _is_plain_bytes(schema: Any) -> bool:
    return schema == "bytes" or (
        isinstance(schema, dict) and schema["type"] == "bytes" and LOGICAL not in schema
    )


def _int32(value: int, _schema: object = None, _: object = None) -> int:
    if -INT32_MAX - 1 <= value <= INT32_MAX:
        return value
    raise FormatError(f"{value} is not a valid int32")


def _decimal(value: bytes, schema: dict[Any, Any] | None = None, _: object = None) -> Decimal:
    """fastavro's reader of a decimal, with all of its digits."""
    assert schema is not None
    if len(value) > _MAX_DECIMAL_BYTES:
        raise FormatError(f"a decimal has {len(value)} bytes")
    sign, digits, _ = Decimal(int.from_bytes(value, "big", signed=True)).as_tuple()
    return Decimal((sign, digits, -schema.get("scale", 0)))
