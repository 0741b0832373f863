"""The decoder compared with the output of Kafka's own tool for the same bytes, and with the test vectors of its generated classes."""

from __future__ import annotations

import base64
import json
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kseg.internal_topics import schemas
from kseg.internal_topics.decoding import (
    Decoded,
    UnknownType,
    decode,
    decode_framed,
    decode_key,
    decode_value,
)
from kseg.internal_topics.schemas import Field, Message, Versions
from kseg.segment.errors import FormatError
from kseg.segment.files import MappedFile
from kseg.segment.model import Record
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.decode import Decoder, record_at
from kseg.segment.scanning.scan import Scanner

ROUNDS = int(os.environ.get("KSEG_DECODER_ROUNDS", "3"))
UUID = bytes(range(16))
UUID_TEXT = "AAECAwQFBgcICQoLDA0ODw"


def as_kafka_prints(record: Decoded) -> dict[str, Any]:
    """As Kafka's JSON converters write it: without tagged fields that have their default, bytes as base64."""
    return _object(record.message.fields, record.values, min(record.version, record.message.last_version))


def _object(fields: tuple[Field, ...], values: Any, version: int) -> dict[str, Any]:
    shown = {}
    for field in fields:
        if version not in field.versions and version not in field.tagged:
            continue
        value = values[field.name]
        if version in field.tagged and _is_default(field, value):
            continue
        shown[field.name] = _shown(field, value, version)
    return shown


def _is_default(field: Field, value: Any) -> bool:
    if field.default is not None:
        if value is None or field.default == "null":
            return value is None and field.default == "null"
        return str(value).lower() == field.default
    return not field.fields and value in (0, "", b"", (), False, "A" * 22)


