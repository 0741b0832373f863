"""Records of Kafka's own topics in rows of JSON and tables: decoded, with names beside numbers, and without secrets.

Where Kafka's tool guesses or gives up, decoding continues: key and value are decoded independently, a version above the last
known one is decoded like that one, with a remark, left-over bytes are counted, and undecodable data stays as bytes with the
reason (fact sheet internal topics §9.2).

Values that an attacker could use (SCRAM credentials, configurations that may be secret) are redacted in a message unless
requested (§11); undecoded bytes are handled by `secret_values`.
"""

from base64 import b64encode
from collections.abc import Mapping, MutableMapping
from typing import Any

from kseg.internal_topics import share_4_0
from kseg.internal_topics.decoding import Decoded, decode_framed, decode_key, decode_value
from kseg.internal_topics.groups.consumer_protocol import ASSIGNMENT, SUBSCRIPTION, decode_member
from kseg.internal_topics.row_programs import row_program_of
from kseg.internal_topics.schemas import Message
from kseg.internal_topics.sensitive_configs import is_sensitive
from kseg.internal_topics.topic_names import CLUSTER_METADATA, REMOTE_LOG_METADATA
from kseg.internal_topics.value_names import with_names
from kseg.segment.errors import FormatError
from kseg.segment.model import Record
from kseg.segment.redaction import REDACTED
from kseg.segment.values import dataclass

ENCODING = "message"
_CONFIG, _SCRAM = 4, 11
_SCRAM_SECRETS = ("salt", "storedKey", "serverKey")
_PROTOCOLS = {"subscription": SUBSCRIPTION, "assignment": ASSIGNMENT}


@dataclass(frozen=True, slots=True)
class MessageRows:
    """A `LogRowDecoder`. topic: which internal one. topics: names by topic id, as far as the metadata log ever named them."""

    topic: str
    topics: Mapping[str, str]
    show_secrets: bool = False

    def amend(self, row: MutableMapping[str, object], record: Record) -> None:
        _put_message(row, record, self)

    def program(self) -> tuple[memoryview, bytes]:
        """See `LogRowDecoder`. Records that may show a secret are passed to `amend`."""
        left_out = frozenset((_CONFIG, _SCRAM) if self.topic == CLUSTER_METADATA else ())
        program = row_program_of(self.topic, self.topics, left_out)
        return program.ops, program.names


def _put_message(row: MutableMapping[str, object], record: Record, context: MessageRows) -> None:
    """Replace the bytes of a record by its messages; bytes that cannot be decoded stay, with the reason in `key_error` or `value_error`."""
    topic = context.topic
    type_id = None
    if topic not in (CLUSTER_METADATA, REMOTE_LOG_METADATA):
        try:
            type_id = _put_key(row, record.key, context)
        except FormatError as error:
            row["key_error"] = str(error)
            type_id = _type_of(record.key)
    if record.value is None:
        return
    try:
        decoded, dialect = _value(topic, type_id, record.value)
    except FormatError as error:
        row["value_error"] = str(error)
        return
    row["value"] = _shown(decoded, context) | ({} if dialect is None else {"dialect": dialect})
    row["value_encoding"] = ENCODING


def _put_key(row: MutableMapping[str, object], key: bytes | None, context: MessageRows) -> int | None:
    if key is None:
        raise FormatError("records of this topic have a key, and this one has none")
    decoded = share_4_0.decode_key(context.topic, key) or decode_key(context.topic, key)
    shown = _shown(decoded, context)
    del shown["version"]  # keys have no version
    row["key"], row["key_encoding"] = shown, ENCODING
    return decoded.message.type


def _shown(decoded: Decoded, context: MessageRows) -> dict[str, object]:
    data = with_names(decoded.message.name, decoded.values, context.topics)
    if decoded.message.name == "GroupMetadataValue" and decoded.values["protocolType"] == "consumer":
        for shown, member in zip(data["members"], decoded.values["members"], strict=True):
            for field, name in _PROTOCOLS.items():
                shown[field] = _protocol(name, member[field])
    if not context.show_secrets:
        _redact(decoded.message, data)
    message = decoded.message
    shown = {"type": message.type, "name": message.name, "version": decoded.version, "data": data}
    return shown | decoded.irregularities()


def _type_of(key: bytes | None) -> int | None:
    return None if key is None or len(key) < 2 else int.from_bytes(key[:2], "big", signed=True)


def _value(topic: str, type_id: int | None, value: bytes) -> tuple[Decoded, str | None]:
    """A value, and the dialect of Kafka in which it is written if that is not 4.3.1's. Raises FormatError."""
    if topic in (CLUSTER_METADATA, REMOTE_LOG_METADATA):
        return decode_framed(value, topic), None
    if type_id is None:
        raise FormatError("the type of the value is in the key, which cannot be read")
    problem: FormatError | None = None
    try:
        decoded = decode_value(topic, type_id, value)
        if not decoded.left_over_bytes:
            return decoded, None
    except FormatError as error:
        problem = error
    old = share_4_0.decode_value(topic, type_id, value)
    if old is not None:
        return old, share_4_0.DIALECT
    if problem is not None:
        raise problem
    return decoded, None


def _protocol(name: str, data: bytes) -> object:
    """A consumer's subscription or assignment; base64 of bytes that are neither."""
    try:
        return with_names(name, decode_member(name, data).values, {})
    except FormatError:
        return b64encode(data).decode("ascii")


def _redact(message: Message, data: dict[str, Any]) -> None:
    if message.topic != CLUSTER_METADATA:
        return
    if message.type == _SCRAM:
        for name in _SCRAM_SECRETS:
            data[name] = REDACTED
    is_set = message.type == _CONFIG and data["value"] is not None
    if is_set and is_sensitive(data["resourceType"], data["name"]):
        data["value"] = REDACTED
