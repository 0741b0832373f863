"""Data directories on which a broker starts differently or not at all: changes to a valid one, one function per case.

Each function gets a copy of a small broker's data directory (after a clean shutdown, one replica of each topic) and may return a second one
for log.dirs.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from fixtures.diseases import bad_crc, put
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from tests.internal_topics.metadata_logs import config, record
from tests.kafka.partition_start_cases import PARTITION_CASES
from tests.kafka.start_directories import (
    MARKER,
    METADATA,
    SUFFIX,
    Case,
    metadata_log_unclosed,
    registered,
    second,
    unclean_from_the_start,
)

CASES: dict[str, Case] = {}
case = registered(CASES)


def _with_content(name: str, content: bytes, word: str) -> None:
    def make(data: Path) -> None:
        (data / name).write_bytes(content)

    CASES[f"{name.partition('/')[2] or name}-{word}"] = make


# --- stops


@case
def clean(data: Path) -> None:
    """No change."""


@case
def unclean(data: Path) -> None:
    (data / MARKER).unlink()


case(unclean_from_the_start)
case(metadata_log_unclosed)


@case
def logs_behind_links_unclean(data: Path) -> None:
    """Logs that were moved to another disk by hand to free space."""
    (data / MARKER).unlink()
    for log in sorted((data / "metro-none-0").glob("*.log"))[:2]:
        elsewhere = data.parent / f"moved-{log.name}"
        log.rename(elsewhere)
        log.symlink_to(elsewhere)


@case
def epochs_and_high_watermarks_of_zeros(data: Path) -> None:
    """The load takes the data directory offline before it reads the high watermarks."""
    for path in (data / "metro-none-0" / "leader-epoch-checkpoint", data / "replication-offset-checkpoint"):
        path.write_bytes(bytes(path.stat().st_size))


# --- files of the data directory

_with_content("meta.properties", b"", "empty")
_with_content("meta.properties", b"\x00\xff nothing", "foreign")
_with_content("meta.properties", b"version=1\nnode.id=1\n", "without-cluster")
_with_content("meta.properties", b"version=7\nnode.id=1\n", "of-tomorrow")
_with_content("bootstrap.checkpoint", b"garbage" * 20, "foreign")
_with_content(f"{METADATA}/quorum-state", b"garbage", "foreign")
_QUORUM_STATE = b'{"clusterId":"","leaderId":%d,"leaderEpoch":2,"votedId":%d,"appliedOffset":0,"currentVoters":%s,"data_version":0}'
for _leader, _voted, _voters, _word in (
    (1, -1, b"null", "null-voters"),
    (-7, -1, b"[]", "leader-below-none"),
    (-1, -7, b"[]", "vote-below-none"),
    (7, -7, b"[]", "leader-and-vote-below-none"),
):
    _with_content(f"{METADATA}/quorum-state", _QUORUM_STATE % (_leader, _voted, _voters), _word)
for _name in ("recovery-point", "log-start", "replication", "cleaner"):
    _with_content(f"{_name}-offset-checkpoint", b"\xff\xfegarbage", "foreign")
    _with_content(f"{_name}-offset-checkpoint", b"0\n1\nfares 0 x\n", "odd-number")


@case
def migrated_from_zookeeper(data: Path) -> None:
    """A migration to KRaft keeps the file that the broker with ZooKeeper wrote (observed with 3.9.1; 4.3.1 keeps it as well)."""
    file = data / "meta.properties"
    file.write_text(file.read_text().replace("version=1", "version=0").replace("node.id=", "broker.id="))


@case
def no_meta_properties(data: Path) -> None:
    (data / "meta.properties").unlink()


@case
def meta_properties_not_renamed(data: Path) -> None:
    """A broker does not read the temporary file."""
    (data / "meta.properties").rename(data / "meta.properties.tmp")


@case
def directory_id_reserved(data: Path) -> None:
    file = data / "meta.properties"
    file.write_text(file.read_text().replace("UsCu_Qd6HlJL_AROE7wUxg", "AAAAAAAAAAAAAAAAAAAAAQ"))


@case
def marker_is_a_directory(data: Path) -> None:
    (data / MARKER).unlink()
    (data / MARKER).mkdir()


@case
def marker_is_a_directory_with_a_file(data: Path) -> None:
    marker_is_a_directory(data)
    (data / MARKER / "file").touch()


@case
def lost_and_found(data: Path) -> None:
    (data / "lost+found").mkdir()


@case
def unfinished_copies(data: Path) -> None:
    """Of steps of `doctor` that a full disk has interrupted."""
    for name in ("fares-0", METADATA):
        copying = shutil.copytree(data / name, data / f"{name}.kseg-copying")
        max(copying.glob("*.log")).unlink()


@case
def nested(data: Path) -> None:
    shutil.copytree(data / "fares-0", data / "inner-0" / "fares-0")
    shutil.copy(data / "meta.properties", data / "inner-0")


# --- a second data directory


@case
def partition_twice(data: Path) -> Path:
    return second(data, "fares-0")


@case
def directory_id_twice(data: Path) -> Path:
    return second(data, "other-0", directory_id="UsCu_Qd6HlJL_AROE7wUxg")


@case
def foreign_cluster(data: Path) -> Path:
    return second(data, "other-0", cluster_id="Nz9XvQe1R0mU7bTq2LkP5w")


@case
def foreign_node(data: Path) -> Path:
    return second(data, "other-0", node_id="2")


@case
def second_of_tomorrow(data: Path) -> Path:
    return second(data, "other-0", version="9")


@case
def second_without_meta_properties(data: Path) -> Path:
    made = second(data, "other-0")
    (made / "meta.properties").unlink()
    (made / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    return made


@case
def disk_replaced(data: Path) -> None:
    """The disk was replaced by a newly formatted one, to which all partitions but one were copied back."""
    properties = data / "meta.properties"
    properties.write_text(properties.read_text().replace("UsCu_Qd6HlJL_AROE7wUxg", "Xl2QS2nOGAEJKAio_iZM7A"))
    shutil.rmtree(data / "fares-0")


@case
def second_is_a_file(data: Path) -> Path:
    (data.parent / "second").write_text("not a directory")
    return data.parent / "second"


@case
def second_with_foreign_recovery_points(data: Path) -> Path:
    made = second(data)
    (made / "recovery-point-offset-checkpoint").write_text("garbage")
    return made


@case
def second_with_a_partition_and_foreign_recovery_points(data: Path) -> Path:
    made = second(data, "other-0")
    (made / "recovery-point-offset-checkpoint").write_text("garbage")
    return made


@case
def second_with_a_partition_and_foreign_log_starts(data: Path) -> Path:
    made = second(data, "other-0")
    (made / "log-start-offset-checkpoint").write_text("garbage")
    (made / MARKER).touch()
    return made


@case
def second_with_a_partition_and_foreign_cleaner_offsets(data: Path) -> Path:
    made = second(data, "other-0")
    (made / "cleaner-offset-checkpoint").write_text("garbage")
    return made


@case
def second_with_foreign_high_watermarks(data: Path) -> Path:
    """The high watermarks are read only when a partition is served from there, and there is none."""
    made = second(data)
    (made / "replication-offset-checkpoint").write_text("garbage")
    return made


@case
def second_with_foreign_cleaner_offsets(data: Path) -> Path:
    made = second(data)
    (made / "cleaner-offset-checkpoint").write_text("garbage")
    return made


@case
def metadata_log_twice(data: Path) -> Path:
    made = second(data)
    shutil.copytree(data / METADATA, made / METADATA)
    return made


@case
def future_log(data: Path) -> Path:
    return second(data, f"fares-0.{SUFFIX}-future")


# --- the metadata log


def _metadata_log(data: Path) -> Path:
    return max((data / METADATA).glob("*.log"))


@case
def metadata_batch_altered(data: Path) -> None:
    bad_crc(_metadata_log(data), 20)


@case
def metadata_torn(data: Path) -> None:
    log = _metadata_log(data)
    os.truncate(log, log.stat().st_size - 5)


@case
def metadata_zeros_near_the_start(data: Path) -> None:
    """The log is truncated below the end of the newest snapshot, from which the node continues."""
    put(_metadata_log(data), 300, bytes(300))


@case
def metadata_snapshot_of_a_newer_epoch(data: Path) -> None:
    """The snapshot ends below the log, which the node empties all the same, losing the records after the snapshot."""
    (snapshot,) = (data / METADATA).glob("*.checkpoint")
    snapshot.rename(snapshot.with_name(f"{snapshot.name[:20]}-{99:010d}.checkpoint"))


@case
def metadata_cut_without_snapshot(data: Path) -> None:
    """Everything after the truncation is lost, including the topics that were created there."""
    for snapshot in (data / METADATA).glob("*.checkpoint"):
        snapshot.unlink()
    bad_crc(_metadata_log(data), 14)


@case
def metadata_snapshot_foreign(data: Path) -> None:
    for snapshot in (data / METADATA).glob("*.checkpoint"):
        snapshot.write_bytes(b"garbage" * 30)


@case
def metadata_snapshot_and_quorum_state_foreign(data: Path) -> None:
    """The node reads the snapshot first."""
    metadata_snapshot_foreign(data)
    (data / METADATA / "quorum-state").write_bytes(b"")


@case
def metadata_topic_id_altered(data: Path) -> None:
    path = data / METADATA / "partition.metadata"
    path.write_text(path.read_text().replace("AAQ", "CAQ"))


@case
def bootstrap_without_its_footer(data: Path) -> None:
    os.truncate(data / "bootstrap.checkpoint", (data / "bootstrap.checkpoint").stat().st_size - 70)


@case
def bootstrap_record_altered(data: Path) -> None:
    path = data / "bootstrap.checkpoint"
    path.write_bytes(path.read_bytes().replace(b"metadata.version", b"metadata.versiom"))


@case
def metadata_snapshot_torn_at_the_log_end(data: Path) -> None:
    """No record in the log refers to what is lost, so the node starts and knows no topic."""
    (snapshot,), log = (data / METADATA).glob("*.checkpoint"), _metadata_log(data)
    content, position = log.read_bytes(), 0
    while int.from_bytes(content[position : position + 8], "big") < int(snapshot.name[:20]):
        position += 12 + int.from_bytes(content[position + 8 : position + 12], "big")
    os.truncate(log, position)
    snapshot.chmod(0o644)
    os.truncate(snapshot, snapshot.stat().st_size // 2)


@case
def moving_within(data: Path) -> None:
    """A move that somebody completed by hand with a copy."""
    shutil.copytree(data / "fares-0", data / f"fares-0.{SUFFIX}-future")


@case
def number_with_a_zero(data: Path) -> None:
    shutil.copytree(data / "fares-0", data / "fares-00")


@case
def metadata_magic_of_tomorrow(data: Path) -> None:
    """The checksum is valid, so the log is loaded, but no reader knows the format."""
    log = min((data / METADATA).glob("*.log"))
    content, position = bytearray(log.read_bytes()), 0
    while int.from_bytes(content[position : position + 8], "big") < 100:
        position += 12 + int.from_bytes(content[position + 8 : position + 12], "big")
    content[position + 16] = 3
    log.write_bytes(content)


@case
def offset_lowered_unclean(data: Path) -> None:
    """With an index entry every 1,024 bytes, as this topic has it, an entry is due at an offset that is not above the previous one. With
    4,096 bytes no entry would be due."""
    log = min((data / "metro-none-0").glob("*.log"))
    content, position = bytearray(log.read_bytes()), 0
    while position < len(content):
        last = position
        position += 12 + int.from_bytes(content[position + 8 : position + 12], "big")
    content[last : last + 8] = bytes(8)
    log.write_bytes(content)
    unclean_from_the_start(data)


@case
def topic_config_of_old(data: Path) -> None:
    """The value was allowed before 4.0, and an earlier version wrote it to the metadata log."""
    append_to_metadata(data, config("fares", "segment.bytes", "40000"))


def append_to_metadata(data: Path, value: bytes) -> None:
    log = max((data / METADATA).glob("*.log"))
    with PartitionLog(PartitionTarget(str(data / METADATA))) as found:
        end, batch = found.end_offset, found.last_batch
    assert batch is not None
    made = NewBatch(
        records=(Record(end, batch.max_timestamp_ms, None, value),), leader_epoch=batch.leader_epoch
    )
    with log.open("ab") as file:
        file.write(encode_batch(made))


@case
def metadata_version_of_old(data: Path) -> None:
    """Version 3.3-IV2, which Kafka 4.0 and later do not read."""
    append_to_metadata(data, record("FeatureLevelRecord", name="metadata.version", featureLevel=6))


@case
def metadata_version_once_of_old(data: Path) -> None:
    """The version was raised later, but no snapshot has been written since."""
    metadata_version_of_old(data)
    append_to_metadata(data, record("FeatureLevelRecord", name="metadata.version", featureLevel=21))


@case
def metadata_version_of_tomorrow(data: Path) -> None:
    append_to_metadata(data, record("FeatureLevelRecord", name="metadata.version", featureLevel=99))


@case
def metadata_version_not_released(data: Path) -> None:
    append_to_metadata(data, record("FeatureLevelRecord", name="metadata.version", featureLevel=31))


@case
def feature_of_tomorrow(data: Path) -> None:
    append_to_metadata(data, record("FeatureLevelRecord", name="share.version", featureLevel=2))


@case
def feature_once_of_tomorrow(data: Path) -> None:
    feature_of_tomorrow(data)
    append_to_metadata(data, record("FeatureLevelRecord", name="share.version", featureLevel=1))


@case
def metadata_log_gone(data: Path) -> None:
    shutil.rmtree(data / METADATA)


CASES |= PARTITION_CASES
