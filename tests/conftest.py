"""What every room of the tests may use: the captures of real brokers, and the proof that a command left its input alone."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests import trees
from tests.marked_tests import ROOT, TestsById

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
ALONE = "tests/spark/"
PAGES = (
    "tests/test_behaviours.py",
    "tests/test_data_directory_page.py",
)  # which share one collection of the suite


def pytest_configure() -> None:
    """A shell that runs the gate in the background lets it ignore signals, and so would every program that a test starts."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """The tests of a file go to one process, with the broker or the capture that they share; those of Spark all to one, so
    that one cluster lives at a time."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # comes without types

    class OneClusterAtATime(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(ALONE):
                return ALONE
            file = nodeid.partition("::")[0]
            return PAGES[0] if file in PAGES else file

    return OneClusterAtATime(config, log)


def _unpacked(name: str, target: Path) -> Iterator[Path]:
    with tarfile.open(FIXTURES / f"{name}.tar.xz") as archive:
        archive.extractall(target, filter="data")
    with trees.unchanged(target / name):
        yield target / name


@pytest.fixture(scope="session")
def capture_small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data directory of Kafka 4.3.1 (see fixtures/README.md). Shared: copy before writing."""
    yield from _unpacked("capture-small", tmp_path_factory.mktemp("capture"))


@pytest.fixture(scope="session")
def legacy_small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Data directories of Kafka 0.7 to 1.1 (see fixtures/README.md). Shared: copy before writing."""
    yield from _unpacked("legacy-small", tmp_path_factory.mktemp("legacy"))


@pytest.fixture(scope="session")
def ancient_small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A 0.7 log written by Jafka (see fixtures/README.md). Shared: copy before writing."""
    yield from _unpacked("ancient-small", tmp_path_factory.mktemp("ancient"))


@pytest.fixture(scope="session")
def unchanged() -> Callable[..., AbstractContextManager[None]]:
    """`with unchanged(path, ...): run(...)` fails when anything at or below the paths was changed."""
    return trees.unchanged


@pytest.fixture(scope="session")
def marked_tests() -> dict[str, TestsById]:
    """Marker → id → the tests of the suite that carry it."""
    command = [sys.executable, "-m", "tests.marked_tests"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    marked: dict[str, TestsById] = json.loads(done.stdout)
    return marked
