"""The state that a broker leaves after it has loaded a log with a log start within a segment: it forgets the producers of the batches
below, and if all records were deleted also the leader epoch. tests/kafka/test_verify.py shows that a real 4.3.1 leaves such states."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fixtures.diseases import batch_spans
from kseg.cli.main import run
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry, decode_snapshot, encode_snapshot
from tests.support.command_rows import rows_of
from tests.support.compact_helpers import Topic, clean

LOG, SNAPSHOT = f"{0:020d}.log", f"{6:020d}.snapshot"
NOW_MS = 1_700_000_000_000
EMPTY = encode_snapshot(())


@pytest.fixture
def partition(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Path:
    """Offsets 0 to 2 of producer 7 and 3 to 5 of producer 8, with all side files."""
    directory = tmp_path / "data" / "orders-0"
    directory.mkdir(parents=True)
    batches = [
        NewBatch(
            base_offset=3 * number,
            producer_id=7 + number,
            producer_epoch=0,
            base_sequence=0,
            leader_epoch=2,
            records=tuple(Record(3 * number + each, NOW_MS, b"key", b"value", ()) for each in range(3)),
        )
        for number in (0, 1)
    ]
    (directory / LOG).write_bytes(b"".join(map(encode_batch, batches)))
    assert run(["recover", "--apply", str(directory)]) == 0
    (directory.parent / ".kafka_cleanshutdown").touch()
    capfd.readouterr()
    return directory


def found(partition: Path, log_start: int, capfd: pytest.CaptureFixture[str]) -> list[str]:
    (partition.parent / "log-start-offset-checkpoint").write_text(f"0\n1\norders 0 {log_start}\n")
    rows = rows_of(capfd, "verify", partition)
    return [row["id"] for row in rows if row["type"] == "finding" and row["severity"] != "info"]


def _entries(partition: Path) -> tuple[ProducerSnapshotEntry, ...]:
    return decode_snapshot((partition / SNAPSHOT).read_bytes())


@pytest.mark.parametrize(
    ("log_start", "kept", "is_sound"),
    [(0, (7, 8), True), (0, (8,), False), (2, (8,), False), (3, (8,), True), (3, (), False), (6, (), True)],
)
def test_producers_below_the_log_start_may_be_forgotten(
    partition: Path, log_start: int, kept: tuple[int, ...], is_sound: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    entries = _entries(partition)
    assert {entry.producer_id for entry in entries} == {7, 8}
    (partition / SNAPSHOT).write_bytes(
        encode_snapshot(tuple(each for each in entries if each.producer_id in kept))
    )
    # recent enough that no producer has expired
    os.utime(partition / SNAPSHOT, (NOW_MS / 1000, NOW_MS / 1000))
    assert found(partition, log_start, capfd) == ([] if is_sound else ["snapshot-mismatch"])


@pytest.mark.parametrize(("log_start", "is_sound"), [(0, False), (5, False), (6, True)])
def test_a_log_without_records_may_have_no_leader_epoch(
    partition: Path, log_start: int, is_sound: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    (partition / "leader-epoch-checkpoint").write_text("0\n0\n")
    assert found(partition, log_start, capfd) == ([] if is_sound else ["leader-epoch-file-empty"])


@pytest.mark.evidence("epochs-empty")
def test_load_of_an_emptied_unflushed_log_leaves_no_damage(
    partition: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A broker that is killed right after DeleteRecords up to the log end has moved the epoch's entry to the log end, and has not yet
    written the log start (tests/kafka/test_deleted_to_the_end.py)."""
    (partition.parent / ".kafka_cleanshutdown").unlink()
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n2 6\n")
    assert run(["recover", "--policy", "kafka", "--apply", str(partition)]) == 0
    assert "still not sound" not in capfd.readouterr().out
    assert (partition / "leader-epoch-checkpoint").read_text() == "0\n0\n"
    assert run(["verify", str(partition)]) == 0
    assert "1 warning" in capfd.readouterr().out
    assert run(["recover", "--apply", str(partition)]) == 0
    assert (partition / "leader-epoch-checkpoint").read_text() == "0\n1\n2 0\n"


def _half_deleted(root: Path, has_data: bool) -> Path:
    """Retention has deleted the records of an aborted transaction, all of them or only those in the first segment. Its marker still
    exists."""
    topic = Topic(root)
    topic.send(("a", 1), producer=7, transactional=True)
    topic.roll()
    if has_data:
        topic.send(("b", 1), producer=7, transactional=True)
    topic.send(("a", 2))
    topic.end(7, abort=True)
    topic.send(("a", 3))
    topic.roll()
    topic.send(("c", 4))
    directory = topic.close()
    for path in directory.glob(f"{0:020d}.*"):
        path.unlink()
    return directory


def test_transaction_index_entry_of_deleted_records_may_be_missing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = _half_deleted(tmp_path, has_data=False)
    index = directory / f"{1:020d}.txnindex"
    assert index.exists()
    clean(directory)
    assert not index.exists()
    assert run(["verify", str(directory)]) == 0


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_transaction_index_entry_of_existing_records_must_exist(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], is_cleaned: bool
) -> None:
    """This holds whether the segment was cleaned or not: consumers read the records and need to know that they are aborted."""
    directory = _half_deleted(tmp_path, has_data=True)
    if is_cleaned:
        log = directory / f"{1:020d}.log"
        (first, _), (second, size), *_ = batch_spans(log)
        content = log.read_bytes()
        # the removed record leaves a gap, as a superseded one does
        log.write_bytes(content[first:second] + content[second + size :])
    (directory / f"{1:020d}.txnindex").unlink()
    run(["verify", "--json", str(directory)])
    kinds = [json.loads(line).get("id") for line in capfd.readouterr().out.splitlines()]
    assert "txn-index-missing-entry" in kinds
