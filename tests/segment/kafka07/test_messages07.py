"""Kafka 0.7 files compared with what 0.7.1 (legacy capture) and Jafka 1.2.3 (ancient capture) read and recovered."""

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kseg.segment import layout as L
from kseg.segment.codecs.codec import compress
from kseg.segment.errors import CodecError, UsageError
from kseg.segment.kafka07 import encoding07
from kseg.segment.kafka07 import messages07 as A
from kseg.segment.kafka07.fetch_response import message_set_header, multi_message_set_send
from tests.support.encoders import encode_set, message_set_send
from tests.support.logs07 import HELLO_0, HELLO_1, payloads, walk_all

CODEC_IDS = {"none": L.NONE, "gzip": L.GZIP, "snappy": L.SNAPPY}
WRITTEN = ["none", "one", "void", "gzip", "snappy", "codecs", "nested", "magic0"]
DAMAGED = ["attr-0", "crc-0", "crc-1", "crc-2", "gap-0", "magic-0", "torn-0", "torn-1", "torn-2", "zeros-0"]
CODECS = (L.NONE, L.GZIP, L.SNAPPY)


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def segments(directory: Path) -> list[tuple[int, bytes]]:
    return sorted((int(path.stem), path.read_bytes()) for path in directory.glob("*.kafka"))


# --- vectors


def test_0_7_messages_match_the_vectors() -> None:
    assert encoding07.encode_message(b"hello", magic=0) == HELLO_0
    assert encoding07.encode_message(b"hello") == HELLO_1
    first, second = walk_all(HELLO_0 + HELLO_1)
    assert first == A.Entry07(0, 14, 0, 0, 0x3610A686, True, 9)
    assert second == A.Entry07(14, 15, 1, 0, 0x3610A686, True, 24)
    assert payloads(HELLO_0 + HELLO_1) == [b"hello", b"hello"]


# --- what 0.7.1 wrote and read


@pytest.mark.parametrize("name", WRITTEN)
def test_entries_equal_those_of_kafka_0_7(legacy_small: Path, name: str) -> None:
    expected = [
        (row["nextOffset"], row["magic"], CODEC_IDS[str(row["codec"])], base64.b64decode(str(row["payload"])))
        for row in rows(legacy_small / f"records/0.7/1-written/lamp.{name}-0.jsonl")
        if row["view"] == "shallow"
    ]
    ours = []
    for base, data in segments(legacy_small / f"data/0.7/1-written/lamp.{name}-0"):
        for entry in walk_all(data):
            assert isinstance(entry, A.Entry07)
            assert entry.crc_valid
            payload = bytes(entry.payload(memoryview(data)))
            ours.append((base + entry.end_position, entry.magic, entry.codec, payload))
    assert ours == expected


@pytest.mark.parametrize("name", WRITTEN)
def test_messages_equal_those_a_0_7_consumer_saw(legacy_small: Path, name: str) -> None:
    expected = [
        (row["nextOffset"], row["magic"], base64.b64decode(str(row["payload"])))
        for row in rows(legacy_small / f"records/0.7/1-written/lamp.{name}-0.jsonl")
        if row["view"] == "deep"
    ]
    ours = []
    for base, data in segments(legacy_small / f"data/0.7/1-written/lamp.{name}-0"):
        view = memoryview(data)
        for entry in walk_all(data):
            assert isinstance(entry, A.Entry07)
            for message in A.messages(view, entry, base):
                assert message.crc_valid
                assert (message.offset, message.next_offset) == (
                    base + entry.position,
                    base + entry.end_position,
                )
                ours.append((message.consumer_offset, message.magic, bytes(message.payload)))
    assert ours == expected


@pytest.mark.parametrize("name", WRITTEN)
def test_every_message_given_to_kafka_0_7_is_read(legacy_small: Path, name: str) -> None:
    handed = [
        base64.b64decode(payload)
        for row in rows(legacy_small / "written07.jsonl")
        if row["dir"] == f"lamp.{name}-0"
        for payload in row["payloads"]  # type: ignore[attr-defined]
    ]
    read = [
        payload
        for _, data in segments(legacy_small / f"data/0.7/1-written/lamp.{name}-0")
        for payload in payloads(data)
    ]
    assert sorted(read) == sorted(handed)


