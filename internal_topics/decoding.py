"""Decode the bytes of a record into a mapping, by the schema of its message.

    int8 int16 int32 int64 uint16 uint32 float64   big-endian          bool   one byte, any but 0 is true
    uuid                                16 bytes (here: Kafka's text)
    string, bytes, array                length, content; in flexible versions the length is an unsigned varint of n + 1, 0 is null
    struct                              its fields in order, in flexible versions followed by a tag section
    nullable struct                     int8 before it, negative is null; as a tagged field an unsigned varint, 0 is null
    tag section                         varint count, each: varint tag, varint size, content

    record of the metadata log, of remote log metadata   varint frame version 1, varint type, varint version, message
    key of a coordinator's topic        int16 type, message (version 0)
    value                               int16 version, message

As in Kafka's generated readers, a known tagged field is read with its own length and not with the tag's size, the second of two equal tags
wins, and unknown tags are skipped; each of these causes a remark. Where Kafka's tool would guess or fail, decoding continues: a
version above the last known one is decoded like that one, with a remark, and left-over bytes are counted.

Time and memory are linear in the size of the input: a length or a count is checked against the remaining bytes before it is used.
(Sources: MessageDataGenerator, ByteBufferAccessor, AbstractApiMessageSerde, CoordinatorRecordSerde of 4.3.1.)
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any

from kseg.internal_topics.schemas import Field, Message, message
from kseg.internal_topics.topic_names import CLUSTER_METADATA
from kseg.segment.errors import FormatError
from kseg.segment.java import uuids
from kseg.segment.java.java_output import decode_utf8
from kseg.segment.values import dataclass

_FRAME_VERSION = 1
_MAX_INT16, _MAX_INT32 = 0x7FFF, 0x7FFFFFFF
_UUID_BYTES = 16
_MAX_VARINT_SHIFT = 28

Values = Mapping[str, Any]
Remarks = list[str]
_Read = Callable[[bytes, int, Remarks], tuple[Any, int]]


@dataclass(frozen=True, slots=True)
class Decoded:
    """One message.

    values: all fields of the version by their JSON names, in the order of the definition; arrays are tuples, structs mappings,
    uuids text. version: as recorded. is_newer: above the last known version, decoded like that. left_over_bytes: after the
    message. remarks: irregularities, in words.
    """

    message: Message
    version: int
    values: Values
    is_newer: bool
    left_over_bytes: int
    remarks: tuple[str, ...] = ()

    def irregularities(self) -> dict[str, object]:
        """The fields of a row that only an irregular message has."""
        found = {
            "newer": self.is_newer,
            "left_over_bytes": self.left_over_bytes,
            "remarks": list(self.remarks),
        }
        return {name: value for name, value in found.items() if value}


class UnknownType(FormatError):
    """A record of a type that 4.3.1 does not have. type_id: its number."""

    def __init__(self, topic: str, type_id: int) -> None:
        super().__init__(f"{topic} has no record type {type_id} in Kafka 4.3.1")
        self.type_id = type_id


def frame_of(value: bytes | None) -> tuple[int, int, int]:
    """(type, version, where the message begins) of a framed record. Raises FormatError."""
    if not value:
        raise FormatError("the record has no value")
    if len(value) > 2 and value[0] == _FRAME_VERSION and value[1] < 0x80 and value[2] < 0x80:
        return value[1], value[2], 3  # what Kafka writes: one byte each
    frame, position = _frame_part(value, 0, "frame version")
    if frame != _FRAME_VERSION:
        raise FormatError(f"the record has an unknown frame version {frame}")
    type_id, position = _frame_part(value, position, "type")
    version, position = _frame_part(value, position, "version")
    return type_id, version, position


def _frame_part(value: bytes, position: int, what: str) -> tuple[int, int]:
    """A Java short, as `AbstractApiMessageSerde.unsignedIntToShort` makes it of a varint."""
    number, position = _uvarint(value, position)
    if number > _MAX_INT16:
        raise FormatError(f"the {what} of the record is too large: {number}")
    return ((number & 0xFFFF) ^ 0x8000) - 0x8000, position


def decode_framed(
    value: bytes | None, topic: str = CLUSTER_METADATA, frame: tuple[int, int, int] | None = None
) -> Decoded:
    """A record of the metadata log, or of `__remote_log_metadata`. frame: what `frame_of` returns for it, if that is known. Raises
    UnknownType and FormatError."""
    type_id, version, position = frame or frame_of(value)
    assert value is not None
    return decode(_known(topic, "metadata", type_id), version, value, position)


def decode_key(topic: str, key: bytes) -> Decoded:
    """The key of a coordinator's record. Raises UnknownType and FormatError."""
    return decode(_known(topic, "key", _int16(key, "key")), 0, key, 2)


