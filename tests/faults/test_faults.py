"""Every command that changes files, killed at every change and failed at every file system call.

By default a few of each are tried; KSEG_FAULT_STRIDE=1 tries every call (hours), 5 every fifth, from KSEG_FAULT_OFFSET on. All calls of the
process count, whichever library makes them (shim.c). Without a C compiler the tests are skipped. With --spark, the tasks run in the
command's own process.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import shim
from tests.faults.cases import CASES
from tests.faults.incident import Scenario
from tests.faults.shim import Fault, Kind, Machine, Mode

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shim.compiler() is None, reason="faults of a file system need a C compiler"),
]

STRIDE = int(os.environ.get("KSEG_FAULT_STRIDE", "0"))
OFFSET = int(os.environ.get("KSEG_FAULT_OFFSET", "0"))
ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS, errno.EMFILE, errno.EDQUOT)


@pytest.fixture(scope="module", params=CASES)
def scenario(
    request: pytest.FixtureRequest, capture_small: Path, place: Path, warm_machine: Machine
) -> Scenario:
    case = CASES[request.param]
    original = place / "original" / request.param
    case.lay(capture_small, original / "data")
    return Scenario(case, original, place / request.param, warm_machine)


def _tried(calls: int, tries: int, first: int) -> Iterator[int]:
    """The numbers of the calls to try: `tries` of them spread over all, or every n-th if a stride is given."""
    stride = STRIDE or max(1, calls // tries)
    return iter(range((first + OFFSET) % stride, calls, stride))


def _strike(scenario: Scenario, faults: Iterator[Fault]) -> None:
    ways = itertools.cycle((False, True))
    wrong = [
        sentence
        for fault in faults
        for goes_back in ((False, True) if STRIDE else (next(ways),))
        for sentence in scenario.strike(fault, goes_back and scenario.case.can_be_undone)
    ]
    assert not wrong, "\n".join(wrong)


def test_command_killed_at_any_change_can_be_continued_or_undone(scenario: Scenario) -> None:
    calls = scenario.count(Kind.CHANGE)
    _strike(scenario, (Fault(Mode.KILL, Kind.CHANGE, at) for at in _tried(calls, 3, 1)))


def test_undo_after_a_kill_at_the_end_restores_the_directory_mtime(
    capture_small: Path, place: Path, warm_machine: Machine
) -> None:
    """The journal of the data directory's own files is not complete yet, and is beside that of the run."""
    case = CASES["recover --quarantine"]
    original = place / "original" / "undecided"
    case.lay(capture_small, original / "data")
    scenario = Scenario(case, original, place / "undecided", warm_machine)
    calls = scenario.count(Kind.CHANGE)
    wrong = [
        sentence
        for at in range(calls - 24, calls, 4)
        for sentence in scenario.strike(Fault(Mode.KILL, Kind.CHANGE, at), True)
    ]
    assert not wrong, "\n".join(wrong)


def test_error_at_any_system_call_is_one_sentence_and_harms_nothing(scenario: Scenario) -> None:
    for kinds, tries in ((Kind.WRITING, 2), (Kind.ALL, 2)):
        calls = scenario.count(kinds)
        errors = ERRORS if STRIDE else (None,)
        for number, error in enumerate(errors):
            _strike(
                scenario,
                (
                    Fault(Mode.FAIL, kinds, at, ERRORS[at % len(ERRORS)] if error is None else error)
                    for at in _tried(calls, tries, 3 + number)
                ),
            )


@pytest.mark.parametrize(
    ("error", "kinds"),
    [(errno.ENOSPC, Kind.GROW), (errno.EROFS, Kind.CHANGE | Kind.UPDATE), (errno.EIO, Kind.ALL)],
    ids=["full", "read-only", "dead"],
)
def test_permanently_failing_disk_harms_nothing(scenario: Scenario, error: int, kinds: Kind) -> None:
    """From some call on, all calls fail, including those that clean up."""
    calls = scenario.count(kinds)
    _strike(scenario, (Fault(Mode.FAIL, kinds, at, error, lasts=True) for at in _tried(calls, 1, 1)))


def test_short_writes_are_continued(scenario: Scenario) -> None:
    calls = scenario.count(Kind.BYTES)
    _strike(scenario, (Fault(Mode.SHORT, Kind.BYTES, at) for at in _tried(calls, 1, 0)))
