"""Wrong headers and transaction indexes: an error, or a finding with the right rows around it.

Readers run in this process, as in Spark's tasks.
"""

from __future__ import annotations

import random
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyarrow import RecordBatch

from fixtures import healthy
from kseg.change.append.partition_writer import RollRules
from kseg.segment import layout as L
from kseg.spark.source.options import read_options
from kseg.spark.source.reader import LogReader
from kseg.spark.source.source_schema import default_schema
from kseg.spark.source.splits import DataLoss
from tests.support.scan_helpers import batch, batch_positions

LAX = {"failOnDataLoss": "false"}


def reader(path: Path, **given: str) -> LogReader:
    options = read_options(
        {"path": str(path)} | {name.replace("_", "."): text for name, text in given.items()}
    )
    return LogReader(options, default_schema(options))


def rows(path: Path, **given: str) -> list[tuple[Any, ...]]:
    """(offset, value, valid) of all records, in order."""
    asked = reader(path, **given)
    found: list[tuple[Any, ...]] = []
    for partition in asked.partitions():
        for table in asked.read(partition):
            assert isinstance(table, RecordBatch)
            meta = table.column("_meta").to_pylist()
            columns = (table.column(name).to_pylist() for name in ("offset", "value"))
            found += [(*row, each["valid"]) for *row, each in zip(*columns, meta, strict=True)]
    return found


def findings(path: Path, **given: str) -> list[dict[str, Any]]:
    asked = reader(path, table="findings", **given)
    names = asked.schema.names
    return [
        dict(zip(names, row, strict=True))
        for partition in asked.partitions()
        for row in asked.read(partition)
    ]


# --- headers


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A log of 400 KiB in one segment: 200 batches of 5 records, with an index entry for every fourth batch."""
    log = tmp_path / "large-0" / f"{0:020d}.log"
    log.parent.mkdir()
    content, entries = b"", b""
    for number in range(200):
        if number and number % 4 == 0:
            entries += struct.pack(">ii", 5 * number + 4, len(content))
        content += batch(5 * number, 5, b"%3d" % number * 130)
    log.write_bytes(content)
    log.with_suffix(".index").write_bytes(entries)
    return log


SPLITS: tuple[dict[str, str], ...] = (
    {},
    {"maxPartitionBytes": "64k"},
    {"minPartitions": "6"},
    {"maxRecordsPerPartition": "90"},
    {"useIndexes": "false", "maxPartitionBytes": "64k"},
)


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS, ids=lambda split: "-".join(split) or "whole")
def test_flipped_base_offset_is_an_error_or_costs_only_its_batch(large: Path, split: dict[str, str]) -> None:
    """For complete logs and for parts of large ones, the flipped bit is an error by default; otherwise all rows are returned except those
    of the batch."""
    sound, content = rows(large.parent, **split), large.read_bytes()
    assert [row[0] for row in sound] == list(range(1000)) and not findings(large.parent, **split)
    positions = batch_positions(content)
    assert len(list(reader(large.parent, **split).partitions())) >= (3 if split else 1)
    edges = {piece.start for each in reader(large.parent, **split).partitions() for piece in each.pieces}  # type: ignore[attr-defined]
    at_edges = [positions.index(edge) for edge in sorted(edges)]
    draw = random.Random(str(split))
    for number in {*at_edges[1:3], *(edge - 1 for edge in at_edges[1:3]), *draw.sample(range(1, 199), 5)}:
        altered = bytearray(content)
        altered[positions[number] + 7 - draw.choice((0, 1, 4))] ^= 1 << draw.randrange(3, 7)
        large.write_bytes(altered)
        with pytest.raises(DataLoss, match="claims base offset"):
            rows(large.parent, **split)
        expected = [row for row in sound if row[0] // 5 != number]
        assert rows(large.parent, **LAX, **split) == expected, number
        reported = findings(large.parent, **split)
        assert {(each["id"], each["position"]) for each in reported} == {
            ("altered-base-offset", positions[number])
        }
        assert {each["first_offset"] for each in reported} <= {5 * number, None}
        invalid = [row for row in rows(large.parent, includeInvalid="true", **LAX, **split) if not row[2]]
        assert {row[1] for row in invalid} <= {b"%3d" % number * 130}


def test_flipped_base_offset_affects_only_ranges_with_its_batch(large: Path) -> None:
    """A range that contains the batch is incomplete. Any other range is complete, including the one where the batch claims to be."""
    content = large.read_bytes()
    altered = bytearray(content)
    # base offset 200 becomes 456
    altered[batch_positions(content)[40] + 6] ^= 1
    large.write_bytes(altered)
    for first, end in ((200, 205), (190, 202), (0, 201), (204, 1000), (0, 457)):
        with pytest.raises(DataLoss, match=r"claims base offset 456, .* probably 200 \(bit 8 is flipped\)"):
            rows(large.parent, fromOffset=str(first), toOffset=str(end))
    for first, end in ((0, 200), (205, 450), (400, 500), (456, 457), (500, 900)):
        found = rows(large.parent, fromOffset=str(first), toOffset=str(end))
        assert [row[0] for row in found] == list(range(first, end))
    seen = rows(large.parent, checkHeaders="false")
    assert 456 in [row[0] for row in seen[200:205]], "as dump prints it, when that is asked for"


def test_flipped_leader_epoch_is_a_finding_and_costs_no_rows(large: Path) -> None:
    content = bytearray(large.read_bytes())
    content[batch_positions(bytes(content))[100] + 14] ^= 2
    large.write_bytes(content)
    with pytest.raises(DataLoss, match="claims leader epoch -513"):
        rows(large.parent)
    assert len(rows(large.parent, **LAX)) == 1000, "its records have their offsets"
    assert [each["id"] for each in findings(large.parent)] == ["altered-leader-epoch"]


# --- transactions


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Committed, aborted and open transactions in several segments."""
    return healthy.partition(tmp_path / "metro-0", RollRules(segment_bytes=9000, index_interval_bytes=600))


