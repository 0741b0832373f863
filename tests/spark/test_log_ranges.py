"""A log dumped in parts gives the same output as by one task. No cluster is needed, because the tasks run in this process."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures import diseases
from kseg.change.append.partition_writer import PartitionWriter
from kseg.inspection.dump.dump import Dump
from kseg.inspection.dump.options import DumpOptions
from kseg.jobs import fanout as local
from kseg.jobs.events import Text
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.targets import FileTarget
from kseg.spark import cluster_fanout, scheduling
from kseg.spark.options import ClusterOptions
from tests.support.fake_spark import Pretended
from tests.support.recording_work import shown

CLUSTER = ClusterOptions()


@pytest.fixture(autouse=True)
def context(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    pretended = Pretended()
    monkeypatch.setattr(cluster_fanout, "ready", lambda _cluster, _say: pretended)
    monkeypatch.setattr(scheduling, "PIECE_BYTES", 100_000)
    return pretended


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("large") / "orders-0"
    with PartitionWriter(directory) as writer:
        for first in range(0, 3000, 10):
            records = tuple(Record(n, 1000 + n, b"k%d" % n, bytes(500)) for n in range(first, first + 10))
            writer.append(NewBatch(records=records))
    return directory


@pytest.mark.parametrize("shape", ["kafka", "json", "table"])
@pytest.mark.parametrize("deep", [True, False])
def test_pieces_of_a_log_give_the_dump_of_one_task(
    large: Path, shape: str, deep: bool, context: Pretended
) -> None:
    (log,) = large.glob("*.log")
    targets, options = [FileTarget(str(log))], DumpOptions(format=shape, print_data_log=deep)
    assert (
        len(
            [
                unit
                for group in scheduling.plan(Dump(), scheduling.weigh(targets), options, 2)
                for unit in group
            ]
        )
        > 10
    )
    assert shown(cluster_fanout.run(Dump(), targets, options, CLUSTER)) == shown(
        local.run(Dump(), targets, options)
    )


@pytest.mark.slow
@pytest.mark.parametrize("disease", diseases.LOG_DISEASES, ids=lambda disease: disease.__name__)
def test_pieces_of_a_damaged_log_give_the_dump_of_one_task(
    large: Path, tmp_path: Path, disease: Callable[[Path], diseases.InflictedDamage]
) -> None:
    shutil.copytree(large, tmp_path / "orders-0")
    (log,) = (tmp_path / "orders-0").glob("*.log")
    disease(log)
    targets = [FileTarget(str(path)) for path in sorted(log.parent.iterdir())]
    for shape in ("kafka", "json"):
        options = DumpOptions(format=shape, print_data_log=True)
        events = shown(cluster_fanout.run(Dump(), targets, options, CLUSTER))
        alone = shown(local.run(Dump(), targets, options))
        # in this format, findings are separate from the text, on stderr
        if shape == "kafka":
            events, alone = (
                sorted(each, key=lambda event: isinstance(event, Text)) for each in (events, alone)
            )
            events, alone = shown(events), shown(alone)
        assert events == alone


def test_wrong_index_does_not_change_the_dump_of_pieces(large: Path, tmp_path: Path) -> None:
    shutil.copytree(large, tmp_path / "orders-0")
    (log,) = (tmp_path / "orders-0").glob("*.log")
    index = bytearray(log.with_suffix(".index").read_bytes())
    for at in range(4, len(index), 8):
        position = int.from_bytes(index[at : at + 4], "big")
        index[at : at + 4] = (position + 61).to_bytes(4, "big")
    log.with_suffix(".index").write_bytes(index)
    targets, options = [FileTarget(str(log))], DumpOptions(print_data_log=True)
    assert shown(cluster_fanout.run(Dump(), targets, options, CLUSTER)) == shown(
        local.run(Dump(), targets, options)
    )
