"""Every command that changes files on a machine that loses power: at every change and sync, or after the command has ended.

The directories are on a file system in a file. The command is killed, and before anything else is synced the file is copied and the copy
is mounted instead: it has what was synced. ext4 and XFS then have everything from before the last sync. btrfs has the synced file and not
the names and attributes that changed before it, so only it shows a sync that is missing. By default a few moments of each are tried;
KSEG_FAULT_STRIDE=1 tries all of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import shim
from tests.faults.cases import CASES
from tests.faults.incident import Scenario
from tests.faults.shim import NO_FAULT, Fault, Kind, Machine, Mode, Outcome
from tests.support.mounts import done_or_skipped

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shim.compiler() is None, reason="faults of a file system need a C compiler"),
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root"),
]

STRIDE = int(os.environ.get("KSEG_FAULT_STRIDE", "0"))
OFFSET = int(os.environ.get("KSEG_FAULT_OFFSET", "0"))
TRIES = 2
AFTER_THE_END = 1 << 30
MIB = 1 << 20
# how each is made and mounted so that it writes little before a sync
SYSTEMS = {
    "ext4": (64 * MIB, ["-q", "-b", "4096"], "loop,commit=300,noauto_da_alloc"),
    "xfs": (320 * MIB, ["-q"], "loop"),
    "btrfs": (200 * MIB, ["-q"], "loop,commit=300"),
}
CHANGING = (
    "recover",
    "recover as a broker",
    "recover --quarantine",
    "compact",
    "retain",
    "append",
    "append to a new one",
    "undo recover",
    "undo recover as a broker",
    "undo append",
)


class Disk:
    """A file system that can lose what was not synced."""

    def __init__(self, folder: Path, system: str) -> None:
        size_bytes, words, self._options = SYSTEMS[system]
        self.place = folder / "mounted"
        self.place.mkdir()
        self._image = folder / "image"
        with self._image.open("wb") as file:
            file.truncate(size_bytes)
        done_or_skipped([f"mkfs.{system}", *words, str(self._image)])
        done_or_skipped(self._mount)

    @property
    def _mount(self) -> list[str]:
        return ["mount", "-o", self._options, str(self._image), str(self.place)]

    def sync(self) -> None:
        subprocess.run(["sync", "-f", str(self.place)], check=True)

    def lose_power(self) -> None:
        copy = self._image.with_name("copy")
        subprocess.run(["cp", "--sparse=always", str(self._image), str(copy)], check=True)
        self.unmount()
        copy.replace(self._image)
        subprocess.run(self._mount, check=True)

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.place)], check=True)


class PowerFailure(Scenario):
    """A scenario in which the kill of the command takes the machine with it."""

    disk: Disk | None = None

    def _run(self, root: Path, words: tuple[str, ...], fault: Fault = NO_FAULT) -> Outcome:
        if self.disk is None or fault.mode is not Mode.KILL:
            return super()._run(root, words, fault)
        self.disk.sync()
        outcome = super()._run(root, words, fault)
        self.disk.lose_power()
        return outcome


@pytest.fixture(scope="module", params=SYSTEMS)
def disk(request: pytest.FixtureRequest, place: Path) -> Iterator[Disk]:
    folder = place / request.param
    folder.mkdir()
    disk = Disk(folder, request.param)
    try:
        yield disk
    finally:
        disk.unmount()
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", CHANGING)
def test_command_can_be_continued_or_undone_after_a_power_failure(
    name: str, disk: Disk, place: Path, warm_machine: Machine, capture_small: Path
) -> None:
    original = place / "original" / name
    if not original.exists():
        CASES[name].lay(capture_small, original / "data")
    scenario = PowerFailure(CASES[name], original, disk.place / name, warm_machine)
    scenario.disk = disk
    kinds = Kind.CHANGE | Kind.SYNC
    calls = scenario.count(kinds)
    stride = STRIDE or max(1, calls // TRIES)
    moments = [*range((calls // 3 + OFFSET) % stride, calls, stride), calls - 1, AFTER_THE_END]
    wrong = [
        sentence
        for at in moments
        for goes_back in ((False, True) if scenario.case.can_be_undone else (False,))
        for sentence in scenario.strike(Fault(Mode.KILL, kinds, at), goes_back)
    ]
    shutil.rmtree(scenario.place)
    assert not wrong, "\n".join(wrong)
