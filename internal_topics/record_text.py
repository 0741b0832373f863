"""Keys and values of Kafka's own topics as DumpLogSegments 4.3.1 prints them, its error texts included.

`CoordinatorRecordMessageParser` (with `CoordinatorRecordSerde`), `ClusterMetadataLogMessageParser` (with `AbstractApiMessageSerde`) and
`RemoteMetadataLogMessageParser`; fact sheet internal topics §1.3 to §1.7. The kernel decodes; this module
produces the messages for bytes that it cannot decode, which are those of Kafka's and Java's exceptions.
"""

from array import array
from collections.abc import Callable

from kseg.internal_topics.message_programs import MessageProgram, program_of
from kseg.internal_topics.remote_log_text import remote_log_text
from kseg.internal_topics.topic_names import REMOTE_LOG_METADATA
from kseg.segment.errors import FormatError
from kseg.segment.kernel import decoded_lines as D
from kseg.segment.kernel import message_fields as M
from kseg.segment.record_decoder import RecordText
from kseg.segment.values import dataclass

_MIN_ROOM_BYTES = 4096
_ROOM_FACTOR = 8
_NULL_VALUE = (
    'Cannot invoke "java.nio.ByteBuffer.remaining()" because the return value of '
    '"org.apache.kafka.common.record.internal.Record.value()" is null'
)
_FRAME_PARTS = {M.FRAME_VERSION: "frame version", M.FRAME_TYPE: "type", M.MESSAGE_VERSION: "version"}
_FRAME_ZERO = (
    "Could not deserialize metadata record with frame version 0. Note that upgrades from the preview release of KRaft in 2.8 to newer "
    "versions are not supported."
)


@dataclass(frozen=True, slots=True)
class ReadParts:
    """The result of the kernel for a record. key, value: JSON text, None if it was not reached. state: its numbers."""

    key: bytes | None
    value: bytes | None
    state: memoryview

    @property
    def stage(self) -> int:
        """The stage of decoding that failed, M.NO_STAGE if none did."""
        return self.state[M.STAGE]


def read_parts(program: MessageProgram, key: bytes | None, value: bytes | None) -> ReadParts:
    """Decode a record in the kernel. Memory is bounded by a small multiple of the record's text."""
    body = (key or b"") + (value or b"")
    key_length = -1 if key is None else len(key)
    value_length = -1 if value is None else len(value)
    state = memoryview(array("q", bytes(8 * M.LINES_STATE_WIDTH)))
    room = max(_MIN_ROOM_BYTES, _ROOM_FACTOR * len(body))
    while True:
        out = bytearray(room)
        end = D.format_parts(
            program.ops, program.names, body, 0, key_length, len(key or b""), value_length, out, state
        )
        if end >= 0 or state[M.ERROR] != M.NO_ROOM:
            break
        room *= 2
    key_end = state[M.KEY_END]
    return ReadParts(
        bytes(out[:key_end]) if key_end else None,
        bytes(out[key_end:end]) if end >= 0 else None,
        state,
    )


@dataclass(frozen=True, slots=True)
class TopicText:
    """The decoder of one of TOPICS."""

    topic: str

    def program(self) -> tuple[memoryview, bytes] | None:
        if self.topic == REMOTE_LOG_METADATA:
            return None
        program = program_of(self.topic)
        return program.ops, program.names

    def text(self, offset: int, key: bytes | None, value: bytes | None) -> RecordText:
        if self.topic == REMOTE_LOG_METADATA:
            return RecordText(None, _remote(offset, value))
        program = program_of(self.topic)
        read = read_parts(program, key, value)
        if program.ops[0] == M.FRAMED:
            if read.value is None:
                message = _framed_error(read, program)
                return RecordText(None, f"Error at {offset}, skipping. {message}".encode())
            return RecordText(None, read.value)
        if read.stage == M.KEY_MISSING:
            sentence = f"Failed to decode message at offset {offset} using the specified decoder (message had a missing key)"
            return RecordText(None, None, f"RuntimeException: {sentence}")
        if read.stage:
            return RecordText(_coordinator_error(offset, read, program).encode(), None)
        return RecordText(read.key, read.value)


