"""Random Avro schemas with values, encoded by fastavro."""

from __future__ import annotations

import io
import json
import math
import random
from base64 import b64encode
from decimal import Decimal
from typing import Any, NamedTuple

import fastavro

INVALID = {
    "type": "bytes",
    "logicalType": "decimal",
    "precision": 2,
    "scale": 3,
}  # invalid, so it counts as bytes; fastavro rejects it


class Made(NamedTuple):
    """A value as fastavro takes it (given), and as kseg shows it (shown)."""

    given: Any
    shown: Any


class AvroCase:
    """A random schema and values of it. named: the types that other schemas may refer to."""

    def __init__(self, draw: random.Random, number: int) -> None:
        self._draw = draw
        self._number = number
        self._count = 0
        self.named: dict[str, Any] = {}
        self._levels: dict[str, int] = {}

    def schema(self, depth: int = 0) -> Any:
        draw = self._draw
        choices = ["null", "boolean", "int", "long", "float", "double", "bytes", "string", "logical"]
        if depth == 0:
            choices = ["bytes", "string", "record", "record", "record", "union", "union"]
        if depth < 4:
            choices += ["record", "record", "array", "map", "union", "union", "enum", "fixed", "decimal"]
        if self.named and draw.random() < 0.2:
            return draw.choice(list(self.named))
        match draw.choice(choices):
            case "record":
                return self.record(depth)
            case "array":
                return {"type": "array", "items": self.schema(depth + 1)}
            case "map":
                return {"type": "map", "values": self.schema(depth + 1)}
            case "union":
                return self._union(depth)
            case "enum":
                return self._new("enum", {"symbols": ["A", "B", "C_3"], "default": "A"})
            case "fixed":
                return self._new("fixed", {"size": draw.randrange(9)})
            case "decimal":
                return self._decimal()
            case "logical":
                return draw.choice(
                    (
                        {"type": "int", "logicalType": "date"},
                        {"type": "long", "logicalType": "timestamp-micros"},
                        {"type": "string", "logicalType": "uuid"},
                        {"type": "long", "logicalType": "nobody-knows"},
                        INVALID,
                    )
                )
            case kind:
                return kind

    def _new(self, kind: str, content: dict[str, Any]) -> Any:
        self._count += 1
        place = self._draw.choice(("", "a", "a.b"))
        name = f"T{self._number}_{self._count}"
        made = {"type": kind, "name": name, "namespace": place, **content}
        # a name without a namespace would mean another type inside of a record that has one
        if place:
            self.named[f"{place}.{name}"] = made
        return made

    def record(self, depth: int = 0) -> Any:
        made = self._new("record", {"doc": "a record", "fields": []})
        name = f"{made['namespace']}.{made['name']}"
        # not until it is complete
        self.named.pop(name, None)
        for at in range(self._draw.randrange(7)):
            field = {"name": f"f{at}", "type": self.schema(depth + 1)}
            made["fields"].append(field)
        if made["namespace"] and self._draw.random() < 0.3:
            made["fields"].append({"name": "next", "type": ["null", name], "default": None})
        if made["namespace"]:
            self.named[name] = made
        return made

    def _union(self, depth: int) -> Any:
        branches: list[Any] = ["null"]
        for _ in range(self._draw.randrange(1, 5)):
            made = self.schema(depth + 1)
            if not isinstance(made, list) and self._branch(made) not in map(self._branch, branches):
                branches.append(made)
        self._draw.shuffle(branches)
        return branches

    def _branch(self, schema: Any) -> str:
        """The name that two branches of a union must not share."""
        if isinstance(schema, str):
            return schema
        kind = schema["type"]
        if kind not in ("record", "enum", "fixed"):
            return str(kind)
        return f"{schema['namespace']}.{schema['name']}" if schema["namespace"] else schema["name"]

    def _decimal(self) -> Any:
        precision = self._draw.randrange(1, 12)
        logical = {
            "logicalType": "decimal",
            "precision": precision,
            "scale": self._draw.randrange(precision + 1),
        }
        if self._draw.random() < 0.5:
            return {"type": "bytes", **logical}
        return self._new("fixed", {"size": 8, **logical})

    def written(self, schema: Any, defined: set[str]) -> Any:
        """The schema with each type written out at its first occurrence, and referred to by name afterwards."""
        if isinstance(schema, list):
            return [self.written(each, defined) for each in schema]
        if isinstance(schema, str):
            return self.written(self.named[schema], defined) if schema in self.named else schema
        if schema.get("namespace"):
            name = self._branch(schema)
            if name in defined:
                return name
            defined.add(name)
        made = dict(schema)
        for part in ("items", "values"):
            if part in made:
                made[part] = self.written(made[part], defined)
        if "fields" in made:
            made["fields"] = [each | {"type": self.written(each["type"], defined)} for each in made["fields"]]
        return made

    def value(self, schema: Any, depth: int = 0) -> Made:
        draw = self._draw
        if isinstance(schema, str) and schema in self.named:
            schema = self.named[schema]
        if isinstance(schema, list):
            return self._branch_value(schema, depth)
        kind = schema if isinstance(schema, str) else schema["type"]
        if (
            isinstance(schema, dict)
            and schema.get("logicalType") == "decimal"
            and schema["scale"] <= schema["precision"]
        ):
            number = Decimal(draw.randrange(-(10 ** schema["precision"]) + 1, 10 ** schema["precision"]))
            scaled = number.scaleb(-schema["scale"])
            return Made(scaled, format(scaled, "f"))
        match kind:
            case "record":
                made = {each["name"]: self.value(each["type"], depth + 1) for each in schema["fields"]}
                return Made({n: m.given for n, m in made.items()}, {n: m.shown for n, m in made.items()})
            case "array":
                all_ = [self.value(schema["items"], depth + 1) for _ in range(draw.randrange(3))]
                return Made([m.given for m in all_], [m.shown for m in all_])
            case "map":
                by_key = {
                    f"k{at}": self.value(schema["values"], depth + 1) for at in range(draw.randrange(3))
                }
                return Made({n: m.given for n, m in by_key.items()}, {n: m.shown for n, m in by_key.items()})
            case "enum":
                return Made(*[draw.choice(schema["symbols"])] * 2)
            case "fixed" | "bytes":
                data = draw.randbytes(schema["size"] if kind == "fixed" else draw.randrange(9))
                return Made(data, b64encode(data).decode())
        plain = {
            "null": None,
            "boolean": draw.random() < 0.5,
            "int": draw.choice((0, -1, 2**31 - 1, -(2**31), draw.randrange(1000))),
            "long": draw.choice((0, 2**63 - 1, -(2**63), draw.randrange(10**12))),
            "float": draw.choice((0.5, -1.25, math.inf)),
            "double": draw.choice((0.1, 1e300, -math.inf)),
            "string": draw.choice(("", "é😀", "a\0b", "text")),
        }[kind]
        words = {math.inf: "Infinity", -math.inf: "-Infinity"}
        return Made(plain, words.get(plain, plain) if isinstance(plain, float) else plain)

    def _branch_value(self, branches: list[Any], depth: int) -> Made:
        """In a deep value null. Otherwise fastavro is given the name of the branch, because several may match."""
        branch = "null" if depth > 8 else self._draw.choice(branches)
        made = self.value(branch, depth + 1)
        if branch == "null":
            return made
        return Made((self._branch(branch), made.given), made.shown)


def _avro_bytes(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    valid = json.loads(json.dumps(schema), object_hook=lambda each: "bytes" if each == INVALID else each)
    fastavro.schemaless_writer(out, valid, value)
    return out.getvalue()
