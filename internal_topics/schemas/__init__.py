"""The schemas of Kafka 4.3.1's records on disk, as data: `kafka-4.3.1.json`, one message a line.

    {"name", "topic", "kind", "type"?, "versions", "flexible", "fields": [FIELD …]}
    FIELD = {"name", "type", "versions", "nullableVersions"?, "taggedVersions"?, "tag"?, "default"?, "fields"?: [FIELD …]}

topic: the internal topic, or another place of the message (kraft-control, consumer-protocol, producer-snapshot, quorum-state).
kind: metadata (framed by varints), key, value (of a coordinator's topic), data. type: selects the message: the record type in a
coordinator's topic, the apiKey elsewhere. Versions are `2`, `0-4`, `1+` or `none`. `default` is text; the text `null` is null, and
without a default the value is zero, empty, false or, for a struct, a struct of defaults.

`python -m tests.kafka.message_definitions` writes the file from the definitions in Kafka's jars.

`mirror-maker-4.3.1.json` has the records of MirrorMaker's topics in the same form, key and value without a type; their classes have no
definition in a jar (Heartbeat, Checkpoint, OffsetSync of connect-mirror).
"""

import json
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any, Self

from kseg.segment.values import dataclass

_FILE, _MIRROR_MAKER = "kafka-4.3.1.json", "mirror-maker-4.3.1.json"


@dataclass(frozen=True, slots=True)
class Versions:
    """first … last, both inclusive; last: None for no end. first > last: no version."""

    first: int
    last: int | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """`2`, `0-4`, `1+`, `none`."""
        if text == "none":
            return cls(1, 0)
        if text.endswith("+"):
            return cls(int(text[:-1]), None)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version and (self.last is None or version <= self.last)


_NEVER = Versions(1, 0)


@dataclass(frozen=True, slots=True)
class Field:
    """type: without the `[]` of an array. nullable, tagged: in these versions. tag: its number, None when it has none.
    default: as text, None when the definition gives none. fields: of a struct."""

    name: str
    type: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int | None
    default: str | None
    fields: "tuple[Field, ...]"


@dataclass(frozen=True, slots=True)
class Message:
    """type: record type or apiKey, None if there is none. last_version: the highest in 4.3.1."""

    name: str
    topic: str
    kind: str
    type: int | None
    versions: Versions
    flexible: Versions
    fields: tuple[Field, ...]

    @property
    def last_version(self) -> int:
        return self.versions.first if self.versions.last is None else self.versions.last


def message(topic: str, kind: str, type_id: int) -> Message | None:
    """The message of a record type; None if 4.3.1 has no such type."""
    return _by_type().get((topic, kind, type_id))


@cache
def messages() -> tuple[Message, ...]:
    """All of them."""
    return _messages_of(_FILE)


@cache
def mirror_maker_messages() -> Mapping[tuple[str, str], Message]:
    """Those of MirrorMaker's topics, by topic and kind."""
    return {(each.topic, each.kind): each for each in _messages_of(_MIRROR_MAKER)}


def _messages_of(file: str) -> tuple[Message, ...]:
    data = pkgutil.get_data(__name__, file)  # importlib.resources would import tempfile, shutil, lzma, random
    assert data is not None, "the schemas are part of the package"
    return tuple(map(_message, json.loads(data)["messages"]))


@cache
def _by_type() -> Mapping[tuple[str, str, int], Message]:
    return {(each.topic, each.kind, each.type): each for each in messages() if each.type is not None}


def _message(values: Mapping[str, Any]) -> Message:
    return Message(
        values["name"],
        values["topic"],
        values["kind"],
        values.get("type"),
        Versions.parse(values["versions"]),
        Versions.parse(values["flexible"]),
        tuple(map(_field, values["fields"])),
    )


def _field(values: Mapping[str, Any]) -> Field:
    type_name = values["type"]
    return Field(
        values["name"],
        type_name.removeprefix("[]"),
        type_name.startswith("[]"),
        Versions.parse(values["versions"]),
        Versions.parse(values["nullableVersions"]) if "nullableVersions" in values else _NEVER,
        Versions.parse(values["taggedVersions"]) if "taggedVersions" in values else _NEVER,
        values.get("tag"),
        values.get("default"),
        tuple(map(_field, values.get("fields", ()))),
    )
