"""A large log dumped by several processes gives the same output as by one."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from io import StringIO
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kseg.inspection.dump.options import DumpOptions
from kseg.jobs import forked_worker, log_parts, part_pool, part_worker
from kseg.jobs.events import Event, Text
from kseg.segment import layout as L
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.findings import Finding
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.targets import FileTarget
from tests.support.one_target import dump

BATCHES = 120
IS_READY = part_worker.PartWorker.is_ready
PART_BYTES = 4096


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_parts, "PART_BYTES", PART_BYTES)
    monkeypatch.setattr(log_parts, "_starts_compressed", lambda view: True)
    # can_fork refuses because of the test runner's threads, which hold no locks of ours
    monkeypatch.setattr(log_parts, "can_fork", lambda: True)
    monkeypatch.setattr(log_parts, "has_free_processor", lambda: True)
    # wait for the helpers: parts as small as these would be done before a helper has begun
    monkeypatch.setattr(part_worker.PartWorker, "is_ready", lambda _worker: True)


def log(codec: int = L.NONE) -> bytearray:
    """A log of 120 batches with ten records each."""
    batches = []
    for first in range(0, BATCHES * 10, 10):
        records = tuple(
            Record(n, 1000 + n, b"k%d" % n, bytes([65 + n % 50]) * 90) for n in range(first, first + 10)
        )
        batches.append(encode_batch(NewBatch(records=records, codec=codec)))
    return bytearray(b"".join(batches))


def dumped(path: Path, jobs: int, shape: str = "kafka") -> tuple[bytes, list[Finding]]:
    options = DumpOptions(format=shape, print_data_log=True, jobs=jobs)
    events: Iterator[Event] = dump(FileTarget(str(path)), options)
    text, findings = b"", []
    for event in events:
        if isinstance(event, Text):
            text += event.data
        elif isinstance(event, Finding):
            findings.append(event)
    return text, findings


def write(directory: Path, data: bytes | bytearray) -> Path:
    path = directory / "00000000000000000000.log"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("shape", ["kafka", "json"])
@pytest.mark.parametrize("codec", [L.NONE, L.LZ4])
@pytest.mark.parametrize("jobs", [2, 3])
def test_parallel_dump_joins_the_parts_in_order(tmp_path: Path, codec: int, jobs: int, shape: str) -> None:
    path = write(tmp_path, log(codec))
    if codec == L.NONE:
        assert len(log_parts.boundaries(memoryview(path.read_bytes()))) >= log_parts.MIN_PARTS
    text, findings = dumped(path, jobs, shape)
    assert (text, findings) == dumped(path, 1, shape)
    assert text.count(b'"type":"record"' if shape == "json" else b"\n| offset: ") == BATCHES * 10
    assert not findings


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["kafka", "json", "table"])
@pytest.mark.parametrize("jobs", [2, 3])
# batch 59 ends a part, batch 60 begins one
@pytest.mark.parametrize("at", [0, 17, 59, 60, 61, BATCHES - 1])
def test_parallel_dump_reports_damage_like_one_process(
    tmp_path: Path, at: int, jobs: int, shape: str
) -> None:
    data = log()
    starts = [0]
    while len(starts) < BATCHES:
        starts.append(starts[-1] + 12 + int.from_bytes(data[starts[-1] + 8 : starts[-1] + 12], "big"))
    data[starts[at] + 200] ^= 0xFF
    path = write(tmp_path, data)
    text, findings = dumped(path, jobs, shape)
    assert (text, findings) == dumped(path, 1, shape)
    assert [finding.id for finding in findings] == ["bad-crc"]


def test_torn_log_is_dumped_by_one_process(tmp_path: Path) -> None:
    path = write(tmp_path, log()[:-5])
    assert log_parts.boundaries(memoryview(path.read_bytes())) == []
    text, findings = dumped(path, 2)
    assert (text, findings) == dumped(path, 1)
    assert [finding.id for finding in findings] == ["torn-tail"]


def test_part_with_too_much_text_is_left_to_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, log())
    expected = dumped(path, 1)
    monkeypatch.setattr(log_parts, "MAX_TEXT_BYTES", 100)
    assert dumped(path, 2) == expected


def test_dead_helper_does_not_change_the_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, log())
    expected = dumped(path, 1)

    def die(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(part_worker._WorkerSide, "_put", die)
    assert dumped(path, 2) == expected


def test_no_helper_is_started_if_all_processors_are_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, log())
    expected = dumped(path, 1)

    def refuse(*_: object) -> None:
        raise AssertionError("a helper was started")

    monkeypatch.setattr(part_pool, "PartWorker", refuse)
    monkeypatch.setattr(log_parts, "has_free_processor", lambda: False)
    assert dumped(path, 2) == expected
    # busy only for a moment
    lulls = iter((False, True))
    monkeypatch.setattr(log_parts, "has_free_processor", lambda: next(lulls))
    with pytest.raises(AssertionError, match="a helper was started"):
        dumped(path, 2)


@pytest.mark.parametrize(
    ("text", "waiting"),
    [("9.1 8.2 7.3 5/360 123\n", 4), ("0.0 0.0 0.0 1/2 3\n", 0), ("", 0), ("a b c d\n", 0), (None, 0)],
)
def test_machine_load_is_read_from_proc(
    monkeypatch: pytest.MonkeyPatch, text: str | None, waiting: int
) -> None:
    def opened(_name: str) -> StringIO:
        if text is None:
            raise FileNotFoundError
        return StringIO(text)

    monkeypatch.setattr(forked_worker, "open", opened, raising=False)
    assert forked_worker.waiting_for_processors() == waiting
    monkeypatch.setattr(os, "cpu_count", lambda: waiting)
    # if the number of processors is unknown, 1 is assumed
    assert forked_worker.has_free_processor() == (waiting == 0)


@pytest.mark.parametrize("jobs", [2, 3])
def test_dump_does_not_wait_for_a_helper_without_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    path = write(tmp_path, log())
    monkeypatch.setattr(part_worker.PartWorker, "is_ready", IS_READY)
    expected = dumped(path, 1)
    begin = part_worker._WorkerSide.serve

    def sleep(self: Any, make: Any) -> None:
        # with three jobs, one helper works
        if jobs == 3 and next(numbers):
            begin(self, make)
        os.kill(os.getpid(), signal.SIGSTOP)

    numbers = count()
    monkeypatch.setattr(part_worker._WorkerSide, "serve", sleep)
    assert dumped(path, jobs) == expected


def test_result_of_a_late_helper_is_discarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A helper is stopped in the middle of a part and continues when the others are done. Its result is discarded."""
    path = write(tmp_path, log())
    monkeypatch.setattr(part_worker.PartWorker, "is_ready", IS_READY)
    expected = dumped(path, 1)
    monkeypatch.setattr(part_pool, "AHEAD", 1)
    put = part_worker._WorkerSide._put
    dropped: list[int] = []
    drop = part_worker.PartWorker.drop

    def put_late(self: Any, text: bytes) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)
        put(self, text)

    def wake(self: Any, part: int) -> None:
        dropped.append(part)
        drop(self, part)
        os.kill(self._process._pid, signal.SIGCONT)

    monkeypatch.setattr(part_worker._WorkerSide, "_put", put_late)
    monkeypatch.setattr(part_worker.PartWorker, "drop", wake)
    assert dumped(path, 2) == expected
    assert dropped


