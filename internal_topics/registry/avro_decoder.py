"""Avro payloads, read by fastavro with the writer's schema.

Logical types are not applied by fastavro, which raises for a time beyond year 9999: numbers stay as they are stored, only decimals
become `Decimal`. Bytes after the value mean that it was not written with this schema, or is damaged.
"""

import io
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from kseg.internal_topics.registry.avro_bounds import AvroBounds
from kseg.internal_topics.registry.json_text import MAX_DEPTH
from kseg.internal_topics.registry.schema_store import AVRO, RegisteredSchema, SchemaStore
from kseg.segment.errors import FormatError

MAX_REFERENCED = 1000
_MAX_DECIMAL_BYTES = 1024  # conversion is quadratic
_MAX_SCALE = 10_000
_NEEDS_CONVERSION = ("bytes", "fixed", "float", "double")

Refine = Callable[[Any], Any]


class AvroDecoder:
    """Decodes payloads of one schema. schema: parsed, with its logical types; named: the types by full name. converts: whether
    its values may contain what JSON does not support."""

    encoding = "avro"

    def __init__(self, registered: RegisteredSchema, store: SchemaStore) -> None:
        """Raises FormatError for a schema that cannot be used."""
        import fastavro

        self._read = fastavro.schemaless_reader
        self.named: dict[str, Any] = {}
        sources = _Sources(registered, store)
        try:
            self.schema = sources.parsed(self.named)
            plain_named: dict[str, Any] = {}
            self._plain = sources.parsed(plain_named, without_logical_types=True)
        except FormatError:
            raise
        except RecursionError:
            raise FormatError("its schema is nested too deeply") from None
        except Exception as error:  # noqa: BLE001  # fastavro's exceptions share no base
            raise FormatError(f"its schema is not an Avro schema: {error}") from None
        self._bounds = AvroBounds(self._plain, plain_named)
        self._refine = _Refinement(self.named).of(self.schema)
        text = "".join(sources.texts)
        self.converts = any(f'"{kind}"' in text for kind in _NEEDS_CONVERSION)

    def decode(self, data: bytes, indexes: bytes | None = None) -> Any:
        """The value as fastavro returns it, bytes as bytes. Raises FormatError."""
        self._bounds.check(data)
        stream = io.BytesIO(data)
        try:
            value = self._read(stream, self._plain, None)
        except (EOFError, IndexError):
            raise FormatError("its bytes end before the value that the schema asks for") from None
        except Exception as error:  # noqa: BLE001  # whatever a hostile payload leads fastavro to
            raise FormatError(f"{type(error).__name__}: {error}") from None
        if stream.tell() != len(data):
            raise FormatError(f"{len(data) - stream.tell()} bytes follow the value")
        return value if self._refine is None else self._refine(value)


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

    def parsed(self, named: dict[str, Any], *, without_logical_types: bool = False) -> Any:
        """The last one, parsed after the others; `named` gets all named types."""
        from fastavro.schema import UnknownType, parse_schema

        parsed: Any = None
        for text in self.texts:
            schema = _bounded(json.loads(text), without_logical_types)
            for _ in range(len(self._store.files) + 1):
                try:
                    parsed = parse_schema(schema, named)
                    break
                except UnknownType as error:
                    self._define(str(error.name), named, without_logical_types)
        if parsed is None:
            raise FormatError("its schema names types that no file defines")
        return parsed

    def _define(self, name: str, named: dict[str, Any], without_logical_types: bool) -> None:
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
                parse_schema(_bounded(schema, without_logical_types), named)
                self.texts.insert(0, text)
                return
        raise FormatError(f"its schema names the type {name}, which is not defined anywhere")


def _full_name(schema: Mapping[str, Any]) -> str:
    name, namespace = str(schema["name"]), schema.get("namespace")
    return f"{namespace}.{name}" if namespace and "." not in name else name


