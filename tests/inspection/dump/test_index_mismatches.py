"""Indexes of a log with more batches than fit into a table: the findings equal those of a check entry by entry."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kseg.inspection.dump import index_mismatches
from kseg.inspection.dump.options import DumpOptions
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.findings import Finding
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.targets import FileTarget
from kseg.segment.scanning.scan import BATCHES_PER_TABLE
from tests.support.one_target import dump

STEM = "00000000000000000000"
COUNT = 2 * BATCHES_PER_TABLE + 100


def batch(offset: int, epoch: int) -> bytes:
    record = Record(offset, 1000 + offset, None, b"v")
    return encode_batch(NewBatch(records=(record,), leader_epoch=epoch))


@pytest.fixture(scope="module")
def log() -> list[bytes]:
    """Batches of one record each. A new leader epoch begins in the second table."""
    return [batch(offset, int(offset > BATCHES_PER_TABLE + 9)) for offset in range(COUNT)]


def put(directory: Path, log: list[bytes], change: Callable[[bytearray, bytearray, bytearray], None]) -> None:
    """Write a segment whose indexes have an entry for every fifth batch, and then change it."""
    positions, at = [], 0
    for each in log:
        positions.append(at)
        at += len(each)
    named = range(4, COUNT, 5)
    data = bytearray(b"".join(log))
    index = bytearray(b"".join(struct.pack(">ii", at, positions[at]) for at in named))
    times = bytearray(b"".join(struct.pack(">qi", 1000 + at, at) for at in named))
    change(data, index, times)
    for suffix, content in ((".log", data), (".index", index), (".timeindex", times)):
        (directory / f"{STEM}{suffix}").write_bytes(content)


def output(directory: Path) -> list[Finding]:
    """The findings about the log and then about its indexes, in the order in which the directory is dumped."""
    found = []
    for suffix in (".log", ".index", ".timeindex"):
        target = FileTarget(str(directory / f"{STEM}{suffix}"))
        found += [event for event in dump(target, DumpOptions()) if isinstance(event, Finding)]
    return found


def sound(data: bytearray, index: bytearray, times: bytearray) -> None:
    """No change."""


def wrong_entries_in_the_last_table(data: bytearray, index: bytearray, times: bytearray) -> None:
    slot = len(index) // 8 - 10
    struct.pack_into(">i", index, 8 * slot, struct.unpack_from(">i", index, 8 * slot)[0] + 1)
    struct.pack_into(">q", times, 12 * slot, struct.unpack_from(">q", times, 12 * slot)[0] + 1)


def wrong_entries_in_the_first_table(data: bytearray, index: bytearray, times: bytearray) -> None:
    struct.pack_into(">i", index, 4, 61)
    struct.pack_into(">i", times, 8, 5)


def an_older_broker(data: bytearray, index: bytearray, times: bytearray) -> None:
    """Entries of the time index refer to a batch that is not the first with that timestamp."""
    for slot in range(len(times) // 12):
        struct.pack_into(">i", times, 12 * slot + 8, struct.unpack_from(">i", times, 12 * slot + 8)[0] - 1)


def damage(data: bytearray, index: bytearray, times: bytearray) -> None:
    data[len(data) // 2 : len(data) // 2 + 400] = bytes(400)


def a_batch_that_lies(data: bytearray, index: bytearray, times: bytearray) -> None:
    """The maximum timestamp in the header is not that of its record, and the time index refers to the batch."""
    size = len(batch(0, 0))
    record = Record(4, 900, None, b"v")
    data[4 * size : 5 * size] = encode_batch(NewBatch(records=(record,), max_timestamp_ms=1004))


def without_a_tail(data: bytearray, index: bytearray, times: bytearray) -> None:
    del data[-1000:]


def zeros_behind(data: bytearray, index: bytearray, times: bytearray) -> None:
    data += bytes(9000)


CHANGES = (
    sound,
    wrong_entries_in_the_last_table,
    wrong_entries_in_the_first_table,
    an_older_broker,
    damage,
    a_batch_that_lies,
    without_a_tail,
    zeros_behind,
)


@pytest.mark.parametrize("change", CHANGES)
def test_index_findings_by_tables_equal_those_entry_by_entry(
    change: Callable[[bytearray, bytearray, bytearray], None],
    log: list[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(tmp_path, log, change)
    found = output(tmp_path)
    monkeypatch.setattr(index_mismatches, "_all_exact", lambda *_: False)
    assert found == output(tmp_path)
    assert bool(found) == (change not in (sound,))


def test_index_findings_of_random_entries_equal_those_entry_by_entry(
    log: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(6):
        chance = random.Random(seed)

        def change(
            data: bytearray, index: bytearray, times: bytearray, chance: random.Random = chance
        ) -> None:
            changed = chance.choice((index, times))
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)

        put(tmp_path, log, change)
        found = output(tmp_path)
        with monkeypatch.context() as patched:
            patched.setattr(index_mismatches, "_all_exact", lambda *_: False)
            assert found == output(tmp_path), seed
        assert found, seed


def test_indexes_of_an_undamaged_log_are_compared_by_tables(
    log: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison is not done entry by entry, even if the log has more batches than fit into a table."""
    put(tmp_path, log, sound)

    def refuse(*_: object) -> None:
        raise AssertionError("an entry was looked up")

    monkeypatch.setattr(index_mismatches, "_batches_holding", refuse)
    monkeypatch.setattr("kseg.segment.scanning.scan.Scanner.find", refuse)
    assert output(tmp_path) == []
