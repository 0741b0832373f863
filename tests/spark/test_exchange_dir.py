"""A directory for files that other processes write for a plan: it is created on demand and removed when it is closed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.change.apply.lock import is_claimed
from kseg.segment.errors import Refused
from kseg.spark.shuffle.exchange_dir import ExchangeDir


def names(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def test_exchange_dir_is_created_on_demand_and_removed(tmp_path: Path) -> None:
    place = ExchangeDir(str(tmp_path), "run-1")
    assert not names(tmp_path)
    folder = Path(place.path)
    assert place.path == str(folder) and folder.is_dir() and is_claimed(str(folder))
    (folder / "0-1").write_bytes(b"an attempt that nobody was told of")
    place.close()
    assert not names(tmp_path)
    place.close()


def test_exchange_dir_leaves_journals_beside_it(tmp_path: Path) -> None:
    journal = tmp_path / ".kseg" / "run-0" / "journal.jsonl"
    journal.parent.mkdir(parents=True)
    journal.write_bytes(b"")
    place = ExchangeDir(str(tmp_path), "run-1")
    assert Path(place.path).parent == tmp_path / ".kseg"
    place.close()
    assert journal.exists() and names(tmp_path / ".kseg") == ["run-0", "run-0/journal.jsonl"]


def test_abandoned_exchange_dir_is_removed_and_one_in_use_stays(tmp_path: Path) -> None:
    left = tmp_path / ".kseg" / ".work-killed"
    left.mkdir(parents=True)
    (left / "3-9").write_bytes(b"half")
    at_work, other = ExchangeDir(str(tmp_path), "run-1"), ExchangeDir(str(tmp_path), "run-2")
    (Path(at_work.path) / "0-0").write_bytes(b"made")
    assert Path(other.path).is_dir() and (Path(at_work.path) / "0-0").exists()
    assert not left.exists()
    at_work.close()
    other.close()
    assert not names(tmp_path)


def test_exchange_dir_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Refused, match="cannot write"):
        _ = ExchangeDir(str(tmp_path / "file"), "run-1").path
