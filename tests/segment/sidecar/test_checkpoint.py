"""Text checkpoints (fact sheet §1.3; Kafka: CheckpointFile, OffsetCheckpointFile, LeaderEpochCheckpointFile).

Kafka 4.3.1 decided for exactly these bytes what is accepted and what is an error.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.segment.errors import FormatError
from kseg.segment.sidecar.checkpoint import (
    CheckpointEntry,
    decode_leader_epochs,
    decode_offset_checkpoint,
    encode_leader_epochs,
    encode_offset_checkpoint,
    offsets_by_partition,
)
from kseg.segment.sidecar.leader_epochs import EpochEntry

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TOPICS = st.text(st.sampled_from("abcXYZ019._-"), min_size=1, max_size=40)


@pytest.mark.behaviour("F54")
@given(st.lists(st.builds(CheckpointEntry, TOPICS, INT32, INT64), max_size=20))
def test_offset_checkpoint_round_trips(entries: list[CheckpointEntry]) -> None:
    assert decode_offset_checkpoint(encode_offset_checkpoint(entries)) == tuple(entries)


@pytest.mark.behaviour("F53")
@given(st.lists(st.builds(EpochEntry, INT32, INT64), max_size=20))
def test_leader_epoch_checkpoint_round_trips(entries: list[EpochEntry]) -> None:
    assert decode_leader_epochs(encode_leader_epochs(entries)) == tuple(entries)


@pytest.mark.behaviour("F53", "F54")
def test_checkpoints_are_encoded_as_by_kafka() -> None:
    assert encode_leader_epochs([EpochEntry(0, 0), EpochEntry(2, 300)]) == b"0\n2\n0 0\n2 300\n"
    assert encode_offset_checkpoint([CheckpointEntry("fares", 0, 117)]) == b"0\n1\nfares 0 117\n"
    assert encode_offset_checkpoint([]) == b"0\n0\n"


@pytest.mark.behaviour("F54")
@pytest.mark.parametrize("data", [b"", b"0", b"0\n", b"0\n0\n", b"0\r\n0\r\n", b"+0\r0"])
def test_empty_checkpoint_has_no_entries(data: bytes) -> None:
    assert decode_offset_checkpoint(data) == () and decode_leader_epochs(data) == ()


@pytest.mark.behaviour("F54")
@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"1\n0\n", "line 1 has version 1"),
        (b"x\n0\n", "line 1"),
        (b"\n0\n", "line 1"),
        (b" 0\n0\n", "line 1"),
        (b"2147483648\n", "line 1"),
        (b"0\n-1\n", "line 2"),
        (b"0\nx\n", "line 2"),
        (b"0\n0 \n", "line 2"),
        (b"0\n1\n", "line 2 declares 1 entry, but 0 follow"),
        (b"0\n2\na 0 1\n", "line 2 declares 2 entries, but 1 follow"),
        (b"0\n1\na 0 1\nb 0 1\n", "line 2 declares 1 entry, but 2 follow"),
        (b"0\n2000000000\na 0 1\n", "line 2 declares"),
        (b"0\n1\na 0 1\n\n", "line 4"),
        (b"0\n1\na 0\n", "line 3"),
        (b"0\n1\na 0 1 2\n", "line 3"),
        (b"0\n1\n a 0 1\n", "line 3"),
        (b"0\n1\na x 1\n", "line 3"),
        (b"0\n1\na 0 1_0\n", "line 3"),
        (b"0\n1\na 0 9223372036854775808\n", "line 3"),
        (b"0\n1\na 0 " + b"9" * 6000, "line 3"),
        (b"0\n2\na 0 1\n\xff 0 1\n", "line 4 is not UTF-8"),
    ],
)
def test_checkpoint_error_names_the_line(data: bytes, line: str) -> None:
    with pytest.raises(FormatError) as caught:
        decode_offset_checkpoint(data)
    assert line in str(caught.value)


@pytest.mark.behaviour("F54")
@pytest.mark.parametrize(
    ("data", "entry"),
    [
        (b"0\n1\na\t 0\x0b1  \r\n", ("a", 0, 1)),
        (b"0\n1\n 0 5\n", ("", 0, 5)),
        (b"0\n1\na -1 -5", ("a", -1, -5)),
        (b"0\n1\n\xc3\xa9 +1 +5\n", ("é", 1, 5)),
    ],
)
def test_unusual_checkpoint_that_kafka_reads_is_accepted(data: bytes, entry: tuple[str, int, int]) -> None:
    assert decode_offset_checkpoint(data) == (CheckpointEntry(*entry),)


@pytest.mark.behaviour("F54")
def test_last_entry_of_a_duplicate_partition_counts() -> None:
    entries = decode_offset_checkpoint(b"0\n3\nfoo 1 10\nbar 1 11\nfoo 1 12\n")
    assert offsets_by_partition(entries) == {("foo", 1): 12, ("bar", 1): 11}


@pytest.mark.behaviour("F53")
@pytest.mark.parametrize(
    "data", [b"0\n1\n5\n", b"0\n1\n5 6 7\n", b"0\n1\n2147483648 0\n", b"0\n2\n1 2\n", b"2\n"]
)
def test_corrupt_leader_epoch_checkpoint_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match="line"):
        decode_leader_epochs(data)


@pytest.mark.parametrize("topic", ["", "a b", "a\nb", "a\rb", "a\tb", "\ud800"])
def test_topic_name_with_whitespace_is_refused_in_a_checkpoint(topic: str) -> None:
    with pytest.raises(FormatError, match="cannot be written to a checkpoint"):
        encode_offset_checkpoint([CheckpointEntry(topic, 0, 0)])


@given(
    st.binary(max_size=100) | st.text("0123 \n\r\ta-", max_size=60).map(lambda text: f"0\n1\n{text}".encode())
)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for decode in (decode_offset_checkpoint, decode_leader_epochs):
        try:
            entries = decode(data)
        except FormatError as error:
            assert "line" in str(error)
        else:
            assert isinstance(entries, tuple)


@pytest.mark.behaviour("F53", "F54")
@pytest.mark.parametrize("capture", ["capture_small", "legacy_small"])
def test_captured_checkpoints_are_read(capture: str, request: pytest.FixtureRequest) -> None:
    root: Path = request.getfixturevalue(capture)
    files = 0
    for path in sorted(root.rglob("*-checkpoint")):
        data = path.read_bytes()
        if path.name == "leader-epoch-checkpoint":
            again = encode_leader_epochs(decode_leader_epochs(data))
        else:
            again = encode_offset_checkpoint(decode_offset_checkpoint(data))
        assert again == data or data == b""
        files += 1
    assert files > 15
    if capture == "capture_small":
        found = decode_offset_checkpoint((root / "data/recovery-point-offset-checkpoint").read_bytes())
        assert offsets_by_partition(found)["__transaction_state", 0] == 86 and len(found) == 11
        epochs = decode_leader_epochs((root / "data/stations-0/leader-epoch-checkpoint").read_bytes())
        assert epochs == ((0, 0), (2, 300))
