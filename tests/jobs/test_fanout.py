"""The fan-out with trivial work: order, bounds, worker deaths and interrupts."""

import errno
import gc
import mmap
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kseg.jobs import fanout
from kseg.jobs.events import Event, Failure, Row, Text
from kseg.jobs.forked_worker import ForkedWorker, can_fork
from kseg.jobs.target_worker import TargetWorker
from kseg.segment.errors import Refused, UnreadableInput
from kseg.segment.findings import Finding

NO_MEMORY = "perhaps the system had no memory left (fewer --jobs need less)"


@dataclass(frozen=True, slots=True)
class Toy:
    path: str
    number: int


def toys(count: int) -> list[Toy]:
    return [Toy(f"file-{number}", number) for number in range(count)]


def tell(target: Toy, options: str) -> Iterator[Event]:
    yield Text(f"{options} {target.number}\n".encode())
    yield Row({"type": "toy", "number": target.number})
    yield Finding("bad-crc", target.path, "toy damage", position=target.number, length=1)


def slow_first(target: Toy, options: str) -> Iterator[Event]:
    if target.number == 0:
        time.sleep(0.3)
    yield from tell(target, options)


def pour(target: Toy, options: int) -> Iterator[Event]:
    for _ in range(options):
        yield Text(bytes([65 + target.number]) * 1_000_000)


def stumble(target: Toy, options: str) -> Iterator[Event]:
    yield Text(b"before\n")
    if target.number == 1:
        raise UnreadableInput("cannot read file-1: toy")
    if target.number == 2:
        raise Refused("refused file-2")
    if target.number == 3:
        raise ZeroDivisionError("toy bug")
    if target.number == 4:
        raise OSError(5, "Input/output error")
    yield Text(b"after\n")


def touch_what_is_gone() -> None:
    """Touch a page of a map beyond the end of its file, without a handler."""
    with tempfile.TemporaryFile() as file:
        file.truncate(2 * mmap.PAGESIZE)
        view = mmap.mmap(file.fileno(), 2 * mmap.PAGESIZE)
        file.truncate(0)
        assert not view[mmap.PAGESIZE]


def die(target: Toy, options: str) -> Iterator[Event]:
    yield Text(b"alive\n")
    if target.number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if target.number == 5:
        os._exit(9)
    if target.number == 7:
        touch_what_is_gone()
    if target.number == 11:
        os.kill(os.getpid(), signal.SIGSEGV)
    yield Text(f"{target.number}\n".encode())


def unpicklable(target: Toy, options: str) -> Iterator[Event]:
    yield Row({"type": "toy", "value": lambda: None})


def note_and_wait(target: Toy, options: str) -> Iterator[Event]:
    yield Text(f"{target.number}\n".encode())
    if target.number >= 2:
        (Path(options) / str(os.getpid())).touch()
        time.sleep(3600)


@pytest.mark.parametrize("jobs", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_events_come_in_target_order_for_any_number_of_jobs(jobs: int, count: int) -> None:
    expected = [event for target in toys(count) for event in tell(target, "word")]
    done: list[Toy] = []

    assert list(fanout.run(tell, toys(count), "word", jobs, done.append)) == expected
    assert done == toys(count)


def test_slow_first_target_does_not_change_the_order() -> None:
    targets = toys(9)
    assert list(fanout.run(slow_first, targets, "w", 3)) == list(fanout.run(tell, targets, "w", 1))


def test_one_job_forks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
    assert len(list(fanout.run(tell, toys(5), "w", 1))) == 15
    assert len(list(fanout.run(tell, toys(1), "w", 8))) == 3


def test_big_text_streams_through_pipes_with_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "AHEAD_BYTES", 3_000_000)
    crew: list[fanout._WorkerPool] = []
    start = fanout._WorkerPool._start

    def noted_start(self: fanout._WorkerPool) -> TargetWorker | None:
        crew.append(self)
        return start(self)

    monkeypatch.setattr(fanout._WorkerPool, "_start", noted_start)

    seen = bytearray()
    most_waiting = 0
    for event in fanout.run(pour, toys(4), 12, 3):
        assert isinstance(event, Text)
        seen += event.data[:1]
        most_waiting = max(most_waiting, crew[0]._ahead_bytes)

    assert seen == b"A" * 12 + b"B" * 12 + b"C" * 12 + b"D" * 12
    # the limit, and one message from each worker
    assert most_waiting < 3_000_000 + 3 * 1_300_000


@pytest.mark.parametrize("jobs", [1, 3])
def test_failing_target_is_named_and_the_others_continue(jobs: int) -> None:
    events = list(fanout.run(stumble, toys(6), "", jobs))
    failures = [event for event in events if isinstance(event, Failure)]

    assert [event.path for event in failures] == ["file-1", "file-2", "file-3", "file-4"]
    assert [event.exit_status for event in failures] == [3, 4, 70, 3]
    assert failures[0].sentence == "cannot read file-1: toy"
    assert failures[2].sentence == "bug in kseg at file-3: ZeroDivisionError: toy bug"
    assert "ZeroDivisionError" in failures[2].trace and failures[0].trace == ""
    assert failures[3].sentence == "cannot read file-4: Input/output error"
    assert events.count(Text(b"before\n")) == 6 and events.count(Text(b"after\n")) == 2


