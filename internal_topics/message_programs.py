"""Compile schemas into programs, from which the kernel prints the messages of one topic (`kernel.message_json`, `kernel.decoded_lines`).
The programs for rows are compiled in `row_programs`.

A message gets one struct for each of its versions and one for any version above, where Kafka's generated readers continue as with the last
version but refuse structs inside; a version below the first is read like the first. Structs that are used several times are
written several times: a program has a few thousand numbers.
"""

from array import array
from collections.abc import Mapping, Sequence
from functools import cache

from kseg.internal_topics.schemas import Field, Message, messages
from kseg.segment.java import uuids
from kseg.segment.kernel import message_fields as M
from kseg.segment.values import dataclass

CONSUMER_PROTOCOL = "consumer-protocol"

_KINDS = {
    "bool": M.BOOL,
    "int8": M.INT8,
    "int16": M.INT16,
    "uint16": M.UINT16,
    "int32": M.INT32,
    "uint32": M.UINT32,
    "int64": M.INT64,
    "float64": M.FLOAT64,
    "uuid": M.UUID,
    "string": M.STRING,
    "bytes": M.BYTES,
}
# fields of the group metadata that contain messages of the protocol named by protocolType
_PROTOCOLS = {"subscription": "ConsumerProtocolSubscription", "assignment": "ConsumerProtocolAssignment"}
_GROUP_METADATA = "GroupMetadataValue"


@dataclass(frozen=True, slots=True)
class MessageProgram:
    """ops, names: as the kernel expects them. fields: name of a field or struct by its position in ops."""

    ops: memoryview
    names: bytes
    fields: dict[int, str]


@cache
def program_of(topic: str) -> MessageProgram:
    """The program of an internal topic. Raises KeyError for a topic without schemas."""
    return ProgramWriter().program(topic)


