"""Kafka 0.7 files against what 0.7.1 (legacy capture) and Jafka 1.2.3 (ancient capture) read and recovered."""

import base64
import json
import random
import struct
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kseg.segment import layout as L
from kseg.segment.ancient import messages as A
from kseg.segment.codecs.codec import compress
from kseg.segment.errors import CodecError, FormatError, UsageError

HELLO_0 = bytes.fromhex("0000000a 00 3610a686 68656c6c6f")  # fact sheet §12
HELLO_1 = bytes.fromhex("0000000b 01 00 3610a686 68656c6c6f")
CODEC_IDS = {"none": L.NONE, "gzip": L.GZIP, "snappy": L.SNAPPY}
WRITTEN = ["none", "one", "void", "gzip", "snappy", "codecs", "nested", "magic0"]
HURT = ["attr-0", "crc-0", "crc-1", "crc-2", "gap-0", "magic-0", "torn-0", "torn-1", "torn-2", "zeros-0"]
CODECS = (L.NONE, L.GZIP, L.SNAPPY)


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def walk_all(data: bytes) -> list[A.AncientEntry | A.AncientDamage]:
    """The walk, with the proof that it left no hole."""
    found = list(A.walk(data))
    position = 0
    for item in found:
        assert item.position == position
        position += item.size_bytes if isinstance(item, A.AncientEntry) else item.length
    assert position == len(data)
    return found


def payloads(data: bytes) -> list[bytes]:
    view = memoryview(data)
    return [
        bytes(message.payload)
        for entry in walk_all(data)
        if isinstance(entry, A.AncientEntry) and entry.crc_valid
        for message in A.messages(view, entry)
    ]


def segments(directory: Path) -> list[tuple[int, bytes]]:
    return sorted((int(path.stem), path.read_bytes()) for path in directory.glob("*.kafka"))


# --- vectors


def test_the_vectors_of_the_fact_sheet() -> None:
    assert A.encode_message(b"hello", magic=0) == HELLO_0
    assert A.encode_message(b"hello") == HELLO_1
    first, second = walk_all(HELLO_0 + HELLO_1)
    assert first == A.AncientEntry(0, 14, 0, 0, 0x3610A686, True, 9)
    assert second == A.AncientEntry(14, 15, 1, 0, 0x3610A686, True, 24)
    assert payloads(HELLO_0 + HELLO_1) == [b"hello", b"hello"]


# --- what 0.7.1 wrote and read


@pytest.mark.parametrize("name", WRITTEN)
def test_entries_are_those_of_07(legacy_small: Path, name: str) -> None:
    expected = [
        (row["nextOffset"], row["magic"], CODEC_IDS[str(row["codec"])], base64.b64decode(str(row["payload"])))
        for row in rows(legacy_small / f"records/0.7/1-written/lamp.{name}-0.jsonl")
        if row["view"] == "shallow"
    ]
    ours = []
    for base, data in segments(legacy_small / f"data/0.7/1-written/lamp.{name}-0"):
        for entry in walk_all(data):
            assert isinstance(entry, A.AncientEntry)
            assert entry.crc_valid
            payload = bytes(entry.payload(memoryview(data)))
            ours.append((base + entry.end_position, entry.magic, entry.codec, payload))
    assert ours == expected


@pytest.mark.parametrize("name", WRITTEN)
def test_messages_are_those_a_07_consumer_saw(legacy_small: Path, name: str) -> None:
    expected = [
        (row["nextOffset"], row["magic"], base64.b64decode(str(row["payload"])))
        for row in rows(legacy_small / f"records/0.7/1-written/lamp.{name}-0.jsonl")
        if row["view"] == "deep"
    ]
    ours = []
    for base, data in segments(legacy_small / f"data/0.7/1-written/lamp.{name}-0"):
        view = memoryview(data)
        for entry in walk_all(data):
            assert isinstance(entry, A.AncientEntry)
            for message in A.messages(view, entry, base):
                assert message.crc_valid
                assert (message.offset, message.next_offset) == (
                    base + entry.position,
                    base + entry.end_position,
                )
                ours.append((message.consumer_offset, message.magic, bytes(message.payload)))
    assert ours == expected


