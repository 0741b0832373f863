"""What all partitions of a data directory share is read once, and again after a change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kseg.segment.partition import log_dir_state
from kseg.segment.partition.directory import partitions_in
from kseg.segment.partition.log_dir_state import deleted_logs
from kseg.segment.partition.names import PartitionName


def test_deleted_logs_are_listed_once_until_the_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []

    def counted(log_dir: str) -> list[tuple[str, PartitionName]]:
        listed.append(log_dir)
        return partitions_in(log_dir)

    monkeypatch.setattr(log_dir_state, "partitions_in", counted)
    first = tmp_path / f"orders-0.{'a' * 32}-delete"
    for directory in (first, tmp_path / "orders-0", tmp_path / "orders-1"):
        directory.mkdir()
    for _ in range(3):
        assert deleted_logs(str(tmp_path)) == {"orders-0": [str(first)]}
    assert listed == [str(tmp_path)]

    second = (tmp_path / "orders-1").rename(tmp_path / f"orders-1.{'b' * 32}-delete")
    os.utime(tmp_path, ns=(1, 1))  # the clock of a file system may not have ticked
    assert deleted_logs(str(tmp_path)) == {"orders-0": [str(first)], "orders-1": [str(second)]}
    assert listed == [str(tmp_path)] * 2
