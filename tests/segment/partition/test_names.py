"""Names of partition directories and files (fact sheet §1; Kafka: LocalLog, LogFileUtils, Snapshots)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.segment.errors import FormatError
from kseg.segment.partition.names import (
    FileState,
    PartitionName,
    PartitionState,
    Role,
    format_partition_directory,
    metadata_snapshot_name,
    parse_file_name,
    parse_partition_directory,
    segment_file_name,
)

ID = "0123456789abcdef0123456789abcdef"


@pytest.mark.behaviour("F57")
@pytest.mark.parametrize(
    ("name", "topic", "partition", "state"),
    [
        ("topic-0", "topic", 0, PartitionState.LIVE),
        ("topic.with.dots-3", "topic.with.dots", 3, PartitionState.LIVE),
        ("a-b-c-12", "a-b-c", 12, PartitionState.LIVE),
        ("foo-delete-0", "foo-delete", 0, PartitionState.LIVE),
        ("a--1", "a-", 1, PartitionState.LIVE),
        (f"topic-1.{ID}-delete", "topic", 1, PartitionState.DELETE),
        (f"topic-1.{ID}-future", "topic", 1, PartitionState.FUTURE),
        (f"topic-1.{ID}-stray", "topic", 1, PartitionState.STRAY),
        (f"fo.o-bar-7.{ID}-delete", "fo.o-bar", 7, PartitionState.DELETE),
    ],
)
def test_partition_directory_name_is_parsed(
    name: str, topic: str, partition: int, state: PartitionState
) -> None:
    parsed = parse_partition_directory(name)
    assert (parsed.topic, parsed.partition, parsed.state) == (topic, partition, state)
    assert parsed.unique_id == (None if state is PartitionState.LIVE else ID)
    assert format_partition_directory(parsed) == name


@pytest.mark.behaviour("F58")
@pytest.mark.parametrize(
    "name",
    [
        "",
        "topic",
        "-0",
        "topic-",
        "topic-one",
        "topic-partition-0.delete",
        "topic-0.delete",
        "topic-0-delete",
        "topic-delete",
        f"topic.{ID}-delete",
        f"topic-0.{ID}.x-delete",
        f"-0.{ID}-future",
        f"to pic-0.{ID}-stray",
        "topic-2147483648",
        "topic-1_0",
        "topic-" + "9" * 5000,
    ],
)
def test_invalid_partition_directory_name_is_refused(name: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_partition_directory(name)
    assert repr(name) in str(caught.value)


@pytest.mark.behaviour("F57")
def test_long_topic_is_truncated_in_the_name_of_a_deleted_directory() -> None:
    topic = "t" * 249
    name = format_partition_directory(PartitionName(topic, 4, PartitionState.DELETE, ID))
    assert len(name) == 255
    parsed = parse_partition_directory(name)
    assert topic.startswith(parsed.topic) and len(parsed.topic) == 255 - len(f"-4.{ID}-delete")
    future = format_partition_directory(PartitionName(topic, 4, PartitionState.FUTURE, ID))
    assert parse_partition_directory(future) == PartitionName(topic, 4, PartitionState.FUTURE, ID)


topics = st.text(st.sampled_from("abcXYZ019._-"), min_size=1, max_size=249).filter(
    lambda t: t not in (".", "..")
)


@given(topics, st.integers(0, 2**31 - 1), st.sampled_from(PartitionState))
def test_directory_names_round_trip(topic: str, partition: int, state: PartitionState) -> None:
    name = PartitionName(topic, partition, state, None if state is PartitionState.LIVE else ID)
    text = format_partition_directory(name)
    parsed = parse_partition_directory(text)
    assert (parsed.partition, parsed.state, parsed.unique_id) == (partition, state, name.unique_id)
    assert parsed.topic == topic or (len(text) == 255 and topic.startswith(parsed.topic))


@given(st.text())
def test_any_directory_name_is_parsed_or_refused(name: str) -> None:
    try:
        parsed = parse_partition_directory(name)
    except FormatError:
        return
    assert parsed.topic and name.startswith(parsed.topic)


@pytest.mark.behaviour("F59")
@pytest.mark.parametrize(
    ("suffix", "role"),
    [
        (".log", Role.LOG),
        (".index", Role.OFFSET_INDEX),
        (".timeindex", Role.TIME_INDEX),
        (".txnindex", Role.TXN_INDEX),
        (".snapshot", Role.PRODUCER_SNAPSHOT),
        (".kafka", Role.KAFKA07_LOG),
    ],
)
@pytest.mark.parametrize("state", list(FileState))
def test_segment_file_name_is_parsed(suffix: str, role: Role, state: FileState) -> None:
    name = f"00000000000000000023{suffix}" + ("" if state is FileState.LIVE else f".{state}")
    parsed = parse_file_name(name)
    assert (parsed.base_offset, parsed.role, parsed.state) == (23, role, state)
    assert parsed.is_well_formed and parsed.stem == segment_file_name(23, suffix)


@pytest.mark.parametrize(
    ("name", "role", "offset"),
    [
        ("1.log", Role.LOG, 1),  # the dump tool accepts it
        ("9223372036854775807.log", Role.LOG, 9223372036854775807),
        ("09223372036854775808.log", Role.LOG, None),
        ("00000000000000000005.foo.log", Role.LOG, 5),  # Kafka: the digits before the first dot
        ("server.log", Role.LOG, None),
        ("-5.log", Role.LOG, None),
        ("x.checkpoint", Role.METADATA_SNAPSHOT, None),
        ("README", Role.UNKNOWN, None),
        ("", Role.UNKNOWN, None),
        (".", Role.UNKNOWN, None),
        (".deleted", Role.UNKNOWN, None),
        ("00000000000000000000", Role.UNKNOWN, None),
        ("notes.txt.deleted", Role.UNKNOWN, None),
    ],
)
def test_misspelled_file_name_is_not_well_formed(name: str, role: Role, offset: int | None) -> None:
    parsed = parse_file_name(name)
    assert (parsed.role, parsed.base_offset, parsed.is_well_formed) == (
        role,
        offset,
        False if name != "9223372036854775807.log" else parsed.is_well_formed,
    )


@pytest.mark.parametrize(
    ("name", "role", "state"),
    [
        ("leader-epoch-checkpoint", Role.LEADER_EPOCHS, FileState.LIVE),
        ("leader-epoch-checkpoint.tmp", Role.LEADER_EPOCHS, FileState.TMP),
        ("partition.metadata", Role.PARTITION_METADATA, FileState.LIVE),
        ("partition.metadata.tmp", Role.PARTITION_METADATA, FileState.TMP),
        ("recovery-point-offset-checkpoint", Role.RECOVERY_POINTS, FileState.LIVE),
        ("replication-offset-checkpoint.tmp", Role.HIGH_WATERMARKS, FileState.TMP),
        ("log-start-offset-checkpoint", Role.LOG_START_OFFSETS, FileState.LIVE),
        ("cleaner-offset-checkpoint", Role.CLEANER_OFFSETS, FileState.LIVE),
        ("meta.properties", Role.META_PROPERTIES, FileState.LIVE),
        (".kafka_cleanshutdown", Role.CLEAN_SHUTDOWN, FileState.LIVE),
        (".lock", Role.LOCK, FileState.LIVE),
        ("quorum-state", Role.QUORUM_STATE, FileState.LIVE),
        ("bootstrap.checkpoint", Role.BOOTSTRAP_SNAPSHOT, FileState.LIVE),
        ("00000000000000000010.log.swap.deleted", Role.LOG, FileState.DELETED),
        ("kseg-journal-17.jsonl", Role.KSEG_JOURNAL, FileState.LIVE),
        ("kseg-journal-17-old-00000000000000000000.log.deleted", Role.KSEG_JOURNAL, FileState.LIVE),
    ],
)
def test_fixed_file_name_is_parsed(name: str, role: Role, state: FileState) -> None:
    parsed = parse_file_name(name)
    assert (parsed.role, parsed.state, parsed.is_well_formed) == (role, state, True)


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("00000000000000000069-0000000001.checkpoint", FileState.LIVE),
        ("00000000000000000069-0000000001.checkpoint.deleted", FileState.DELETED),
        ("00000000000000000069-0000000001-8347862348762.checkpoint.part", FileState.PART),
    ],
)
def test_metadata_snapshot_name_is_parsed(name: str, state: FileState) -> None:
    parsed = parse_file_name(name)
    assert (parsed.role, parsed.base_offset, parsed.epoch, parsed.state) == (
        Role.METADATA_SNAPSHOT,
        69,
        1,
        state,
    )
    assert parsed.is_well_formed
    assert metadata_snapshot_name(69, 1) == "00000000000000000069-0000000001.checkpoint"


@pytest.mark.parametrize("suffix", ["", ".tmp", ".deleted"])
def test_cached_index_name_of_a_tiered_segment_is_parsed(suffix: str) -> None:
    parsed = parse_file_name(f"45_Hb-lFhVPRzm1lV4uy1DsaQ.timeindex{suffix}")
    assert (parsed.role, parsed.base_offset, parsed.remote_segment_id) == (
        Role.TIME_INDEX,
        45,
        "Hb-lFhVPRzm1lV4uy1DsaQ",
    )
    assert parsed.is_well_formed


@given(st.integers(0, 2**63 - 1))
def test_file_names_round_trip(offset: int) -> None:
    name = segment_file_name(offset, ".log")
    assert len(name) == 24 and parse_file_name(name).base_offset == offset
    assert parse_file_name(name).is_well_formed


@given(st.text() | st.from_regex(r"[0-9_-]*[.](log|index|checkpoint)([.](tmp|part))?", fullmatch=True))
def test_any_file_name_is_parsed_or_unknown(name: str) -> None:
    parsed = parse_file_name(name)
    assert parsed.name == name and name.startswith(parsed.stem)
    assert parsed.base_offset is None or 0 <= parsed.base_offset < 2**63


def test_negative_offset_is_refused_in_a_file_name() -> None:
    with pytest.raises(FormatError):
        segment_file_name(-1, ".log")