@pytest.mark.parametrize("name", WRITTEN)
def test_nothing_that_was_handed_to_07_is_missing(legacy_small: Path, name: str) -> None:
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


@pytest.mark.parametrize("name", HURT)
def test_the_entries_of_a_hurt_directory(legacy_small: Path, name: str) -> None:
    """0.7 read up to the first thing it could not bear; all of that we see, with its verdict on the checksum."""
    expected = [
        (row["nextOffset"], row["valid"])
        for row in rows(legacy_small / f"records/0.7/2-hurt/{name}.jsonl")
        if row["view"] == "shallow" and "error" not in row
    ]
    ours = [
        (base + entry.end_position, entry.crc_valid)
        for base, data in segments(legacy_small / f"data/0.7/2-hurt/{name}")
        for entry in walk_all(data)
        if isinstance(entry, A.AncientEntry)
    ]
    assert set(expected) <= set(ours)
    assert ours[: len(expected)] == expected


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("torn-0", A.AncientDamage("torn-tail", 2903, 89)),
        ("torn-1", A.AncientDamage("zero-tail", 2995, 2)),
        ("torn-2", A.AncientDamage("torn-tail", 141, 6)),
        ("zeros-0", A.AncientDamage("zero-tail", 2995, 4096)),
        ("magic-0", A.AncientDamage("bad-magic", 2878, 25)),
    ],
)
def test_damage_is_where_it_was_done(legacy_small: Path, name: str, damage: A.AncientDamage) -> None:
    _, data = segments(legacy_small / f"data/0.7/2-hurt/{name}")[-1]
    assert [item for item in walk_all(data) if isinstance(item, A.AncientDamage)] == [damage]


def test_an_unknown_codec_is_an_entry_that_cannot_be_read(legacy_small: Path) -> None:
    _, data = segments(legacy_small / "data/0.7/2-hurt/attr-0")[-1]
    entries = [entry for entry in walk_all(data) if isinstance(entry, A.AncientEntry)]
    (odd,) = [entry for entry in entries if entry.codec == 3]
    assert odd.crc_valid
    with pytest.raises(CodecError, match="codec id 3"):
        list(A.messages(memoryview(data), odd))


# --- recovery


def test_recovery_keeps_what_07_kept(legacy_small: Path) -> None:
    for row in rows(legacy_small / "recovered07.jsonl"):
        base, data = segments(legacy_small / f"data/0.7/{row['state']}/{row['dir']}")[-1]
        end = A.valid_prefix(data)
        if "UnknownMagicByte" in str(row.get("error")):
            assert end.throws
        elif "error" not in row:
            assert base + end.position == row["end"], row
            assert not end.throws


def test_recovery_keeps_what_jafka_kept(ancient_small: Path) -> None:
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
def test_why_recovery_stops(tail: str, cause: str, throws: bool) -> None:
    end = A.valid_prefix(HELLO_0 + HELLO_1 + bytes.fromhex(tail))
    assert (end.position, end.cause, end.throws) == (len(HELLO_0 + HELLO_1), cause, throws)


# --- Jafka


def test_jafka_read_the_same(ancient_small: Path) -> None:
    expected = [
        (row["next_offset"], row["valid"], row["crc"], row["payload"])
        for row in rows(ancient_small / "records.jsonl")
    ]
    ours = []
    for base, data in segments(ancient_small / "taps-0"):
        view = memoryview(data)
        for entry in walk_all(data):
            assert isinstance(entry, A.AncientEntry)
            ours += [
                (message.consumer_offset, message.crc_valid, message.crc, message.payload.hex())
                for message in A.messages(view, entry, base)
            ]
    assert ours == expected


def test_fetch_results_are_framed_like_jafkas(ancient_small: Path) -> None:
    log = dict(segments(ancient_small / "taps-0"))
    *single, multi = rows(ancient_small / "reads.jsonl")
    sends = []
    for row in single:
        base = max(number for number in log if number <= int(str(row["offset"])))
        start = int(str(row["offset"])) - base
        piece = log[base][start : start + int(str(row["bytes"]))]
        sends.append(A.message_set_send(piece))
        assert sends[-1].hex() == row["message_set_send"]
        assert sends[-1].startswith(A.message_set_header(len(piece)))
    (framed,) = [value for value in multi.values() if isinstance(value, str) and len(value) > 40]
    assert A.multi_message_set_send(sends[:3]).hex() == framed


