"""Reading commands beside a running broker, represented by a process that holds its lock: files disappear while they are read. Without the
lock, a missing file is an error."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fixtures import healthy
from kseg.change.run import rereading
from kseg.change.run.rereading import Rereading, repeated
from kseg.cli.main import run
from kseg.inspection.arrow import record_batches
from kseg.inspection.arrow.log_ranges import LogPiece
from kseg.inspection.copies.compare_copies import compare_copies
from kseg.inspection.copies.copy_pairs import CopyPair
from kseg.inspection.export import export
from kseg.jobs.events import Event, Failure, Row
from kseg.jobs.guarded import guarded
from kseg.segment.errors import VanishedInput
from kseg.segment.files import SMALL_BYTES, MappedFile
from kseg.segment.findings import Finding
from kseg.segment.partition.targets import PartitionTarget
from tests.support.command_lines import Capfd
from tests.support.lock_holders import child, running_broker

DONE = Row({"type": "done"})
GONE = VanishedInput("cannot read 0.log: No such file or directory")
FAILED = Failure("orders-0", str(GONE), 3, is_vanished=True)


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PartitionTarget:
    monkeypatch.setattr(rereading, "PAUSE_S", 0)
    (tmp_path / "data" / "orders-0").mkdir(parents=True)
    return PartitionTarget(str(tmp_path / "data" / "orders-0"), str(tmp_path / "data"))


@pytest.fixture
def broker(target: PartitionTarget) -> Iterator[None]:
    with child(running_broker(Path(str(target.log_dir)))) as process:
        assert process.output() == "in"
        yield


class Work:
    """Finds a deleted file in its first readings. shown: what it yields before that. is_raised: whether it raises or yields the failure."""

    def __init__(self, vanishing: int, *shown: Event, is_raised: bool = True) -> None:
        self.left = vanishing
        self.shown = shown
        self.is_raised = is_raised

    def __call__(self, target: PartitionTarget, options: object) -> Iterator[Event]:
        yield from self.shown
        if self.left:
            self.left -= 1
            if self.is_raised:
                raise GONE
            yield FAILED
        yield DONE


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("is_raised", [True, False])
def test_deleted_file_causes_a_second_listing_of_the_target(target: PartitionTarget, is_raised: bool) -> None:
    assert [*Rereading(Work(2, is_raised=is_raised))(target, None)] == [DONE]


def _failures(events: Iterable[Event]) -> list[str]:
    return [event.sentence for event in events if isinstance(event, Failure)]


@pytest.mark.usefixtures("broker")
def test_printed_rows_are_not_repeated_by_a_second_reading(target: PartitionTarget) -> None:
    events = [*Rereading(Work(1, first := Row({"type": "first"})))(target, None)]
    assert (events[0], _failures(events), len(events)) == (first, [str(GONE)], 2)


@pytest.mark.usefixtures("broker")
def test_rereading_ends_after_a_limited_number_of_attempts(target: PartitionTarget) -> None:
    assert _failures(Rereading(Work(1000))(target, None)) == [str(GONE)]


def test_missing_file_without_a_broker_is_an_immediate_error(target: PartitionTarget) -> None:
    work = Work(1)
    assert (_failures(Rereading(work)(target, None)), work.left) == ([str(GONE)], 0)


@pytest.mark.usefixtures("broker")
def test_partition_deleted_while_read_is_an_info(target: PartitionTarget) -> None:
    def work(target: PartitionTarget, options: object) -> Iterator[Event]:
        shutil.rmtree(target.path)
        raise VanishedInput("cannot read it")
        yield

    (note,) = Rereading(work)(target, None)
    assert isinstance(note, Finding) and note.id == "changed-while-read"


@pytest.mark.usefixtures("broker")
def test_file_deleted_while_dumped_is_an_info(target: PartitionTarget) -> None:
    """`dump` prints a log batch by batch, and used to end with an error."""

    def work(target: PartitionTarget, options: object) -> Iterator[Event]:
        yield DONE
        shutil.rmtree(target.path)
        raise VanishedInput("cannot read it")

    first, note = Rereading(work)(target, None)
    assert first == DONE and isinstance(note, Finding) and note.id == "changed-while-read"


@pytest.mark.usefixtures("broker")
def test_export_reads_a_changed_partition_again(
    target: PartitionTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first reading has written is discarded."""
    Path(target.path).rmdir()
    healthy.partition(Path(target.path))
    left = [GONE]

    def vanishing(piece: LogPiece, *words: Any) -> Iterator[Any]:
        yield from record_batches.read_piece(piece, *words)
        if left:
            raise left.pop()

    monkeypatch.setattr(export, "read_piece", vanishing)
    for output in (tmp_path / "again", tmp_path / "whole"):
        assert run(["export", "--jobs", "1", "--to", "csv", "--output", str(output), target.path]) == 0
    again, whole = (
        [path.read_bytes() for path in output.glob("part-*")]
        for output in (tmp_path / "again", tmp_path / "whole")
    )
    assert again == whole != []


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("words", [["recover"], ["retain"], ["compact", "--cleanup-policy", "compact"]])
def test_plan_beside_a_broker_says_that_its_files_are_in_use(
    target: PartitionTarget, capfd: Capfd, words: list[str]
) -> None:
    run([*words, str(target.log_dir)])
    assert f"{target.log_dir} is in use by a broker or another kseg (process " in capfd.readouterr().err