def test_dead_worker_fails_only_its_target() -> None:
    events = list(fanout.run(die, toys(40), "", 2))
    failures = {event.path: event for event in events if isinstance(event, Failure)}
    texts = b"".join(event.data for event in events if isinstance(event, Text) and event.data != b"alive\n")

    output = {path: (event.sentence, event.exit_status) for path, event in failures.items()}
    assert output == {
        "file-2": (f"the process working on file-2 was killed by SIGKILL: {NO_MEMORY}", 3),
        "file-5": ("the process working on file-5 ended with status 9", 70),
        "file-7": (
            "the process working on file-7 was killed by SIGBUS: a page of a file could not be read",
            3,
        ),
        "file-11": ("the process working on file-11 was killed by SIGSEGV: bad memory, or a bug in kseg", 3),
    }
    assert texts.split() == [b"%d" % number for number in range(40) if number not in (2, 5, 7, 11)]


def killed_at_two(target: Toy, options: str) -> Iterator[Event]:
    if target.number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    yield from tell(target, options)


@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_parent_works_itself_if_no_worker_can_be_forked(
    allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker at target 2 is killed and cannot be replaced."""
    start, left = TargetWorker.__init__, iter(range(allowed))

    def limited(worker: TargetWorker, *rest: Any) -> None:
        if next(left, None) is None:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        start(worker, *rest)

    monkeypatch.setattr(TargetWorker, "__init__", limited)
    finished: list[int] = []
    work = killed_at_two if allowed else tell
    events = list(fanout.run(work, toys(20), "word", 3, lambda toy: finished.append(toy.number)))
    failed = [event for event in events if isinstance(event, Failure)]
    expected = [event for toy in toys(20) if not failed or toy.number != 2 for event in tell(toy, "word")]
    assert [event for event in events if not isinstance(event, Failure)] == expected
    assert len(failed) == bool(allowed) and finished == [*range(20)]


def test_workers_of_a_process_with_threads_are_spawned() -> None:
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    try:
        assert not can_fork()
        expected = [event for target in toys(9) for event in tell(target, "word")]
        assert list(fanout.run(tell, toys(9), "word", 2)) == expected
        (failure,) = (event for event in fanout.run(die, toys(4), "", 2) if isinstance(event, Failure))
    finally:
        over.set()
        other.join()
    assert failure.sentence == f"the process working on file-2 was killed by SIGKILL: {NO_MEMORY}"


def test_unpicklable_event_is_reported_as_a_bug() -> None:
    first, second = fanout.run(unpicklable, toys(2), "", 2)
    assert isinstance(first, Failure) and isinstance(second, Failure)
    assert first.path == "file-0" and first.exit_status == 70


def test_interrupt_stops_the_workers_and_yields_finished_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = fanout._WorkerPool._receive

    def interrupt_when_all_are_busy(crew: fanout._WorkerPool) -> None:
        receive(crew)
        if {0, 1} <= crew._complete | set(range(crew._current)):
            while len(list(tmp_path.iterdir())) < 2:
                time.sleep(0.01)
            raise KeyboardInterrupt

    monkeypatch.setattr(fanout._WorkerPool, "_receive", interrupt_when_all_are_busy)
    seen: list[Event] = []
    with pytest.raises(KeyboardInterrupt):
        for event in fanout.run(note_and_wait, toys(4), str(tmp_path), 2):
            seen.append(event)  # noqa: PERF402  (a copy would lose what came before the interrupt)

    assert seen[:2] == [Text(b"0\n"), Text(b"1\n")]
    for worker in tmp_path.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(worker.name), 0)


def test_abandoned_fanout_stops_the_workers(tmp_path: Path) -> None:
    events = fanout.run(note_and_wait, toys(9), str(tmp_path), 2)
    assert next(events) == Text(b"0\n")
    while len(list(tmp_path.iterdir())) < 1:
        time.sleep(0.01)
    events.close()

    for worker in tmp_path.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(worker.name), 0)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="asks /proc who is alive")
def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """The parent holds the lock on the data directory. When the lock is released, no worker may change files any more."""
    parent = os.fork()
    if parent == 0:
        for _ in fanout.run(note_and_wait, toys(9), str(tmp_path), 3):
            pass
        os._exit(0)
    while len(workers := list(tmp_path.iterdir())) < 3:
        time.sleep(0.01)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)

    deadline = time.monotonic() + 300
    for worker in workers:
        while is_at_work(int(worker.name)):
            assert time.monotonic() < deadline, "a worker goes on without its parent"
            time.sleep(0.01)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="asks /proc who is alive")
def test_workers_end_with_a_killed_parent_that_has_forked_others(tmp_path: Path) -> None:
    """A process that was forked by the work on a shared target may outlive the parent, but does not keep the workers alive."""
    parent = os.fork()
    if parent == 0:
        for _ in fanout.run(fork_or_wait, toys(9), str(tmp_path), 3, None, {0}, str(tmp_path)):
            pass
        os._exit(0)
    while len(workers := [path for path in tmp_path.iterdir() if not path.suffix]) < 2:
        time.sleep(0.01)
    while not (helpers := list(tmp_path.glob("*.forked"))):
        time.sleep(0.01)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    forked = int(helpers[0].stem)
    try:
        deadline = time.monotonic() + 300
        for worker in (int(path.name) for path in workers):
            while is_at_work(worker):
                assert time.monotonic() < deadline, "a worker goes on without its parent"
                time.sleep(0.01)
        assert is_at_work(forked)
    finally:
        os.kill(forked, signal.SIGKILL)


def fork_or_wait(target: Toy, directory: str) -> Iterator[Event]:
    def sleep(_reads: int, _writes: int) -> None:
        (Path(directory) / f"{os.getpid()}.forked").touch()
        time.sleep(600)

    if target.number == 0:
        yield Text(b"a worker that waits\n")
        ForkedWorker(sleep)
        time.sleep(600)
    yield from note_and_wait(target, directory)


def is_at_work(process: int) -> bool:
    """Whether a process is alive; a zombie is not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Inherited:
    """An object that only the process that created it may finalize, such as the client of a broker, which waits for its threads."""

    def __init__(self) -> None:
        # a cycle, which only the garbage collector frees
        self.myself = self
        self.owner = os.getpid()

    def __del__(self) -> None:
        if os.getpid() != self.owner:
            os._exit(99)


def collect(target: Toy, _options: str) -> Iterator[Event]:
    gc.collect()
    yield Text(str(gc.isenabled()).encode())


def test_worker_finalizes_no_inherited_objects() -> None:
    Inherited()
    assert list(fanout.run(collect, toys(2), "", 2)) == [Text(b"True")] * 2
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_forked_worker_finalizes_no_inherited_objects() -> None:
    Inherited()
    worker = ForkedWorker(collect_and_signal)
    try:
        assert os.read(worker.reads, 1) == b"."
    finally:
        worker.kill()


def collect_and_signal(_reads: int, writes: int) -> None:
    gc.collect()
    os.write(writes, b".")


def where(target: Toy, options: str) -> Iterator[Event]:
    """A row with the process id, after as many lines as the target's number."""
    for _ in range(target.number):
        yield Text(f"{options}\n".encode())
    yield Row({"type": "toy", "number": target.number, "pid": os.getpid(), "options": options})


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2, 3, 8])
@pytest.mark.parametrize("shared", [set[int](), {0}, {11}, {3, 4, 9}, set(range(12)), set(range(11))])
def test_shared_targets_run_in_the_parent_in_order(jobs: int, shared: set[int]) -> None:
    finished: list[int] = []
    events = list(
        fanout.run(
            where, toys(12), "one", jobs, lambda target: finished.append(target.number), shared, "several"
        )
    )
    rows = [event.values for event in events if isinstance(event, Row)]
    assert [row["number"] for row in rows] == finished == list(range(12))
    assert {row["number"] for row in rows if row["options"] == "several"} == shared
    assert all(row["pid"] == os.getpid() for row in rows if row["number"] in shared)
    if jobs > 1 and len(shared) < 11:
        assert all(row["pid"] != os.getpid() for row in rows if row["number"] not in shared)
    assert sum(isinstance(event, Text) for event in events) == sum(range(12))