def _coordinator_error(offset: int, read: ReadParts, program: MessageProgram) -> str:
    state, type_id = read.state, read.state[M.TYPE]
    match read.stage:
        case M.UNKNOWN_TYPE:
            return f"Unknown record type {type_id} at offset {offset}, skipping."
        case M.KEY_TYPE | M.VALUE_VERSION:
            buffer = "key" if read.stage == M.KEY_TYPE else "value"
            message = f"Could not read version from {buffer}'s buffer."
        case M.UNKNOWN_VERSION:
            message = f"Found an unknown record version {state[M.VERSION]} for {type_id} type"
        case M.KEY_MESSAGE:
            cause = java_message(state, program, type_id)
            message = f"Could not read record with version {type_id} from key's buffer due to: {cause}."
        case _:
            version = state[M.VERSION]
            cause = java_message(state, program, version)
            message = f"Could not read record with version {version} from value's buffer due to: {cause}."
    return f"Error at offset {offset}, skipping. {message}"


def _framed_error(read: ReadParts, program: MessageProgram) -> str:
    state, type_id = read.state, read.state[M.TYPE]
    match read.stage:
        case M.FRAME_VERSION | M.FRAME_TYPE | M.MESSAGE_VERSION:
            part = _FRAME_PARTS[read.stage]
            if state[M.ERROR] == M.IS_TOO_LARGE:
                return f"Value for {part} was too large."
            return f"Error while reading {part}"
        case M.BAD_FRAME_VERSION if state[M.A] == 0:
            return _FRAME_ZERO
        case M.BAD_FRAME_VERSION:
            return (
                f"Could not deserialize metadata record due to unknown frame version {state[M.A]}"
                "(only frame version 1 is supported)"
            )
        case M.UNKNOWN_TYPE:
            return (
                f"org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id {type_id}"
            )
        case M.GARBAGE:
            return f"Found {state[M.LEFT_OVER]} byte(s) of garbage after {type_id}"
    return f"Failed to deserialize record with type {type_id}"


def _remote(offset: int, value: bytes | None) -> bytes:
    """A record of `__remote_log_metadata`: `toString` of its class, or the tool's message about what is wrong with it."""
    try:
        if value is None:
            raise FormatError(_NULL_VALUE)
        program = program_of(REMOTE_LOG_METADATA)
        read = read_parts(program, None, value)
        if read.value is None:
            raise FormatError(_framed_error(read, program))
        return remote_log_text(read.state[M.TYPE], read.value).encode()
    except FormatError as error:
        return f"Error at offset {offset}, skipping. {error}".encode()


def java_message(state: memoryview, program: MessageProgram, version: int) -> str:
    """The message of the exception that Kafka's generated reader throws; `null` if it has none."""
    a, b = state[M.A], state[M.B]
    field = program.fields.get(state[M.FIELD], "")
    describe: dict[int, Callable[[], str]] = {
        M.IS_NULL: lambda: f"non-nullable field {_element(field, b)} was serialized as null",
        M.TOO_LONG: lambda: f"string field {_element(field, b)} had invalid length {a}",
        M.MISSING_BYTES: lambda: f"Error reading byte array of {a} byte(s): only {b} byte(s) available",
        M.TOO_MANY: lambda: (
            f"Tried to allocate a collection of size {a}, but there are only {b} bytes remaining."
        ),
        M.BAD_VARINT: lambda: (
            "Varint is too long, the most significant bit in the 5th byte is set, converted value: "
            f"{a & 0xFFFFFFFF:x}"
        ),
        M.NEGATIVE_SIZE: lambda: str(a),
        M.BAD_TAG: lambda: f"Tag {a} is not valid for version {version}",
        M.TOO_NEW: lambda: f"Can't read version {version} of {field}",
    }
    return describe[state[M.ERROR]]() if state[M.ERROR] in describe else "null"


def _element(field: str, is_element: int) -> str:
    return f"{field} element" if is_element else field
