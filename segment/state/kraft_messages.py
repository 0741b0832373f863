"""The values of KRaft's control records: leader changes, voters, snapshot headers and footers.

They are *flexible* messages (fact sheet §10.4), always of schema version 0 (Kafka: ControlRecordUtils):

    message  = field… tags                    int16 int32 int64 uint16   big-endian
    array    = uvarint(n + 1) element…        text                       uvarint(n + 1) UTF-8, n <= 32767
    tags     = uvarint(n) tag…                uuid                       16 bytes
    tag      = uvarint(tag) uvarint(size) size bytes, skipped: version 0 has none of its own

    LEADER_CHANGE    version leaderId voters[voterId] grantingVoters[voterId]
    SNAPSHOT_HEADER  version lastContainedLogTimestamp
    SNAPSHOT_FOOTER  version
    KRAFT_VERSION    version kRaftVersion
    KRAFT_VOTERS     version voters[voterId voterDirectoryId endpoints[name host port]
                                    kRaftVersionFeature(minSupportedVersion maxSupportedVersion)]

The field `version` is payload: it never selects the schema, and any value is accepted. Bytes after a message are
ignored. Both follow Kafka's readers, as do the limits: an array may not declare more elements than bytes remain,
so reading takes time and memory linear in the size of the value.
"""

import base64
import binascii
import struct
from collections.abc import Mapping
from typing import Final

from kseg.segment.errors import FormatError
from kseg.segment.java.java_output import decode_utf8
from kseg.segment.values import dataclass

LEADER_CHANGE: Final = "LEADER_CHANGE"
SNAPSHOT_HEADER: Final = "SNAPSHOT_HEADER"
SNAPSHOT_FOOTER: Final = "SNAPSHOT_FOOTER"
KRAFT_VERSION: Final = "KRAFT_VERSION"
KRAFT_VOTERS: Final = "KRAFT_VOTERS"

MAX_TEXT_BYTES = 0x7FFF


class ControlRecordError(FormatError):
    """A control record that Kafka's readers reject as well.

    kafka_exception: simple name of the Java exception that they throw. A broker's recovery survives only
    `InvalidRecordException` (it truncates the log after the batch); every other one fails the load of the log.
    """

    def __init__(self, sentence: str, kafka_exception: str) -> None:
        super().__init__(sentence)
        self.kafka_exception = kafka_exception


@dataclass(frozen=True, slots=True)
class _Array:
    element: "_Struct"


_Struct = tuple[tuple[str, "str | _Array | _Struct"], ...]

_NUMBERS: Final[Mapping[str, struct.Struct]] = {
    "int16": struct.Struct(">h"),
    "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
}

_LEADER_VOTER: _Struct = (("voterId", "int32"),)
_ENDPOINT: _Struct = (("name", "text"), ("host", "text"), ("port", "uint16"))
_FEATURE: _Struct = (("minSupportedVersion", "int16"), ("maxSupportedVersion", "int16"))
_VOTER: _Struct = (
    ("voterId", "int32"),
    ("voterDirectoryId", "uuid"),
    ("endpoints", _Array(_ENDPOINT)),
    ("kRaftVersionFeature", _FEATURE),
)
_SCHEMAS: Final[Mapping[str, _Struct]] = {
    LEADER_CHANGE: (
        ("version", "int16"),
        ("leaderId", "int32"),
        ("voters", _Array(_LEADER_VOTER)),
        ("grantingVoters", _Array(_LEADER_VOTER)),
    ),
    SNAPSHOT_HEADER: (("version", "int16"), ("lastContainedLogTimestamp", "int64")),
    SNAPSHOT_FOOTER: (("version", "int16"),),
    KRAFT_VERSION: (("version", "int16"), ("kRaftVersion", "int16")),
    KRAFT_VOTERS: (("version", "int16"), ("voters", _Array(_VOTER))),
}
KINDS = tuple(_SCHEMAS)


def read_message(kind: str, value: bytes) -> dict[str, object]:
    """The fields of a KRaft control value by their JSON names, in schema order; uuids as Kafka prints them.

    kind: one of `KINDS`. Raises ControlRecordError where Kafka's reader fails. Source: fact sheet §2.5.
    """
    return _Reader(value).struct(_SCHEMAS[kind])


