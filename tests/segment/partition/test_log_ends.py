"""The fast path for the end of a log gives the general result or none."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from kseg.segment.partition.log_ends import quick_end
from kseg.segment.partition.names import Role
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from tests.support.broker_dirs import broker_dir

DAMAGES = int(os.environ.get("KSEG_LISTINGS", "150"))
FIRST_SEED = int(os.environ.get("KSEG_LISTINGS_SEED", "0"))


def answers(directory: Path) -> bool:
    """Whether the fast path finds an end. If so, it must be the general one, without findings."""
    with PartitionLog(PartitionTarget(str(directory))) as log:
        last = log.segments[-1]
        index_path = last.paths.get(Role.OFFSET_INDEX, str(directory / "none.index"))
        quick = quick_end(last.path, index_path, last.base_offset)
        if quick is None:
            return False
        assert quick == log.end_offset
        assert not log.findings
        assert not log.unwritten_bytes
    return True


@pytest.mark.parametrize("running", [True, False])
def test_fast_log_end_of_undamaged_partitions_equals_the_general_one(tmp_path: Path, running: bool) -> None:
    data = broker_dir(tmp_path / "data", 2, 3, running=running)
    assert all(answers(path) for path in data.glob("orders.*"))


def test_fast_log_end_of_preallocated_and_empty_logs(tmp_path: Path) -> None:
    partition = broker_dir(tmp_path / "data", 1, 1) / "orders.00-0"
    log = max(partition.glob("*.log"))
    os.truncate(log, 1 << 20)
    assert not answers(partition)
    os.truncate(log, 0)
    assert answers(partition)


@pytest.mark.slow
def test_fast_log_end_of_damaged_logs_is_right_or_none(tmp_path: Path) -> None:
    sound = broker_dir(tmp_path / "sound", 1, 1) / "orders.00-0"
    stem = max(sound.glob("*.log")).stem
    answered = 0
    for seed in range(FIRST_SEED, FIRST_SEED + DAMAGES):
        lots = random.Random(seed)
        copy = Path(shutil.copytree(sound, tmp_path / str(seed) / "orders.00-0"))
        file = copy / f"{stem}{lots.choice(('.log', '.index'))}"
        data = bytearray(file.read_bytes())
        match lots.choice(("flip", "cut", "zeros")):
            case "flip":
                data[lots.randrange(len(data))] ^= 1 << lots.randrange(8)
            case "cut":
                del data[lots.randrange(len(data)) :]
            case _:
                data += bytes(lots.randrange(1, 100))
        file.write_bytes(data)
        answered += answers(copy)
        shutil.rmtree(copy.parent)
    assert DAMAGES / 10 < answered < DAMAGES