def committed(path: Path, by: str, **given: str) -> list[tuple[Any, ...]]:
    return rows(path, isolation_level="read_committed", transactions=by, **given)


def test_committed_rows_are_the_same_by_log_and_by_index(mixed: Path) -> None:
    found = committed(mixed, "log")
    assert committed(mixed, "index") == found and 0 < len(found) < len(rows(mixed))
    assert not findings(mixed, isolation_level="read_committed", transactions="index")


def test_wrong_transaction_index_is_reported_or_harmless(mixed: Path) -> None:
    """With any wrong field in any entry, and with any entry removed, the result is the rows of the log, or an error that names the
    index."""
    sound = committed(mixed, "log")
    indexes = [each for each in sorted(mixed.glob("*.txnindex")) if each.stat().st_size]
    cases = reported = 0
    for index in indexes:
        content = index.read_bytes()
        for at in range(0, len(content), L.TXN_INDEX_ENTRY):
            changed = [content[:at] + content[at + L.TXN_INDEX_ENTRY :]]
            # positions of producer id, first offset and last offset
            for field in (2, 10, 18):
                for bit in (1, 4):
                    other = bytearray(content)
                    other[at + field + 7] ^= bit
                    changed.append(bytes(other))
            for each in changed:
                index.write_bytes(each)
                cases += 1
                assert committed(mixed, "log") == sound
                try:
                    same = committed(mixed, "index") == sound
                except DataLoss as lost:
                    assert "transactions=log" in str(lost)
                    reported += 1
                    ids = {
                        row["id"]
                        for row in findings(mixed, isolation_level="read_committed", transactions="index")
                    }
                    assert ids <= {"txn-index-missing-entry", "txn-index-wrong-entry"} and ids
                else:
                    assert same, (index.name, at, each.hex())
        index.write_bytes(content)
    assert reported > cases // 2 > 5
    for index in indexes:
        index.unlink()
    with pytest.raises(DataLoss, match="not in the transaction index"):
        committed(mixed, "index")


def test_damaged_marker_leaves_later_transactions_decided(mixed: Path) -> None:
    """The transaction index still contains the transaction that the marker ended, so the next marker decides only its own."""
    sound = committed(mixed, "log")
    ends = set()
    for index in mixed.glob("*.txnindex"):
        content = index.read_bytes()
        ends |= {
            int.from_bytes(content[at + 18 : at + 26], "big")
            for at in range(0, len(content), L.TXN_INDEX_ENTRY)
        }
    damaged = 0
    for log in sorted(mixed.glob("*.log")):
        content = log.read_bytes()
        for position, end in pairwise([*batch_positions(content), len(content)] if content else []):
            if int.from_bytes(content[position : position + 8], "big") in ends:
                log.write_bytes(content[: end - 1] + bytes([content[end - 1] ^ 1]) + content[end:])
                with pytest.raises(DataLoss):
                    committed(mixed, "log")
                assert committed(mixed, "log", **LAX) == committed(mixed, "index", **LAX) == sound
                log.write_bytes(content)
                damaged += 1
    assert damaged == len(ends) > 1