def test_diff_reports_an_unreadable_copy_as_an_error(
    target: PartitionTarget, tmp_path: Path, capfd: Capfd
) -> None:
    """A pair of copies has no data directory whose lock could be checked. This used to be a bug in kseg (status 70)."""
    Path(target.path).rmdir()
    healthy.partition(Path(target.path))
    copy = shutil.copytree(target.path, tmp_path / "copy" / "orders-0")
    log = max(copy.glob("*.log"))
    log.unlink()
    log.mkdir()
    assert run(["diff", target.path, str(copy)]) == 5
    assert f"cannot read {log}: not a regular file" in capfd.readouterr().err


def test_plan_without_a_broker_says_nothing_about_use(target: PartitionTarget, capfd: Capfd) -> None:
    run(["recover", str(target.log_dir)])
    assert "in use" not in capfd.readouterr().err


def _kinds(capfd: Capfd, target: PartitionTarget) -> set[Any]:
    run(["verify", "--json", str(target.log_dir)])
    return {json.loads(line).get("id") for line in capfd.readouterr().out.splitlines()}


@pytest.mark.usefixtures("broker")
def test_damage_is_found_beside_a_broker(target: PartitionTarget, capfd: Capfd) -> None:
    Path(target.path).rmdir()
    healthy.partition(Path(target.path))
    assert "bad-crc" not in _kinds(capfd, target)
    log = max(Path(target.path).glob("*.log"), key=lambda path: path.stat().st_size)
    content = bytearray(log.read_bytes())
    content[70] ^= 1
    log.write_bytes(content)
    assert "bad-crc" in _kinds(capfd, target)


TORN = Finding("bad-crc", "orders-0/0.log", "cut off", position=40)


class Damaged:
    """Finds damage in its first readings. missing: the number of these readings."""

    def __init__(self, readings: int) -> None:
        self.left = readings

    def __call__(self, target: PartitionTarget, options: object) -> Iterator[Event]:
        if self.left:
            self.left -= 1
            yield TORN
        yield DONE


@pytest.mark.parametrize(("readings", "expected"), [(1, "changed-while-read"), (2, "bad-crc")])
@pytest.mark.usefixtures("broker")
def test_damage_beside_a_broker_is_confirmed_by_a_second_reading(
    target: PartitionTarget, readings: int, expected: str
) -> None:
    """`dump` used to compare an index with a log to which the broker had appended in between."""
    first, found = Rereading(Damaged(readings), confirms=True)(target, None)
    assert first == DONE
    assert isinstance(found, Finding) and found.id == expected


