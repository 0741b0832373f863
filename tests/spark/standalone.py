"""A real Spark cluster on this machine: a master and workers of the installed pyspark, on free loopback ports.

Each is a separate process that is started as by Spark's own scripts and stopped by its process id.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.paths import ROOT

_PYSPARK = importlib.util.find_spec("pyspark")
SPARK_HOME = Path(_PYSPARK.origin).parent if _PYSPARK is not None and _PYSPARK.origin else Path()
START_SECONDS = 600
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_HIDE = 'mount -t tmpfs none "$0" && exec "$@"'
_PR_SET_PDEATHSIG = 1
_LOOPBACK = "127.0.0.1"


class Daemon:
    """A master or a worker. output: its log file. hidden: a directory that appears empty to it and to its children."""

    def __init__(
        self,
        kind: str,
        words: list[str],
        place: Path,
        environment: Mapping[str, str],
        hidden: Path | None = None,
        host: str = _LOOPBACK,
    ) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.output = place / "log"
        before = [] if hidden is None else ["unshare", "-m", "sh", "-c", _HIDE, str(hidden)]
        with self.output.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *before,
                    str(SPARK_HOME / "bin" / "spark-class"),
                    kind,
                    "--host",
                    host,
                    "--webui-port",
                    "0",
                    *words,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=place,
                env=_quiet(environment, host) | {"SPARK_WORKER_DIR": str(place / "work")},
                # the tests handle Ctrl-C
                start_new_session=True,
                preexec_fn=_end_with_the_tests,  # noqa: PLW1509  (one system call, no lock taken)
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first match in its output. Fails if it dies or takes too long."""
        give_up = time.monotonic() + START_SECONDS
        while time.monotonic() < give_up:
            match = re.search(pattern, self.output.read_text(errors="replace"))
            if match is not None:
                return match
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"Spark said no {pattern!r}:\n{self.output.read_text(errors='replace')[-4000:]}")

    def stop(self) -> None:
        for kind, patience in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
            if self._process.poll() is None:
                self._process.send_signal(kind)
            try:
                self._process.wait(patience)
                return
            except subprocess.TimeoutExpired:
                continue


class Standalone:
    """A master and workers of one core each. environment: that of the nodes. hidden: a directory that the workers do not see."""

    def __init__(
        self,
        place: Path,
        workers: int = 2,
        environment: Mapping[str, str] | None = None,
        hidden: Path | None = None,
    ) -> None:
        self._place = place
        self._environment = with_tests(os.environ) if environment is None else environment
        self._count = workers
        self._hidden = hidden
        self._started = 0
        self.workers: list[Daemon] = []
        self.url = ""

    def __enter__(self) -> Self:
        self._master = Daemon(_MASTER, ["--port", "0"], self._place / "master", self._environment)
        try:
            self.url = self._master.wait_for(r"Starting Spark master at (spark://\S+)")[1]
            for _ in range(self._count):
                self.add_worker()
            for worker in self.workers:
                worker.wait_for("Successfully registered with master")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def add_worker(self) -> Daemon:
        self._started += 1
        words = ["--port", "0", "--cores", "1", "--memory", "1g", self.url]
        place = self._place / f"worker-{self._started}"
        # each has its own address, so that Spark takes them for different machines, which a second attempt requires
        host = f"127.0.0.{1 + self._started}"
        worker = Daemon(_WORKER, words, place, self._environment, self._hidden, host)
        self.workers.append(worker)
        return worker

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop()
        self._master.stop()


def executor_of(pid: int) -> int:
    """The process id of the executor to which a Python worker belongs."""
    while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        status = Path(f"/proc/{pid}/status").read_text()
        pid = int(re.search(r"PPid:\s+([0-9]+)", status)[1])  # type: ignore[index]  # every process has one
    return pid


def _end_with_the_tests() -> None:
    """Let the system end this process when its parent ends, for whatever reason (Linux)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def with_tests(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which nodes can import kseg and the work defined in tests."""
    paths = filter(None, (str(ROOT), environment.get("PYTHONPATH")))
    return {**environment, "PYTHONPATH": os.pathsep.join(paths)}


def _quiet(environment: Mapping[str, str], host: str) -> dict[str, str]:
    return {
        **environment,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": host,
        "SPARK_DAEMON_MEMORY": "256m",
    }
