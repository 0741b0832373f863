"""The frame around a payload: the schema with which it was written, and the position of its data.

    in the payload   0x00, schema id as int32 big-endian, [message indexes], data
    in a header      __key_schema_id or __value_schema_id: 0x01 and the 16 bytes of a GUID, [message indexes], or 0x00 and
                     the id; the payload is then data from its first byte on

Message indexes (protobuf only): a zigzag varint count and as many zigzag varints, the path from the file's messages inwards; the
single byte 0 stands for [0]. Source: Confluent's wire format documentation and the serializers of confluent-kafka (`SchemaId`).
"""

from uuid import UUID

from kseg.segment.errors import FormatError
from kseg.segment.model import Headers
from kseg.segment.values import dataclass

ID_MAGIC, GUID_MAGIC = 0, 1
KEY_HEADER, VALUE_HEADER = b"__key_schema_id", b"__value_schema_id"
_ID_BYTES, _GUID_BYTES = 5, 17
MAX_INDEXES = 100  # levels of nested messages; protobuf itself supports no more
_MAX_VARINT_BYTES = 5


@dataclass(frozen=True, slots=True)
class Frame:
    """schema_id or guid: identifies the schema. data: the payload after the frame. indexes: the rest of the header after a GUID, with
    protobuf's indexes; None if they are at the start of `data`."""

    schema_id: int | None
    guid: UUID | None
    data: bytes
    indexes: bytes | None = None


def frame_of(payload: bytes, headers: Headers, is_key: bool) -> Frame | None:
    """The frame of a payload, None if neither it nor a header has one."""
    if headers:
        name = KEY_HEADER if is_key else VALUE_HEADER
        for header, content in reversed(headers):
            if header == name and content is not None:
                return _of_header(content, payload)
    if len(payload) >= _ID_BYTES and payload[0] == ID_MAGIC:
        return Frame(int.from_bytes(payload[1:_ID_BYTES], "big", signed=True), None, payload[_ID_BYTES:])
    return None


def _of_header(content: bytes, payload: bytes) -> Frame | None:
    if len(content) >= _GUID_BYTES and content[0] == GUID_MAGIC:
        return Frame(None, UUID(bytes=content[1:_GUID_BYTES]), payload, content[_GUID_BYTES:])
    if len(content) >= _ID_BYTES and content[0] == ID_MAGIC:
        schema_id = int.from_bytes(content[1:_ID_BYTES], "big", signed=True)
        return Frame(schema_id, None, payload, content[_ID_BYTES:])
    return None


def message_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """The message indexes at the start of `data`, and where the message begins. Raises FormatError."""
    count, position = _zigzag(data, 0)
    if count == 0:
        return (0,), position
    if not 0 < count <= MAX_INDEXES:
        raise FormatError(f"{count} message indexes")
    found = []
    for _ in range(count):
        index, position = _zigzag(data, position)
        found.append(index)
    return tuple(found), position


def _zigzag(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    for at in range(position, min(len(data), position + _MAX_VARINT_BYTES)):
        value |= (data[at] & 0x7F) << shift
        if data[at] < 0x80:
            return (value >> 1) ^ -(value & 1), at + 1
        shift += 7
    raise FormatError("the message indexes are truncated or too long")
