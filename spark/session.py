"""Create a Spark session from `ClusterOptions`, or raise an error with one sentence that says why there is none.

1. pyspark must be importable, and a Java of at least MIN_JAVA must be where Spark's launcher looks for it.
2. A session that is already active in this process is used as it is and never stopped here: its owner chose its settings. Otherwise
   one is created, kept for the next run of this process, and stopped when the process ends.
3. In local mode tasks reach Python through Unix domain sockets in a private directory (`_sockets`).
4. Ctrl-C makes no call to the JVM (`_interrupt_plainly`).
5. Spark's JVM inherits stderr and logs there. Its output goes to an unnamed file instead, whose last lines are shown if the session
   fails to start; setting LOG_LEVEL sends it to stderr.
"""

import atexit
import importlib.util
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from kseg.segment.errors import UnreadableInput, UsageError
from kseg.spark.options import ClusterOptions
from kseg.spark.task_errors import reason

if TYPE_CHECKING:
    from typing import IO

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

MIN_JAVA = 17
LOG_LEVEL = "spark.log.level"
EXECUTORS_SETTLED_SECONDS = 0.3
EXECUTOR_TIMEOUT_SECONDS = 30
CONNECT_SECONDS = 5
POLL_SECONDS = 0.05
PYTHON_OF_NODES = "spark.pyspark.python"
SOCKET_FILES, SOCKET_DIRECTORY = (
    "spark.python.unix.domain.socket.enabled",
    "spark.python.unix.domain.socket.dir",
)
MAX_SOCKET_DIRECTORY_BYTES = 50  # Spark appends 42 bytes, and macOS allows 104 in all

_QUIET = {
    LOG_LEVEL: "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
    "spark.app.name": "kseg",
}
# only the first compiler tier: in a session that lives for seconds and moves little data, the JIT takes two thirds of the time
_SHORT_LIVED = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
_interrupted = threading.Event()
# in local mode the machine only talks to itself: no lookup of its host name, no port that is open to others
_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


class NoCluster(UnreadableInput):
    """The cluster cannot be reached, or is lost."""


def get(cluster: ClusterOptions) -> "SparkSession":
    """The session to use. Raises UsageError if pyspark or Java is missing, NoCluster if no session can be started."""
    if importlib.util.find_spec("pyspark") is None:
        raise UsageError("--spark needs pyspark, which is not installed: pip install 'kseg[spark]'")
    session = active()
    if session is None:
        check_java()
        session = _start(cluster)
    for path in cluster.py_files:
        session.sparkContext.addPyFile(path)
    for path in cluster.archives:
        session.sparkContext.addArchive(path)
    return session


def active() -> "SparkSession | None":
    """The active session of this process, None if there is none."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:
        return None
    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def is_local(master: str) -> bool:
    """Whether a master runs everything on this machine, so that nodes need no kseg and see the same files."""
    return re.fullmatch(r"local(\[[0-9*, ]*\])?", master) is not None


def is_over(context: "SparkContext") -> bool:
    """Whether a context has been stopped, by this process or by Spark itself."""
    return context._jsc is None or bool(context._jsc.sc().isStopped())


def await_executors(context: "SparkContext", notify: Callable[[str], None]) -> None:
    """Wait until the cluster has provided executors and adds no more; their number determines how the work is divided.

    notify: called if there are none for a while. Raises NoCluster if Spark gives up.
    """
    began = changed = time.monotonic()
    count, has_notified = 0, False
    while True:
        if is_over(context):
            raise NoCluster(
                f"the cluster {context.master} provides no executors: Spark stopped requesting them"
            )
        now, before = time.monotonic(), count
        # the driver is listed as an executor, too
        count = context._jsc.sc().statusTracker().getExecutorInfos().__len__() - 1
        if count != before:
            changed = now
        if count and (now - changed > EXECUTORS_SETTLED_SECONDS or now - began > EXECUTOR_TIMEOUT_SECONDS):
            return
        if not has_notified and not count and now - began > EXECUTOR_TIMEOUT_SECONDS:
            has_notified = True
            notify(f"waiting for {context.master}: it has not provided any executors yet")
        time.sleep(POLL_SECONDS)


def check_java() -> None:
    """Raises UsageError if Spark would find no Java, or one that is too old."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    needs = f"--spark needs Java {MIN_JAVA} or newer"
    if java is None:
        raise UsageError(f"{needs}, but java is not in PATH (set JAVA_HOME if it is installed elsewhere)")
    try:
        captured = subprocess.run([java, "-version"], capture_output=True, check=True, text=True).stderr
    except (OSError, subprocess.CalledProcessError) as error:
        why = getattr(error, "strerror", None) or "it fails"
        raise UsageError(f"{needs}, but {java} cannot be used: {why}") from error
    version = re.search(r'version "(?:1\.)?([0-9]+)', captured)
    if version is not None and int(version[1]) < MIN_JAVA:
        raise UsageError(f"{needs}, but {java} is Java {version[1]} (set JAVA_HOME to another one)")


