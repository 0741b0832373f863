"""A partition as a log: segments are opened lazily, where the log starts and ends, and what counts as read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import diseases, healthy, side_diseases
from kseg.segment.partition.derived_state import aborted_transactions, epoch_history
from kseg.segment.partition.names import Role
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import FileTarget, PartitionTarget
from kseg.segment.sidecar.checkpoint import CheckpointEntry, encode_offset_checkpoint
from kseg.segment.sidecar.txn_index import AbortedTxn, encode_txn_index
from tests.support.run_commands import ask, fetch, listed
from tests.support.trees import unchanged


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return healthy.partition(tmp_path_factory.mktemp("whole") / "metro-0")


def end_of(directory: Path) -> tuple[int, list[str]]:
    with unchanged(directory), PartitionLog(PartitionTarget(str(directory))) as log:
        return log.end_offset, [finding.id for finding in log.findings]


def true_end(directory: Path) -> int:
    return max(int(file.stem) for file in directory.glob("*.snapshot"))


def test_segments_are_listed_by_name_and_opened_on_demand(whole: Path) -> None:
    bases = sorted(int(path.stem) for path in whole.glob("*.log"))
    with unchanged(whole), PartitionLog(PartitionTarget(str(whole))) as log:
        assert [segment.base_offset for segment in log.segments] == bases
        assert [segment.next_base_offset for segment in log.segments] == [*bases[1:], None]
        assert (log.bytes_read, log.path) == (0, [])
        assert [log.floor_index(offset) for offset in (-1, 0, bases[1] - 1, bases[1], 10**12)] == [
            -1, 0, 0, 1, len(bases) - 1,
        ]  # fmt: skip
        assert log.end_offset == true_end(whole)
        opened = [step["file"] for step in log.path if step["step"] == "open"]
        assert opened == [log.segments[-1].path]
        assert 0 < log.bytes_read < sum(path.stat().st_size for path in whole.glob("*.log")) // 2


def test_only_live_files_of_the_partition_are_its_segments(whole: Path, tmp_path: Path) -> None:
    copy = diseases.copy_of(whole, tmp_path / "metro-0")
    log = sorted(copy.glob("*.log"))[1]
    side_diseases.leftover_deleted(log)
    side_diseases.leftover_cleaned(log)
    side_diseases.orphan_index(log)
    assert end_of(copy) == (true_end(whole), [])
    deleted = next(copy.glob("*.log.deleted"))
    with PartitionLog(FileTarget(str(deleted))) as one:
        assert [segment.path for segment in one.segments] == [str(deleted)]
        assert one.end_offset > one.start_offset == int(log.stem)


@pytest.mark.parametrize("length", [1, 8, 100, 10_485_760])
def test_zero_tail_of_an_index_has_no_entries(length: int, whole: Path, tmp_path: Path) -> None:
    copy = diseases.copy_of(whole, tmp_path / "metro-0")
    for suffix in (".index", ".timeindex"):
        file = max(copy.glob("*.log")).with_suffix(suffix)
        file.write_bytes(file.read_bytes() + bytes(length // 8 * 8))
    assert end_of(copy) == (true_end(whole), [])


def last_crc_wrong(log: Path) -> diseases.InflictedDamage:
    return diseases.bad_crc(log, len(diseases.batch_spans(log)) - 1)


def test_log_end_after_damage(whole: Path, tmp_path: Path) -> None:
    """A torn batch is not part of the log, nor are zeros after it. An intact batch after damage is."""
    log = max(whole.glob("*.log"))
    last_first = int.from_bytes(log.read_bytes()[diseases.batch_spans(log)[-1][0] :][:8])
    cases: tuple[tuple[Callable[[Path], diseases.InflictedDamage], str, int], ...] = (
        (diseases.torn_tail, "torn-tail", last_first),
        (diseases.zero_tail, "zero-tail", true_end(whole)),
        (last_crc_wrong, "bad-crc", last_first),
    )
    for number, (damage, kind, end) in enumerate(cases):
        copy = diseases.copy_of(whole, tmp_path / f"{number}" / "metro-0")
        damage(max(copy.glob("*.log")))
        assert end_of(copy) == (end, [kind])


def test_log_start_and_high_watermark_come_from_the_checkpoints(whole: Path) -> None:
    place = whole.parent
    for name, offset in (("log-start-offset-checkpoint", 9), ("replication-offset-checkpoint", 11)):
        entries = [CheckpointEntry("metro", 0, offset), CheckpointEntry("metro", 1, 3)]
        (place / name).write_bytes(encode_offset_checkpoint(entries))
    with PartitionLog(PartitionTarget(str(whole), str(place))) as log:
        assert (log.start_offset, log.high_watermark) == (9, 11)
    with PartitionLog(PartitionTarget(str(whole), str(place)), log_start_offset=4) as log:
        assert log.start_offset == 4
    (place / "log-start-offset-checkpoint").write_bytes(b"rubbish\n")
    with PartitionLog(PartitionTarget(str(whole), str(place))) as log:
        assert (log.start_offset, [finding.id for finding in log.findings]) == (0, ["checkpoint-corrupt"])
    with PartitionLog(PartitionTarget(str(whole))) as log:
        assert (log.start_offset, log.high_watermark) == (0, log.end_offset)


def test_epochs_from_the_batches_equal_those_of_the_checkpoint(whole: Path, tmp_path: Path) -> None:
    copy = diseases.copy_of(whole, tmp_path / "metro-0")
    with PartitionLog(PartitionTarget(str(copy))) as log:
        written = epoch_history(log).entries
        assert log.findings == []
    (copy / "leader-epoch-checkpoint").unlink()
    with PartitionLog(PartitionTarget(str(copy))) as log:
        assert epoch_history(log).entries == written
        assert [finding.id for finding in log.findings] == ["leader-epoch-file-missing"]


@pytest.mark.behaviour("X08", "X09")
def test_aborted_transactions_are_collected_across_segments(whole: Path, tmp_path: Path) -> None:
    """TransactionIndexTest.testCollectAbortedTransactions: four entries, in this test in two segments."""
    copy = diseases.copy_of(whole, tmp_path / "metro-0")
    for file in copy.glob("*.txnindex"):
        file.unlink()
    first, second = sorted(copy.glob("*.log"))[:2]
    entries = [
        AbortedTxn(0, 0, 0, 10, 11), AbortedTxn(0, 1, 5, 15, 13), AbortedTxn(0, 2, 18, 35, 25), AbortedTxn(0, 3, 32, 50, 40),
    ]  # fmt: skip
    first.with_suffix(".txnindex").write_bytes(encode_txn_index(entries[:2]))
    second.with_suffix(".txnindex").write_bytes(encode_txn_index(entries[2:]))
    asked = [(0, 100), (0, 32), (0, 35), (10, 35), (11, 35), (20, 41)]
    with PartitionLog(PartitionTarget(str(copy))) as log:
        found = [[txn.producer_id for txn in aborted_transactions(log, *bounds)] for bounds in asked]
    assert found == [[0, 1, 2, 3], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3], [1, 2, 3], [2, 3]]


def test_missing_side_file_is_none(whole: Path) -> None:
    with PartitionLog(PartitionTarget(str(whole))) as log:
        assert log.read_side_file(Role.QUORUM_STATE) is None
        assert log.side_file_path(Role.QUORUM_STATE) == str(whole / "quorum-state")


QUESTIONS: tuple[dict[str, Any], ...] = (
    {"kind": "offset", "offset": 120},
    {"kind": "offset", "offset": 10**9},
    {"kind": "timestamp", "timestamp_ms": healthy.T0 + 100_000},
    {"kind": "max-timestamp"},
    {"kind": "earliest"},
    {"kind": "latest", "read_committed": True},
    {"kind": "leader-epoch", "leader_epoch": 2},
    {"kind": "key", "key": b"key-3"},
    {"kind": "key", "key": b"key-3", "every_version": True, "read_committed": True},
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_garbage_in_any_file_gives_an_answer_or_a_reason(
    data: st.DataObject, whole: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """After garbage in any one file, every command answers or reports why it cannot."""
    copy = diseases.copy_of(whole, tmp_path_factory.mktemp("rubbish") / "metro-0")
    file = data.draw(st.sampled_from(sorted(path for path in copy.iterdir())))
    content = bytearray(file.read_bytes())
    if content:
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=40))
    file.write_bytes(content)
    with unchanged(copy):
        for question in QUESTIONS:
            result = ask(copy, **question)
            assert result.rows or result.failures
        assert fetch(copy, 120, 700).rows
        assert listed(PartitionTarget(str(copy))).of_type("partition")
    shutil.rmtree(copy)
