"""The cost of policy kafka equals what a broker's readers lose: every original batch is read from the log that the real classes have
loaded, one by one, and those that are not returned are counted."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from fixtures import healthy
from fixtures.diseases import batch_spans
from kseg.cli.main import run
from kseg.segment.crc import crc32c
from tests.kafka.oracle import KafkaRaised, Oracle
from tests.support.verify_helpers import NOW_MS

pytestmark = pytest.mark.kafka

CASES = int(os.environ.get("KSEG_PRICES", "30"))
SEED = int(os.environ.get("KSEG_PRICES_SEED", "20261122"))


class Held:
    """A batch of the undamaged partition. first, last: offsets. records: the number that a consumer receives. data: its bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.first = int.from_bytes(data[:8], "big")
        self.last = self.first + int.from_bytes(data[23:27], "big")
        is_control = data[22] & 0x20
        self.records = 0 if is_control else int.from_bytes(data[57:61], "big")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return healthy.partition(tmp_path_factory.mktemp("healthy") / "metro-0")


@pytest.fixture(scope="module")
def held(sound: Path) -> list[Held]:
    return [
        Held(log.read_bytes()[position : position + size])
        for log in sorted(sound.glob("*.log"))
        for position, size in batch_spans(log)
    ]


def lost_by_kafka(oracle: Oracle, directory: Path, held: list[Held], *, clean: bool) -> int | None:
    """Records that no fetch from the loaded log returns, at the first or the last offset of their batch; None if the load throws."""
    steps: list[dict[str, Any]] = [
        {"what": "read", "offset": offset, "max_bytes": 1, "isolation": "LOG_END"}
        for batch in held
        for offset in (batch.first, batch.last)
    ]
    try:
        answer = oracle.partition(directory, steps, clean=clean, recovery_point=0, now=NOW_MS)
    except KafkaRaised:
        return None
    lost = 0
    for batch, at_first, at_last in zip(held, answer.found[::2], answer.found[1::2], strict=True):
        if not _is_given(batch, at_first):
            lost += batch.records - (1 if batch.records and _is_given(batch, at_last) else 0)
    return lost


def _is_given(batch: Held, line: dict[str, Any]) -> bool:
    data = b"" if line.get("exception") else line.get("data") or b""
    is_valid = len(data) > 61 and crc32c(data[21 : len(batch.data)]) == int.from_bytes(data[17:21], "big")
    return is_valid and data[: len(batch.data)] == batch.data


def price(directory: Path, capfd: pytest.CaptureFixture[str], *, clean: bool) -> dict[str, Any]:
    marker = "--clean-shutdown" if clean else "--unclean-shutdown"
    run(["recover", "--json", marker, "--recovery-point", "0", "--now", str(NOW_MS), str(directory)])
    rows = map(json.loads, capfd.readouterr().out.splitlines())
    (result,) = (row for row in rows if row["type"] == "result" and "partition" in row)
    return dict(result["costs"]["kafka"])


def damage_somewhere(rng: random.Random, directory: Path) -> None:
    """Damage bytes of a log where checksums and lengths reveal it. Its index may be missing or empty."""
    log = rng.choice(sorted(directory.glob("*.log")))
    data = bytearray(log.read_bytes())
    position, size = rng.choice(batch_spans(log))
    match rng.randrange(8):
        case 0 | 1:
            data[position + (size - 1 if size > 61 else 40)] ^= 1 << rng.randrange(8)  # the records
        case 2:
            data[position + 8 + rng.randrange(4)] ^= 1 << rng.randrange(8)  # the length
        case 3:
            data[position : position + size] = bytes(size)
        case 4:
            # the header that the checksum covers, except for the fields that determine the records, which nothing else contains
            data[position + rng.randrange(27, 57)] ^= 1 << rng.randrange(8)
        case 5:
            # the magic byte, which the checksum does not cover
            data[position + 16] = rng.choice([0, 1, 3, 0x83])
        case 6:
            # never complete batches, which would leave no trace
            data[position + rng.randrange(1, size) :] = b""
        case 7:
            start = position + rng.randrange(size)
            stop = min(len(data), start + rng.randrange(1, 2 * size))
            data[start:stop] = bytes(stop - start)
    log.write_bytes(bytes(data))
    index = log.with_suffix(".index")
    match rng.randrange(4):
        case 0:
            index.unlink()
        case 1:
            index.write_bytes(b"")


@pytest.mark.evidence("damage-believed")
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("case", range(CASES))
def test_price_equals_the_records_the_real_log_no_longer_returns(
    oracle: Oracle,
    sound: Path,
    held: list[Held],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    case: int,
    clean: bool,
) -> None:
    rng = random.Random(f"{SEED}-{case}")
    directory = Path(shutil.copytree(sound, tmp_path / "metro-0"))
    damage_somewhere(rng, directory)
    found = price(directory, capfd, clean=clean)
    lost = lost_by_kafka(oracle, directory, held, clean=clean)
    if lost is None:
        assert found.get("dies_of")
        return
    assert found["records"] in (lost, None)
    at_most = found["records_at_most"]
    assert at_most is None or at_most >= lost
    assert found["offsets"] >= lost


