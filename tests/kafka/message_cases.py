"""Random messages of every schema as records of Kafka's own topics, for tests that compare kseg's decoders with the real ones."""

from __future__ import annotations

import random
from base64 import b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kseg.internal_topics.decoding import default_value
from kseg.internal_topics.schemas import Field, Message, messages
from kseg.internal_topics.value_names import with_names
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.java import uuids
from kseg.segment.model import NewBatch, Record
from tests.kafka.oracle import Oracle

CLASSES = {
    "__consumer_offsets": "org.apache.kafka.coordinator.group.generated",
    "__transaction_state": "org.apache.kafka.coordinator.transaction.generated",
    "__share_group_state": "org.apache.kafka.coordinator.share.generated",
    "__cluster_metadata": "org.apache.kafka.common.metadata",
    "__remote_log_metadata": "org.apache.kafka.server.log.remote.metadata.storage.generated",
    "consumer-protocol": "org.apache.kafka.common.message",
}
FRAMED = ("__cluster_metadata", "__remote_log_metadata")
TIME_MS = 1_700_000_000_000
RECORDS_PER_BATCH = 250
_WORDS = (
    "",
    "g",
    "consumer",
    "t-1",
    "grüp",
    "😀",
    'a"b\\c',
    "by hand\0",
    "\x1f\t\n\x7f\x85\u2028/<",
    "x" * 40,
)
_RANGES = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
# Java 17 does not always print the shortest digits of a double; for these it does
_DOUBLES = (0.0, 1048576.0, 9999000.0, 1.0e7, 123456789.125, 0.001, 1.0e-4, -2.5, 4.9e-324, 12345.678)

Pair = tuple[bytes | None, bytes | None]


def random_values(rng: random.Random, fields: Sequence[Field], version: int) -> dict[str, Any]:
    """JSON that the converters read: all fields of the version and some of the tagged ones."""
    found = {}
    for field in fields:
        is_tagged = version in field.tagged
        if (version in field.versions or is_tagged) and not (is_tagged and rng.random() < 0.4):
            found[field.name] = _value(rng, field, version)
    return found


