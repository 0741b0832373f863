"""Committed transactions that a partition lacks, in the cases that need no log of a real broker (for those see
tests/kafka/test_ids_behind.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.internal_topics.transactions.lost_commits import lost_commits
from kseg.internal_topics.transactions.partition_replay import PartitionReplay
from kseg.internal_topics.transactions.transaction_log import CommittedTransaction, CoordinatorView
from kseg.segment.findings import Finding
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.sidecar.snapshot import encode_snapshot
from tests.internal_topics.coordinator_logs import T0, batch, data_batch, marker, write_segment

PID, OTHER = 7, 8


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A transaction of epoch 0 with its marker, and a record of somebody else. Nothing has been removed from the log."""
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n0\n")
    first = data_batch(0, PID, 0, count=2), marker(2, PID, 1), batch(3, (b"k", b"v"))
    return write_segment(tmp_path / "orders-0", *first).parent


def _found(partition: Path, decided_ms: int = T0, producer_id: int = PID) -> list[Finding]:
    """By a coordinator that has completed a transaction of a later epoch there."""
    commit = CommittedTransaction("till", producer_id, 3, decided_ms)
    view = CoordinatorView(is_settled=True, commits={("orders", 0): [commit]})
    with PartitionLog(PartitionTarget(str(partition), str(partition.parent))) as log:
        replay = PartitionReplay(log)
        for _ in replay.ended():
            pass
        return [*lost_commits(log, replay, view)]


@pytest.mark.parametrize(
    ("decided_ms", "words"),
    [
        (-1, "no timestamp"),
        (2**63 - 1, "9223372036854775807 (not a date)"),
        (-(2**63), "-9223372036854775808 (not a date)"),
    ],
)
def test_time_outside_the_calendar_is_shown_as_a_number(partition: Path, decided_ms: int, words: str) -> None:
    (finding,) = _found(partition, decided_ms)
    assert finding.id == "commit-lost" and f"up to {words} (till, " in finding.message


def _forget(partition: Path) -> None:
    """What a broker writes at a stop when the producer has expired."""
    (partition / f"{4:020d}.snapshot").write_bytes(encode_snapshot([]))


def test_producer_that_the_broker_has_forgotten_is_taken_from_the_log(partition: Path) -> None:
    _forget(partition)
    (finding,) = _found(partition)
    assert "the log ends at 4 with epoch 1 of that producer" in finding.message


def test_nothing_is_concluded_of_a_producer_that_is_nowhere(partition: Path) -> None:
    """The topic may have been created again."""
    assert _found(partition, producer_id=OTHER) == []


HOUR_MS = 3_600_000


def test_producer_that_is_nowhere_in_a_log_older_than_its_commit_has_lost_everything(partition: Path) -> None:
    """Its first transaction there was after the end that the log has now."""
    (finding,) = _found(partition, T0 + HOUR_MS, OTHER)
    assert "the log ends at 4 with nothing of that producer" in finding.message
    assert finding.numbers["lost_transactions"] == 1


@pytest.mark.parametrize("removed", ["retention", "cleaner", "before the log"])
def test_producer_that_is_nowhere_may_have_been_removed_or_have_written_to_a_former_topic(
    removed: str, partition: Path
) -> None:
    if removed == "retention":
        (partition.parent / "log-start-offset-checkpoint").write_text("0\n1\norders 0 2\n")
    elif removed == "cleaner":
        (partition.parent / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 3\n")
    decided_ms = T0 - HOUR_MS if removed == "before the log" else T0 + HOUR_MS
    assert _found(partition, decided_ms, OTHER) == []


def test_nothing_is_concluded_of_a_forgotten_producer_below_what_was_removed(partition: Path) -> None:
    """The cleaner, which may have removed the later marker, has been above the last batch of the producer."""
    _forget(partition)
    (partition.parent / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 3\n")
    assert _found(partition) == []
