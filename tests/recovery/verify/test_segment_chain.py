"""Logs of missing segments: what `verify` infers from their indexes and from the leader epochs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kseg.change.append.partition_writer import PartitionWriter, RollRules
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.partition.topic_settings import CLEANUP_POLICY, Setting, Source, TopicSettings
from kseg.segment.sidecar.checkpoint import CheckpointEntry, encode_offset_checkpoint
from tests.support.lock_holders import child, running_broker
from tests.support.verify_helpers import Verdict, judge

T0 = 1_700_000_000_000
EPOCHS = "leader-epoch-checkpoint"


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A partition with segments of 12 records, and a new leader after every 20."""
    directory = tmp_path / "data" / "orders-0"
    directory.parent.mkdir()
    with PartitionWriter(directory, rules=RollRules(segment_bytes=600)) as writer:
        for first in range(0, 60, 4):
            records = tuple(Record(first + at, T0 + first + at, b"key", b"v" * 30) for at in range(4))
            writer.append(NewBatch(records=records, leader_epoch=first // 20))
    assert judge(directory).ids("error", "warning") == set()
    return directory


def bases(partition: Path) -> list[int]:
    return sorted(int(path.stem) for path in partition.glob("*.log"))


def lose(partition: Path, base: int, *, log_only: bool = False) -> None:
    for path in partition.glob(f"{base:020d}.*"):
        if path.suffix == ".log" or not log_only:
            path.unlink()


def spans(verdict: Verdict, kind: str) -> list[tuple[int | None, int | None]]:
    return [(found.first_offset, found.last_offset) for found in verdict.of(kind)]


@pytest.mark.evidence("segment-missing")
@pytest.mark.parametrize("which", [0, 1, -1])
def test_indexes_of_a_lost_log_tell_its_offsets(partition: Path, which: int) -> None:
    found = bases(partition)
    lose(partition, found[which], log_only=True)
    verdict = judge(partition)
    last = None if which == -1 else found[which + 1] - 1
    assert spans(verdict, "segment-missing") == [(found[which], last)]
    assert verdict.ids() & {"segment-gap", "offset-gap", "log-start-gap"} == set()
    assert verdict.of("segment-missing")[0].severity == "error"


@pytest.mark.evidence("segment-missing")
def test_two_adjacent_lost_logs_are_reported_separately(partition: Path) -> None:
    first, second, third, *_ = bases(partition)
    lose(partition, first, log_only=True)
    lose(partition, second, log_only=True)
    assert spans(judge(partition), "segment-missing") == [(first, second - 1), (second, third - 1)]


@pytest.mark.evidence("segment-missing")
@pytest.mark.parametrize("is_written", [True, False], ids=["entries", "zeros"])
def test_empty_log_beside_indexes_is_a_missing_segment(partition: Path, is_written: bool) -> None:
    """XFS and ext4 after a power loss, observed with 4.3.1: the broker had closed the segment and trimmed its indexes, which may also have
    nothing but zeros."""
    _, second, third, *_ = bases(partition)
    os.truncate(partition / f"{second:020d}.log", 0)
    if not is_written:
        for suffix in ("index", "timeindex"):
            path = partition / f"{second:020d}.{suffix}"
            path.write_bytes(bytes(path.stat().st_size))
    verdict = judge(partition)
    assert spans(verdict, "segment-missing") == [(second, third - 1)]
    assert "empty" in verdict.of("segment-missing")[0].message
    assert verdict.ids() & {"segment-gap", "offset-gap"} == set()


@pytest.mark.evidence("segment-missing")
@pytest.mark.parametrize("is_later", [True, False], ids=["later", "earlier"])
def test_log_of_another_segment_leaves_its_own_missing(partition: Path, is_later: bool) -> None:
    """As after a copy under the wrong name. The segments around it are complete, so nothing else is missing."""
    first, second, third, *_ = bases(partition)
    other = third if is_later else first
    shutil.copyfile(partition / f"{other:020d}.log", partition / f"{second:020d}.log")
    verdict = judge(partition)
    assert spans(verdict, "segment-missing") == [(second, third - 1)]
    assert Path(verdict.of("segment-missing")[0].path).name == f"{second:020d}.log"
    assert verdict.ids() & {"segment-gap", "offset-gap"} == set()


def test_segments_that_were_swapped_are_not_missing(partition: Path) -> None:
    first, second, third, *_ = bases(partition)
    for one, other in ((first, second), (first, third)):
        logs = [partition / f"{base:020d}.log" for base in (one, other)]
        contents = [log.read_bytes() for log in logs]
        for log, content in zip(logs, reversed(contents), strict=True):
            log.write_bytes(content)
        verdict = judge(partition)
        assert "offset-below-segment" in verdict.ids()
        assert "segment-missing" not in verdict.ids()


@pytest.mark.parametrize(
    ("policy", "gap"),
    [("delete", "segment-gap"), ("", "segment-gap"), ("compact,delete", "offset-gap"), (None, "offset-gap")],
)
def test_empty_log_with_trimmed_indexes_is_a_gap_unless_the_topic_is_cleaned(
    partition: Path, policy: str | None, gap: str
) -> None:
    """What a broker leaves that has recovered the segment, and a cleaner as well. policy: of the topic, None if it is unknown."""
    _, second, third, *_ = bases(partition)
    for suffix in ("log", "index", "timeindex"):
        os.truncate(partition / f"{second:020d}.{suffix}", 0)
    settings = {} if policy is None else {CLEANUP_POLICY: Setting(policy, Source.TOPIC)}
    verdict = judge(partition, topics={str(partition): TopicSettings(settings)})
    assert spans(verdict, gap) == [(second, third - 1)]
    assert verdict.of("segment-missing") == []


def test_partition_without_any_log_is_reported(partition: Path) -> None:
    for base in bases(partition):
        lose(partition, base, log_only=True)
    verdict = judge(partition)
    assert verdict.of("segment-missing")[-1].last_offset is None
    assert "no-segments" in verdict.ids("warning")


@pytest.mark.evidence("segment-missing")
def test_interrupted_deletion_is_not_a_lost_log(partition: Path) -> None:
    """A broker renames the log first, and is killed before it renames the indexes."""
    first = partition / f"{bases(partition)[0]:020d}.log"
    first.rename(f"{first}.deleted")
    verdict = judge(partition)
    assert verdict.ids() & {"segment-missing", "log-start-gap"} == set()
    assert "orphan-index" in verdict.ids("warning")


@pytest.mark.evidence("segment-missing")
def test_log_lost_beside_the_files_that_a_cleaner_has_replaced_is_reported(partition: Path) -> None:
    """For a minute, or until the next start of the broker, a cleaned segment has the files that it replaced beside it."""
    first = bases(partition)[0]
    for suffix in ("log", "index", "timeindex"):
        file = partition / f"{first:020d}.{suffix}"
        shutil.copy(file, f"{file}.deleted")
    assert "segment-missing" not in judge(partition).ids()
    lose(partition, first, log_only=True)
    assert [base for base, _ in spans(judge(partition), "segment-missing")] == [first]


def test_merged_segment_is_not_a_lost_log(partition: Path) -> None:
    """A broker that completes the swap deletes the files of the merged segments one by one, and is killed before the last of them."""
    first, second, *_ = bases(partition)
    merged = (partition / f"{first:020d}.log").read_bytes() + (partition / f"{second:020d}.log").read_bytes()
    lose(partition, first)
    lose(partition, second, log_only=True)
    (partition / f"{first:020d}.log.swap").write_bytes(merged)
    assert "segment-missing" not in judge(partition).ids()


def test_lost_log_beyond_a_swap_and_another_log_is_reported(partition: Path) -> None:
    """The broker was killed before it renamed the cleaned first segment. It deletes the files of merged segments in their order, so those
    after a log that is there were not among them."""
    first, _, third, fourth, *_ = bases(partition)
    (partition / f"{first:020d}.log").rename(partition / f"{first:020d}.log.swap")
    lose(partition, third, log_only=True)
    assert spans(judge(partition), "segment-missing") == [(third, fourth - 1)]


def test_indexes_after_a_swap_of_superseded_records_are_not_a_lost_log(partition: Path) -> None:
    """The second segment was merged into the first one, and none of its records was left."""
    first, second, *_ = bases(partition)
    (partition / f"{first:020d}.log").rename(partition / f"{first:020d}.log.swap")
    lose(partition, second, log_only=True)
    assert spans(judge(partition), "segment-missing") == []


def test_indexes_of_a_new_segment_are_not_a_lost_log(partition: Path) -> None:
    """The indexes are preallocated before the first record, and the directory entry of the log may not be on the disk yet."""
    for suffix in ("index", "timeindex"):
        (partition / f"{60:020d}.{suffix}").write_bytes(bytes(4096))
    assert judge(partition).of("segment-missing") == []


def test_index_below_the_log_start_is_not_a_lost_log(partition: Path) -> None:
    """The records were deleted, and a broker that is killed after it removed the log starts with the next segment."""
    first, second, *_ = bases(partition)
    lose(partition, first, log_only=True)
    entry = CheckpointEntry("orders", 0, second)
    (partition.parent / NAME_BY_ROLE[Role.LOG_START_OFFSETS]).write_bytes(encode_offset_checkpoint([entry]))
    assert judge(partition).ids() & {"segment-missing", "log-start-gap"} == set()


def test_lost_log_is_reported_while_a_broker_runs(partition: Path) -> None:
    """A broker that deletes a segment gives the log the suffix first, and several readings have to agree."""
    first, second, *_ = bases(partition)
    deleted = partition / f"{first:020d}.log"
    deleted.rename(f"{deleted}.deleted")
    lose(partition, second, log_only=True)
    with child(running_broker(partition.parent)) as broker:
        assert broker.output() == "in"
        ((base, _),) = spans(judge(partition), "segment-missing")
    assert base == second


def test_lost_start_is_not_reported_while_a_broker_runs(partition: Path) -> None:
    """It may be deleting these segments: it moves the leader epochs afterwards."""
    lose(partition, bases(partition)[0])
    kinds = {"segment-missing", "log-start-gap"}
    assert len(judge(partition).ids() & kinds) == 1
    with child(running_broker(partition.parent)) as broker:
        assert broker.output() == "in"
        assert judge(partition).ids() & kinds == set()


@pytest.mark.evidence("epochs-below-log")
def test_leader_epochs_below_the_first_segment_are_a_log_start_gap(partition: Path) -> None:
    first, *others, left = bases(partition)[:4]
    for base in (first, *others):
        lose(partition, base)
    verdict = judge(partition)
    assert spans(verdict, "log-start-gap") == [(first, left - 1)]
    assert verdict.of("log-start-gap")[0].severity == "warning"
    # as a broker writes them that has deleted the segments itself
    epochs = (partition / EPOCHS).read_text().splitlines()
    assert epochs[2:] == ["0 0", "1 20", "2 40"] and 20 < left < 40
    (partition / EPOCHS).write_text(f"0\n2\n1 {left}\n2 40\n")
    assert judge(partition).ids("error", "warning") == set()
