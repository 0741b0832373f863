"""An active segment as a broker creates it when it rolls: since 2.3, its indexes are created on first use (LazyIndex), the offset index
with the first batch. A topic whose records have all expired stays in this state, and 2.8.2 leaves it so even at a clean stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.cli.main import run
from kseg.segment.sidecar.snapshot import encode_snapshot
from tests.support.salvage_helpers import needs_no_repair, plan, write_repaired
from tests.support.verify_helpers import judge

BASE = f"{40:020d}"
PREALLOCATED = bytes(12 * 100)


def rolled(directory: Path, time_index: bytes | None) -> Path:
    """The files of 2.8.2 and of 4.3.1 after retention has deleted the records below offset 40, in a data directory without the
    clean-shutdown marker."""
    directory.mkdir()
    (directory.parent / "meta.properties").write_text("version=0\nbroker.id=1\n")
    (directory / f"{BASE}.log").touch()
    if time_index is not None:
        (directory / f"{BASE}.timeindex").write_bytes(time_index)
    (directory / f"{BASE}.snapshot").write_bytes(encode_snapshot([]))
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 40\n")
    return directory


@pytest.mark.parametrize("level", ["quick", "default", "deep"])
@pytest.mark.parametrize("time_index", [None, b"", PREALLOCATED], ids=["new", "stopped", "running"])
def test_empty_active_segment_needs_no_offset_index(
    tmp_path: Path, time_index: bytes | None, level: str
) -> None:
    assert judge(rolled(tmp_path / "idle-0", time_index), level).ids("error", "warning") == set()


def test_empty_active_segment_after_a_clean_stop_needs_no_repair(tmp_path: Path) -> None:
    partition = rolled(tmp_path / "idle-0", b"")
    assert needs_no_repair(partition, plan(partition))


def test_empty_active_segment_after_a_crash_gets_its_indexes_trimmed(tmp_path: Path) -> None:
    partition = rolled(tmp_path / "idle-0", PREALLOCATED)
    repaired = write_repaired(plan(partition), partition, tmp_path / "repaired")
    assert {file.name: file.stat().st_size for file in repaired.glob(f"{BASE}.*index")} == {
        f"{BASE}.index": 0,
        f"{BASE}.timeindex": 0,
    }


def test_empty_inactive_segment_needs_both_indexes(tmp_path: Path) -> None:
    partition = rolled(tmp_path / "idle-0", None)
    (partition / f"{50:020d}.log").touch()
    (partition / f"{50:020d}.timeindex").touch()
    missing = {("index-missing", f"{BASE}.log"), ("time-index-missing", f"{BASE}.log")}
    assert judge(partition).output("warning") == missing


def test_empty_active_segment_is_no_sign_of_a_crash(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`doctor` said to repair it, `recover` had nothing to repair, and `append` refused it."""
    log_dir = tmp_path / "data"
    log_dir.mkdir()
    partition = rolled(log_dir / "idle-0", b"")
    (log_dir / ".kafka_cleanshutdown").touch()
    assert "false-clean-shutdown" not in judge(log_dir).ids("error", "warning")
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"value": "first"}\n')
    assert run(["append", "--apply", "--from", str(lines), str(partition)]) == 0
    assert (partition / f"{BASE}.index").exists()
    assert judge(partition).ids("error") == set()
    assert run(["undo", str(partition)]) == 0
    assert not (partition / f"{BASE}.index").exists()