def _bounded(schema: Any, without_logical_types: bool, depth: int = 0) -> Any:
    """A copy, limited to the depth that fastavro may reach. Raises FormatError."""
    if depth > 2 * MAX_DEPTH:
        raise FormatError("its schema is nested too deeply")
    if isinstance(schema, list):
        return [_bounded(each, without_logical_types, depth + 1) for each in schema]
    if isinstance(schema, dict):
        return {
            name: _bounded(each, without_logical_types, depth + 1) if name != "default" else each
            for name, each in schema.items()
            if not (without_logical_types and name == "logicalType")
        }
    return schema


class _Refinement:
    """The conversion of a value after fastavro has read it (decimals); None if there is nothing to convert."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._known: dict[str, Refine | None] = {}
        self._has_decimals = any(map(_mentions_decimal, named.values()))

    def of(self, schema: Any) -> Refine | None:
        if not self._has_decimals and not _mentions_decimal(schema):
            return None
        return self._of(schema)

    def _of(self, schema: Any) -> Refine | None:
        if isinstance(schema, str):
            return self._of_named(schema) if schema in self._named else None
        if isinstance(schema, list):
            return self._of_union(schema)
        kind = schema["type"]
        if schema.get("logicalType") == "decimal" and kind in ("bytes", "fixed"):
            return _decimals(schema.get("scale", 0))
        if kind in ("record", "error"):
            return self._of_named(schema["name"])
        if kind == "array":
            return _in_elements(self._of(schema["items"]))
        if kind == "map":
            return _in_values(self._of(schema["values"]))
        return None if kind in ("enum", "fixed") else self._of(kind)

    def _of_named(self, name: str) -> Refine | None:
        schema = self._named[name]
        if schema["type"] not in ("record", "error"):
            return self._of(schema) if schema.get("logicalType") else None
        if name not in self._known:
            self._known[name] = lambda value: (self._known[name] or _same)(
                value
            )  # for a type that contains itself
            fields = [(field["name"], self._of(field["type"])) for field in schema["fields"]]
            wanted = [(each, refine) for each, refine in fields if refine is not None]
            self._known[name] = _in_record(wanted) if wanted else None
        return self._known[name]

    def _of_union(self, branches: list[Any]) -> Refine | None:
        refines = [(self._kind(branch), refine) for branch in branches if (refine := self._of(branch))]
        if not refines:
            return None
        return lambda value: next((refine for test, refine in refines if test(value)), _same)(value)

    def _kind(self, branch: Any) -> Callable[[Any], bool]:
        """Whether a value can belong to this branch of a union."""
        schema = self._named.get(branch, branch) if isinstance(branch, str) else branch
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in ("record", "error"):
            names = {field["name"] for field in schema["fields"]}
            return lambda value: isinstance(value, dict) and value.keys() == names
        if kind in ("bytes", "fixed"):
            return lambda value: isinstance(value, bytes)
        return lambda value: isinstance(value, list if kind == "array" else dict)


def _same(value: Any) -> Any:
    return value


def _mentions_decimal(schema: Any) -> bool:
    return '"decimal"' in json.dumps(schema, default=str)


def _in_elements(refine: Refine | None) -> Refine | None:
    return None if refine is None else lambda values: [refine(each) for each in values]


def _in_values(refine: Refine | None) -> Refine | None:
    return None if refine is None else lambda values: {name: refine(each) for name, each in values.items()}


def _in_record(fields: list[tuple[str, Refine]]) -> Refine:
    def refine(value: dict[str, Any]) -> dict[str, Any]:
        for name, each in fields:
            value[name] = each(value[name])
        return value

    return refine


def _decimals(scale: object) -> Refine:
    digits = scale if isinstance(scale, int) and 0 <= scale <= _MAX_SCALE else 0

    def refine(value: bytes) -> Decimal:
        if len(value) > _MAX_DECIMAL_BYTES:
            raise FormatError(f"a decimal has {len(value)} bytes")
        unscaled = Decimal(int.from_bytes(value, "big", signed=True))
        sign, places, _ = unscaled.as_tuple()
        return Decimal((sign, places, -digits))

    return refine
