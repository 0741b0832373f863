"""A real Spark cluster on this machine: a master and workers of the installed pyspark, on loopback, on free ports.

Each is a process of its own, started as Spark's own scripts start it, and stopped by its process id.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

SPARK_HOME = Path(pyspark.__file__).parent
START_SECONDS = 120
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_LOOPBACK = "127.0.0.1"


class Daemon:
    """A master or a worker. said: its log file."""

    def __init__(
        self, kind: str, words: list[str], place: Path, environment: Mapping[str, str], host: str = _LOOPBACK
    ) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.said = place / "log"
        with self.said.open("wb") as log:
            self._process = subprocess.Popen(
                [
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
                start_new_session=True,  # with it go its executors
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first match in what it says; fails when it dies or takes too long."""
        give_up = time.monotonic() + START_SECONDS
        while time.monotonic() < give_up:
            match = re.search(pattern, self.said.read_text(errors="replace"))
            if match is not None:
                return match
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"Spark said no {pattern!r}:\n{self.said.read_text(errors='replace')[-4000:]}")

    def executors(self) -> list[int]:
        """The process ids of the executors of a worker."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        threads = Path(f"/proc/{self.pid}/task").iterdir() if children.exists() else ()
        found = [int(pid) for thread in threads for pid in (thread / "children").read_text().split()]
        return [
            pid
            for pid in found
            if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]

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
    """A master and its workers, of one core each. environment: what the nodes find in theirs."""

    def __init__(self, place: Path, workers: int = 2, environment: Mapping[str, str] | None = None) -> None:
        self._place = place
        self._environment = os.environ if environment is None else environment
        self._count = workers
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
        # an address of its own for each: Spark takes them for different machines, which a second attempt needs
        host = f"127.0.0.{1 + self._started}"
        worker = Daemon(_WORKER, words, self._place / f"worker-{self._started}", self._environment, host)
        self.workers.append(worker)
        return worker

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop()
        self._master.stop()


def _quiet(environment: Mapping[str, str], host: str) -> dict[str, str]:
    return {
        **environment,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": host,
        "SPARK_DAEMON_MEMORY": "256m",
    }