@pytest.mark.parametrize("shared", [{1}, {2, 3}, {1, 2, 3, 4}])
def test_failing_shared_target_is_named_like_others(shared: set[int]) -> None:
    alone = list(fanout.run(stumble, toys(8), ""))
    together = list(fanout.run(stumble, toys(8), "", 2, None, shared, ""))
    for event in (*alone, *together):
        if isinstance(event, Failure):
            assert event.path.startswith("file-")
    sentences = [
        [event.sentence if isinstance(event, Failure) else event for event in each]
        for each in (alone, together)
    ]
    assert sentences[0] == sentences[1]


def test_workers_continue_during_a_shared_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker sends more than a pipe can buffer, so it continues only while this process reads."""
    monkeypatch.setattr(fanout, "RECEIVE_SECONDS", 0)
    ends: dict[int, float] = {}

    def work(target: Toy, options: int) -> Iterator[Event]:
        if target.number == 0:
            for _ in range(100):
                time.sleep(0.02)
                yield Text(b"here\n")
        else:
            yield Text(bytes(1_000_000))
        yield Row({"type": "toy", "ended": time.monotonic(), "number": target.number})

    for event in fanout.run(work, toys(7), 0, 2, None, {0}, 0):
        if isinstance(event, Row):
            ended, number = event.values["ended"], event.values["number"]
            assert isinstance(ended, float) and isinstance(number, int)
            ends[number] = ended
    assert max(ended for number, ended in ends.items() if number) < ends[0]