def test_damage_without_a_broker_is_reported_at_once(target: PartitionTarget) -> None:
    assert [*Rereading(Damaged(1), confirms=True)(target, None)] == [TORN, DONE]


@pytest.mark.usefixtures("broker")
def test_directory_deleted_before_it_is_listed_is_an_info(target: PartitionTarget) -> None:
    """The system's error used to be reported as a failure."""

    def work(target: PartitionTarget, options: object) -> Iterator[Event]:
        shutil.rmtree(target.path)
        yield Row({"files": len(os.listdir(target.path))})

    (note,) = Rereading(work)(target, None)
    assert isinstance(note, Finding) and note.id == "changed-while-read"


def _planned(work: Work | Damaged, target: PartitionTarget) -> list[Event]:
    return [*repeated(partial(guarded, work, target, None), target)]


@pytest.mark.parametrize("work", [Work(2), Work(1, Row({"type": "first"})), Damaged(1)])
@pytest.mark.usefixtures("broker")
def test_plan_is_repeated_until_nothing_changes(target: PartitionTarget, work: Work | Damaged) -> None:
    """A plan with files that the broker deleted in the meantime used to be an error, and one with an older index reported damage."""
    assert _planned(work, target)[-1] == DONE
    assert not work.left


@pytest.mark.usefixtures("broker")
def test_plan_with_persistent_damage_is_reported(target: PartitionTarget) -> None:
    assert _planned(Damaged(1000), target) == [TORN, DONE]


def test_plan_without_a_broker_is_made_once(target: PartitionTarget) -> None:
    assert _planned(work := Damaged(1000), target) == [TORN, DONE]
    assert work.left == 999


@pytest.mark.usefixtures("broker")
def test_plan_of_constantly_changing_files_fails(target: PartitionTarget) -> None:
    numbers = count()

    def work(target: PartitionTarget, options: object) -> Iterator[Event]:
        yield Finding("bad-crc", target.path, "cut off", position=next(numbers))
        yield DONE

    (failure,) = repeated(partial(guarded, work, target, None), target)
    assert isinstance(failure, Failure) and "in each of 4 readings" in failure.sentence


@pytest.mark.usefixtures("broker")
def test_plan_of_a_partition_deleted_meanwhile_is_an_info(target: PartitionTarget) -> None:
    def work(target: PartitionTarget, options: object) -> Iterator[Event]:
        shutil.rmtree(target.path)
        raise VanishedInput("cannot read it")
        yield

    (note,) = repeated(partial(guarded, work, target, None), target)
    assert isinstance(note, Finding) and note.id == "changed-while-read"


@pytest.mark.usefixtures("broker")
def test_copy_deleted_before_it_is_compared_is_an_info(target: PartitionTarget, tmp_path: Path) -> None:
    other = PartitionTarget(str(tmp_path / "copy" / "orders-0"), str(tmp_path / "copy"))
    shutil.copytree(target.path, other.path)
    Path(target.path).rmdir()
    (note,) = compare_copies(CopyPair("orders-0", target, other), None)
    assert isinstance(note, Finding) and note.id == "changed-while-read"


@pytest.mark.usefixtures("broker")
def test_index_trimmed_while_it_is_opened_is_read_again(
    target: PartitionTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker trims a preallocated index when it rolls the segment, which used to be an error."""
    index = Path(target.path, "0.index")
    index.write_bytes(bytes(SMALL_BYTES + 8))
    mapped, failures = MappedFile._mapped, [ValueError("mmap length is greater than file size")]

    def cut(self: MappedFile, random_access: bool) -> object:
        if failures:
            raise failures.pop()
        return mapped(self, random_access)

    def work(target: PartitionTarget, options: object) -> Iterator[Event]:
        with MappedFile(str(index)) as file:
            yield Row({"bytes": file.size_bytes})

    monkeypatch.setattr(MappedFile, "_mapped", cut)
    assert [*Rereading(work)(target, None)] == [Row({"bytes": SMALL_BYTES + 8})]