class ProgramWriter:
    def __init__(self) -> None:
        self.ops: list[int] = []
        self.names = bytearray()
        self._places: dict[bytes, int] = {}
        self._fields: dict[int, str] = {}

    def program(self, topic: str) -> MessageProgram:
        of_topic = [each for each in messages() if each.topic == topic and each.type is not None]
        values = {each.type or 0: each for each in of_topic if each.kind != "key"}
        keys = {each.type or 0: each for each in of_topic if each.kind == "key"}
        self.write_types(keys, values, 1 + max(values))
        return MessageProgram(memoryview(array("q", self.ops)), bytes(self.names), self._fields)

    def write_types(self, keys: Mapping[int, Message], values: Mapping[int, Message], count: int) -> None:
        """The head of the program and the structs of all types."""
        self.ops = [M.COORDINATOR if keys else M.FRAMED, count, 3] + [0] * (M.LINES_TYPE_WIDTH * count)
        for type_id, value in values.items():
            name = _type_name(value.name).encode()
            entry = 3 + M.LINES_TYPE_WIDTH * type_id
            self.ops[entry : entry + M.LINES_TYPE_WIDTH] = [
                *self.structs(keys.get(type_id), value),
                *self.text(name),
            ]

    def structs(self, key: Message | None, value: Message) -> tuple[int, int, int, int]:
        """For one type: the struct of the key (1 if records have none), first and last version of the value, and the position of its
        structs."""
        place = 1 if key is None else self._struct(key, 0)
        return place, value.versions.first, value.last_version, self._versions(value)

    def names_of(self, message: Message, field: Field, siblings: Sequence[str]) -> int:
        """The position of the table of names for the values of a field, 0 without any. siblings: the fields of the same struct."""
        return 0

    def default_of(self, message: Message, field: Field, version: int, siblings: Sequence[str]) -> bytes:
        """The printed default of a tagged field."""
        return _default_text(field, version).encode()

    def text(self, text: bytes) -> tuple[int, int]:
        """Position of a text in the pool, and its length."""
        if text not in self._places:
            self._places[text] = len(self.names)
            self.names += text
        return self._places[text], len(text)

    def _versions(self, message: Message) -> int:
        """Positions of the structs of a message, one for each version and one for newer versions."""
        structs = self._of_versions(message)
        at = len(self.ops)
        self.ops += structs
        return at

    def _protocol(self, name: str) -> int:
        """The same for a message of the consumer protocol, which begins with its version."""
        (message,) = (each for each in messages() if each.topic == CONSUMER_PROTOCOL and each.name == name)
        structs = self._of_versions(message, depth=2)
        at = len(self.ops)
        self.ops += [message.versions.first, message.last_version, *structs]
        return at

    def _of_versions(self, message: Message, depth: int = 0) -> list[int]:
        versions = range(message.versions.first, message.last_version + 2)
        return [self._struct(message, version, depth) for version in versions]

    def _struct(self, message: Message, version: int, depth: int = 0) -> int:
        is_newer = version > message.last_version
        is_known = min(version, message.last_version)
        return self._of_fields(message, message.fields, is_known, is_newer, depth)

    def _of_fields(
        self, message: Message, fields: tuple[Field, ...], version: int, is_newer: bool, depth: int
    ) -> int:
        assert depth < M.DEPTH_LIMIT, "more structs in structs than the kernel has room for"
        is_flexible = version in message.flexible
        present = [
            each
            for each in fields
            if version in each.versions or version in each.tagged or (is_flexible and each.tag is not None)
        ]
        siblings = tuple(each.name for each in present if version in each.versions or version in each.tagged)
        of_fields = [self._field(message, each, version, is_newer, depth, siblings) for each in present]
        tagged = [bool(numbers[1] & M.TAGGED) for numbers in of_fields]
        flags = M.TAGS if any(tagged) else 0
        if True in tagged and False in tagged[tagged.index(True) :]:
            flags |= M.SCAN_FIRST
        at = len(self.ops)
        self.ops += [int(is_flexible), len(present), flags, 0]
        for field, numbers in zip(present, of_fields, strict=True):
            self._fields[len(self.ops)] = field.name
            self.ops += numbers
        return at

    def _field(
        self,
        message: Message,
        field: Field,
        version: int,
        is_newer: bool,
        depth: int,
        siblings: tuple[str, ...],
    ) -> list[int]:
        is_tagged = version in field.tagged
        if not is_tagged and version not in field.versions:
            return [M.INVALID_TAG, M.TAGGED, field.tag or 0, 0, 0, 0, 0, 0]
        kind, place, is_named = _KINDS.get(field.type, M.STRUCT), 0, False
        if message.name == _GROUP_METADATA and field.name in _PROTOCOLS:
            kind, place = M.PROTOCOL, self._protocol(_PROTOCOLS[field.name])
        elif message.name == _GROUP_METADATA and field.name == "protocolType":
            kind = M.PROTOCOL_TYPE
        elif kind == M.STRUCT:
            place = self._of_fields(message, field.fields, version, is_newer, depth + 1)
            self.ops[place + 3] = int(is_newer)
            self._fields[place] = field.type
        else:
            place = 0 if field.is_array else self.names_of(message, field, siblings)
            is_named = place > 0
        name = f',"{field.name}":'.encode()
        default = self.default_of(message, field, version, siblings) if is_tagged else b""
        flags = (
            (M.ARRAY if field.is_array else 0)
            | (M.NULLABLE if version in field.nullable else 0)
            | (M.TAGGED if is_tagged else 0)
            | (M.NAMED if is_named else 0)
        )
        tag = field.tag if is_tagged and field.tag is not None else 0
        assert tag < M.TAG_LIMIT, "a higher tag than the kernel has room for"
        return [kind, flags, tag, *self.text(name), place, *self.text(default)]


def _type_name(name: str) -> str:
    """`ZkMigrationStateRecord` as the constant of its type: `ZK_MIGRATION_STATE_RECORD`."""
    return "".join(f"_{each}" if each.isupper() else each.upper() for each in name).removeprefix("_")


def _default_text(field: Field, version: int) -> str:
    """The default of a field as the converter prints it; in a tagged field the converter omits it."""
    if field.default == "null":
        return "null"
    if field.is_array:
        return "[]"
    if field.fields:
        inner = (
            f'"{each.name}":{_default_text(each, version)}'
            for each in field.fields
            if version in each.versions
        )
        return "{" + ",".join(inner) + "}"
    match field.type:
        case "string" | "bytes":
            return f'"{field.default or ""}"'
        case "bool":
            return field.default or "false"
        case "uuid":
            return f'"{uuids.ZERO}"'
    return str(int(field.default or "0", 0))
