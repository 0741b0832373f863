"""Commands that use threads do the same work if the system allows no thread to start, or only some."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kseg.cli.main import run
from kseg.jobs.threads import WorkerThreads
from tests.support.paths import ROOT
from tests.support.trees import tree_state

PARTITIONS = 20
CHANGES = (("recover", "--rebuild"), ("compact", "--cleanup-policy", "compact", "--include-active"))


def limit_threads(patch: pytest.MonkeyPatch, allowed: int) -> None:
    start, left = threading.Thread.start, iter(range(allowed))

    def limited(thread: threading.Thread) -> None:
        if next(left, None) is None:
            raise RuntimeError("can't start new thread")
        start(thread)

    patch.setattr(threading.Thread, "start", limited)


def contents(data: Path) -> dict[str, str]:
    """The content of all files except kseg's own."""
    return {name: entry.content for name, entry in tree_state(data).items() if "kseg" not in name}


@pytest.mark.slow
@pytest.mark.parametrize("allowed", [0, 3])
@pytest.mark.parametrize("words", CHANGES, ids=lambda words: words[0])
def test_change_and_undo_work_without_threads(
    capture_small: Path, tmp_path: Path, words: tuple[str, ...], allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    for number in range(PARTITIONS):
        shutil.copytree(capture_small / "data" / "metro-none-0", data / f"metro-{number}")
    usual = Path(shutil.copytree(data, tmp_path / "usual"))
    before = tree_state(data)
    words = (*words, "--apply", "--quiet")
    status = run([*words, str(usual)])
    limit_threads(monkeypatch, allowed)
    assert run([*words, str(data)]) == status
    assert contents(data) == contents(usual)
    assert run(["undo", "--quiet", str(data)]) == 0
    assert tree_state(data) == before


def test_export_works_without_threads(
    capture_small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sinks = pytest.importorskip("kseg.inspection.export.sinks", exc_type=ImportError)
    monkeypatch.setattr(sinks, "has_free_processor", lambda: True)
    limit_threads(monkeypatch, 0)
    log = str(capture_small / "data" / "fares-0")
    words = ["export", "--quiet", "--to", "parquet", "--jobs", "2", "--output", str(tmp_path / "out"), log]
    assert run(words) == 0


@pytest.mark.parametrize("allowed", [0, 3])
def test_exception_in_a_worker_thread_is_raised(allowed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_threads(monkeypatch, allowed)
    with WorkerThreads(8) as threads, pytest.raises(ZeroDivisionError):
        [threads.submit(divmod, 7, divisor) for divisor in (2, 0, 1)][1].result()


def test_threads_leave_memory_for_the_work() -> None:
    """A thread that uses up what a limit leaves fails the work of others, or ends before it begins, and Python's own start waits for it for
    ever. Which of the limits do that depends on the machine."""
    code = """
import resource, signal, threading
from kseg.jobs.threads import WorkerThreads
signal.alarm(60)
for free_mib in range(8, 160):
    used_bytes = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    limit = used_bytes + (free_mib << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    with WorkerThreads(16) as threads:
        assert [threads.submit(bytes, 1 << 16).result() for _ in range(16)] == [bytes(1 << 16)] * 16
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_no_thread_work_starts_after_an_interrupt() -> None:
    begun, goes_on = [], threading.Event()

    def work(number: int) -> None:
        begun.append(number)
        goes_on.wait(10)

    with pytest.raises(KeyboardInterrupt), WorkerThreads(1) as threads:
        futures = [threads.submit(work, number) for number in range(3)]
        while not begun:
            threading.Event().wait(0.01)
        threading.Timer(0.05, goes_on.set).start()
        raise KeyboardInterrupt
    assert begun == [0]
    assert [future.cancelled() for future in futures] == [False, True, True]