def test_zeros_over_a_marker_cost_at_most_one_record(
    oracle: Oracle, sound: Path, held: list[Held], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its offset is left, and what says that it is a marker is not: with the magic byte 0 the header is that of an old message."""
    directory = Path(shutil.copytree(sound, tmp_path / "metro-0"))
    log = min(directory.glob("*.log"))
    data = bytearray(log.read_bytes())
    position, size = next(span for span in batch_spans(log) if data[span[0] + 22] & 0x20)
    data[position + 16 : position + size - 2] = bytes(size - 18)
    log.write_bytes(bytes(data))
    assert lost_by_kafka(oracle, directory, held, clean=True) == 0
    found = price(directory, capfd, clean=True)
    assert (found["records"], found["records_at_most"]) == (None, 1)


@pytest.mark.evidence("missing-index-cut")
def test_damaged_segment_without_its_index_is_truncated_and_later_ones_stay(
    oracle: Oracle, sound: Path, held: list[Held], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """This holds after a clean stop as well: the load recovers a segment without an index and truncates it at the damage."""
    directory = Path(shutil.copytree(sound, tmp_path / "metro-0"))
    log = sorted(directory.glob("*.log"))[1]
    position, size = batch_spans(log)[3]
    data = bytearray(log.read_bytes())
    data[position + size - 1] ^= 1
    log.write_bytes(bytes(data))
    log.with_suffix(".index").unlink()
    lost = lost_by_kafka(oracle, directory, held, clean=True)
    assert lost is not None
    assert lost > 50
    assert price(directory, capfd, clean=True)["records"] == lost


@pytest.mark.parametrize("start", [*range(12, 24), 27, 31, 35, 43, 51, 53, 57, 60, 61, 62, 80])
def test_price_of_zeros_from_within_a_header_to_the_batch_end(
    oracle: Oracle,
    sound: Path,
    held: list[Held],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    start: int,
) -> None:
    """The magic byte becomes 0, but the batch must not be taken for a message with one record. The next batch tells how many offsets are
    lost."""
    directory = Path(shutil.copytree(sound, tmp_path / "metro-0"))
    log = min(directory.glob("*.log"))
    position, size = batch_spans(log)[5]
    data = bytearray(log.read_bytes())
    data[position + start : position + size] = bytes(size - start)
    log.write_bytes(bytes(data))
    for clean in (True, False):
        lost = lost_by_kafka(oracle, directory, held, clean=clean)
        assert lost is not None
        found = price(directory, capfd, clean=clean)
        assert found["records"] in (lost, None) and found["records_at_most"] >= lost


@pytest.mark.parametrize("zeros", [0, 4096])
@pytest.mark.parametrize("written", [8, 12, 16, 20, 26, 30, 45, 60])
def test_price_of_a_last_batch_torn_in_its_header(
    oracle: Oracle,
    sound: Path,
    held: list[Held],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    written: int,
    zeros: int,
) -> None:
    """zeros: the number that the file system has appended. Once the last offset delta is written, it is a limit for the number of records,
    of which there are 2 at 3 offsets."""
    directory = Path(shutil.copytree(sound, tmp_path / "metro-0"))
    log = max(directory.glob("*.log"))
    position, _ = batch_spans(log)[-1]
    log.write_bytes(log.read_bytes()[: position + written] + bytes(zeros))
    # a clean stop has written the last offset to both
    log.with_suffix(".timeindex").write_bytes(b"")
    max(directory.glob("*.snapshot")).unlink()
    lost = lost_by_kafka(oracle, directory, held, clean=False)
    found = price(directory, capfd, clean=False)
    assert lost == 2
    assert found["records"] is None
    assert found["records_at_most"] == (3 if written >= 30 else None)


def test_zeros_in_place_of_a_producer_id_are_not_priced_as_a_control_batch(
    oracle: Oracle, sound: Path, held: list[Held], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The result is producer 0 without a sequence, but a control batch has only one record."""
    directory = Path(shutil.copytree(sound, tmp_path / "metro-0"))
    log = min(directory.glob("*.log"))
    data = bytearray(log.read_bytes())
    position = next(
        position
        for position, _ in batch_spans(log)
        if data[position + 43 : position + 57] == b"\xff" * 14 and data[position + 60] > 1
    )
    data[position + 35 : position + 53] = bytes(18)
    log.write_bytes(bytes(data))
    lost = lost_by_kafka(oracle, directory, held, clean=True)
    assert lost and price(directory, capfd, clean=True)["records"] == lost
