"""What salvage leaves is opened by the real UnifiedLog, after a clean stop and after none: nothing is cut off, and every
record that survived is read at its offset."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from fixtures import healthy
from tests.kafka.oracle import KafkaRaised, Oracle
from tests.recovery.judging import NOW_MS
from tests.recovery.salvage_cases import CASES
from tests.recovery.salvaging import all_batches, lay_down, logs, offsets, plan

pytestmark = pytest.mark.kafka

# What no load survives, and salvage says so: a header under a right checksum that contradicts itself is no such thing.
DEADLY = frozenset[str]()


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return healthy.partition(tmp_path_factory.mktemp("healthy") / "metro-0")


def _loaded(oracle: Oracle, result: Path, clean: bool, log_end_offset: int) -> None:
    found = {log.name: log.read_bytes() for log in logs(result)}
    batches = all_batches(result)
    wanted = [offsets(batch) for batch in batches]
    steps: list[dict[str, Any]] = [
        {"what": "read", "offset": first, "max_bytes": 1, "isolation": "LOG_END"} for first, _ in wanted
    ]
    answer = oracle.partition(result, steps, clean=clean, recovery_point=0, now=NOW_MS)
    assert answer.loaded["log_end_offset"] == log_end_offset
    assert {log.name: log.read_bytes() for log in logs(answer.directory)} == found
    for batch, line in zip(batches, answer.found, strict=True):
        assert line.get("exception") is None, line
        assert line["data"] == batch


@pytest.mark.parametrize("name", CASES)
def test_a_salvaged_partition_is_loaded_whole(
    oracle: Oracle, partition: Path, tmp_path: Path, name: str
) -> None:
    hurt = Path(shutil.copytree(partition, tmp_path / "metro-0"))
    CASES[name](hurt)
    repair = plan(hurt)
    result = lay_down(repair, hurt, tmp_path / "result" / "metro-0")
    for clean in (True, False):
        try:
            _loaded(oracle, result, clean, repair.log_end_offset)
        except KafkaRaised as raised:
            assert name in DEADLY, raised


_WRITTEN = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def _files(directory: Path) -> dict[str, bytes]:
    return {
        file.name: file.read_bytes()
        for file in directory.iterdir()
        if file.suffix in _WRITTEN or file.name == "leader-epoch-checkpoint"
    }


@pytest.mark.parametrize("name", CASES)
def test_rebuilt_side_files_are_those_of_a_load(
    oracle: Oracle, partition: Path, tmp_path: Path, name: str
) -> None:
    """`rebuild` writes what the real load writes that finds nothing but the salvaged logs."""
    hurt = Path(shutil.copytree(partition, tmp_path / "metro-0"))
    CASES[name](hurt)
    result = lay_down(plan(hurt, rebuild=True), hurt, tmp_path / "result" / "metro-0")
    bare = tmp_path / "bare" / "metro-0"
    bare.mkdir(parents=True)
    for file in (*logs(result), result / "partition.metadata"):
        if file.exists():
            shutil.copy2(file, bare / file.name)
    answer = oracle.partition(bare, clean=False, recovery_point=0, now=NOW_MS)
    assert _files(result) == _files(answer.directory)