def write_message(kind: str, fields: Mapping[str, object]) -> bytes:
    """The exact inverse of `read_message`, without tagged fields.

    Raises ControlRecordError if a field is missing, of the wrong type, or out of range.
    """
    out = bytearray()
    try:
        _write_struct(out, _SCHEMAS[kind], fields)
    except (KeyError, TypeError, ValueError, struct.error, binascii.Error) as error:
        raise ControlRecordError(f"cannot write a {kind} record: {error!r}", "RuntimeException") from error
    return bytes(out)


def uuid_text(raw: bytes) -> str:
    """Kafka's text of a uuid: 22 characters of URL-safe base64 without padding (fact sheet §1.4)."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


class _Reader:
    """A cursor over one value; each method reads one item or raises ControlRecordError."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def _take(self, size: int, kafka_exception: str = "BufferUnderflowException") -> bytes:
        start, end = self._position, self._position + size
        if end > len(self._data):
            raise ControlRecordError(f"the value ends before byte {end}", kafka_exception)
        self._position = end
        return self._data[start:end]

    def uvarint(self) -> int:
        """As Java reads it into an int: five bytes at most, bits beyond 32 are dropped, the result is signed."""
        result = 0
        for shift in (0, 7, 14, 21, 28):
            byte = self._take(1)[0]
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                result &= 0xFFFF_FFFF
                return result - 2**32 if result >= 2**31 else result
        raise ControlRecordError(
            "a variable-length number has more than five bytes", "IllegalArgumentException"
        )

    def length(self, name: str) -> int:
        length = self.uvarint() - 1
        if length == -(2**31) - 1:  # Java's int wraps around here
            length = 2**31 - 1
        if length < 0:
            raise ControlRecordError(f"{name} must not be null", "RuntimeException")
        return length

    def text(self, name: str) -> str:
        length = self.length(name)
        if length > MAX_TEXT_BYTES:
            raise ControlRecordError(f"{name} declares {length} bytes of text", "RuntimeException")
        return decode_utf8(self._take(length, "RuntimeException"))

    def array(self, name: str, element: _Struct) -> list[dict[str, object]]:
        length = self.length(name)
        remaining = len(self._data) - self._position
        if length > remaining:
            raise ControlRecordError(
                f"{name} declares {length} elements in {remaining} bytes", "RuntimeException"
            )
        return [self.struct(element) for _ in range(length)]

    def skip_tags(self) -> None:
        for _ in range(self.uvarint()):
            self.uvarint()
            size = self.uvarint()
            if size < 0:
                raise ControlRecordError("a tagged field has a negative size", "NegativeArraySizeException")
            self._take(size, "RuntimeException")

    def field(self, name: str, kind: "str | _Array | _Struct") -> object:
        if isinstance(kind, _Array):
            return self.array(name, kind.element)
        if isinstance(kind, tuple):
            return self.struct(kind)
        if kind == "text":
            return self.text(name)
        if kind == "uuid":
            return uuid_text(self._take(16))
        number = _NUMBERS[kind]
        return number.unpack(self._take(number.size))[0]

    def struct(self, fields: _Struct) -> dict[str, object]:
        values = {name: self.field(name, kind) for name, kind in fields}
        self.skip_tags()
        return values


def _write_uvarint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_struct(out: bytearray, fields: _Struct, values: object) -> None:
    if not isinstance(values, Mapping):
        raise TypeError("a structure must be a mapping")
    for name, kind in fields:
        _write_field(out, kind, values[name])
    out.append(0)  # no tagged fields


def _write_field(out: bytearray, kind: "str | _Array | _Struct", value: object) -> None:
    if isinstance(kind, _Array):
        if not isinstance(value, list | tuple):
            raise TypeError("an array must be a list")
        _write_uvarint(out, len(value) + 1)
        for element in value:
            _write_struct(out, kind.element, element)
    elif isinstance(kind, tuple):
        _write_struct(out, kind, value)
    elif not isinstance(value, str):
        out += _NUMBERS[kind].pack(value)
    elif kind == "text":
        raw = value.encode()
        if len(raw) > MAX_TEXT_BYTES:
            raise ValueError("a text is too long")
        _write_uvarint(out, len(raw) + 1)
        out += raw
    elif kind == "uuid":
        raw = base64.urlsafe_b64decode(value + "==")
        if len(raw) != 16:
            raise ValueError("a uuid has 16 bytes")
        out += raw
    else:
        raise TypeError(f"{kind} must be a number")
