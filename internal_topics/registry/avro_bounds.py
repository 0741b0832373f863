"""Bound the work that an Avro value can cause, before fastavro reads it.

fastavro reads without a bound: a recursive type descends one level for each byte and crashes the process when the stack is exhausted;
an array of nulls has as many elements as its count says, without using any bytes. So

1. each schema is examined once. `is_bounded`: no type contains itself, and no array or map has elements that may take no byte;
   then depth and memory follow from the schema and the length of the data;
2. values of other schemas are walked first, without creating objects: at most MAX_DEPTH levels, and at most
   STEPS_PER_BYTE steps for each byte.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kseg.internal_topics.registry.json_text import MAX_DEPTH
from kseg.segment.errors import FormatError

MAX_NODES = 100_000  # of a schema, with a named type counted wherever it is used
STEPS_PER_BYTE = 16
FREE_STEPS = 10_000
_MIN_BYTES = {"null": 0, "float": 4, "double": 8}
_FIXED_WIDTH = {"null": 0, "boolean": 1, "float": 4, "double": 8}
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
Named = Mapping[str, Mapping[str, Any]]


class AvroBounds:
    """The bounds of one parsed schema. named: the types by full name. Raises FormatError for a schema that is too large."""

    def __init__(self, schema: Any, named: Named) -> None:
        self._schema = schema
        self._named = named
        self._known: dict[str, tuple[int, int]] = {}  # (least bytes, nodes) by name
        self._open: set[str] = set()
        self.is_bounded = True
        if self._measure(schema)[1] > MAX_NODES:
            raise FormatError(f"the schema has more than {MAX_NODES} fields")

    def _measure(self, schema: Any) -> tuple[int, int]:
        """(least number of bytes of a value, number of nodes)."""
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return _MIN_BYTES.get(schema, 1), 1
            return self._measure_named(schema)
        if isinstance(schema, list):
            return 1, 1 + max((self._measure(each)[1] for each in schema), default=0)
        kind = schema["type"]
        if kind in ("record", "error", "enum", "fixed"):
            return self._measure_named(schema["name"])
        if kind == "array":
            return self._repeated(schema["items"], 0)
        if kind == "map":
            return self._repeated(schema["values"], 1)
        return self._measure(kind)

    def _measure_named(self, name: str) -> tuple[int, int]:
        if name in self._open:
            self.is_bounded = False
            return 0, 1
        if name not in self._known:
            self._open.add(name)
            self._known[name] = self._measure_type(self._named[name])
            self._open.discard(name)
        return self._known[name]

    def _measure_type(self, schema: Mapping[str, Any]) -> tuple[int, int]:
        if schema["type"] == "enum":
            return 1, 1
        if schema["type"] == "fixed":
            return int(schema["size"]), 1
        measured = [self._measure(field["type"]) for field in schema["fields"]]
        nodes = min(MAX_NODES + 1, 1 + sum(each[1] for each in measured))
        return sum(each[0] for each in measured), nodes

    def _repeated(self, element: Any, key_bytes: int) -> tuple[int, int]:
        least_bytes, nodes = self._measure(element)
        if nodes > STEPS_PER_BYTE * (least_bytes + key_bytes):
            self.is_bounded = False
        return 1, 1 + nodes

    def check(self, data: bytes) -> None:
        """Walk a value. Raises FormatError if it is too deep or too large, or extends past the end of the data."""
        if not self.is_bounded:
            _Walk(data, self._named).value(self._schema)


class _Walk:
    def __init__(self, data: bytes, named: Named) -> None:
        self._data = data
        self._named = named
        self._position = 0
        self._steps = FREE_STEPS + STEPS_PER_BYTE * len(data)

    def value(self, schema: Any, depth: int = 0) -> None:
        self._step(depth)
        if isinstance(schema, str) and schema not in PRIMITIVES:
            schema = self._named[schema]
        if isinstance(schema, list):
            self.value(_at(schema, self._long(), "branch of a union"), depth + 1)
            return
        kind = schema if isinstance(schema, str) else schema["type"]
        match kind:
            case "int" | "long":
                self._long()
            case "bytes" | "string":
                self._skip(self._long())
            case "enum":
                _at(schema["symbols"], self._long(), "symbol of an enum")
            case "fixed":
                self._skip(schema["size"])
            case "record" | "error":
                for field in schema["fields"]:
                    self.value(field["type"], depth + 1)
            case "array":
                self._blocks(schema["items"], False, depth)
            case "map":
                self._blocks(schema["values"], True, depth)
            case str() if kind in _FIXED_WIDTH:
                self._skip(_FIXED_WIDTH[kind])
            case _:  # a primitive with attributes
                self.value(kind, depth)

    def _blocks(self, element: Any, has_keys: bool, depth: int) -> None:
        while count := self._long():
            if count < 0:
                self._long()  # the size of the block
            for _ in range(abs(count)):
                if has_keys:
                    self._skip(self._long())
                self.value(element, depth + 1)

    def _step(self, depth: int) -> None:
        self._steps -= 1
        if depth > MAX_DEPTH:
            raise FormatError(f"it is nested more than {MAX_DEPTH} levels deep")
        if self._steps < 0:
            raise FormatError("it has more elements than its bytes can hold")

    def _skip(self, length: int) -> None:
        if not 0 <= length <= len(self._data) - self._position:
            raise FormatError(f"a length of {length} exceeds the bytes that are left")
        self._position += length

    def _long(self) -> int:
        value = shift = 0
        for at in range(self._position, min(len(self._data), self._position + 10)):
            byte = self._data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self._position = at + 1
                return (value >> 1) ^ -(value & 1)
            shift += 7
        raise FormatError("a number is truncated or too long")


def _at(choices: Sequence[Any], index: int, what: str) -> Any:
    if not 0 <= index < len(choices):
        raise FormatError(f"{index} is not a valid {what}: there are {len(choices)}")
    return choices[index]
