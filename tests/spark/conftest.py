"""Spark for the tests of this directory: one session at a time, on this machine alone or on a real standalone cluster.

All tests of this directory run in one process, one after the other (`tests/conftest.py`), and share the sessions and the cluster. The tests
on this machine alone come first and those on the cluster last, because a change between the two costs a session and two executors. After
the last test everything is stopped, JVM and threads included, because later tests may fork.
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
# settings of every test session, small enough for several sessions at a time
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
    """Order the tests of this directory by the session that they use, keeping the positions that they occupy."""
    places = [number for number, item in enumerate(items) if item.nodeid.startswith(ROOM)]
    ordered = sorted((items[place] for place in places), key=_session_of)
    for place, item in zip(places, ordered, strict=True):
        items[place] = item


def _session_of(item: pytest.Item) -> int:
    """0: none, or its own; 1: on this machine alone; 2: on the cluster; 3: on the cluster, with its own settings."""
    names = getattr(item, "fixturenames", ())
    if "any_spark" in names and isinstance(item, pytest.Function):
        return 2 if item.callspec.params["any_spark"] == "standalone" else 1
    if "local_spark" in names:
        return 1
    if "cluster_spark" in names:
        return 2
    return 3 if "use_master" in names else 0


def require_spark() -> None:
    """Skip the test without pyspark or Java, or fail it if CI is set, where Spark must be available."""
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
    """Run commands with one job. Beside the threads of a session, a command starts its workers as new interpreters, which would be hundreds
    here. The output without `--spark`, with which `--spark` is compared, does not depend on their number. Tests of the fan-out set the
    number of jobs themselves."""
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
    """Only for tests marked `spark`: the others here start no JVM, and `./check fast` runs only those."""
    if request.node.get_closest_marker("spark") is not None:
        request.getfixturevalue("brief_java")


@pytest.fixture(scope="package")
def use_master(brief_java: None) -> Iterator[Use]:
    """Returns a function for the session on a master. A session on another master is stopped."""
    require_spark()
    from pyspark import SparkContext

    from tests.spark.standalone import with_tests

    before, on_interrupt = dict(os.environ), signal.getsignal(signal.SIGINT)
    # the JVM is started once, in the working directory of whichever test is first
    os.environ.update(with_tests(before))
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
    # a Spark context handles SIGINT by cancelling its jobs, even after it was stopped
    signal.signal(signal.SIGINT, on_interrupt)
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
    """The session on this machine alone, with two cores."""
    return use_master(LOCAL)


@pytest.fixture
def cluster_spark(use_master: Use, standalone: Standalone) -> SparkSession:
    """The session on the standalone cluster, once it has executors."""
    spark = use_master(standalone.url)
    session.await_executors(spark.sparkContext, lambda _sentence: None)
    return spark


@pytest.fixture(params=["local", "standalone"])
def any_spark(request: pytest.FixtureRequest) -> SparkSession:
    """Each of the two sessions in turn."""
    name = "local_spark" if request.param == "local" else "cluster_spark"
    given: SparkSession = request.getfixturevalue(name)
    return given


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line for each reason why no cluster was used, even without -rs."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = {
        str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports if "spark" in report.keywords
    }
    for reason in sorted(reasons):
        terminalreporter.write_line(reason, yellow=True)