def decode_value(topic: str, type_id: int, value: bytes) -> Decoded:
    """The value that belongs to a key of `type_id`; never called for a tombstone. Raises UnknownType and FormatError."""
    version = _int16(value, "value")
    return decode(_known(topic, "value", type_id), version, value, 2)


def decode(known: Message, version: int, data: bytes, position: int = 0) -> Decoded:
    """`data` from `position` on as a message. Raises FormatError when it does not follow its schema."""
    if version < known.versions.first:
        raise FormatError(f"{known.name} has no version {version}")
    remarks: Remarks = []
    try:
        values, end = _reader(known, min(version, known.last_version))(data, position, remarks)
    except (struct.error, IndexError):
        raise FormatError(f"{known.name} is truncated in the middle of a field") from None
    return Decoded(
        known, version, values, version > known.last_version, max(0, len(data) - end), tuple(remarks)
    )


def _known(topic: str, kind: str, type_id: int) -> Message:
    known = message(topic, kind, type_id)
    if known is None:
        raise UnknownType(topic, type_id)
    return known


def _int16(data: bytes, what: str) -> int:
    if len(data) < 2:
        raise FormatError(f"the {what} is too short for its version")
    return int.from_bytes(data[:2], "big", signed=True)


# --- schemas to readers


_readers: dict[tuple[int, int], tuple[Message, _Read]] = {}  # by message


def _reader(known: Message, version: int) -> _Read:
    """The reader of one version of a message; created once."""
    key = (id(known), version)
    if key not in _readers:
        _readers[key] = (known, _struct_reader(known.fields, version, version in known.flexible))
    return _readers[key][1]


def _struct_reader(fields: tuple[Field, ...], version: int, is_flexible: bool) -> _Read:
    present = [field for field in fields if version in field.versions or version in field.tagged]
    template = {field.name: default_value(field, version) for field in present}
    plain = [
        (field.name, _field_reader(field, version, is_flexible))
        for field in present
        if version not in field.tagged
    ]
    tagged = {
        field.tag: (field.name, _field_reader(field, version, is_flexible, is_tagged=True))
        for field in present
        if version in field.tagged
    }
    of_other_versions = {field.tag for field in fields if field.tag is not None} - set(tagged)

    def read(data: bytes, position: int, remarks: Remarks) -> tuple[Any, int]:
        values = dict(template)
        for name, read_field in plain:
            values[name], position = read_field(data, position, remarks)
        if not is_flexible:
            return values, position
        if position < len(data) and data[position] == 0:
            return values, position + 1
        count, position = _uvarint(data, position)
        if count > len(data) - position:
            raise FormatError(f"{count} tagged fields are declared in {len(data) - position} bytes")
        for _ in range(count):
            tag, position = _uvarint(data, position)
            size, position = _uvarint(data, position)
            known = tagged.get(tag)
            if tag in of_other_versions:
                raise FormatError(f"Tag {tag} is not valid for version {version}")
            if known is None:
                if not 0 <= size <= len(data) - position:
                    raise FormatError(f"tag {tag} is truncated")
                remarks.append(f"unknown tag {tag} of {size} bytes")
                position += size
                continue
            start = position
            values[known[0]], position = known[1](data, position, remarks)
            if position - start != size:
                remarks.append(f"tag {tag} says {size} bytes and has {position - start}")
        return values, position

    return read


def default_value(field: Field, version: int) -> Any:
    """The default value of a field in Kafka's generated class, as a value of `Decoded.values`."""
    if field.default == "null":
        return None
    if field.is_array:
        return ()
    if field.fields:
        return {each.name: default_value(each, version) for each in field.fields if version in each.versions}
    text = field.default
    match field.type:
        case "string":
            return text or ""
        case "bytes":
            return b""
        case "bool":
            return text == "true"
        case "uuid":
            return uuids.ZERO
        case "float64":
            return float(text or 0)
    return int(text or "0", 0)


def _field_reader(field: Field, version: int, is_flexible: bool, *, is_tagged: bool = False) -> _Read:
    nullable = version in field.nullable
    if field.fields:
        one = _struct_reader(field.fields, version, is_flexible)
    else:
        one = _PRIMITIVES.get(field.type) or _text_reader(
            field.name, field.type, nullable and not field.is_array, is_flexible
        )
    if field.is_array:
        if field.type in _NUMBERS:
            return _number_array_reader(field.name, _NUMBERS[field.type], nullable, is_flexible)
        return _array_reader(field.name, one, nullable, is_flexible)
    if field.fields and nullable:
        return _nullable_struct(one, is_tagged)
    return one


