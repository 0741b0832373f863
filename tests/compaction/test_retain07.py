"""Retention of Kafka 0.7 logs: by modification time, then by size (0.7.2: LogManager, Log.markDeletedWhile)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kseg.compaction.retention.options import Limits, RetentionPolicy
from tests.support.retain_helpers import DAY_MS, give_mtime, run
from tests.support.trees import unchanged


@pytest.fixture
def taps(ancient_small: Path, tmp_path: Path) -> Path:
    """Eight files of a real 0.7 log. The last one was written now, each other one a day before its successor."""
    partition = tmp_path / "data" / "taps-0"
    shutil.copytree(ancient_small / "taps-0", partition)
    for age, path in enumerate(reversed(files(partition))):
        give_mtime(path, age * DAY_MS)
    return partition


def files(partition: Path) -> list[Path]:
    return sorted(partition.glob("*.kafka"))


def test_retention_of_0_7_by_age(taps: Path) -> None:
    numbers = [int(path.stem) for path in files(taps)]
    with unchanged(taps):
        output = run(taps, Limits(retention_ms=3 * DAY_MS))
    assert output.result["deleted"] == numbers[:4]
    assert output.segments[4]["held_by"]["kind"] == "file-time"
    run(taps, Limits(retention_ms=3 * DAY_MS), apply=True)
    assert [int(path.stem) for path in files(taps)] == numbers[4:]
    assert [path.name for path in sorted(taps.glob("*.deleted"))] == [
        f"{n:020}.kafka.deleted" for n in numbers[:4]
    ]


def test_younger_0_7_file_protects_the_older_ones_after_it(taps: Path) -> None:
    give_mtime(files(taps)[2], 0)
    output = run(taps, Limits(retention_ms=3 * DAY_MS))
    assert [rule for _, _, rule in output.verdicts[:4]] == ["retention.ms"] * 3 + ["order"]
    assert len(output.result["deleted"]) == 2


def test_retention_of_0_7_by_size_after_age(taps: Path) -> None:
    sizes = [path.stat().st_size for path in files(taps)]
    last_three = sum(sizes[-3:])
    assert len(run(taps, Limits(retention_bytes=last_three)).result["deleted"]) == 5
    assert len(run(taps, Limits(retention_bytes=last_three + 1)).result["deleted"]) == 4
    output = run(taps, Limits(retention_ms=6 * DAY_MS, retention_bytes=last_three))
    assert [rule for _, verdict, rule in output.verdicts if verdict == "delete"] == [
        "retention.ms",
        *["retention.bytes"] * 4,
    ]


def test_deleting_all_0_7_files_leaves_an_empty_one_at_the_end(taps: Path) -> None:
    end = int(files(taps)[-1].stem) + files(taps)[-1].stat().st_size
    output = run(taps, Limits(retention_bytes=0), apply=True)
    assert output.result["rolled"] is True and output.result["log_end_offset"] == end
    (left,) = files(taps)
    assert (left.name, left.stat().st_size) == (f"{end:020}.kafka", 0)
    with unchanged(taps):
        assert run(taps, Limits(retention_bytes=0, retention_ms=0), apply=True).result["deleted"] == []


def test_retention_of_0_7_ignores_policies_and_high_watermarks(taps: Path) -> None:
    limits = Limits(retention_bytes=0, policies=frozenset((RetentionPolicy.COMPACT,)))
    assert len(run(taps, limits).result["deleted"]) == 8
    (failure,) = run(taps, high_watermark=5).failures
    assert failure.exit_status == 2


def test_unmark_restores_adjacent_0_7_files_only(taps: Path) -> None:
    before = {path.name: path.read_bytes() for path in files(taps)}
    run(taps, Limits(retention_ms=3 * DAY_MS), apply=True)
    (taps / f"{3013:020}.kafka.deleted").unlink()
    output = run(taps, unmark=True, apply=True)
    assert output.result["unmarked"] == [6393, 9453]
    assert {path.name: path.read_bytes() for path in files(taps)} == {
        name: data for name, data in before.items() if int(name[:20]) >= 6393
    }