def test_an_error_code_stands_in_the_header() -> None:
    assert A.message_set_send(b"", 1) == bytes.fromhex("00000002 0001")
    assert A.multi_message_set_send([b"ab"]) == bytes.fromhex("00000004 0000 6162")


@pytest.mark.parametrize("kind", ["torn", "zeros", "flip", "garbage"])
def test_every_byte_of_jafkas_damaged_files_is_accounted_for(ancient_small: Path, kind: str) -> None:
    good = dict(segments(ancient_small / "taps-0"))
    for base, data in segments(ancient_small / kind / "taps-0"):
        walk_all(data)
        read = payloads(data)
        whole = payloads(good[base])
        if data == good[base]:
            assert read == whole
        elif kind in ("zeros", "garbage"):
            assert read[: len(whole)] == whole
        else:  # one entry is lost, with all of its set
            kept = iter(whole)
            assert all(payload in kept for payload in read)
            assert len(read) < len(whole)


# --- writing


@pytest.mark.parametrize("magic", [0, 1])
@given(messages=st.lists(st.binary(max_size=60), max_size=8), codec=st.sampled_from(CODECS))
@settings(max_examples=60)
def test_sets_round_trip(magic: int, messages: list[bytes], codec: int) -> None:
    data = A.encode_set(messages, codec, magic)
    assert payloads(data) == messages
    assert A.valid_prefix(data) == A.AncientEnd(len(data), "end")


@given(
    messages=st.lists(st.binary(max_size=20), min_size=1, max_size=4),
    codecs=st.lists(st.sampled_from((1, 2)), max_size=5),
)
@settings(max_examples=60)
def test_nested_sets_share_the_outer_offsets(messages: list[bytes], codecs: list[int]) -> None:
    inner = A.encode_set(messages)
    for codec in codecs:
        inner = A.encode_message(compress(codec, 1, inner), 1, codec)
    data = HELLO_0 + inner
    entries = [entry for entry in walk_all(data) if isinstance(entry, A.AncientEntry)][1:]
    if codecs:
        (entry,) = entries
        found = list(A.messages(memoryview(data), entry, 1000))
        assert [bytes(message.payload) for message in found] == messages
        assert {message.depth for message in found} == {len(codecs)}
        assert [message.consumer_offset for message in found[:-1]] == [1014] * (len(messages) - 1)
        assert found[-1].consumer_offset == 1000 + len(data)
    else:
        assert len(entries) == len(messages)


def test_what_07_never_had_is_refused() -> None:
    for magic, codec in ((2, 0), (0, 1), (1, 3)):
        with pytest.raises(UsageError):
            A.encode_message(b"", magic, codec)
    with pytest.raises(UsageError):
        A.encode_set([b""], L.LZ4)


# --- damage


def test_a_flipped_payload_bit_costs_one_entry() -> None:
    data = bytearray(HELLO_1 * 5)
    data[2 * 15 + 12] ^= 4
    found = walk_all(bytes(data))
    assert [item.crc_valid for item in found if isinstance(item, A.AncientEntry)] == [
        True,
        True,
        False,
        True,
        True,
    ]


def test_several_hurt_entries_in_a_row_are_told_apart() -> None:
    data = bytearray(HELLO_1 * 6)
    for index in (1, 2, 3):
        data[index * 15 + 12] ^= 4
    assert [item.crc_valid for item in A.walk(bytes(data)) if isinstance(item, A.AncientEntry)] == [
        True, False, False, False, True, True,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("middle", "kind"),
    [
        (b"\xff" * 50, "bad-length"),
        (bytes(5000), "zero-filled"),
        (b"some text that is no message at all", "bad-length"),
        (bytes.fromhex("00000020 07") + b"x" * 30, "foreign-bytes"),
    ],
)
def test_the_walk_goes_on_behind_damage(middle: bytes, kind: str) -> None:
    assert walk_all(HELLO_1 + middle + HELLO_0 * 2)[1] == A.AncientDamage(kind, 15, len(middle))