@pytest.mark.parametrize("name", DAMAGED)
def test_entries_up_to_damage_equal_those_kafka_0_7_read(legacy_small: Path, name: str) -> None:
    """0.7 read up to the first invalid entry. kseg finds all entries up to there, with the result of the checksum."""
    expected = [
        (row["nextOffset"], row["valid"])
        for row in rows(legacy_small / f"records/0.7/2-hurt/{name}.jsonl")
        if row["view"] == "shallow" and "error" not in row
    ]
    ours = [
        (base + entry.end_position, entry.crc_valid)
        for base, data in segments(legacy_small / f"data/0.7/2-hurt/{name}")
        for entry in walk_all(data)
        if isinstance(entry, A.Entry07)
    ]
    assert set(expected) <= set(ours)
    assert ours[: len(expected)] == expected


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("torn-0", A.Damage07("torn-tail", 2903, 89)),
        ("torn-1", A.Damage07("zero-tail", 2995, 2)),
        ("torn-2", A.Damage07("torn-tail", 141, 6)),
        ("zeros-0", A.Damage07("zero-tail", 2995, 4096)),
        ("magic-0", A.Damage07("bad-magic", 2878, 25)),
    ],
)
def test_damage_in_0_7_files_is_found_where_it_was_made(
    legacy_small: Path, name: str, damage: A.Damage07
) -> None:
    _, data = segments(legacy_small / f"data/0.7/2-hurt/{name}")[-1]
    assert [item for item in walk_all(data) if isinstance(item, A.Damage07)] == [damage]


def test_entry_with_an_unknown_codec_cannot_be_read(legacy_small: Path) -> None:
    _, data = segments(legacy_small / "data/0.7/2-hurt/attr-0")[-1]
    entries = [entry for entry in walk_all(data) if isinstance(entry, A.Entry07)]
    (odd,) = [entry for entry in entries if entry.codec == 3]
    assert odd.crc_valid
    with pytest.raises(CodecError, match="codec id 3"):
        list(A.messages(memoryview(data), odd))


# --- recovery


def test_recovery_keeps_the_prefix_kafka_0_7_kept(legacy_small: Path) -> None:
    for row in rows(legacy_small / "recovered07.jsonl"):
        base, data = segments(legacy_small / f"data/0.7/{row['state']}/{row['dir']}")[-1]
        end = A.valid_prefix(data)
        if "UnknownMagicByte" in str(row.get("error")):
            assert end.throws
        elif "error" not in row:
            assert base + end.position == row["end"], row
            assert not end.throws


def test_recovery_keeps_the_prefix_jafka_kept(ancient_small: Path) -> None:
    for row in rows(ancient_small / "recovered.jsonl"):
        data = (ancient_small / f"{row['kind']}/taps-0/{row['file']}").read_bytes()
        assert len(data) == row["before"]
        assert A.valid_prefix(data).position == row["after"]


@pytest.mark.parametrize(
    ("tail", "cause", "throws"),
    [
        ("", "end", False),
        ("00", "cut-off", False),
        ("00000004", "small-size", False),
        ("0000000a", "cut-off", False),
        ("ffffffff00", "small-size", False),
        ("0000000b 01 00 3610a686 68656c6c", "cut-off", False),
        ("0000000b 01 00 3610a687 68656c6c6f", "bad-crc", False),
        ("0000000b 02 00 3610a686 68656c6c6f", "unknown-magic", True),
        ("00000005 01 00 3610a6", "too-small-for-magic", True),
        ("00" * 100, "small-size", False),
    ],
)
def test_recovery_names_why_it_stops(tail: str, cause: str, throws: bool) -> None:
    end = A.valid_prefix(HELLO_0 + HELLO_1 + bytes.fromhex(tail))
    assert (end.position, end.cause, end.throws) == (len(HELLO_0 + HELLO_1), cause, throws)


# --- Jafka


