"""Compaction of a log with damage: damaged segments stay unchanged, no newest value is lost, and the log end never decreases."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from kseg.change.plan.inputs import inputs_of
from kseg.compaction.cleaner.options import Damaged
from kseg.recovery.loading.loader import load_as_broker
from kseg.recovery.policy import BrokerState, LoadSettings
from kseg.segment.errors import Refused
from kseg.segment.header_tables import Columns
from kseg.segment.partition.derived_state import producer_state
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.scanning.decode import Decoder, record_at
from kseg.segment.scanning.scan import Scanner
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry
from tests.support.compact_helpers import T0, Outcome, Topic, clean, log
from tests.support.trees import files_in, unchanged

CASES = int(os.environ.get("KSEG_COMPACT_DAMAGES", "60"))
SEED = int(os.environ.get("KSEG_COMPACT_DAMAGES_SEED", "20261122"))


def accounts(root: Path) -> Path:
    """Segments at 0, 40, 80, 120 (active) with ten batches each, in two leader epochs and from one producer."""
    topic = Topic(root)
    for segment in range(4):
        for batch in range(10):
            number = segment * 10 + batch
            pairs = [(f"k{(number * 4 + at) % 23}", f"v{number}-{at}") for at in range(4)]
            topic.send(*pairs, producer=7, leader_epoch=segment // 2)
        if segment < 3:
            topic.roll()
    return topic.close()


def damage(path: Path, position: int, bits: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= bits
    path.write_bytes(bytes(data))


def starts(data: bytes, base: int) -> list[int]:
    """The positions of the batches of a valid log."""
    return [
        position
        for block in Scanner(data, base).blocks()
        if isinstance(block, Columns)
        for position in block.column(0)
    ]


def log_end(directory: Path, *, is_clean: bool) -> int:
    """The log end after a broker's load; -1 if the load throws."""
    loaded = load_as_broker(
        str(directory),
        inputs_of(str(directory)),
        BrokerState(is_clean=is_clean),
        LoadSettings(now_ms=T0),
    )
    return -1 if loaded.load_failure is not None else loaded.log_end_offset


def newest(directory: Path) -> dict[bytes | None, tuple[int, bytes | None]]:
    """Offset and value of the newest readable record of each key, by the headers as they are."""
    found: dict[bytes | None, tuple[int, bytes | None]] = {}
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for block in Scanner(data, int(path.name[:20])).blocks():
            for chunk in Decoder(data).chunks(block) if isinstance(block, Columns) else ():
                for at in range(chunk.records.count):
                    record = record_at(chunk, at)
                    found[record.key] = max(found.get(record.key, (-1, b"")), (record.offset, record.value))
    return found


# --- the incident: a damaged active segment is rolled


@pytest.mark.parametrize("damaged", list(Damaged))
@pytest.mark.parametrize("extent", ["all", "first", "last", "torn", "zeros", "offset"])
def test_damaged_active_segment_is_not_rolled(tmp_path: Path, extent: str, damaged: Damaged) -> None:
    directory = accounts(tmp_path)
    active = log(directory, 120)
    sound = active.read_bytes()
    at = starts(sound, 120)
    match extent:
        case "all":
            for position in at:
                damage(active, position + 70)
        case "first":
            damage(active, 70)
        case "last":
            damage(active, at[-1] + 70)
        case "torn":
            active.write_bytes(sound[:-9])
        case "zeros":
            active.write_bytes(sound + bytes(512))
        case "offset":
            damage(active, at[4] + 1, 0x40)
    before = active.read_bytes()
    end = log_end(directory, is_clean=True)
    if damaged is Damaged.REFUSE:
        with unchanged(directory):
            outcome = clean(directory, include_active=True, now_ms=T0)
        assert [failure.exit_status for failure in outcome.failures] == [4]
        return
    outcome = clean(directory, include_active=True, now_ms=T0, damaged=damaged)
    assert not outcome.failures
    assert not outcome.result["rolled"]
    assert active.read_bytes() == before
    assert not (directory / f"{160:020}.log").exists()
    assert log_end(directory, is_clean=True) == end


def test_damage_in_an_uncleaned_active_segment_does_not_matter(tmp_path: Path) -> None:
    directory = accounts(tmp_path)
    damage(log(directory, 120), 70)
    before = log(directory, 120).read_bytes()
    outcome = clean(directory, now_ms=T0)
    assert not outcome.failures
    assert outcome.result["next_dirty_offset"] == 120
    assert log(directory, 120).read_bytes() == before


# --- header fields that no checksum covers


@pytest.mark.parametrize(("batch", "byte"), [(3, 1), (9, 4), (0, 6), (5, 7)])
def test_altered_base_offset_supersedes_no_record(tmp_path: Path, batch: int, byte: int) -> None:
    """An offset that is too high would make the batch's records the newest of all their keys."""
    directory = accounts(tmp_path)
    path = log(directory, 40)
    damage(path, starts(path.read_bytes(), 40)[batch] + byte, 0x40)
    with unchanged(directory):
        refused = clean(directory, now_ms=T0)
    assert [failure.exit_status for failure in refused.failures] == [4]
    assert "offset-not-monotonic" in refused.kinds
    with unchanged(directory):
        skipped = clean(directory, now_ms=T0, damaged=Damaged.SKIP)
    assert not skipped.failures
    assert {"offset-not-monotonic", "group-left-alone"} <= skipped.kinds


