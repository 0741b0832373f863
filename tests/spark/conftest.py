"""Spark for the tests of this room: one session at a time, on this machine alone or on a real standalone cluster.

All tests of this room run in one process, one after the other (`tests/conftest.py`): they share the sessions and the cluster.
The tests on this machine alone come first and those on the cluster last: a change between the two costs a session, and two executors.
After the last of them everything is stopped, JVM and threads included, since later tests may fork.
"""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from kseg.segment.errors import UsageError
from kseg.spark import session
from kseg.spark.options import ClusterOptions
from tests.spark import class_archive
from tests.support.command_lines import default_jobs
from tests.support.requirements import absent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.standalone import Standalone

LOCAL = "local[2]"
# settings of every test session; small, so that several fit beside each other
CONF = (
    ("spark.sql.shuffle.partitions", "2"),
    ("spark.driver.memory", "1g"),
    ("spark.executor.memory", "512m"),
    ("spark.driver.host", "127.0.0.1"),
    ("spark.driver.bindAddress", "127.0.0.1"),
)
ROOM = "tests/spark/"
Use = Callable[[str], "SparkSession"]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests of this room by the session that they use, in the positions that they have."""
    places = [number for number, item in enumerate(items) if item.nodeid.startswith(ROOM)]
    ordered = sorted((items[place] for place in places), key=_session_of)
    for place, item in zip(places, ordered, strict=True):
        items[place] = item


def _session_of(item: pytest.Item) -> int:
    """0: none, or one of its own; 1: on this machine alone; 2: on the cluster; 3: on the cluster, with its own settings."""
    names = getattr(item, "fixturenames", ())
    if "any_spark" in names and isinstance(item, pytest.Function):
        return 2 if item.callspec.params["any_spark"] == "standalone" else 1
    if "local_spark" in names:
        return 1
    if "cluster_spark" in names:
        return 2
    return 3 if "use_master" in names else 0


def require_spark() -> None:
    """Skip without pyspark or Java; a failure where CI is set: there Spark must be available."""
    if missing := _missing():
        absent(f"no Spark: {missing}")


def _missing() -> str | None:
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed"
    try:
        session.check_java()
    except UsageError as error:
        return str(error)
    return None


@pytest.fixture(scope="package", autouse=True)
def _one_job() -> Iterator[None]:
    """Beside the threads of a session a command starts its workers as new interpreters, hundreds of them in this room: what it says without
    `--spark`, which is what `--spark` is compared with, does not depend on their number. Tests of the fan-out name theirs."""
    with default_jobs(1):
        yield


@pytest.fixture(scope="package")
def brief_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Make every JVM that a test starts, including those of kseg's command line, start quickly."""
    with pytest.MonkeyPatch.context() as patch:
        if not _missing():
            for name, text in class_archive.environment(tmp_path_factory.mktemp("classes")).items():
                patch.setenv(name, text)
        yield


@pytest.fixture(autouse=True)
def _brief_java_for_spark(request: pytest.FixtureRequest) -> None:
    """The others of this room start none, and `./check fast` has only them."""
    if request.node.get_closest_marker("spark") is not None:
        request.getfixturevalue("brief_java")


@pytest.fixture(scope="package")
def use_master(brief_java: None) -> Iterator[Use]:
    """The session on a master; a session on another master is stopped."""
    require_spark()
    from pyspark import SparkContext

    from tests.spark.standalone import with_tests

    before, on_interrupt = dict(os.environ), signal.getsignal(signal.SIGINT)
    os.environ.update(with_tests(before))  # the JVM is started once, in whatever directory a test is then
    current = ""

    def use(master: str) -> SparkSession:
        nonlocal current
        active = session.active()
        if active is not None and current != master:
            active.stop()
        current = master
        return session.get(ClusterOptions(master=master, conf=CONF))

    yield use
    active = session.active()
    if active is not None:
        active.stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(300)
        SparkContext._gateway = SparkContext._jvm = None
    signal.signal(signal.SIGINT, on_interrupt)  # a context cancels its jobs, even after it was stopped
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="package")
def standalone(brief_java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master with two workers of one core each."""
    require_spark()
    from tests.spark.standalone import Standalone

    with Standalone(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


@pytest.fixture
def local_spark(use_master: Use) -> SparkSession:
    """The session on this machine alone, two cores."""
    return use_master(LOCAL)


@pytest.fixture
def cluster_spark(use_master: Use, standalone: Standalone) -> SparkSession:
    """The session on the standalone cluster, once it has executors."""
    spark = use_master(standalone.url)
    session.await_executors(spark.sparkContext, lambda _sentence: None)
    return spark


@pytest.fixture(params=["local", "standalone"])
def any_spark(request: pytest.FixtureRequest) -> SparkSession:
    """Either session, one after the other."""
    name = "local_spark" if request.param == "local" else "cluster_spark"
    given: SparkSession = request.getfixturevalue(name)
    return given


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each reason why no cluster was used, also without -rs."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = {
        str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports if "spark" in report.keywords
    }
    for reason in sorted(reasons):
        terminalreporter.write_line(reason, yellow=True)
