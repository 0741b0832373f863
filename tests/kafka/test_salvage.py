"""The real UnifiedLog opens the result of salvage, after a clean and after an unclean shutdown: nothing is truncated, and every surviving
record is read at its offset."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from fixtures import healthy
from tests.kafka.oracle import KafkaRaised, Oracle
from tests.recovery.salvage.test_salvage_random import FIRST_SEED
from tests.recovery.salvage.test_salvage_random import inflict as damage
from tests.support.salvage_cases import CASES
from tests.support.salvage_helpers import all_batches, logs, offsets, plan, write_repaired
from tests.support.verify_helpers import NOW_MS

pytestmark = pytest.mark.kafka

RANDOM_DAMAGES = int(os.environ.get("KSEG_SALVAGE_LOADS", "30"))
# A load fails on these, and kseg reports them as errors.
DEADLY = {"non-transactional-in-transaction", "transaction-collision"}


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


@pytest.mark.evidence("batch-invalid", "batch-header")
@pytest.mark.parametrize("name", CASES)
def test_salvaged_partition_is_loaded_without_loss(
    oracle: Oracle, partition: Path, tmp_path: Path, name: str
) -> None:
    inflict = Path(shutil.copytree(partition, tmp_path / "metro-0"))
    CASES[name](inflict)
    repair = plan(inflict)
    result = write_repaired(repair, inflict, tmp_path / "result" / "metro-0")
    for clean in (True, False):
        _loaded(oracle, result, clean, repair.log_end_offset)


_WRITTEN = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def _files(directory: Path) -> dict[str, bytes]:
    return {
        file.name: file.read_bytes()
        for file in directory.iterdir()
        if file.suffix in _WRITTEN or file.name == "leader-epoch-checkpoint"
    }


@pytest.mark.parametrize("name", CASES)
def test_rebuild_writes_the_side_files_of_a_load(
    oracle: Oracle, partition: Path, tmp_path: Path, name: str
) -> None:
    """`rebuild` writes the same side files as a real load that finds only the salvaged logs."""
    inflict = Path(shutil.copytree(partition, tmp_path / "metro-0"))
    CASES[name](inflict)
    result = write_repaired(plan(inflict, rebuild=True), inflict, tmp_path / "result" / "metro-0")
    bare = tmp_path / "bare" / "metro-0"
    bare.mkdir(parents=True)
    for file in (*logs(result), result / "partition.metadata"):
        if file.exists():
            shutil.copy2(file, bare / file.name)
    answer = oracle.partition(bare, clean=False, recovery_point=0, now=NOW_MS)
    assert _files(result) == _files(answer.directory)


def test_batch_that_fails_every_load_is_kept_and_named(oracle: Oracle, tmp_path: Path) -> None:
    """The marker of a transaction is lost, and its producer continues without a transaction."""
    producer = {"producer_id": 7, "producer_epoch": 0}
    batches = [
        oracle.make(
            {
                "base_offset": 0,
                "transactional": True,
                "base_sequence": 0,
                **producer,
                "records": [{"value": b"a"}],
            }
        ),
        oracle.make(
            {
                "base_offset": 1,
                "transactional": True,
                "control": True,
                **producer,
                "records": [{"marker": "COMMIT"}],
            }
        ),
        oracle.make({"base_offset": 2, "base_sequence": 1, **producer, "records": [{"value": b"b"}]}),
        oracle.make({"base_offset": 3, "records": [{"value": b"c"}]}),
    ]
    inflict = tmp_path / "demo-0"
    inflict.mkdir()
    marker = bytearray(batches[1])
    marker[-1] ^= 1
    (inflict / f"{0:020d}.log").write_bytes(batches[0] + marker + batches[2] + batches[3])
    repair = plan(inflict)
    result = write_repaired(repair, inflict, tmp_path / "result" / "demo-0")
    assert all_batches(result) == [batches[0], batches[2], batches[3]]
    (deadly,) = (
        found for found in repair.findings if found.severity == "error" and "transaction" in found.id
    )
    assert (deadly.id, deadly.first_offset) == ("non-transactional-in-transaction", 2)
    assert deadly.position == len(batches[0]) + len(marker)
    assert "transaction-end-lost" in {found.id for found in repair.findings}
    with pytest.raises(KafkaRaised, match="InvalidTxnStateException"):
        oracle.partition(result, clean=False, recovery_point=0, now=NOW_MS)
    _loaded(oracle, result, True, 4)


def test_salvage_of_random_damage_is_loaded_without_loss(
    oracle: Oracle, partition: Path, tmp_path: Path
) -> None:
    """The damage of tests/recovery/salvage/test_salvage_random.py, in every third case to a log of old formats."""
    old = healthy.mixed_partition(tmp_path / "gates.old-0")
    for seed in range(FIRST_SEED, FIRST_SEED + RANDOM_DAMAGES):
        source = old if seed % 3 == 0 else partition
        inflict = Path(shutil.copytree(source, tmp_path / str(seed) / source.name))
        done = damage(inflict, random.Random(seed))
        repair = plan(inflict)
        result = write_repaired(repair, inflict, tmp_path / str(seed) / "result" / source.name)
        try:
            for clean in (True, False):
                _loaded(oracle, result, clean, repair.log_end_offset)
        except (AssertionError, KafkaRaised) as error:
            output = {found.id for found in repair.findings}
            is_reported = isinstance(error, KafkaRaised) and not DEADLY.isdisjoint(output)
            assert is_reported, f"seed {seed}: {done}: {error}"
