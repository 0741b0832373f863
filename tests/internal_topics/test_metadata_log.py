"""The metadata log as an image: snapshot and log together, transactions, damage and missing parts."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
from kseg.internal_topics.metadata.metadata_image import LOST, UNASSIGNED, MetadataImage, Placement
from kseg.internal_topics.metadata.metadata_log import read_metadata_file, read_metadata_log
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.errors import FormatError, Refused, UnreadableInput, UsageError
from kseg.segment.model import NewBatch, Record
from kseg.segment.state.control import control_key, control_value
from tests.internal_topics.metadata_logs import (
    DIRECTORY,
    T0,
    broker_config,
    config,
    record,
    topic,
    topic_id,
    write_log,
    write_meta_properties,
    write_snapshot,
)

LOG = "__cluster_metadata-0"
BEGIN = record("BeginTransactionRecord", name="Bootstrap records")
END = record("EndTransactionRecord")
ABORT = record("AbortTransactionRecord")
DAMAGES = int(os.environ.get("KSEG_METADATA_DAMAGES", "40"))


def names(image: MetadataImage) -> list[str]:
    return sorted(each.name for each in image.topics.values())


def test_metadata_log_of_a_broker_gives_its_image(capture_small: Path) -> None:
    """Snapshot and log of a 4.3.1 broker. The log starts at 0, and gives the same image on its own."""
    source = capture_small / "data" / LOG
    image = read_metadata_log(str(source))
    assert (image.end_offset, image.epoch, image.is_certain, image.notes) == (140, 2, True, ())
    assert image.topic_configs("stations")["cleanup.policy"] == "compact"
    assert "cleanup.policy" not in image.topic_configs("metro-none")
    assert (
        image.broker_configs(None) == {"min.insync.replicas": "1"}
        and image.features["metadata.version"] == 30
    )
    here = "UsCu_Qd6HlJL_AROE7wUxg"
    found = {f"{each.topic}-{each.partition}" for each in image.partitions_of(1, here)}
    assert found == {path.name for path in source.parent.iterdir() if path.is_dir()} - {LOG}
    assert {each.placement for each in image.partitions_of(1, here)} == {Placement.ASSIGNED}
    assert not list(image.partitions_of(1, DIRECTORY)) and not list(image.partitions_of(2))
    for expected in image.partitions_of(1):
        own = (source.parent / f"{expected.topic}-{expected.partition}" / "partition.metadata").read_text()
        assert own.endswith(expected.topic_id)


def test_log_alone_and_snapshot_give_the_same_image(capture_small: Path, tmp_path: Path) -> None:
    source = capture_small / "data" / LOG
    whole = read_metadata_log(str(source))
    alone = shutil.copytree(source, tmp_path / LOG)
    for path in alone.glob("*.checkpoint"):
        path.unlink()
    image = read_metadata_log(str(alone))
    assert image.is_certain and image.snapshot is None
    for state in ("topics", "configs", "brokers", "features"):
        assert getattr(image, state) == getattr(whole, state), state
    (snapshot,) = source.glob("*.checkpoint")
    at_69 = read_metadata_file(str(snapshot))
    assert (at_69.end_offset, at_69.epoch, at_69.is_certain) == (69, 1, True)
    assert set(at_69.topics) < set(whole.topics)


@pytest.mark.behaviour("M02")
def test_aborted_and_unfinished_metadata_transactions_have_no_effect(tmp_path: Path) -> None:
    """As in the controller, an abort discards the transaction, and an unfinished one is not visible."""
    log = tmp_path / LOG
    write_log(
        log,
        [BEGIN, *topic("kept", topic_id(1)), END],
        [BEGIN, *topic("dropped", topic_id(2))],
        [config("kept", "cleanup.policy", "compact"), ABORT, *topic("after", topic_id(3))],
        [END],
        [BEGIN, record("RemoveTopicRecord", topicId=topic_id(1))],
    )
    image = read_metadata_log(str(log))
    assert names(image) == ["after", "kept"] and image.topic_configs("kept") == {} and image.is_certain
    assert [note.message for note in image.notes] == [
        "a metadata transaction ends that never began; the record is skipped",
        "a metadata transaction of 1 record is open at the end of the state",
    ]


def test_topics_are_created_changed_and_removed(tmp_path: Path) -> None:
    log = tmp_path / LOG
    write_log(
        log,
        topic("first", topic_id(1), 2),
        [
            config("first", "retention.ms", "5"),
            config("first", "retention.ms", None),
            broker_config("", "a", "1"),
        ],
        [
            record(
                "PartitionChangeRecord",
                partitionId=1,
                topicId=topic_id(1),
                replicas=[2, 3],
                directories=[UNASSIGNED, LOST],
                leader=2,
            )
        ],
        [config("second", "cleanup.policy", "compact"), *topic("second", topic_id(2))],
        [record("RemoveTopicRecord", topicId=topic_id(2)), *topic("second", topic_id(3))],
    )
    image = read_metadata_log(str(log))
    assert image.id_by_name == {"first": topic_id(1), "second": topic_id(3)}
    assert image.topic_configs("first") == image.topic_configs("second") == {}
    assert image.removed[topic_id(2)].name == "second"
    assert image.topics[topic_id(1)].partitions[1].replicas == (2, 3)
    assert [(each.topic, each.partition) for each in image.partitions_of(1)] == [("first", 0), ("second", 0)]
    assert [each.placement for each in image.partitions_of(2, DIRECTORY)] == [Placement.ANY_DIRECTORY]
    # its directory is LOST
    assert not list(image.partitions_of(3))


def test_names_of_topics_removed_before_a_snapshot_are_known(tmp_path: Path) -> None:
    log = tmp_path / LOG
    end = write_log(log, topic("gone", topic_id(1)), [record("RemoveTopicRecord", topicId=topic_id(1))])
    write_snapshot(log, end, topic("here", topic_id(2)))
    image = read_metadata_log(str(log))
    assert names(image) == ["here"] and image.removed[topic_id(1)].name == "gone" and image.is_certain


def test_records_of_a_newer_kafka_may_make_the_image_uncertain(tmp_path: Path) -> None:
    """A record of unknown type does not affect topics. Unread bytes at the end of a known record make the image uncertain."""
    log = tmp_path / LOG
    write_log(log, topic("one", topic_id(1)), [b"\x01\x63\x00\x05abc"])
    image = read_metadata_log(str(log))
    assert image.is_certain and "no record type 99" in image.notes[0].message
    newer = config("one", "cleanup.policy", "compact").replace(b"\x01\x04\x00", b"\x01\x04\x07", 1)
    write_log(log, topic("one", topic_id(1)), [newer])
    image = read_metadata_log(str(log))
    assert image.is_certain and "newer than Kafka" in image.notes[0].message
    write_log(log, topic("one", topic_id(1)), [newer + b"new"])
    image = read_metadata_log(str(log))
    assert not image.is_certain and "3 bytes are left over" in image.doubts[0].message


# --- damage and what is missing


def base(log: Path) -> int:
    """A snapshot that ends at 4, and a log of 8 records from 0 on, in batches of two."""
    batches = [[*topic(f"t{number}", topic_id(number))] for number in range(1, 5)]
    end = write_log(log, *batches)
    write_snapshot(log, 4, [each for batch in batches[:2] for each in batch])
    return end


def test_intact_metadata_log_is_certain(tmp_path: Path) -> None:
    assert base(tmp_path / LOG) == 8
    image = read_metadata_log(str(tmp_path / LOG))
    assert names(image) == ["t1", "t2", "t3", "t4"] and image.is_certain and image.snapshot is not None


@pytest.mark.parametrize("position", [70, 150, 230, 310, 390])
def test_damaged_byte_of_the_metadata_log_is_a_doubt(tmp_path: Path, position: int) -> None:
    """Damage at any byte is never taken for the end of the log, and the records after it are read."""
    base(tmp_path / LOG)
    path = tmp_path / LOG / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(bytes(data))
    image = read_metadata_log(str(tmp_path / LOG))
    assert not image.is_certain and image.doubts[0].id == "metadata-log-doubtful"
    assert len(names(image)) >= 3


@pytest.mark.parametrize("cut", [1, 30, 61, 100, 150])
def test_torn_end_of_the_metadata_log_is_a_doubt(tmp_path: Path, cut: int) -> None:
    base(tmp_path / LOG)
    path = tmp_path / LOG / f"{0:020}.log"
    path.write_bytes(path.read_bytes()[:-cut])
    assert not read_metadata_log(str(tmp_path / LOG)).is_certain


def test_side_files_beyond_the_log_end_are_a_doubt(tmp_path: Path) -> None:
    log = tmp_path / LOG
    base(log)
    (log / f"{9:020}.snapshot").write_bytes(b"")
    image = read_metadata_log(str(log))
    assert "the log ends at offset 8, and" in image.doubts[0].message
    (log / f"{9:020}.snapshot").unlink()
    (log / "leader-epoch-checkpoint").write_text("0\n2\n1 0\n2 12\n")
    assert "leader-epoch-checkpoint knows offset 12" in read_metadata_log(str(log)).doubts[0].message


def test_unusable_snapshot_is_replaced_by_an_older_one_and_the_log(tmp_path: Path) -> None:
    """An older snapshot and more of the log, or the log from offset 0, give the same image. Nothing replaces a lost snapshot beyond the
    log."""
    log = tmp_path / LOG
    base(log)
    bad = write_snapshot(log, 6, [], footer=False)
    image = read_metadata_log(str(log))
    assert image.is_certain and len(names(image)) == 4
    assert "no footer" in image.notes[0].message and image.notes[0].path == str(bad)
    bad.unlink()
    (snapshot,) = log.glob("*.checkpoint")
    snapshot.write_bytes(b"")
    assert read_metadata_log(str(log)).is_certain
    write_snapshot(log, 20, [], epoch=3, footer=False)
    image = read_metadata_log(str(log))
    assert not image.is_certain and "ends at 20" in image.doubts[0].message


def test_missing_segments_make_the_image_uncertain(tmp_path: Path) -> None:
    log = tmp_path / LOG
    end = write_log(log, topic("one", topic_id(1)))
    write_log(log, topic("three", topic_id(3)), base_offset=end + 2)
    image = read_metadata_log(str(log))
    assert names(image) == ["one", "three"]
    assert image.doubts[0].message == "offsets 2 to 3 of the metadata log are missing"
    (log / f"{0:020}.log").unlink()
    image = read_metadata_log(str(log))
    assert "the log starts at offset 4 and no snapshot can be used" in image.doubts[0].message
    write_snapshot(log, 4, topic("one", topic_id(1)))
    assert read_metadata_log(str(log)).is_certain
    (log / f"{4:020}.log").unlink()
    # a snapshot beyond the log counts on its own
    assert read_metadata_log(str(log)).is_certain
    shutil.rmtree(log)
    log.mkdir()
    assert not read_metadata_log(str(log)).is_certain


def test_snapshot_of_another_history_is_a_doubt(tmp_path: Path) -> None:
    log = tmp_path / LOG
    write_log(log, topic("one", topic_id(1)), topic("two", topic_id(2)), epoch=5)
    write_snapshot(log, 2, topic("other", topic_id(3)), epoch=4)
    image = read_metadata_log(str(log))
    assert "snapshot and log are of different histories" in image.doubts[0].message


# --- finding it


@pytest.mark.parametrize(
    ("data", "metadata"),
    [
        ("kafka", "kafka"),
        ("disk-1", "disk-2"),
        ("data-0/kafka-log0", "data-1/kafka-log1"),
        ("data-0/kafka-log0", "data-0/metadata"),
    ],
)
def test_metadata_log_is_found_on_another_disk_of_the_node(tmp_path: Path, data: str, metadata: str) -> None:
    write_meta_properties(tmp_path / metadata)
    write_meta_properties(tmp_path / data)
    base(tmp_path / metadata / LOG)
    image = MetadataFinder().image_for(str(tmp_path / data))
    assert image is not None and len(names(image)) == 4
    if data == metadata:
        return
    for change in ({"node": 2}, {"cluster": "x" * 22}):
        write_meta_properties(tmp_path / metadata, **change)
        assert MetadataFinder().image_for(str(tmp_path / data)) is None
    (tmp_path / metadata / "meta.properties").unlink()
    assert MetadataFinder().image_for(str(tmp_path / data)) is None


def test_metadata_log_is_found_among_the_given_paths(tmp_path: Path) -> None:
    ours, other = tmp_path / "a" / "one", tmp_path / "b" / "c" / "two"
    for place in (ours, other):
        write_meta_properties(place)
    base(other / LOG)
    assert MetadataFinder([str(ours)]).image_for(str(ours)) is None
    assert MetadataFinder([str(ours), str(other)]).image_for(str(ours)) is not None


def test_metadata_log_with_the_highest_end_is_used(tmp_path: Path) -> None:
    for name in ("data", "old", "new"):
        write_meta_properties(tmp_path / name)
    write_log(tmp_path / "old" / LOG, topic("one", topic_id(1)))
    base(tmp_path / "new" / LOG)
    image = MetadataFinder().image_for(str(tmp_path / "data"))
    assert image is not None and image.end_offset == 8


def test_named_metadata_log_is_used(tmp_path: Path, capture_small: Path) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "mnt" / "copy"
    write_meta_properties(data)
    write_meta_properties(elsewhere, node=5)
    base(elsewhere / LOG)
    for path in (elsewhere, elsewhere / LOG, elsewhere / LOG / f"{4:020}-{1:010}.checkpoint"):
        image = MetadataFinder(explicit=str(path)).image_for(str(data))
        assert image is not None and len(names(image)) == (4 if path.is_dir() else 2)
    with pytest.raises(UsageError, match="contains no metadata log"):
        MetadataFinder(explicit=str(data))
    with pytest.raises(UsageError, match="neither a snapshot nor a segment"):
        MetadataFinder(explicit=str(data / "meta.properties"))
    with pytest.raises(UnreadableInput):
        MetadataFinder(explicit=str(tmp_path / "nowhere"))
    write_meta_properties(elsewhere, cluster="x" * 22)
    with pytest.raises(Refused, match="belongs to cluster"):
        MetadataFinder(explicit=str(elsewhere)).image_for(str(data))
    with pytest.raises(FormatError):
        read_metadata_file(str(data / "meta.properties"))


def test_random_damage_is_at_most_a_doubt(capture_small: Path, tmp_path: Path) -> None:
    """Bytes are changed, removed or inserted anywhere in any file. There is always an image, and it is uncertain if its topics are
    wrong."""
    source = capture_small / "data" / LOG
    truth = read_metadata_log(str(source))
    rng = random.Random(7)
    files = sorted(path.name for path in source.iterdir())
    for case in range(DAMAGES):
        log = shutil.copytree(source, tmp_path / str(case) / LOG)
        path = log / rng.choice(files)
        path.chmod(0o600)
        data = bytearray(path.read_bytes())
        match rng.randrange(4):
            case 0 if data:
                for _ in range(rng.randrange(1, 20)):
                    data[rng.randrange(len(data))] = rng.randrange(256)
            case 1:
                del data[rng.randrange(len(data) + 1) :]
            case 2:
                at = rng.randrange(len(data) + 1)
                data[at:at] = rng.randbytes(rng.randrange(1, 40))
            case _:
                data = bytearray(rng.randbytes(rng.randrange(200)))
        path.write_bytes(data)
        image = read_metadata_log(str(log))
        same = (image.topics, image.configs, image.removed) == (truth.topics, truth.configs, truth.removed)
        assert same or not image.is_certain, (case, path.name)
        shutil.rmtree(log.parent)


# --- what may not be committed


def quorum(directory: Path, voters: int) -> None:
    listed = ",".join(f'{{"voterId":{number + 1}}}' for number in range(voters))
    (directory / "quorum-state").write_text(
        f'{{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":[{listed}],"data_version":0}}'
    )


def tail_notes(directory: Path) -> list[str]:
    return [note.message for note in read_metadata_log(str(directory)).notes if "voters" in note.message]


@pytest.mark.parametrize("voters", [1, 3])
def test_quorum_log_after_the_snapshot_is_uncertain(tmp_path: Path, voters: int) -> None:
    """The high watermark of the metadata log is not stored on disk; only the content of a snapshot is known to be committed."""
    quorum(tmp_path, voters)
    write_log(tmp_path, topic("a", topic_id(1)), [config("a", "cleanup.policy", "compact")])
    write_snapshot(tmp_path, 2, topic("a", topic_id(1)))
    found = tail_notes(tmp_path)
    assert len(found) == (voters > 1)
    if found:
        assert "3 voters" in found[0] and "from offset 2 up to 2" in found[0]
        assert read_metadata_log(str(tmp_path)).topic_configs("a") == {"cleanup.policy": "compact"}
        assert read_metadata_log(str(tmp_path)).is_certain


def test_tail_without_changes_has_no_note(tmp_path: Path) -> None:
    quorum(tmp_path, 3)
    write_log(tmp_path, topic("a", topic_id(1)), [record("NoOpRecord")])
    write_snapshot(tmp_path, 2, topic("a", topic_id(1)))
    assert tail_notes(tmp_path) == []


@pytest.mark.parametrize("kind", ["LEADER_CHANGE", "KRAFT_VOTERS"])
def test_voters_of_the_log_override_those_of_quorum_state(tmp_path: Path, kind: str) -> None:
    """Version 1 of quorum-state (KIP-853) contains no voters."""
    voters: list[dict[str, object]] = [
        {"voterId": number, "voterDirectoryId": topic_id(number), "endpoints": [], "kRaftVersionFeature": {}}
        for number in (1, 2, 3)
    ]
    if kind == "LEADER_CHANGE":
        voters = [{"voterId": number} for number in (1, 2, 3)]
    fields = {"version": 0, "leaderId": 1, "voters": voters, "grantingVoters": []}
    if kind == "KRAFT_VOTERS":
        fields = {"version": 0, "voters": voters}
        for voter in voters:
            voter["kRaftVersionFeature"] = {"minSupportedVersion": 0, "maxSupportedVersion": 1}
    quorum(tmp_path, 1)
    end = write_log(tmp_path, topic("a", topic_id(1)))
    made = Record(end, T0, control_key(kind), control_value(kind, fields))
    with (tmp_path / f"{0:020}.log").open("ab") as log:
        log.write(encode_batch(NewBatch(records=(made,), control=True, leader_epoch=1)))
    (note,) = tail_notes(tmp_path)
    assert "3 voters" in note and f"from offset 0 up to {end}" in note
