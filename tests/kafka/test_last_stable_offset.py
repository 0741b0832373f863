"""The last stable offset if the log start is within or after the batches of a transaction: `recover` prints, and `compact` is limited by,
the same offset as in the log that the real classes load."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry, encode_snapshot
from tests.internal_topics.coordinator_logs import T0, batch, data_batch, marker, write_segment
from tests.kafka.oracle import Oracle
from tests.support.command_rows import rows_of

pytestmark = pytest.mark.kafka

PID, OTHER = 7, 9
KEYED = [(b"key", b"value"), (b"key", b"newer")]
# by base offset of the segment: an open transaction at 0 and 5, an aborted one at 8 with its marker at 12
SEGMENTS = {
    0: [data_batch(0, PID, 0, count=2), batch(2, *KEYED, KEYED[0])],
    5: [data_batch(5, PID, 0, count=3, sequence=2), data_batch(8, OTHER, 0, count=4)],
    12: [marker(12, OTHER, 0, is_abort=True), batch(13, *KEYED)],
    15: [batch(15, *KEYED)],
}
DECIDED = {
    **SEGMENTS,
    0: [batch(0, *KEYED, *KEYED, KEYED[0])],
    5: [batch(5, *KEYED, KEYED[0]), SEGMENTS[5][1]],
}
END = 17


def _partition(data: Path, log_start: int, segments: dict[int, list[bytes]]) -> Path:
    partition = data / "fares-0"
    for base_offset, batches in segments.items():
        write_segment(partition, *batches, base_offset=base_offset)
    (data / "log-start-offset-checkpoint").write_text(f"0\n1\nfares 0 {log_start}\n")
    (data / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    return partition


def _result(capfd: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    rows = rows_of(capfd, *words, "--now", T0)
    results: list[dict[str, Any]] = [row for row in rows if row["type"] == "result" and row.get("partition")]
    (found,) = results
    return found


@pytest.mark.behaviour("X12")
@pytest.mark.parametrize("policy", ["salvage", "kafka"])
@pytest.mark.parametrize("damaged", [False, True], ids=["sound", "damaged"])
def test_recover_reports_the_last_stable_offset_of_the_real_log(
    policy: str, damaged: bool, tmp_path: Path, oracle: Oracle, capfd: pytest.CaptureFixture[str]
) -> None:
    reported = set()
    for log_start in range(16):
        data = tmp_path / str(log_start)
        partition = _partition(data, log_start, SEGMENTS)
        if damaged:
            log = partition / f"{15:020}.log"
            log.write_bytes(log.read_bytes()[:-3])
        found = _result(capfd, "recover", "--apply", "--policy", policy, str(data))
        loaded = oracle.partition(partition, log_start_offset=log_start, clean=True, now=T0).loaded
        names = ("log_start_offset", "log_end_offset", "last_stable_offset")
        assert [found[name] for name in names] == [loaded[name] for name in names], log_start
        reported.add(found["last_stable_offset"] - log_start)
        # after the repair nothing is left to do
        again = _result(capfd, "recover", "--policy", policy, str(data))
        assert again["last_stable_offset"] == loaded["last_stable_offset"], log_start
        shutil.rmtree(data)
    assert min(reported) < 0


@pytest.mark.behaviour("X10", "X12")
@pytest.mark.parametrize("segments", [SEGMENTS, DECIDED], ids=["open", "decided"])
def test_compaction_ends_at_the_last_stable_offset_of_the_real_cleaner(
    segments: dict[int, list[bytes]], tmp_path: Path, oracle: Oracle, capfd: pytest.CaptureFixture[str]
) -> None:
    bounds = set()
    for log_start in range(0, END, 2):
        partition = _partition(tmp_path / str(log_start), log_start, segments)
        for high_watermark in {log_start, 9, 12, 13, END}:
            if high_watermark < log_start:
                continue
            (theirs,) = oracle.partition(
                partition,
                [{"what": "clean", "only_offsets": True}],
                log_start_offset=log_start,
                high_watermark=high_watermark,
                config={"cleanup.policy": "compact"},
                now=T0,
            ).found
            known = ("--high-watermark", str(high_watermark), "--log-start-offset", str(log_start))
            found = _result(capfd, "compact", "--cleanup-policy", "compact", *known, str(partition))
            # kseg cleans whole segments
            expected = max(base for base in segments if base <= theirs["first_uncleanable_offset"])
            assert found["first_uncleanable_offset"] == expected, (log_start, high_watermark)
            bounds.add(expected)
    assert len(bounds) > 2


@pytest.mark.evidence("producer-snapshot")
@pytest.mark.parametrize("is_ended", [False, True], ids=["open", "ended"])
@pytest.mark.parametrize("firsts", [(2, None), (None, 2), (2, 5), (5, 2), (2, 2)], ids=str)
def test_last_stable_offset_with_a_duplicate_producer_in_a_snapshot(
    firsts: tuple[int | None, int | None],
    is_ended: bool,
    tmp_path: Path,
    oracle: Oracle,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """`transactions` reports the transaction of the earlier entry as open, whatever the later entry and the log say."""
    data = tmp_path / "data"
    end = marker(8, PID, 0) if is_ended else batch(8, *KEYED[:1])
    partition = write_segment(data / "fares-0", batch(0, *KEYED * 4), end).parent
    entries = [ProducerSnapshotEntry(PID, 0, 3, 7, 0, T0, 0, first) for first in firsts]
    (partition / f"{8:020}.snapshot").write_bytes(encode_snapshot(entries))
    (partition / f"{0:020}.index").write_bytes(
        b""
    )  # a segment without an index is recovered, which removes the snapshot
    (data / ".kafka_cleanshutdown").write_text("")
    loaded = oracle.partition(partition, clean=True, recovery_point=9, now=T0).loaded
    rows = rows_of(capfd, "transactions", "--now", T0, data, status=0)
    (found,) = [row for row in rows if row["type"] == "partition"]
    assert found["last_stable_offset"] == loaded["last_stable_offset"]
    verdicts = {row["start_offset"]: row["verdict"] for row in rows if row["type"] == "transaction"}
    is_replaced = firsts[0] is not None and firsts[0] != firsts[1]
    assert [first for first, verdict in verdicts.items() if verdict == "replaced"] == [
        firsts[0]
    ] * is_replaced
    assert (found["held_by_producer_id"] is None) == (found["last_stable_offset"] == found["log_end_offset"])