@pytest.mark.parametrize("batch", [0, 4, 9])
def test_altered_leader_epoch_counts_as_damage(tmp_path: Path, batch: int) -> None:
    directory = accounts(tmp_path)
    path = log(directory, 0)
    damage(path, starts(path.read_bytes(), 0)[batch] + 15, 0x40)
    refused = clean(directory, now_ms=T0)
    # for the last batch of a segment, a higher epoch may be correct
    if batch == 9:
        return
    assert [failure.exit_status for failure in refused.failures] == [4]
    assert "altered-leader-epoch" in refused.kinds
    before = path.read_bytes()
    skipped = clean(directory, now_ms=T0, damaged=Damaged.SKIP, segment_bytes=1)
    assert skipped.kinds == {"altered-leader-epoch", "group-left-alone"}
    assert path.read_bytes() == before
    assert skipped.result["records_after"] < skipped.result["records_before"]


def test_permanently_decreasing_leader_epochs_are_not_damage(tmp_path: Path) -> None:
    """Logs of old brokers have such epochs, and the adjacent batches do not reveal which batch would be wrong."""
    topic = Topic(tmp_path)
    for epoch in (5, 5, 5, 3, 3, 3):
        topic.send(("a", epoch), leader_epoch=epoch)
    topic.roll()
    topic.send(("z", 1), leader_epoch=3)
    outcome = clean(topic.close(), now_ms=T0)
    assert not outcome.failures
    assert outcome.result["records_after"] == 1


# --- any damage, any option


@pytest.mark.parametrize("case", range(CASES))
def test_compaction_of_a_damaged_log_never_lowers_the_log_end(tmp_path: Path, case: int) -> None:
    rng = random.Random(f"{SEED}-{case}")
    directory = accounts(tmp_path)
    for path in directory.glob("*"):
        if path.suffix in (".index", ".timeindex", ".snapshot") and rng.random() < 0.1:
            path.write_bytes(path.read_bytes()[: rng.randrange(9)])
    for _ in range(rng.randint(1, 2)):
        _damage(rng, rng.choice(sorted(directory.glob("*.log"))))
    before = tmp_path / "before"
    shutil.copytree(directory, before)
    damaged = rng.choice(list(Damaged))
    options: dict[str, Any] = {
        "include_active": rng.random() < 0.7,
        "damaged": damaged,
        "segment_bytes": rng.choice([1, 1 << 20]),
    }
    outcome = clean(directory, now_ms=T0, **options)
    if outcome.failures:
        assert {failure.exit_status for failure in outcome.failures} == {4}
        assert files_in(directory) == files_in(before)
        return
    for is_clean in (True, False):
        if not is_clean and _is_damaged(before):
            # a broker's recovery truncates at the damage, wherever it is by then
            continue
        assert log_end(directory, is_clean=is_clean) >= log_end(before, is_clean=is_clean)
    _check_damaged_logs(before, directory, outcome)
    left = newest(directory)
    for key, found in newest(before).items():
        assert left[key] == found
    assert _producers(directory) == _producers(before)


def _damage(rng: random.Random, path: Path) -> None:
    """Damage a log once; the damage before may have cut it anywhere."""
    data = bytearray(path.read_bytes())
    if not data:
        return
    at = starts(bytes(data), int(path.name[:20])) or [0]
    match rng.randrange(6):
        case 0:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case 1:
            data[min(rng.choice(at) + rng.randrange(61), len(data) - 1)] ^= 1 << rng.randrange(8)
        case 2:
            del data[rng.randrange(len(data)) :]
        case 3:
            data += bytes(rng.choice([8, 100, 4096]))
        case 4:
            for position in (each for each in at if each + 65 < len(data)):
                data[position + 65] ^= 1
        case 5:
            first = rng.randrange(len(data))
            last = min(len(data), first + rng.randrange(1, 300))
            data[first:last] = bytes(last - first)
    path.write_bytes(bytes(data))


def _is_broken(path: Path) -> bool:
    blocks = Scanner(path.read_bytes(), int(path.name[:20])).blocks()
    return any(not isinstance(block, Columns) for block in blocks)


def _is_damaged(directory: Path) -> bool:
    return any(_is_broken(path) for path in directory.glob("*.log"))


def _check_damaged_logs(before: Path, after: Path, outcome: Outcome) -> None:
    """Every log with damage in it still has its content."""
    for path in before.glob("*.log"):
        if _is_broken(path):
            assert (after / path.name).read_bytes() == path.read_bytes()


def _producers(directory: Path) -> tuple[ProducerSnapshotEntry, ...]:
    with PartitionLog(PartitionTarget(str(directory), None)) as opened:
        return producer_state(opened).snapshot()


def test_log_that_a_broker_would_replace_is_not_cleaned(tmp_path: Path) -> None:
    directory = accounts(tmp_path)
    with unchanged(directory), pytest.raises(Refused, match="starts at 700 and ends at 160"):
        clean(directory, log_start_offset=700)