def _shown(field: Field, value: Any, version: int) -> Any:
    if isinstance(value, tuple):
        return [_object(field.fields, each, version) if field.fields else each for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return _object(field.fields, value, version) if field.fields and value is not None else value


def records_of(path: Path) -> Iterator[Record]:
    with MappedFile(path) as file:
        decoder = Decoder(file.view)
        for block in Scanner(file.view, 0).blocks():
            assert not isinstance(block, Damage)
            for chunk in decoder.chunks(block):
                if not chunk.control:
                    yield from [record_at(chunk, at) for at in range(chunk.records.count)]


def printed_by_kafka(path: Path) -> list[tuple[int, str, str]]:
    """(offset, key, payload) of each record line of the dump tool."""
    line = re.compile(r"\| offset: (\d+) .*?headerKeys: \[\](?: key: (\{.*?\}\}))?(?: payload: (.*))?$")
    found = [match for text in path.read_text().splitlines() if (match := line.match(text))]
    return [(int(match[1]), match[2] or "", match[3] or "") for match in found if match[3]]


def test_all_metadata_records_of_a_broker_are_decoded(capture_small: Path) -> None:
    log = capture_small / "data" / "__cluster_metadata-0"
    count = 0
    for path in (*log.glob("*.log"), *log.glob("*.checkpoint")):
        expected = printed_by_kafka(capture_small / "expected" / log.name / f"{path.name}.txt")
        records = list(records_of(path))
        assert [record.offset for record in records] == [offset for offset, _, _ in expected]
        for record, (_, _, payload) in zip(records, expected, strict=True):
            found, wanted = decode_framed(record.value), json.loads(payload)
            assert (found.version, as_kafka_prints(found)) == (wanted["version"], wanted["data"])
            assert found.left_over_bytes == 0 and not found.remarks
            count += 1
    assert count == 138 + 56


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_all_coordinator_records_of_a_broker_equal_the_real_tool(capture_small: Path, topic: str) -> None:
    (path,) = (capture_small / "data" / f"{topic}-0").glob("*.log")
    expected = printed_by_kafka(capture_small / "expected" / f"{topic}-0" / f"{path.name}.txt")
    reported = {offset: (key, payload) for offset, key, payload in expected}
    assert len(reported) > 20
    for record in records_of(path):
        key, payload = reported[record.offset]
        assert record.key is not None
        found = decode_key(topic, record.key)
        assert found.message.type is not None
        assert json.loads(key) == {"type": str(found.message.type), "data": as_kafka_prints(found)}
        if record.value is None:
            assert payload == "<DELETE>"
            continue
        value = decode_value(topic, found.message.type, record.value)
        wanted = json.loads(payload)
        shown = as_kafka_prints(value)
        # the tool also decodes nested values
        if value.message.name == "GroupMetadataValue":
            for members in (shown["members"], wanted["data"]["members"]):
                for member in members:
                    member.pop("subscription"), member.pop("assignment")
        assert (str(value.version), shown) == (wanted["version"], wanted["data"])


@pytest.mark.parametrize(
    ("data", "name", "values"),
    [
        ("01020002 74" + UUID.hex() + "00", "TopicRecord", {"name": "t", "topicId": UUID_TEXT}),
        ("01170001000202 78", "BeginTransactionRecord", {"name": "x"}),
        (
            "01050000000003" + UUID.hex() + "01010400000002",
            "PartitionChangeRecord",
            {"partitionId": 3, "topicId": UUID_TEXT, "leader": 2},
        ),
    ],
)
def test_metadata_records_match_kafkas_test_vectors(data: str, name: str, values: dict[str, Any]) -> None:
    found = decode_framed(bytes.fromhex(data))
    assert found.message.name == name
    assert as_kafka_prints(found) == values


def test_nullable_structs_have_two_encodings() -> None:
    """An unsigned varint in a tagged field, otherwise a signed byte (Kafka: MessageDataGenerator)."""
    head = bytes.fromhex("0000" + "01" + "01" + "0263" + "0268" + "01" + "01" + "00000005" + "01")
    absent = decode_value("__consumer_offsets", 5, head[:2] + head[2:] + bytes.fromhex("01000100"))
    assert absent.values["classicMemberMetadata"] is None and not absent.remarks
    present = decode_value("__consumer_offsets", 5, head + bytes.fromhex("0100070100000005" + "0100"))
    assert present.values["classicMemberMetadata"] == {"sessionTimeoutMs": 5, "supportedProtocols": ()}
    default = decode_value("__consumer_offsets", 5, head + b"\0")
    assert default.values["classicMemberMetadata"] == {"sessionTimeoutMs": 0, "supportedProtocols": ()}


def test_unknown_tags_and_left_over_bytes_are_remarked() -> None:
    topic = bytes.fromhex("01020002 74") + UUID
    newer = decode_framed(topic.replace(b"\x01\x02\x00", b"\x01\x02\x09", 1) + b"\0")
    assert newer.is_newer and newer.version == 9 and newer.values["name"] == "t"
    assert decode_framed(topic + b"\0\x07\x07").left_over_bytes == 2
    assert decode_framed(topic + b"\x01\x63\x02ab").remarks == ("unknown tag 99 of 2 bytes",)
    lying = decode_framed(bytes.fromhex("01170001008080040278"))
    assert lying.values == {"name": "x"} and lying.remarks == ("tag 0 says 65536 bytes and has 2",)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no value"),
        (b"\x01", "varint is truncated"),
        (b"\x02\x02\x00", "unknown frame version 2"),
        (b"\x01\x02\x00\x05t", "needs 4 bytes and 1 are left"),
        (b"\x01\x02\x00\x00", "must not be null"),
        (b"\x01\x02\x00\xff\xff\xff\xff\xff\xff", "more than five bytes"),
        (b"\x01\x02\x00\x02t\x01", "16 bytes"),
        (b"\x01\x03\x00\0\0\0\0" + UUID + b"\xff\xff\xff\xff\x07", "left"),
    ],
)
def test_bytes_that_violate_the_schema_are_format_errors(data: bytes, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        decode_framed(data)


@pytest.mark.parametrize(
    ("version", "tag", "is_known"),
    [(0, 6, False), (1, 6, False), (1, 8, True), (0, 8, False), (2, 6, True), (0, 9, True)],
)
def test_tag_of_other_versions_is_rejected(version: int, tag: int, is_known: bool) -> None:
    """PartitionChangeRecord has directories (8) since version 1 and eligible leader replicas (6) since 2. Its generated class throws `Tag 6
    is not valid for version 0`. An unknown tag is skipped."""
    data = bytes([1, 5, version, 0, 0, 0, 3]) + UUID + bytes([1, tag, 1, 1])
    if is_known:
        assert decode_framed(data).values["partitionId"] == 3
        return
    with pytest.raises(FormatError, match=f"Tag {tag} is not valid for version {version}"):
        decode_framed(data)


def test_32_bit_varint_is_a_signed_java_int() -> None:
    """From 2^31 on it is negative: a tagged field count is then 0, an array null, a short has the last bits."""
    negative = b"\x81\x80\x80\x80\x08"
    value = b"\0\1" + bytes(8 + 2 + 4 + 1)
    decoded = decode_value("__transaction_state", 0, value + negative + bytes(16) + negative)
    assert decoded.values["transactionPartitions"] is None and not decoded.left_over_bytes
    assert (
        decode_framed(b"\x01" + b"\x82\x80\x80\x80\x08" + b"\0\2t" + UUID + b"\0").message.name
        == "TopicRecord"
    )
    for size in (b"\xff\xff\xff\xff\x0f", negative):
        with pytest.raises(FormatError, match="truncated"):
            decode_value("__consumer_offsets", 6, b"\0\0" + bytes(4) + b"\1\x63" + size)
    with pytest.raises(FormatError, match="too large"):
        decode_framed(b"\1\x80\x80\2\0")


def test_unknown_record_types_raise_unknown_type() -> None:
    with pytest.raises(UnknownType):
        decode_framed(b"\x01\x63\x00")
    with pytest.raises(UnknownType):
        decode_key("__consumer_offsets", b"\x00\x09")


def test_every_message_accepts_any_bytes_or_raises_format_error() -> None:
    """Every message truncated anywhere and with random bytes changed: a value or a FormatError, and never more elements than bytes."""
    rng = random.Random(12)
    for message in schemas.messages():
        for version in range(message.versions.first, message.last_version + 1):
            for _ in range(ROUNDS):
                data = rng.randbytes(rng.randrange(80))
                try:
                    found = decode(message, version, data)
                except FormatError:
                    continue
                assert _elements(found.values) <= len(data)


def _elements(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_elements, value.values()))
    return len(value) + sum(map(_elements, value)) if isinstance(value, tuple) else 0


def test_version_ranges_are_parsed() -> None:
    assert [version in Versions.parse("1-3") for version in range(5)] == [False, True, True, True, False]
    assert 7 in Versions.parse("2+") and 1 not in Versions.parse("2+") and 0 not in Versions.parse("none")


def test_every_record_type_of_a_topic_has_a_schema() -> None:
    def types(topic: str, kind: str) -> set[int | None]:
        return {each.type for each in schemas.messages() if (each.topic, each.kind) == (topic, kind)}

    assert types("__consumer_offsets", "key") == types("__consumer_offsets", "value")
    assert types("__consumer_offsets", "key") == set(range(24)) - {9, 18}
    assert types("__cluster_metadata", "metadata") == set(range(29)) - {6, 13, 16}
    known = schemas.message("__cluster_metadata", "metadata", 0)
    assert isinstance(known, Message) and known.last_version == 4
