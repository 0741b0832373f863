"""What is reported as lost when headers and index entries claim offsets that no batch has: after the log end, or those of the next
batch."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from fixtures import diseases
from fixtures.diseases import batch_spans, put
from kseg.recovery.policy import BrokerState, Repair
from tests.support import salvage_cases as cases
from tests.support.salvage_cases import LAST, MIDDLE, log
from tests.support.salvage_helpers import plan

END = 330


@pytest.fixture
def damaged(partition: Path, tmp_path: Path) -> Path:
    """A partition without the snapshot at the log end, which would reveal where the log ended."""
    directory = Path(shutil.copytree(partition, tmp_path / "metro-0"))
    (directory / f"{END:020d}.snapshot").unlink()
    return directory


def has_lost_tail(repair: Repair) -> bool:
    return any(found.id == "lost-tail" for found in repair.findings)


def flip(file: Path, at: int, mask: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= mask
    file.write_bytes(bytes(data))


@pytest.mark.parametrize("at", [-5, -6, -7])
def test_index_entry_of_an_existing_batch_proves_no_lost_tail(damaged: Path, at: int) -> None:
    flip(damaged / f"{LAST}.index", at, 0x40)
    repair = plan(damaged)
    assert not has_lost_tail(repair)
    assert repair.removed == ()
    assert repair.log_end_offset == END


@pytest.mark.parametrize("at", [-1, -2, -3])
def test_time_index_entry_no_newer_than_the_log_proves_no_lost_tail(damaged: Path, at: int) -> None:
    flip(damaged / f"{LAST}.timeindex", at, 0x40)
    repair = plan(damaged)
    assert not has_lost_tail(repair)
    assert repair.removed == ()


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_one_index_proves_a_lost_tail(damaged: Path, suffix: str) -> None:
    """The other value of its last entry also continues the log."""
    cases.cut_at(LAST, 3)(damaged)
    end = plan(damaged).log_end_offset
    for other in {"index", "timeindex"} - {suffix}:
        (damaged / f"{LAST}.{other}").unlink()
    index = damaged / f"{LAST}.{suffix}"
    newer = {"index": struct.pack(">ii", 31, 60_000), "timeindex": struct.pack(">qi", 1_800_000_000_000, 31)}
    index.write_bytes(newer[suffix])
    repair = plan(damaged)
    assert has_lost_tail(repair)
    assert [(removed.first_offset, removed.last_offset) for removed in repair.removed] == [(end, 297 + 31)]


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("byte", [0x77, 0x40])
def test_garbage_index_entry_proves_no_lost_tail(damaged: Path, suffix: str, byte: int) -> None:
    """This used to be reported as two billion lost records."""
    index = damaged / f"{LAST}.{suffix}"
    index.write_bytes(bytes([byte]) * {"index": 8, "timeindex": 12}[suffix])
    repair = plan(damaged)
    assert not has_lost_tail(repair)
    assert repair.removed == ()


@pytest.mark.parametrize("name", ["__consumer_offsets-0", "__transaction_state-0"])
def test_batches_lost_at_the_log_end_do_not_alter_those_before_them(
    capture_small: Path, tmp_path: Path, name: str
) -> None:
    """A snapshot and the time index name the old end, which is one bit from the new one where the number of lost offsets is a power of two.
    The batch there used to get an offset of the lost ones."""
    directory = Path(shutil.copytree(capture_small / "data" / name, tmp_path / name))
    file = max(directory.glob("*.log"))
    spans = batch_spans(file)
    lost_bits = 0
    for position, _ in reversed(spans[1:]):
        with file.open("r+b") as log_file:
            log_file.truncate(position)
        repair = plan(directory)
        assert [found.id for found in repair.findings if found.id == "altered-base-offset"] == []
        assert has_lost_tail(repair)
        (lost,) = repair.removed
        assert lost.first_offset is not None and lost.last_offset is not None
        lost_bits += (lost.last_offset ^ (lost.first_offset - 1)).bit_count() == 1
    assert lost_bits


def test_two_agreeing_indexes_prove_a_far_log_end(damaged: Path) -> None:
    index, time_index = damaged / f"{LAST}.index", damaged / f"{LAST}.timeindex"
    index.write_bytes(struct.pack(">ii", 2_000_000, 60_000_000))
    assert not has_lost_tail(plan(damaged))
    time_index.write_bytes(struct.pack(">qi", 1_800_000_000_000, 1_900_000))
    (lost,) = plan(damaged).removed
    assert (lost.first_offset, lost.last_offset) == (END, 297 + 2_000_000)


def test_far_end_of_a_log_without_batches_must_be_plausible(damaged: Path) -> None:
    for file in damaged.iterdir():
        if file.stem < LAST or file.suffix in (".snapshot", ".txnindex"):
            file.unlink()
    log(damaged, LAST).write_bytes(b"")
    (damaged / f"{LAST}.timeindex").write_bytes(b"")
    index = damaged / f"{LAST}.index"
    for offsets, is_believed in ((90_000, True), (2_000_000, False)):
        index.write_bytes(struct.pack(">ii", offsets, 60_000))
        assert has_lost_tail(plan(damaged)) is is_believed


def test_altered_last_offset_does_not_claim_the_next_batchs_records(damaged: Path) -> None:
    """The last offset is altered under a valid checksum. Every removed byte belongs to the next batch."""
    file = log(damaged, MIDDLE)
    data = file.read_bytes()
    spans = batch_spans(file)
    at, (first, delta, count) = next(
        (at, header)
        for at, (position, _) in enumerate(spans)
        if at
        and (header := _header(data, position))[2] == header[1] + 1 > 2
        and _is_plain(data, spans[at - 1][0])
    )
    before = spans[at - 1][0]
    put(file, before + 23, struct.pack(">i", first + delta - _header(data, before)[0]))
    diseases.seal(file, before)
    (removed,) = plan(damaged).removed
    assert (removed.position, removed.batches) == (spans[at][0], 1)
    assert (removed.first_offset, removed.last_offset, removed.records) == (first, first + delta, count)


def _header(data: bytes, position: int) -> tuple[int, int, int]:
    """(base offset, last offset delta, count)"""
    (first,) = struct.unpack_from(">q", data, position)
    (delta,) = struct.unpack_from(">i", data, position + 23)
    (count,) = struct.unpack_from(">i", data, position + 57)
    return first, delta, count


def _is_plain(data: bytes, position: int) -> bool:
    return data[position + 21 : position + 23] == b"\0\0" and _header(data, position)[2] > 0


def test_time_index_of_another_log_proves_no_lost_tail(damaged: Path) -> None:
    """An operator, or a file system, has put the time index of a longer log in its place: no entry has the timestamp of its batch."""
    index = damaged / f"{LAST}.timeindex"
    entries = [*struct.iter_unpack(">qi", index.read_bytes())]
    (last_ms, last), moved = entries[-1], [(time_ms + 777, offset) for time_ms, offset in entries]
    longer = [*moved, (last_ms + 1777, last + 20), (last_ms + 2777, last + 40)]
    index.write_bytes(b"".join(struct.pack(">qi", *entry) for entry in longer))
    repair = plan(damaged)
    assert not has_lost_tail(repair)
    assert (repair.removed, repair.log_end_offset) == ((), END)
    # one entry of this log is enough to believe the others
    longer[0] = entries[0]
    index.write_bytes(b"".join(struct.pack(">qi", *entry) for entry in longer))
    assert has_lost_tail(plan(damaged))


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_index_of_another_segment_proves_no_lost_tail_of_a_log_that_was_stopped_cleanly(
    damaged: Path, suffix: str
) -> None:
    index = damaged / f"{LAST}.{suffix}"
    index.write_bytes(
        {"index": struct.pack(">ii", 64, 60_000), "timeindex": struct.pack(">qi", 2**41, 64)}[suffix]
    )
    for is_clean, recovery_point, is_lost in ((True, END, False), (False, END, True), (True, END + 9, True)):
        state = BrokerState(is_clean=is_clean, recovery_point=recovery_point)
        assert has_lost_tail(plan(damaged, broker_state=state)) == is_lost