def _nullable_struct(one: _Read, is_tagged: bool) -> _Read:
    def read(data: bytes, position: int, remarks: Remarks) -> tuple[Any, int]:
        if is_tagged:
            marker, position = _uvarint(data, position)
            is_null = marker <= 0
        else:
            is_null, position = data[position] >= 0x80, position + 1
        return (None, position) if is_null else one(data, position, remarks)

    return read


def _length(
    data: bytes, position: int, is_flexible: bool, width: struct.Struct, most: int, name: str
) -> tuple[int, int]:
    """A length or count, -1 for null. Raises FormatError for more than remains or than `most`."""
    if is_flexible:
        length, position = _uvarint(data, position)
        length = _MAX_INT32 if length == -_MAX_INT32 - 1 else length - 1
    else:
        (length,) = width.unpack_from(data, position)
        position += width.size
    if length > most:
        raise FormatError(f"{name} has the invalid length {length}")
    if length > len(data) - position:
        raise FormatError(f"{name} needs {length} bytes and {len(data) - position} are left")
    return max(length, -1), position


def _null(name: str, nullable: bool) -> None:
    if not nullable:
        raise FormatError(f"{name} must not be null")


def _text_reader(name: str, kind: str, nullable: bool, is_flexible: bool) -> _Read:
    """string or bytes."""
    if kind not in ("string", "bytes"):
        raise AssertionError(f"{name} has an unknown type {kind}")
    is_text = kind == "string"
    width, most = (_INT16, _MAX_INT16) if is_text else (_INT32, 1 << 31)

    def read(data: bytes, position: int, _remarks: Remarks) -> tuple[Any, int]:
        length, position = _length(data, position, is_flexible, width, most, name)
        if length < 0:
            _null(name, nullable)
            return None, position
        content = data[position : position + length]
        return decode_utf8(content) if is_text else content, position + length

    return read


def _array_reader(name: str, one: _Read, nullable: bool, is_flexible: bool) -> _Read:
    def read(data: bytes, position: int, remarks: Remarks) -> tuple[Any, int]:
        # each element takes at least one byte, so a count above the remaining bytes is invalid
        count, position = _length(data, position, is_flexible, _INT32, 1 << 31, name)
        if count < 0:
            _null(name, nullable)
            return None, position
        elements = []
        for _ in range(count):
            element, position = one(data, position, remarks)
            elements.append(element)
        return tuple(elements), position

    return read


def _number_array_reader(name: str, form: str, nullable: bool, is_flexible: bool) -> _Read:
    """The same for numbers of this form of `struct`, all at once."""
    size = struct.calcsize(f">{form}")

    def read(data: bytes, position: int, _remarks: Remarks) -> tuple[Any, int]:
        count, position = _length(data, position, is_flexible, _INT32, 1 << 31, name)
        if count < 0:
            _null(name, nullable)
            return None, position
        return struct.unpack_from(f">{count}{form}", data, position), position + count * size

    return read


# --- primitives

_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
# as forms of `struct`
_NUMBERS: Mapping[str, str] = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}


def _number(form: str) -> _Read:
    packed = struct.Struct(">" + form)
    unpack, size = packed.unpack_from, packed.size

    def read(data: bytes, position: int, _remarks: Remarks) -> tuple[Any, int]:
        return unpack(data, position)[0], position + size

    return read


def _bool(data: bytes, position: int, _remarks: Remarks) -> tuple[Any, int]:
    return data[position] != 0, position + 1


def _uuid(data: bytes, position: int, _remarks: Remarks) -> tuple[Any, int]:
    return uuids.uuid_text(data[position : position + _UUID_BYTES]), position + _UUID_BYTES


_PRIMITIVES: Mapping[str, _Read] = {
    "bool": _bool,
    "uuid": _uuid,
    **{kind: _number(form) for kind, form in _NUMBERS.items()},
}


def _uvarint(data: bytes, position: int) -> tuple[int, int]:
    """An unsigned varint of 32 bits as a Java int, which is negative from 2^31 on. Raises FormatError."""
    if position < len(data) and data[position] < 0x80:
        return data[position], position + 1
    value = shift = 0
    while True:
        if position >= len(data):
            raise FormatError("a varint is truncated")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000, position
        shift += 7
        if shift > _MAX_VARINT_SHIFT:
            raise FormatError("a varint has more than five bytes")