def test_an_empty_message_alone_does_not_end_damage() -> None:
    lookalike = bytes.fromhex("00000005 00 00000000")
    found = walk_all(HELLO_1 + b"\xff" * 20 + lookalike + b"\xff" * 20 + HELLO_1)
    assert found[1] == A.AncientDamage("bad-length", 15, 49)
    assert walk_all(lookalike * 3) == list(A.walk(lookalike * 3))
    assert payloads(lookalike * 3) == [b""] * 3


def test_a_damaged_size_is_found_again_at_the_next_entry() -> None:
    data = bytearray(HELLO_1 * 4)
    data[15:19] = struct.pack(">i", 0x7000_0000)
    found = walk_all(bytes(data))
    assert found[1] == A.AncientDamage("bad-length", 15, 15)
    assert len(found) == 4


@given(
    messages=st.lists(st.binary(max_size=40), min_size=1, max_size=12),
    start=st.integers(0, 400),
    junk=st.binary(max_size=30),
    codec=st.sampled_from(CODECS),
)
@settings(max_examples=200)
def test_any_damage_is_accounted_for(messages: list[bytes], start: int, junk: bytes, codec: int) -> None:
    data = bytearray(b"".join(A.encode_set([message], codec) for message in messages))
    data[start : start + len(junk)] = junk
    damaged = bytes(data)
    for item in walk_all(damaged):
        if isinstance(item, A.AncientEntry):
            try:
                list(A.messages(memoryview(damaged), item, limit_bytes=10_000))
            except FormatError as error:
                assert str(error)
    assert 0 <= A.valid_prefix(damaged).position <= len(damaged)


@given(st.binary(max_size=300))
@settings(max_examples=300)
def test_random_bytes_are_accounted_for(data: bytes) -> None:
    walk_all(data)


def test_a_set_that_ends_inside_an_entry_is_an_error_behind_its_messages() -> None:
    data = A.encode_message(compress(L.GZIP, 1, HELLO_1 + HELLO_1[:9]), 1, L.GZIP)
    (entry,) = A.walk(data)
    assert isinstance(entry, A.AncientEntry)
    with pytest.raises(FormatError, match="15 bytes into its content"):
        list(A.messages(memoryview(data), entry))


def test_nesting_and_size_are_bounded() -> None:
    data = HELLO_1
    for _ in range(A.MAX_NESTING + 1):
        data = A.encode_message(compress(L.GZIP, 1, data), 1, L.GZIP)
    (entry,) = A.walk(data)
    assert isinstance(entry, A.AncientEntry)
    with pytest.raises(CodecError, match="nested"):
        list(A.messages(memoryview(data), entry))
    bomb = A.encode_set([bytes(1 << 20)] * 3, L.GZIP)
    (entry,) = A.walk(bomb)
    assert isinstance(entry, A.AncientEntry)
    with pytest.raises(CodecError, match="limit"):
        list(A.messages(memoryview(bomb), entry, limit_bytes=2 << 20))


def hostile(kind: str, size_bytes: int) -> bytes:
    if kind == "candidates":  # at every other byte an entry begins that covers half of the file
        return struct.pack(">iBB", size_bytes // 2, 0, 0) * (size_bytes // 6)
    if kind == "one valid, one huge":
        huge = struct.pack(">iBB", size_bytes // 2, 1, 0) + b"\1" * 4
        return (HELLO_1 + huge) * (size_bytes // 25)
    if kind == "into zeros":  # many sizes that lead into a long run of zeros which does not end the file
        half = size_bytes // 2
        entries = b"".join(
            HELLO_1 + struct.pack(">iB", half - position - 19 + 500, 0) + b"\1" * 4
            for position in range(0, half - 24, 24)
        )
        return entries + bytes(half) + b"\1"
    if kind == "zeros":
        return HELLO_1 + bytes(size_bytes) + b"\1"
    return random.Random(7).randbytes(size_bytes)


@pytest.mark.parametrize("kind", ["candidates", "one valid, one huge", "into zeros", "zeros", "random"])
def test_hostile_files_cost_linear_time(kind: str) -> None:
    """8 times the bytes may cost about 8 times as much; quadratic work would be 64 times."""
    seconds = []
    for size_bytes in (250_000, 2_000_000):
        data = hostile(kind, size_bytes)
        start = time.process_time()
        walk_all(data)
        seconds.append(time.process_time() - start)
    assert seconds[1] < 32 * seconds[0] + 1.0, seconds
