"""Fixtures for all tests: the captures of real brokers, and the check that a command left its input unchanged."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from kseg.segment import unreadable
from kseg.segment.kernel import bad_pages
from tests.support import trees
from tests.support.command_lines import default_jobs, import_work
from tests.support.marked_tests import TestsById, is_whole_suite, marks_of
from tests.support.paths import ROOT

FIXTURES = ROOT / "fixtures"
ALONE = "tests/spark/"
# longest first: Spark in one process, then the brokers, then the other real Kafka and the failing disks, file by file
LONGEST = ("tests/spark/", "tests/kafka/", "tests/faults/", "tests/test_fuzz.py")
MEMORY, MIN_MEMORY_BYTES = "/dev/shm", 4 << 30
# tests of what every command prints, and of random directories of all kinds: with worker processes the results must be the same
MANY_JOBS = (
    "tests/jobs/",
    "tests/test_fuzz.py",
    "tests/test_cookbook.py",
    "tests/cli/test_transcripts.py",
    "tests/cli/test_json_contract.py",
    "tests/cli/test_random_directories.py",
    "tests/cli/test_nothing_to_repair.py",
    "tests/cli/test_side_file_losses.py",
    "tests/cli/test_verify.py",
    "tests/cli/test_list.py",
    "tests/cli/test_dump.py",
    "tests/cli/test_recover.py",
    "tests/cli/test_retain.py",
    "tests/cli/test_compact.py",
    "tests/cli/test_progress.py",
    "tests/recovery/",
)
SUITE = pytest.StashKey[list[pytest.Item]]()
PAGES = (
    "tests/test_behaviours.py",
    "tests/test_data_directory_page.py",
)  # these share one collection of the suite


# examples are drawn from a fixed seed, like all other random cases (CONTRIBUTING, "The long runs"), and a slow machine does not make a test
# fail
settings.register_profile(
    "gate", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", settings.get_profile("gate"), derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("KSEG_HYPOTHESIS", "gate"))


def pytest_configure(config: pytest.Config) -> None:
    """Put the directories of tests in memory if there is enough of it, so that the thousands of fsyncs of journals and brokers do not wait
    for a disk.

    Ignore the warning of Python 3.12 at each fork in a process of xdist, which has a thread that listens to the others. The program itself
    has no other thread when it forks (tests/jobs/test_threads_at_fork.py), and without xdist the warning is shown.

    Reset signal handlers: a shell that runs the gate in the background makes it ignore signals, which every program started by a test would
    inherit."""
    if _has_memory_for_files():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)
    if hasattr(config, "workerinput"):
        config.addinivalue_line(
            "filterwarnings", "ignore:This process .* is multi-threaded, use of fork:DeprecationWarning"
        )
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


def _has_memory_for_files() -> bool:
    try:
        if os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
            return False
        free_bytes = shutil.disk_usage(MEMORY).free
        with open("/proc/meminfo") as file:
            available_kib = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return False
    return min(free_bytes, 1024 * available_kib) >= MIN_MEMORY_BYTES and os.access(MEMORY, os.W_OK)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect with the garbage collector disabled, and freeze what was collected. Otherwise it would scan a million objects again and
    again, also in every forked process, which would have to copy their pages."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the collected tests, and start with the slowest files, so that none of them is left for a single process at the end.

    The order within a file stays. `tryfirst`: before anything is deselected. A browser takes seconds to start, so its tests count as slow.
    """
    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
    if is_whole_suite(config):
        config.stash[SUITE] = [*items]
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    return next((rank for rank, name in enumerate(LONGEST) if item.nodeid.startswith(name)), len(LONGEST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """All tests of a file run in one process, with the broker or the capture that they share. All tests of Spark run in the same process,
    so that only one cluster exists at a time."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # comes without types

    class OneClusterAtATime(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(ALONE):
                return ALONE
            file = nodeid.partition("::")[0]
            return PAGES[0] if file in PAGES else file

    # by default, files are ordered by their number of tests, not by duration
    config.option.loadscopereorder = False
    return OneClusterAtATime(config, log)


def _unpacked(name: str, target: Path) -> Iterator[Path]:
    with tarfile.open(FIXTURES / f"{name}.tar.xz") as archive:
        archive.extractall(target, filter="data")
    with trees.unchanged(target / name):
        yield target / name


@pytest.fixture(scope="session", autouse=True)
def _state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests do not sign journals with the developer's key."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _quick_copies() -> Iterator[None]:
    """Copy faster: most tests damage a copy of a directory of dozens of small files. kseg itself does not copy files with `shutil`."""
    copy = shutil.copytree
    quick = tuple(trees.copy_file if value is shutil.copy2 else value for value in copy.__defaults__ or ())
    assert trees.copy_file in quick
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy, "__defaults__", quick)
        yield


@pytest.fixture(autouse=True)
def _bad_sectors_forgotten() -> Iterator[None]:
    """Forget the unreadable areas that a test has found, because a command normally runs in its own process."""
    yield
    if bad_pages.count():
        bad_pages.forget()
    unreadable.begin()


@pytest.fixture(scope="session", autouse=True)
def _work_imported() -> None:
    """Import what the workers of a command import. The program forks once per run, but a test process forks thousands of times, and each
    worker would import these modules again."""
    import_work()


@pytest.fixture(scope="module", autouse=True)
def _default_jobs(request: pytest.FixtureRequest) -> Iterator[None]:
    """--jobs defaults to 1 for commands called in the test process, because forking a test process costs several times as much as forking
    the program. For tests in MANY_JOBS the default is the number of cores. KSEG_TEST_DEFAULT_JOBS sets the default for all tests; 0 means
    the number of cores."""
    many = request.path.relative_to(ROOT).as_posix().startswith(MANY_JOBS)
    jobs = int(os.environ.get("KSEG_TEST_DEFAULT_JOBS", "0" if many else "1"))
    with default_jobs(jobs) if jobs else nullcontext():
        yield


@pytest.fixture(scope="session")
def capture_small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data directory of Kafka 4.3.1 (see fixtures/README.md). Shared: copy before writing."""
    yield from _unpacked("capture-small", tmp_path_factory.mktemp("capture"))


@pytest.fixture(scope="session")
def legacy_small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Data directories of Kafka 0.7 to 1.1 (see fixtures/README.md). Shared: copy before writing."""
    yield from _unpacked("legacy-small", tmp_path_factory.mktemp("legacy"))


@pytest.fixture(scope="session")
def older_small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Data directories of Kafka 2.8 (see fixtures/README.md). Shared: copy before writing."""
    yield from _unpacked("older-small", tmp_path_factory.mktemp("older"))


@pytest.fixture(scope="session")
def migrating_small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Data directories of Kafka 3.9 during a migration from ZooKeeper (see fixtures/README.md). Shared: copy before writing."""
    yield from _unpacked("migrating-small", tmp_path_factory.mktemp("migrating"))


@pytest.fixture(scope="session")
def moving_small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directories of a cluster of Kafka 4.3.1 in which replicas move (see fixtures/README.md). Shared: copy before writing."""
    yield from _unpacked("moving-small", tmp_path_factory.mktemp("moving"))


@pytest.fixture(scope="session")
def electing_small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directories of a cluster of Kafka 4.3.1 with three replicas, killed and stopped (see fixtures/README.md). Shared: copy
    before writing."""
    yield from _unpacked("electing-small", tmp_path_factory.mktemp("electing"))


@pytest.fixture(scope="session")
def ancient_small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A 0.7 log written by Jafka (see fixtures/README.md). Shared: copy before writing."""
    yield from _unpacked("ancient-small", tmp_path_factory.mktemp("ancient"))


@pytest.fixture(scope="session")
def tiered_small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What the tiered-storage plugin uploaded from `capture_small` (see fixtures/README.md). Shared: copy before writing."""
    yield from _unpacked("tiered-small", tmp_path_factory.mktemp("tiered"))


@pytest.fixture(scope="session")
def unchanged() -> Callable[..., AbstractContextManager[None]]:
    """`with unchanged(path, ...): run(...)` fails if anything at or below the paths was changed."""
    return trees.unchanged


@pytest.fixture(scope="session")
def marked_tests(pytestconfig: pytest.Config) -> Mapping[str, TestsById]:
    """Marker → id → the tests of the suite that carry it."""
    suite = pytestconfig.stash.get(SUITE, None)
    if suite is not None:
        return marks_of(suite)
    command = [sys.executable, "-m", "tests.support.marked_tests"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    marked: dict[str, TestsById] = json.loads(done.stdout)
    return marked
