"""Signals are deferred while an operation must not be left unfinished, whatever else the process does."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from kseg.change.apply.signals import _DEFERRED, deferring_signals, handling_signals


@pytest.fixture(autouse=True)
def handlers_stay() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    assert [signal.getsignal(number) for number in numbers] == before


def test_deferred_interrupt_is_raised_after_the_outermost_body() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), deferring_signals():
        with deferring_signals():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            done.append("inner")
        done.append("outer")
    assert done == ["inner", "outer"]
    with deferring_signals():
        # both signals arrived as one
        pass


def test_interrupt_is_deferred_beside_another_thread() -> None:
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    done = False
    try:
        with pytest.raises(KeyboardInterrupt), deferring_signals():
            assert other.ident is not None
            signal.pthread_kill(other.ident, signal.SIGINT)
            # until the thread has run
            for _ in range(150_000):
                time.sleep(0.002)
                if _DEFERRED.came:
                    break
            done = True
    finally:
        stop.set()
        other.join()
    assert done


def test_signals_between_deferring_bodies_are_raised_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), handling_signals():
        with suppress(KeyboardInterrupt), deferring_signals():
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it did not come")


def test_body_in_another_thread_defers_no_signal() -> None:
    """A thread is not interrupted anyway. It must neither delay the main thread's signal nor receive it."""
    ready, stop = threading.Event(), threading.Event()
    raised = []

    def body() -> None:
        try:
            with deferring_signals():
                ready.set()
                stop.wait()
        except KeyboardInterrupt as interrupt:
            raised.append(interrupt)

    other = threading.Thread(target=body)
    with handling_signals():
        other.start()
        ready.wait()
        try:
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
                raise AssertionError("it did not come")
        finally:
            stop.set()
            other.join()
    assert raised == []


def test_ignored_signal_stays_ignored() -> None:
    former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with deferring_signals():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, former)


def test_exception_of_the_body_is_the_context_of_the_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt) as caught, deferring_signals():
        signal.raise_signal(signal.SIGINT)
        raise OSError("disk")
    assert isinstance(caught.value.__context__, OSError)


def test_deferring_signals_in_another_thread_is_harmless() -> None:
    left = []

    def work() -> None:
        with deferring_signals():
            left.append(True)

    other = threading.Thread(target=work)
    other.start()
    other.join()
    assert left == [True]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_is_deferred_and_then_kills(number: signal.Signals) -> None:
    script = (
        "import signal\n"
        "from kseg.change.apply.signals import deferring_signals\n"
        "with deferring_signals():\n"
        f"    signal.raise_signal({int(number)})\n"
        "    print('done', flush=True)\n"
        "print('survived')\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (-number, "done\n")