def _start(cluster: ClusterOptions) -> "SparkSession":
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    settings = _settings(cluster)
    _check_master_reachable(cluster.master)
    # read when the context is created, also by the JVM for data sources; a value set by the user takes precedence
    os.environ.setdefault("PYSPARK_PYTHON", settings.get(PYTHON_OF_NODES, sys.executable))
    if is_local(cluster.master):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK["spark.driver.host"])
    with ExitStack() as cleanup:
        if is_local(cluster.master):
            settings = cleanup.enter_context(_sockets()) | settings
        conf = SparkConf().setMaster(cluster.master).setAll([*settings.items()])
        with _stderr_to_file(LOG_LEVEL in dict(cluster.conf)) as captured:
            try:
                with _deferred_interrupt():
                    SparkContext._ensure_initialized(conf=conf)
                session = SparkSession.builder.config(conf=conf).getOrCreate()
            except Exception as error:  # whatever Java or Spark threw: it is reported in one sentence
                raise NoCluster(
                    f"no Spark session on {cluster.master}: {_reason(error, captured)}"
                ) from error
        _interrupt_plainly()
        cleanup.callback(_end, session)
        atexit.register(cleanup.pop_all().close)
    return session


def _check_master_reachable(master: str) -> None:
    """Raises NoCluster if no master of `spark://host:port,…` accepts a connection; Spark itself takes a minute to report that. Other
    kinds of masters (Kubernetes, YARN) are left to Spark."""
    if not master.startswith("spark://"):
        return
    addresses = master.removeprefix("spark://").split(",")
    problems = [_connection_problem(address) for address in addresses]
    if all(problems):
        raise NoCluster(
            f"no Spark master answers at {', '.join(filter(None, problems))}: is it running, and is --master its address?"
        )


def _connection_problem(address: str) -> str | None:
    """Why `host:port` cannot be reached; None if a server listens there."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        return f"{address} (not HOST:PORT)"
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except socket.gaierror as error:
        return f"{address} (unknown host: {error.strerror})"
    except TimeoutError:
        return f"{address} (no answer within {CONNECT_SECONDS} seconds)"
    except OSError as error:
        return f"{address} ({error.strerror})"
    return None


@contextmanager
def _deferred_interrupt() -> Iterator[None]:
    """Defer Ctrl-C until the end of the context: a JVM that is abandoned before it has reported its port never exits."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        signal.raise_signal(signal.SIGINT)


def _is_no_report_of_a_call(record: logging.LogRecord) -> bool:
    """A log filter: py4j logs failed calls to the root logger."""
    return record.module != "java_gateway"


def was_interrupted() -> bool:
    """Whether Ctrl-C has interrupted a call to the JVM, which may be why another call fails."""
    return _interrupted.is_set()


def _interrupt_plainly() -> None:
    """From now on Ctrl-C only raises KeyboardInterrupt; the run cancels its jobs when it handles that.

    PySpark's own handler cancels them by a call to the JVM in the middle of whatever the signal interrupts. In the middle of another
    call, whose answer is half read, that fails, and both are logged with tracebacks; py4j also logs the interrupted call.
    """

    def interrupt(_number: int, _frame: object) -> None:
        logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
        logging.getLogger().addFilter(_is_no_report_of_a_call)
        _interrupted.set()
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupt)


@contextmanager
def _sockets() -> Iterator[dict[str, str]]:
    """Settings with which tasks reach Python through Unix sockets in a temporary directory; none if its path is too long.

    Over TCP each task waits some 40 ms for a delayed acknowledgement (measured by bench/scale.py). Spark older than 4.1 ignores the
    settings.
    """
    with tempfile.TemporaryDirectory(prefix="kseg-", ignore_cleanup_errors=True) as directory:
        if len(os.fsencode(directory)) > MAX_SOCKET_DIRECTORY_BYTES:
            yield {}
        else:
            yield {SOCKET_FILES: "true", SOCKET_DIRECTORY: directory}


def _end(session: "SparkSession") -> None:
    """Stop a session that was created here, unless it has been stopped already."""
    if session.sparkContext._jsc is not None:
        with suppress(Exception):  # the JVM may be gone already; nothing is lost with it
            session.stop()


def _settings(cluster: ClusterOptions) -> dict[str, str]:
    settings = dict(_QUIET)
    if is_local(cluster.master):
        settings |= _LOOPBACK
        if cluster.light:
            settings |= _SHORT_LIVED
    if cluster.jars:
        settings["spark.jars"] = ",".join(cluster.jars)
    if cluster.packages:
        settings["spark.jars.packages"] = ",".join(cluster.packages)
    return settings | dict(cluster.conf)


@contextmanager
def _stderr_to_file(wanted: bool) -> "Iterator[IO[bytes] | None]":
    """A context in which started processes write their stderr to a hidden file, unless `wanted`."""
    if wanted:
        yield None
        return
    with tempfile.TemporaryFile() as captured:
        stderr = os.dup(2)
        os.dup2(captured.fileno(), 2)
        try:
            yield captured
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def _reason(error: Exception, captured: "IO[bytes] | None") -> str:
    """The last message about a session that failed to start, on one line."""
    sentence = reason(error)
    if captured is None:
        return sentence
    captured.seek(0)
    lines = [line.strip() for line in captured.read().decode(errors="replace").splitlines()]
    told = [
        line for line in lines if re.match(r"(Exception|Error|Caused by|[\w.]+(Exception|Error)\b)", line)
    ]
    return " ".join([sentence, *told[:1]])
