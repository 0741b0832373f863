"""The real log loader opens a directory in which retention was killed between two of its steps."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kseg.change.plan.content import Fresh
from kseg.change.plan.steps import Plan, Rename, Write
from kseg.compaction.retention.options import Limits, RetainOptions
from kseg.compaction.retention.retain import prepare
from kseg.segment.partition.targets import PartitionTarget
from tests.kafka.oracle import Oracle
from tests.support.retain_helpers import NOW, Part, bases, lay

pytestmark = pytest.mark.kafka


def plan_of(partition: Path, options: RetainOptions) -> Plan:
    work = prepare(PartitionTarget(str(partition), str(partition.parent)), options)
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value.plan  # type: ignore[no-any-return]


def states(partition: Path, plan: Plan, place: Path) -> list[Path]:
    """A copy of the directory after each number of steps."""
    made = [place / "0" / partition.name]
    shutil.copytree(partition, made[0])
    for number, step in enumerate(plan.steps, 1):
        following = place / str(number) / partition.name
        shutil.copytree(made[-1], following)
        match step:
            case Write():
                data = b"".join(piece.data for piece in step.content if isinstance(piece, Fresh))
                (following / step.name).write_bytes(data)
            case Rename():
                (following / step.name).rename(following / step.new_name)
        made.append(following)
    return made


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        RetainOptions(limits=Limits(retention_ms=1000), now_ms=NOW),
        RetainOptions(limits=Limits(retention_bytes=500), now_ms=NOW),
        RetainOptions(limits=Limits(retention_bytes=500), now_ms=NOW, log_start_offset=7),
    ],
)
def test_every_state_of_a_killed_retention_loads_as_a_complete_log(
    oracle: Oracle, tmp_path: Path, options: RetainOptions, clean: bool
) -> None:
    partition = lay(tmp_path, [Part(3), Part(3, epoch=1), Part(3, epoch=2)])
    found = states(partition, plan_of(partition, options), tmp_path)
    for number, state in enumerate(found):
        left = bases(state)
        answer = oracle.partition(state, clean=clean, now=NOW, config={"segment.index.bytes": 12_000})
        assert answer.loaded["log_end_offset"] == 9, number
        assert answer.loaded["log_start_offset"] == left[0]
        assert [segment["base_offset"] for segment in answer.loaded["segments"]] == left
        assert not list(answer.directory.glob("*.deleted"))