def _value(rng: random.Random, field: Field, version: int) -> Any:
    if version in field.nullable and rng.random() < 0.3:
        return None
    if field.is_array:
        return [_one(rng, field, version) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    return _one(rng, field, version)


def _one(rng: random.Random, field: Field, version: int) -> Any:
    if field.fields:
        return random_values(rng, field.fields, version)
    match field.type:
        case "string":
            return rng.choice(_WORDS)
        case "bytes":
            return b64encode(rng.randbytes(rng.choice((0, 1, 2, 3, 17)))).decode()
        case "bool":
            return rng.random() < 0.5
        case "uuid":
            return uuids.uuid_text(rng.choice((bytes(16), bytes(15) + b"\1", rng.randbytes(16))))
        case "float64":
            return rng.choice(_DOUBLES)
        case "uint16":
            return rng.choice((0, 1, 9092, 65535))
        case "uint32":
            return rng.choice((0, 1, 2**32 - 1))
    bits = _RANGES[field.type]
    top = 2 ** (bits - 1)
    return rng.choice((0, 1, -1, 5, 100, top - 1, -top, rng.randrange(-top, top)))


def of_topic(topic: str) -> tuple[dict[int, Message], dict[int, Message]]:
    """(keys, values) by type; framed topics have no keys."""
    own = [each for each in messages() if each.topic == topic]
    keys = {each.type: each for each in own if each.kind == "key" and each.type is not None}
    values = {each.type: each for each in own if each.kind != "key" and each.type is not None}
    return keys, values


def class_of(message: Message) -> str:
    return f"{CLASSES[message.topic]}.{message.name}"


def random_records(oracle: Oracle, rng: random.Random, topic: str, each: int) -> list[Pair]:
    """`each` records for every (type, version) of a topic, encoded by the real classes."""
    keys, values = of_topic(topic)
    kinds = [
        (type_id, version, message)
        for type_id, message in values.items()
        for version in range(message.versions.first, message.last_version + 1)
        for _ in range(each)
    ]
    bodies = [random_values(rng, message.fields, version) for _, version, message in kinds]
    if topic == "__consumer_offsets":
        _put_protocols(oracle, rng, kinds, bodies)
    encoded = oracle.messages(
        [
            (class_of(message), version, body)
            for (_, version, message), body in zip(kinds, bodies, strict=True)
        ]
    )
    if not keys:
        return [
            (None, bytes((1, type_id, version)) + data)
            for (type_id, version, _), (data, _) in zip(kinds, encoded, strict=True)
        ]
    of_keys = oracle.messages(
        [(class_of(keys[kind]), 0, random_values(rng, keys[kind].fields, 0)) for kind, _, _ in kinds]
    )
    return [
        (
            type_id.to_bytes(2, "big") + key,
            None if rng.random() < 0.05 else version.to_bytes(2, "big") + data,
        )
        for (type_id, version, _), (key, _), (data, _) in zip(kinds, of_keys, encoded, strict=True)
    ]


def _put_protocols(
    oracle: Oracle, rng: random.Random, kinds: list[tuple[int, int, Message]], bodies: list[dict[str, Any]]
) -> None:
    """Put real subscriptions and assignments into the members of classic groups, in all versions and some unknown ones."""
    protocols = [each for each in messages() if each.topic == "consumer-protocol"]
    asked = []
    for message in protocols:
        for version in range(message.last_version + 1):
            for _ in range(6):
                values = random_values(rng, message.fields, version)
                asked.append((class_of(message), version, values))
    pool: dict[str, list[bytes]] = {"subscription": [], "assignment": []}
    for (name, version, _), (data, _) in zip(asked, oracle.messages(asked), strict=True):
        kind = "subscription" if name.endswith("Subscription") else "assignment"
        for output in (version, rng.choice((-1, 4, 9, version))):
            pool[kind].append(output.to_bytes(2, "big", signed=True) + data)
    for (type_id, _, _), body in zip(kinds, bodies, strict=True):
        if type_id != 2:
            continue
        body["protocolType"] = rng.choice(("consumer", "consumer", "connect", ""))
        for member in body["members"]:
            for kind, choices in pool.items():
                if rng.random() < 0.8:
                    member[kind] = b64encode(rng.choice(choices)).decode()


def printed(fields: Sequence[Field], version: int, data: Any) -> Any:
    """The data of a row of ours as the converters print it: without the names added to numbers and ids, and without tagged fields that have
    their default."""
    if data is None:
        return None
    found = {}
    for field in fields:
        value = data.get(field.name)
        is_default = version in field.tagged and value == with_names("", default_value(field, version), {})
        if is_default or not (version in field.versions or version in field.tagged):
            continue
        if field.fields and field.is_array and value is not None:
            value = [printed(field.fields, version, each) for each in value]
        elif field.fields:
            value = printed(field.fields, version, value)
        found[field.name] = value
    return found


def truncated(records: Sequence[Pair]) -> Iterator[Pair]:
    """Every record truncated at every byte of its key (with the complete value) and of its value."""
    for key, value in records:
        for at in range(len(key or b"")):
            yield (key or b"")[:at], value
        for at in range(len(value or b"")):
            yield key, (value or b"")[:at]


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Some bytes are changed, added or removed."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(4):
            case 0 | 1 if at < len(found):
                found[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                found[at:at] = rng.randbytes(rng.choice((1, 1, 2, 8)))
            case _:
                del found[at : at + rng.choice((1, 1, 2, 8))]
    return bytes(found)


def mutants(rng: random.Random, records: Sequence[Pair], count: int) -> Iterator[Pair]:
    for _ in range(count):
        key, value = rng.choice(records)
        if value is None or (key is not None and rng.random() < 0.3):
            yield mutated(rng, key or b""), value
        else:
            yield key, mutated(rng, value)


def write_log(path: Path, records: Sequence[Pair]) -> Path:
    """A segment of plain batches."""
    with path.open("wb") as file:
        for first in range(0, len(records), RECORDS_PER_BATCH):
            some = enumerate(records[first : first + RECORDS_PER_BATCH], first)
            batch = NewBatch(records=tuple(Record(at, TIME_MS, key, value) for at, (key, value) in some))
            file.write(encode_batch(batch))
    return path
