"""Unreadable bytes in tasks and in the data source give the same rows and findings as without Spark.

The tasks run in this process, on a disk with bad sectors.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from kseg.change.append.partition_writer import PartitionWriter
from kseg.inspection.dump.dump import Dump
from kseg.inspection.dump.options import DumpOptions
from kseg.jobs import fanout as local
from kseg.jobs.events import Event
from kseg.segment.findings import Finding
from kseg.segment.kernel import bad_pages
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.targets import FileTarget
from kseg.spark import cluster_fanout, scheduling
from kseg.spark.options import ClusterOptions
from kseg.spark.source.splits import DataLoss
from tests.spark.test_source_judgement import LAX, findings, rows
from tests.support.fake_spark import Pretended
from tests.support.recording_work import shown
from tests.support.reference_reader import batches
from tests.support.sector_faults import BadSectors, bad_sectors


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """3,000 records in 300 batches of 5 KiB."""
    with PartitionWriter(tmp_path / "orders-0") as writer:
        for first in range(0, 3000, 10):
            records = tuple(Record(n, 1000 + n, b"k%d" % n, bytes(500)) for n in range(first, first + 10))
            writer.append(NewBatch(records=records))
    (log,) = (tmp_path / "orders-0").glob("*.log")
    return log


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> BadSectors:
    return bad_sectors(monkeypatch, BadSectors())


SECTORS = {"one": [1500], "first and last": [0, 3047], "several": [3, 700, 701, 702, 1999, 3000]}


def intact(disk: BadSectors, log: Path) -> list[int]:
    """The offsets in complete batches, as a plain reader finds them."""
    bad = disk.lost(log)
    found: list[int] = []
    for batch in batches(log.read_bytes()):
        end = batch.position + batch.size_bytes
        if not any(start < end and batch.position < start + length for start, length in bad):
            found += range(batch.base_offset, batch.last_offset + 1)
    return found


@pytest.mark.parametrize(("name", "shape"), [("first and last", "kafka"), ("several", "json")])
def test_pieces_of_a_log_report_each_unreadable_area_once(
    log: Path, disk: BadSectors, monkeypatch: pytest.MonkeyPatch, name: str, shape: str
) -> None:
    monkeypatch.setattr(cluster_fanout, "ready", lambda _cluster, _say: Pretended())
    monkeypatch.setattr(scheduling, "PIECE_BYTES", 100_000)
    disk.spoil(log, SECTORS[name])
    targets, options = [FileTarget(str(log))], DumpOptions(format=shape, print_data_log=True)
    alone = list(local.run(Dump(), targets, options))

    def reported(events: list[Event]) -> list[Finding]:
        return [event for event in events if isinstance(event, Finding)]

    def areas(events: list[Event]) -> list[tuple[int | None, int | None]]:
        return [(each.position, each.length) for each in reported(events) if each.id == "unreadable"]

    assert areas(alone) == disk.lost(log)
    # a Spark worker process runs one task after another
    for knows_already in (False, True):
        if not knows_already:
            bad_pages.forget()
        events = list(cluster_fanout.run(Dump(), targets, options, ClusterOptions()))
        assert sorted(areas(events)) == disk.lost(log)
        assert {each.id for each in reported(events)} == {each.id for each in reported(alone)}
        assert shown([each for each in events if not isinstance(each, Finding)]) == shown(
            [each for each in alone if not isinstance(each, Finding)]
        )


@pytest.mark.parametrize("sectors", SECTORS.values(), ids=SECTORS)
@pytest.mark.parametrize("split", ["1g", "200k"])
def test_source_reads_the_rows_around_bad_sectors(
    log: Path, disk: BadSectors, sectors: list[int], split: str
) -> None:
    disk.spoil(log, sectors)
    asked: dict[str, Any] = {"maxPartitionBytes": split}
    with pytest.raises(DataLoss, match="cannot be read"):
        rows(log.parent, **asked)
    assert [offset for offset, _, _ in rows(log.parent, **LAX, **asked)] == intact(disk, log)
    for _ in range(2):
        found = findings(log.parent, **asked)
        areas = [(row["position"], row["length"]) for row in found if row["id"] == "unreadable"]
        assert areas == disk.lost(log)
        assert {row["id"] for row in found} <= {"unreadable", "unreadable-batch"}


@pytest.mark.parametrize("suffix", [".timeindex", ".index", ".txnindex"])
def test_unreadable_side_files_hide_no_row(
    capture_small: Path, tmp_path: Path, disk: BadSectors, suffix: str
) -> None:
    partition = tmp_path / "fares-0"
    shutil.copytree(capture_small / "data" / "fares-0", partition)
    asked: dict[str, Any] = {"fromTimestamp": "1"}
    if suffix == ".txnindex":
        asked = {"isolation_level": "read_committed", "transactions": "index"}
    healthy = rows(partition, **asked)
    assert healthy
    for path in partition.glob(f"*{suffix}"):
        if path.stat().st_size:
            disk.spoil(path, [0])
    if suffix == ".txnindex":
        with pytest.raises(DataLoss):
            rows(partition, **asked)
        return
    assert rows(partition, **asked) == healthy