@pytest.mark.parametrize("slot_bytes", [100, 3000, 8192])
def test_text_larger_than_a_slot_arrives_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slot_bytes: int
) -> None:
    path = write(tmp_path, log())
    expected = dumped(path, 1)
    monkeypatch.setattr(part_worker, "SLOT_BYTES", slot_bytes)
    assert dumped(path, 3) == expected


@pytest.mark.parametrize("shape", ["kafka", "json"])
def test_text_of_helpers_is_yielded_without_a_copy(tmp_path: Path, shape: str) -> None:
    """Text arrives in complete lines, and is valid until the next event."""
    path = write(tmp_path, log())
    texts, views = [], []
    for event in dump(FileTarget(str(path)), DumpOptions(format=shape, print_data_log=True, jobs=2)):
        assert isinstance(event, Text)
        texts.append(bytes(event.data))
        if isinstance(event.data, memoryview):
            views.append(event.data)
    assert len(views) > 1
    assert all(text.endswith(b"\n") for text in texts)
    assert b"".join(texts) == dumped(path, 1, shape)[0]
    for view in views:
        with pytest.raises(ValueError, match="released"):
            view[0]


@pytest.mark.parametrize("codec", [L.NONE, L.LZ4])
def test_line_longer_than_a_slot_arrives_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: int
) -> None:
    records = [
        (Record(n, 1000 + n, None, bytes([65 + n % 50]) * (9000 if n % 7 else 90)),) for n in range(60)
    ]
    data = b"".join(encode_batch(NewBatch(records=each, codec=codec)) for each in records)
    path = write(tmp_path, data)
    monkeypatch.setattr(log_parts, "PART_BYTES", 100)
    monkeypatch.setattr(part_worker, "SLOT_BYTES", 4096)
    monkeypatch.setattr(part_worker, "MIN_ROOM_BYTES", 700)
    for shape in ("kafka", "json"):
        assert dumped(path, 2, shape) == dumped(path, 1, shape)


def test_dump_works_if_no_helper_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, log())
    expected = dumped(path, 1)

    def refuse() -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", refuse)
    assert dumped(path, 3) == expected


def test_only_magic_2_with_a_codec_counts_as_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert not log_parts._starts_compressed(memoryview(log()))
    assert log_parts._starts_compressed(memoryview(log(L.LZ4)))
    assert not log_parts._starts_compressed(memoryview(b"short"))


def test_abandoned_dump_ends_its_helpers(tmp_path: Path) -> None:
    path = write(tmp_path, log())
    before = _children()
    events = dump(FileTarget(str(path)), DumpOptions(print_data_log=True, jobs=3))
    for _ in range(4):
        next(events)
    assert len(_children()) == len(before) + 2
    events.close()  # type: ignore[attr-defined]
    assert _children() == before


def _children() -> set[str]:
    return set(
        Path("/proc/self/task")
        .joinpath(Path("/proc/thread-self").resolve().name, "children")
        .read_text()
        .split()
    )
