"""Copies keep their log start, high watermark, recovery point and first dirty offset, with `--output` of one partition or of all."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.segment.sidecar.checkpoint import decode_offset_checkpoint
from tests.support.command_lines import Capfd, json_run
from tests.support.trees import tree_state, unchanged

FIRST = f"{0:020}"
PARTITIONS = ("fares-0", "metro-none-0", "metro-zstd-0")
FILES = {
    "log-start-offset-checkpoint": {"metro-none-0": 30, "fares-0": 5},
    "recovery-point-offset-checkpoint": {"metro-none-0": 150, "fares-0": 117, "metro-zstd-0": 160},
    "replication-offset-checkpoint": {"metro-none-0": 155, "fares-0": 110, "metro-zstd-0": 160},
    "cleaner-offset-checkpoint": {"metro-zstd-0": 72},
}


@pytest.fixture
def data(capture_small: Path, tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    for name in PARTITIONS:
        shutil.copytree(capture_small / "data" / name, made / name)
    shutil.copy2(capture_small / "data" / "meta.properties", made)
    for name, offsets in FILES.items():
        lines = [f"{partition.rpartition('-')[0]} 0 {offset}" for partition, offset in offsets.items()]
        (made / name).write_text("".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)))
    return made


def carried(output: Path) -> dict[str, dict[str, int]]:
    return {
        name: {
            f"{e.topic}-{e.partition}": e.offset
            for e in decode_offset_checkpoint((output / name).read_bytes())
        }
        for name in FILES
    }


def of(*partitions: str) -> dict[str, dict[str, int]]:
    return {name: {p: at for p, at in offsets.items() if p in partitions} for name, offsets in FILES.items()}


def own_row(rows: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = [row for row in rows if row["type"] == "result" and "log_dir" in row]
    return found


@pytest.mark.evidence("copied-checkpoints")
@pytest.mark.parametrize(
    "words", [["recover"], ["compact", "--cleanup-policy", "compact", "--first-dirty-offset", "0"]]
)
@pytest.mark.parametrize("narrowed", ["path", "topic", "whole"])
def test_copy_has_its_checkpoint_entries(
    data: Path, words: list[str], narrowed: str, tmp_path: Path, capfd: Capfd
) -> None:
    output = tmp_path / "out"
    given: list[str | Path] = {
        "path": [data / "metro-none-0"],
        "topic": ["--topic", "metro-none", data],
        "whole": [data],
    }[narrowed]  # type: ignore[assignment]
    with unchanged(data):
        status, rows = json_run(*words, "--output", output, *given, capfd=capfd)
    assert status == 0, rows
    expected = of(*PARTITIONS) if narrowed == "whole" else of("metro-none-0")
    found = carried(output)
    # compact writes new first dirty offsets
    if words[0] == "compact":
        dirty = "cleaner-offset-checkpoint"
        assert found[dirty] == own_row(rows)["next_dirty_offsets"]
        found.pop(dirty), expected.pop(dirty)
    assert found == expected
    reported = own_row(rows)["checkpoints"]
    assert all(reported.get(name, {}) == offsets for name, offsets in expected.items())
    # the copy has the log start of the original
    for place in (data, output):
        _, (answer, *_) = json_run("lookup", "--earliest", place / "metro-none-0", capfd=capfd)
        assert answer["offset"] == 30


def test_second_copy_keeps_the_checkpoint_entries_of_the_first(
    data: Path, tmp_path: Path, capfd: Capfd
) -> None:
    output = tmp_path / "out"
    for name in ("metro-none-0", "fares-0"):
        assert json_run("recover", "--output", output, data / name, capfd=capfd)[0] == 0
    assert carried(output) == of("metro-none-0", "fares-0")


def test_checkpoint_entries_of_a_copy_match_the_repaired_log(
    data: Path, tmp_path: Path, capfd: Capfd
) -> None:
    log = max((data / "metro-none-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:100])
    _, rows = json_run("recover", "--output", tmp_path / "out", data / "metro-none-0", capfd=capfd)
    end = next(row["log_end_offset"] for row in rows if row["type"] == "result" and "partition" in row)
    assert end < 150
    found = carried(tmp_path / "out")
    assert (
        found["recovery-point-offset-checkpoint"]
        == found["replication-offset-checkpoint"]
        == {"metro-none-0": end}
    )
    assert found["log-start-offset-checkpoint"] == {"metro-none-0": 30}


def test_copy_of_a_segment_has_the_checkpoint_entries_of_its_partition(
    data: Path, tmp_path: Path, capfd: Capfd
) -> None:
    log = data / "metro-none-0" / f"{FIRST}.log"
    assert json_run("recover", "--output", tmp_path / "out", log, capfd=capfd)[0] == 0
    assert carried(tmp_path / "out") == of("metro-none-0")


def test_text_says_how_to_use_the_copied_checkpoints(data: Path, tmp_path: Path, capfd: Capfd) -> None:
    assert run(["recover", "--output", str(tmp_path / "out"), str(data / "metro-none-0")]) == 0
    out = capfd.readouterr().out
    assert f"{tmp_path}/out/log-start-offset-checkpoint: metro-none-0 30" in out
    assert "with the broker stopped" in out and "line 2" in out


def test_copy_from_outside_a_data_directory_has_no_checkpoints(
    data: Path, tmp_path: Path, capfd: Capfd
) -> None:
    alone = tmp_path / "alone" / "metro-none-0"
    shutil.copytree(data / "metro-none-0", alone)
    assert json_run("recover", "--output", tmp_path / "out", alone, capfd=capfd)[0] == 0
    assert [path.name for path in (tmp_path / "out").iterdir() if path.is_dir()] == ["metro-none-0"]
    assert not any((tmp_path / "out" / name).exists() for name in FILES)


@pytest.mark.parametrize(
    "words", [["recover"], ["compact", "--cleanup-policy", "compact", "--first-dirty-offset", "0"]]
)
def test_undo_of_a_copy_reverts_its_checkpoint_entries(
    data: Path, words: list[str], tmp_path: Path, capfd: Capfd
) -> None:
    """Undoing the second of two copies in one directory leaves the checkpoint entries of the first unchanged."""
    output = tmp_path / "out"
    assert json_run(*words, "--output", output, data / "metro-none-0", capfd=capfd)[0] == 0
    first = next(output.glob("kseg-journal-*.jsonl"))
    before = tree_state(output)
    assert json_run(*words, "--output", output, data / "fares-0", capfd=capfd)[0] == 0
    (second,) = set(output.glob("kseg-journal-*.jsonl")) - {first}
    after = tree_state(output)
    # the second copy has rewritten the checkpoints of the first
    assert json_run("undo", first, capfd=capfd)[0] == 4
    assert tree_state(output) == after
    assert json_run("undo", second, capfd=capfd)[0] == 0
    assert tree_state(output) == before
    assert json_run("undo", output, capfd=capfd)[0] == 0
    assert not output.exists()
