"""One log from three copies, each damaged in another place, combined as docs/usage.md describes it: `diff` says what each copy lacks,
`dump` reads the rest, and `append` writes it. A real broker serves the result, and its consumers receive what they received before the
damage."""

from __future__ import annotations

import os
import shutil
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.kafka.conftest import require_kafka
from tests.support.command_rows import rows_of

pytestmark = pytest.mark.kafka

PLAIN, LEDGER = "plain", "ledger"
COPIES = ("a", "b", "c")


def produce(broker: Broker) -> None:
    """An idempotent producer with compressed batches of eight, and transactions of which every third is aborted."""
    for topic in (PLAIN, LEDGER):
        broker.create_topic(topic, segment_ms="9223372036854775807")
    producer = broker.producer(enable_idempotence=True, compression_type="lz4")
    for number in range(800):
        value = os.urandom(60) if number % 5 else None
        producer.produce(PLAIN, value, b"key %d" % number, 0, headers=[("n", b"%d" % number)])
        if number % 8 == 7:
            producer.flush(CLIENT_LIMIT_S)
    producer = broker.producer(transactional_id="ledger", linger_ms=5)
    producer.init_transactions(CLIENT_LIMIT_S)
    for turn in range(120):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(LEDGER, os.urandom(90), b"%d.%d" % (turn, number), 0)
        producer.flush(CLIENT_LIMIT_S)
        if turn % 3:
            producer.commit_transaction(CLIENT_LIMIT_S)
        else:
            producer.abort_transaction(CLIENT_LIMIT_S)


def damage(copies: Path, topic: str) -> None:
    """Damage the copies. Each batch stays complete in at least one of them, one batch only in the last copy."""
    logs = [sorted((copies / name / f"{topic}-0").glob("*.log")) for name in COPIES]
    assert {len(found) for found in logs} == {len(logs[0])} and len(logs[0]) > 6
    a, b, c = logs
    for log, position in ((a[1], 500), (a[3], 900), (b[3], 900), (c[4], 700)):
        data = bytearray(log.read_bytes())
        data[position] ^= 16
        log.write_bytes(data)
    # a follower that lagged
    os.truncate(a[-2], a[-2].stat().st_size // 2)
    a[-1].unlink()
    b[2].unlink()
    for path in (*b[0].parent.glob("*.index"), c[0], c[0].with_suffix(".index")):
        path.unlink()


def lacking(copies: Path, place: str, capfd: pytest.CaptureFixture[str]) -> tuple[dict[str, list[Any]], int]:
    """The offsets that each copy lacks, according to `diff` of each pair, and the end of the longest copy."""
    found: dict[str, list[Any]] = {name: [] for name in COPIES}
    ends: dict[str, int] = {}
    for first, second in permutations(COPIES, 2):
        rows = rows_of(capfd, "diff", copies / first / place, copies / second / place, status=1)
        (row,) = [row for row in rows if row["type"] == "comparison"]
        assert row["differs_at"] is None
        for name, side in ((first, row["a"]), (second, row["b"])):
            found[name] += [*side["damaged"], *side["missing"], *side["cleaned"]]
            found[name] += [[0, side["log_start_offset"] - 1]]
            ends[name] = side["log_end_offset"]
    end = max(ends.values())
    for name, ranges in found.items():
        ranges.append([ends[name], end - 1])
    return found, end


def pieces(found: dict[str, list[Any]], end: int) -> list[tuple[str, int, int]]:
    """The pieces to take, as (copy, from offset, below offset), each from the first copy that has it."""
    cuts = {
        0,
        end,
        *(edge for ranges in found.values() for first, last in ranges for edge in (first, last + 1)),
    }
    chosen: list[tuple[str, int, int]] = []
    for start, stop in pairwise(sorted(each for each in cuts if each <= end)):
        name = next(
            name
            for name in COPIES
            if not any(first <= start and stop <= last + 1 for first, last in found[name])
        )
        if chosen and chosen[-1][0] == name:
            start = chosen.pop()[1]
        chosen.append((name, start, stop))
    return chosen


def put_together(copies: Path, place: str, capfd: pytest.CaptureFixture[str]) -> Path:
    chosen = pieces(*lacking(copies, place, capfd))
    assert {name for name, _, _ in chosen} == {*COPIES}
    lines = ""
    for name, start, stop in chosen:
        capfd.readouterr()
        words = ["--from-offset", str(start), "--to-offset", str(stop), str(copies / name / place)]
        assert run(["dump", "--json", "--print-data-log", *words]) in (0, 1)
        lines += capfd.readouterr().out
    rescued = copies / "rescued" / place
    rescued.parent.mkdir(exist_ok=True)
    (copies / "lines.jsonl").write_text(lines)
    words = ["--from", str(copies / "lines.jsonl"), "--apply", str(rescued)]
    assert run(["append", "--quiet", *words]) == 0
    shutil.copy2(copies / "a" / place / "partition.metadata", rescued)
    return rescued


def test_broker_serves_a_log_combined_from_three_copies(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    broker = Broker(tmp_path / "broker")
    with broker:
        produce(broker)
        before = {
            (topic, kind): broker.consume(topic, committed=kind)
            for topic in (PLAIN, LEDGER)
            for kind in (False, True)
        }
        broker.stop()
        for name in COPIES:
            shutil.copytree(broker.data, tmp_path / name)
        for topic in (PLAIN, LEDGER):
            damage(tmp_path, topic)
            whole = broker.data / f"{topic}-0"
            rescued = put_together(tmp_path, whole.name, capfd)
            assert run(["verify", "--quiet", str(rescued)]) == 0
            assert run(["diff", "--quiet", str(whole), str(rescued)]) == 0
            with (
                PartitionLog(PartitionTarget(str(whole))) as ours,
                PartitionLog(PartitionTarget(str(rescued))) as theirs,
            ):
                assert ours.end_offset == theirs.end_offset
            shutil.rmtree(whole)
            shutil.copytree(rescued, whole, ignore=shutil.ignore_patterns(".kseg"))
        broker.start()
        for (topic, kind), records in before.items():
            assert broker.consume(topic, committed=kind) == records
        assert "-stray" not in broker.log_text()
