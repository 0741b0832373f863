"""Data of a running broker: what only one reading finds is not reported, and what every reading finds is."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kseg.change.apply.running_broker import READINGS
from kseg.jobs.events import Event
from kseg.recovery.verify import repeated_reading
from kseg.recovery.verify.repeated_reading import confirmed
from kseg.recovery.verify.totals import Totals
from kseg.segment.errors import UnreadableInput, VanishedInput
from kseg.segment.findings import ERROR, INFO, Finding
from kseg.segment.partition.targets import PartitionTarget

LOG = "00000000000000000000.log"
DAMAGE = Finding("bad-crc", LOG, "batch 3", 300, 100, 30, 39)
HARMLESS = Finding("offset-gap", LOG, "a gap", 500)


def _passing(number: int) -> Finding:
    return Finding("index-entry-beyond-log", LOG, "an entry", 8 * number)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_reading, "PAUSE_S", 0)


@pytest.fixture
def target(tmp_path: Path) -> PartitionTarget:
    (tmp_path / "orders-0").mkdir()
    return PartitionTarget(str(tmp_path / "orders-0"))


def _settled(
    target: PartitionTarget, found: Callable[[int], list[Finding]]
) -> tuple[list[Event], Totals, int]:
    """The events, the totals, and how often the target was read. found: returns the findings of the n-th reading."""
    readings = 0

    def read(totals: Totals) -> Iterator[Event]:
        nonlocal readings
        readings += 1
        totals.account(LOG, 1000 * readings)
        for finding in found(readings):
            assert totals.admit(finding)
            yield finding

    totals = Totals()
    events = [*confirmed(target, read, totals)]
    return events, totals, readings


def test_target_with_only_infos_is_read_once(target: PartitionTarget) -> None:
    events, totals, readings = _settled(target, lambda number: [HARMLESS])
    assert (events, readings, totals.bytes_total, totals.severities[INFO]) == ([HARMLESS], 1, 1000, 1)


def test_finding_absent_from_a_second_reading_is_not_reported(target: PartitionTarget) -> None:
    events, totals, readings = _settled(target, lambda number: [_passing(0), HARMLESS][number - 1 :])
    assert (events, readings, totals.bytes_total) == ([HARMLESS], 2, 2000)
    assert totals.severities[ERROR] == 0


def test_damage_found_by_two_readings_is_reported(target: PartitionTarget) -> None:
    events, totals, readings = _settled(target, lambda number: [DAMAGE, HARMLESS])
    assert (events, readings, totals.severities[ERROR]) == ([DAMAGE, HARMLESS], 2, 1)


def test_damage_is_found_among_findings_that_change_each_time(target: PartitionTarget) -> None:
    events, totals, readings = _settled(target, lambda number: [_passing(number), DAMAGE, HARMLESS])
    *reported, note = events
    assert (reported, readings, totals.severities[ERROR]) == ([DAMAGE, HARMLESS], READINGS, 1)
    assert isinstance(note, Finding) and (note.id, note.severity) == ("changed-while-read", INFO)
    assert "1 finding of only one of 4 readings" in note.message
    assert totals.severities[INFO] == 2


def test_partition_deleted_by_the_broker_is_not_an_error(target: PartitionTarget) -> None:
    def found(number: int) -> list[Finding]:
        shutil.rmtree(target.path)
        raise VanishedInput(f"cannot read {target.path}: No such file or directory")

    (note,), totals, readings = _settled(target, found)
    assert isinstance(note, Finding) and (note.id, note.path) == ("changed-while-read", target.path)
    assert (readings, totals.severities) == (1, {ERROR: 0, "warning": 0, INFO: 1})


def test_target_unreadable_in_every_reading_is_a_failure(target: PartitionTarget) -> None:
    def found(number: int) -> list[Finding]:
        raise UnreadableInput("Input/output error")

    with pytest.raises(UnreadableInput):
        _settled(target, found)


def test_vanished_file_causes_a_new_listing(target: PartitionTarget) -> None:
    def found(number: int) -> list[Finding]:
        if number == 1:
            raise VanishedInput(f"cannot read {LOG}: No such file or directory")
        return [HARMLESS]

    events, _, readings = _settled(target, found)
    assert (events, readings) == ([HARMLESS], 2)
