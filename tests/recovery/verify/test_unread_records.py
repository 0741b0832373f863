"""Headers that contradict their records under a valid checksum are found without decoding every record, and their cost is what a real
consumer loses (`tests/kafka/test_price_by_consumers.py` uses the same kinds of damage with one).

Each kind with each codec needs many damaged logs, which take ten seconds of processor time; hence `slow`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fixtures.diseases import batch_spans, put, seal
from fixtures.healthy import TOPIC_ID, records
from kseg.change.append.partition_writer import PartitionWriter
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.model import NewBatch
from tests.kafka.price_damages import SEALED_KINDS, Kind
from tests.support.command_rows import rows_of
from tests.support.kernel_variants import both
from tests.support.pairs import combinations
from tests.support.wrong_deltas import LOST as LOST_BY_DELTAS
from tests.support.wrong_deltas import WRONG_DELTAS, write_log

RECORDS = 5
BATCHES = 6
# The records of a batch of five that a consumer does not return. If the count is too low, the last record within the count is dropped too.
LOST = {
    "count-lower": 2,
    "count-half": 4,
    "count-zero": RECORDS,
    "count-negative": RECORDS,
    "count-and-last-offset-lower": 2,
    "control": RECORDS,
    "control-and-transactional": RECORDS,
    "codec-1": RECORDS,
    "codec-2": RECORDS,
    "codec-4": RECORDS,
    "codec-7": RECORDS,
}
OFFSETS_WITHIN_BATCH = ("offset-outside-batch", "offset-not-increasing-in-batch")
HARMLESS = {"count-higher": 0, "transactional": 0, "timestamp-type": 0, "delete-horizon": 0}


def partition(directory: Path, codec: int, gap: int = 0) -> Path:
    """A log of equal batches. gap: the number of offsets missing after each."""
    directory.mkdir()
    with PartitionWriter(directory, topic_id=TOPIC_ID) as writer:
        for number in range(BATCHES):
            writer.append(NewBatch(records=records(number * (RECORDS + gap), RECORDS), codec=codec))
    return directory


def costs(capfd: pytest.CaptureFixture[str], place: Path, *words: str) -> dict[str, Any]:
    (result,) = [row for row in rows_of(capfd, "recover", *words, place) if row["type"] == "result"]
    return dict(result["costs"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "codec", "batch"),
    combinations(
        SEALED_KINDS,
        range(len(L.CODEC_NAMES)),
        (0, 2, BATCHES - 1),
        names=([kind.name for kind in SEALED_KINDS], L.CODEC_NAMES, ("first", "inside", "last")),
    ),
)
def test_records_consumers_miss_under_a_valid_checksum_have_a_cost(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: Kind, codec: int, batch: int
) -> None:
    place = partition(tmp_path / "metro-0", codec)
    kind.damage(place / f"{0:020d}.log", batch)
    lost = {**LOST, **HARMLESS}[kind.name]
    for stop in ("--clean-shutdown", "--unclean-shutdown"):
        reported = costs(capfd, place, stop)
        if "dies_of" not in reported["kafka"]:
            assert reported["kafka"]["records"] == lost
        assert reported["salvage"]["records"] == lost
    findings = [row for row in rows_of(capfd, "verify", place) if row["type"] == "finding"]
    errors = {row["id"] for row in findings if row["severity"] == "error"}
    if lost:
        assert errors & {"record-count-mismatch", "undecodable-batch", "bad-control-record"}
        deep = rows_of(capfd, "verify", "--deep", place)
        assert errors <= {row.get("id") for row in deep}


def test_truncated_batch_costs_its_records_not_its_declared_count(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Policy kafka truncates three batches, of which the last declares one record too few."""
    place = partition(tmp_path / "metro-0", 0)
    log = place / f"{0:020d}.log"
    lower = next(kind for kind in SEALED_KINDS if kind.name == "count-lower")
    lower.damage(log, BATCHES - 1)
    position, size = batch_spans(log)[BATCHES - 3]
    put(log, position + size - 1, bytes([log.read_bytes()[position + size - 1] ^ 1]))
    reported = costs(capfd, place, "--unclean-shutdown", "--recovery-point", "0")
    assert reported["kafka"]["records"] == 3 * RECORDS
    assert reported["salvage"]["records"] == RECORDS + 2


def test_batch_that_breaks_off_inside_its_compression_has_unknown_cost(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is unknown how much of it a consumer returns. Because of the gap after each batch, it is decompressed."""
    place = partition(tmp_path / "metro-0", 4, gap=2)
    log = place / f"{0:020d}.log"
    position, size = batch_spans(log)[1]
    put(log, position + L.BATCH_HEADER + 12, bytes(size - L.BATCH_HEADER - 12))
    seal(log, position)
    reported = costs(capfd, place)
    assert reported["kafka"]["records"] is reported["salvage"]["records"] is None
    assert reported["kafka"]["offsets"] == reported["salvage"]["offsets"] == RECORDS


@pytest.mark.evidence("header-contradicts")
@pytest.mark.parametrize("kind", WRONG_DELTAS)
def test_every_batch_with_wrong_offset_deltas_is_found_without_reading_all(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    """They used to be found only at the end of a segment or before missing offsets. `tests/kafka/test_wrong_deltas.py` has the real log
    write the same batches."""
    place = write_log(tmp_path / "metro-0", (None, kind, None, None, kind, None))
    reported = costs(capfd, place)
    lost = 2 * LOST_BY_DELTAS[kind]
    assert (reported["kafka"]["records"], reported["salvage"]["records"]) == (lost, lost)
    by_level = [
        {
            (row["id"], row["position"])
            for row in rows_of(capfd, "verify", *words, place)
            if row["type"] == "finding" and row["id"] in OFFSETS_WITHIN_BATCH
        }
        for words in ((), ("--deep",))
    ]
    assert by_level[0] == by_level[1]
    assert len({position for _, position in by_level[0]}) == 2


@pytest.mark.parametrize("codec", range(len(L.CODEC_NAMES)), ids=L.CODEC_NAMES)
def test_gaps_in_any_codec_are_not_doubted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], codec: int
) -> None:
    place = partition(tmp_path / "metro-0", codec, gap=3)
    reported = rows_of(capfd, "verify", place)
    assert not [row for row in reported if row["type"] == "finding" and row["severity"] == "error"]


def test_random_headers_keep_the_kernel_within_bounds() -> None:
    assert set(both(_doubted)) == {0}


def _doubted(kernels: dict[str, ModuleType], buffer: Callable[[Any], Any]) -> list[int]:
    found = []
    cells = array("q", [0] * C.BATCH_WIDTH * 2)
    for size, position, base, last in (
        (61, 0, 0, 0),
        (61, 40, 0, 0),
        (1 << 62, 0, 0, 0),
        (61, -1, 0, 0),
        (61, 0, -(1 << 63), (1 << 63) - 1),
    ):
        for attributes in (0, 2, 0x20, 0x30, -1):
            for at, value in enumerate((position, size, 2, base, last, 1, attributes)):
                cells[at * 2] = cells[at * 2 + 1] = value
            kernel = kernels["validate"]
            found.append(kernel.next_doubtful(buffer(bytes(100)), 0, 2, buffer(cells), 2, 1))
    return found
