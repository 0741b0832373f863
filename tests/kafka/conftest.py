"""The real Kafka for the tests of this directory, or one visible line that says why it is missing."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kafka import jars
from tests.kafka.oracle import Oracle
from tests.support.requirements import absent
from tests.support.shared_results import made_once

if TYPE_CHECKING:
    from tests.kafka.electing import Electing
    from tests.kafka.killed import Killed
    from tests.kafka.scenario import Written


_CLIENT = "confluent_kafka"
_WITHOUT_CLIENT = "no broker is started: confluent-kafka is not installed"


def require_kafka() -> None:
    """Skip the test without Java or Maven, or fail it if CI is set, where the real Kafka must be available."""
    try:
        jars.check_tools()
    except jars.MissingTool as missing:
        absent(str(missing))


def require_client() -> None:
    if importlib.util.find_spec(_CLIENT) is None:
        absent(_WITHOUT_CLIENT)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a module that cannot be imported without the client, instead of failing. Where CI is set, it fails."""
    report = yield
    if report.failed and f"No module named '{_CLIENT}'" in str(report.longrepr) and "CI" not in os.environ:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: {_WITHOUT_CLIENT}")
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Check for Kafka before any fixture starts Java."""
    if item.get_closest_marker("kafka") is not None:
        require_kafka()


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    """The oracle; one Java process per test worker."""
    require_kafka()
    with Oracle(tmp_path_factory.mktemp("oracle")) as judge:
        yield judge


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A broker's data directory with everything that `write_everything` produces, and what consumers read from it. Copy before writing."""
    require_kafka()
    require_client()
    from tests.kafka.broker import Broker
    from tests.kafka.scenario import write_everything

    def made(place: Path) -> Written:
        with Broker(place / "broker") as broker:
            return write_everything(broker, place)

    return made_once(tmp_path_factory, "everything", made)


@pytest.fixture(scope="session")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """A broker's data directory after SIGKILL in the middle of transactions. Copy before writing."""
    require_kafka()
    require_client()
    from tests.kafka.broker import Broker
    from tests.kafka.killed import produce_and_kill

    def made(place: Path) -> Killed:
        broker = Broker(place / "broker").apart()
        broker.start()
        return produce_and_kill(broker)

    return made_once(tmp_path_factory, "killed", made)


@pytest.fixture
def electing(electing_small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Electing:
    """electing(state): a copy of the cluster after its nodes were "killed" or "stopped"."""
    from tests.kafka.electing import ElectingCluster

    return lambda state: ElectingCluster(electing_small / state, tmp_path, capfd)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line for each reason why the real Kafka was not used, even without -rs."""
    reports = terminalreporter.stats.get("skipped", [])
    # the report about a module that was not collected has no keywords
    reasons = {
        str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in reports
        if "kafka" in getattr(report, "keywords", report.nodeid)
    }
    for reason in sorted(reasons):
        terminalreporter.write_line(reason, yellow=True)
