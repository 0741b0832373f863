"""Logs of brokers that cannot read message format v2 (or v1): a cleaner of Kafka 4 writes v2 batches to them.

The dump tools of 0.8.2, 0.9.0 and 0.10.2 fail with an exception at a v2 batch. `legacy-small` has directories of such brokers.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kseg.segment import layout as L
from kseg.segment.partition.format_evidence import newest_readable_magic
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import FileTarget, PartitionTarget
from tests.support.append_helpers import written_rows
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of

V0, V1, V2 = L.MAGIC_V0, L.MAGIC_V1, L.MAGIC_V2
KEYED = "comb.none-0"
COMPACT = ["compact", "--cleanup-policy", "compact"]


def magic_of(target: PartitionTarget | FileTarget) -> int:
    with PartitionLog(target) as log:
        return newest_readable_magic(log)


@pytest.mark.parametrize(
    ("state", "magic"),
    [("0.9.0.1/2-compacted", V0), ("0.10.2.2/1-format-0.9.0.1", V0), ("1.1.1/3-format-1.1", V2)],
)
def test_highest_message_format_of_an_old_broker_is_recognized(
    legacy_small: Path, state: str, magic: int
) -> None:
    log_dir = legacy_small / "data" / state
    for path in log_dir.glob("*-0"):
        assert magic_of(PartitionTarget(str(path), str(log_dir))) == magic, path
        assert magic_of(PartitionTarget(str(path))) == magic, path


def test_later_broker_is_recognized_by_its_files(legacy_small: Path, tmp_path: Path) -> None:
    """A partition of 2.x with message.format.version 0.10 may contain no file that reveals the version. The files of a partition of 0.9 may
    come from a repair."""
    log_dir = Path(shutil.copytree(legacy_small / "data/0.9.0.1/2-compacted", tmp_path / "data"))
    directory = log_dir / KEYED
    alone, among_others = PartitionTarget(str(directory)), PartitionTarget(str(directory), str(log_dir))
    traces = {
        log_dir / "log-start-offset-checkpoint": (V0, V2),
        directory / f"{82:020d}.snapshot": (V2, V0),
        directory / "leader-epoch-checkpoint": (V2, V0),
        directory / "partition.metadata": (V2, V2),
    }
    for trace, expected in traces.items():
        trace.touch()
        assert (magic_of(alone), magic_of(among_others)) == expected, trace
        trace.unlink()
    assert (magic_of(alone), magic_of(among_others)) == (V0, V0)


def test_log_without_batches_accepts_any_format(tmp_path: Path) -> None:
    (tmp_path / "new-0").mkdir()
    (tmp_path / "new-0" / f"{0:020d}.log").touch()
    assert magic_of(PartitionTarget(str(tmp_path / "new-0"))) == V2


@pytest.mark.parametrize("place", [["--apply"], ["--output", "out"]])
def test_compact_warns_about_batches_an_old_broker_cannot_read(
    place: list[str], legacy_small: Path, tmp_path: Path, capfd: Capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cleaner of Kafka 4 does the same without a warning, so kseg does it too."""
    monkeypatch.chdir(tmp_path)
    log_dir = Path(shutil.copytree(legacy_small / "data/0.9.0.1/2-compacted", "data"))
    rows = rows_of(capfd, *COMPACT, *place, log_dir / KEYED, status=0)
    assert [row["id"] for row in rows if row["type"] == "finding"] == ["format-too-new"]
    written = (log_dir if "--apply" in place else tmp_path / "out") / KEYED
    assert {row["magic"] for row in written_rows(written) if row["type"] == "batch"} == {V0, V2}


@pytest.mark.parametrize(
    ("state", "magic", "said"),
    [
        ("0.9.0.1/2-compacted", [], ["format-too-new"]),
        ("0.9.0.1/2-compacted", ["--magic", "0"], []),
        ("1.1.1/3-format-1.1", [], []),
    ],
)
@pytest.mark.parametrize("apply", [[], ["--apply"]])
def test_append_warns_about_batches_an_old_broker_cannot_read(
    state: str,
    magic: list[str],
    said: list[str],
    apply: list[str],
    legacy_small: Path,
    tmp_path: Path,
    capfd: Capfd,
) -> None:
    log_dir = Path(shutil.copytree(legacy_small / "data" / state, tmp_path / "data"))
    directory = next(path for path in sorted(log_dir.glob("*-0")) if not path.name.startswith("__"))
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"key":"k","value":"v","timestamp":5}\n')
    rows = rows_of(capfd, "append", *apply, *magic, "--from", lines, directory, status=not apply)
    assert [row["id"] for row in rows if row["type"] == "finding"] == said