def test_entries_equal_those_jafka_read(ancient_small: Path) -> None:
    expected = [
        (row["next_offset"], row["valid"], row["crc"], row["payload"])
        for row in rows(ancient_small / "records.jsonl")
    ]
    ours = []
    for base, data in segments(ancient_small / "taps-0"):
        view = memoryview(data)
        for entry in walk_all(data):
            assert isinstance(entry, A.Entry07)
            ours += [
                (message.consumer_offset, message.crc_valid, message.crc, message.payload.hex())
                for message in A.messages(view, entry, base)
            ]
    assert ours == expected


def test_fetch_results_are_framed_as_by_jafka(ancient_small: Path) -> None:
    log = dict(segments(ancient_small / "taps-0"))
    *single, multi = rows(ancient_small / "reads.jsonl")
    sends = []
    for row in single:
        base = max(number for number in log if number <= int(str(row["offset"])))
        start = int(str(row["offset"])) - base
        piece = log[base][start : start + int(str(row["bytes"]))]
        sends.append(message_set_send(piece))
        assert sends[-1].hex() == row["message_set_send"]
        assert sends[-1].startswith(message_set_header(len(piece)))
    (framed,) = [value for value in multi.values() if isinstance(value, str) and len(value) > 40]
    assert multi_message_set_send(sends[:3]).hex() == framed


def test_fetch_header_contains_the_error_code() -> None:
    assert message_set_send(b"", 1) == bytes.fromhex("00000002 0001")
    assert multi_message_set_send([b"ab"]) == bytes.fromhex("00000004 0000 6162")


@pytest.mark.parametrize("kind", ["torn", "zeros", "flip", "garbage"])
def test_every_byte_of_damaged_jafka_files_is_accounted_for(ancient_small: Path, kind: str) -> None:
    good = dict(segments(ancient_small / "taps-0"))
    for base, data in segments(ancient_small / kind / "taps-0"):
        walk_all(data)
        read = payloads(data)
        whole = payloads(good[base])
        if data == good[base]:
            assert read == whole
        elif kind in ("zeros", "garbage"):
            assert read[: len(whole)] == whole
        # one entry is lost, including its complete set
        else:
            kept = iter(whole)
            assert all(payload in kept for payload in read)
            assert len(read) < len(whole)


# --- writing


@pytest.mark.parametrize("magic", [0, 1])
@given(messages=st.lists(st.binary(max_size=60), max_size=8), codec=st.sampled_from(CODECS))
@settings(max_examples=60)
def test_0_7_sets_round_trip(magic: int, messages: list[bytes], codec: int) -> None:
    data = encode_set(messages, codec, magic)
    assert payloads(data) == messages
    assert A.valid_prefix(data) == A.End07(len(data), "end")


@given(
    messages=st.lists(st.binary(max_size=20), min_size=1, max_size=4),
    codecs=st.lists(st.sampled_from((1, 2)), max_size=5),
)
@settings(max_examples=60)
def test_messages_of_nested_0_7_sets_have_the_outer_offset(messages: list[bytes], codecs: list[int]) -> None:
    inner = encode_set(messages)
    for codec in codecs:
        inner = encoding07.encode_message(compress(codec, 1, inner), 1, codec)
    data = HELLO_0 + inner
    entries = [entry for entry in walk_all(data) if isinstance(entry, A.Entry07)][1:]
    if codecs:
        (entry,) = entries
        found = list(A.messages(memoryview(data), entry, 1000))
        assert [bytes(message.payload) for message in found] == messages
        assert {message.depth for message in found} == {len(codecs)}
        assert [message.consumer_offset for message in found[:-1]] == [1014] * (len(messages) - 1)
        assert found[-1].consumer_offset == 1000 + len(data)
    else:
        assert len(entries) == len(messages)


def test_features_kafka_0_7_lacks_are_refused() -> None:
    for magic, codec in ((2, 0), (0, 1), (1, 3)):
        with pytest.raises(UsageError):
            encoding07.encode_message(b"", magic, codec)
    with pytest.raises(UsageError):
        encode_set([b""], L.LZ4)
