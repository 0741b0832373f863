"""Representative plans over tiny directories, for the tests of the executor."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kseg.change.apply.disk import Disk
from kseg.change.apply.executor import Applied, apply_plan
from kseg.change.apply.journal_location import JournalLocation
from kseg.change.apply.journal_scan import location_of
from kseg.change.apply.scratch_file import ScratchFile
from kseg.change.apply.unfinished import complete_unfinished, half_done
from kseg.change.plan.content import Span
from kseg.change.plan.directory_image import DirectoryImage, steps_between
from kseg.change.plan.inputs import inputs_of
from kseg.change.plan.steps import Plan, Remove, Rename, Step, Truncate, Write
from tests.support.failing_disks import QuickDisk, Stopped, StoppingDisk

T0_NS = 1_700_000_000_000_000_000
COMMAND = "recover"
LOG, INDEX, TIMES = (f"{0:020}{suffix}" for suffix in (".log", ".index", ".timeindex"))
LOG_9, INDEX_9, SNAPSHOT_9 = (f"{9:020}{suffix}" for suffix in (".log", ".index", ".snapshot"))
EPOCHS = "leader-epoch-checkpoint"

PARTITION = {
    LOG: b"first segment, sound part|torn tail",
    INDEX: b"offset index of 0",
    TIMES: b"time index of 0",
    LOG_9: b"second segment: it is longer than the first one",
    INDEX_9: b"offset index of 9",
    SNAPSHOT_9: b"producers before 9",
    EPOCHS: b"epochs",
    f"{LOG_9}.swap": b"what shall replace the second segment",
}
LOG_DIR = {
    "meta.properties": b"version=1\n",
    "recovery-point-offset-checkpoint": b"0\n1\norders 0 12\n",
    "replication-offset-checkpoint": b"0\n1\norders 0 9\n",
    ".kafka_cleanshutdown": b'{"version":0}',
}


@dataclass(frozen=True, slots=True)
class Case:
    """files: the original ones. steps: of the plan. is_partition: False for a data directory. elsewhere: the quarantine is in another
    directory. journal_elsewhere: so is the journal. shared: files with a hard link outside."""

    files: Mapping[str, bytes]
    steps: Callable[[Path], tuple[Step, ...]]
    is_partition: bool = True
    elsewhere: bool = False
    journal_elsewhere: bool = False
    shared: tuple[str, ...] = ()

    def lay(self, root: Path) -> Path:
        """Create the directory below `root`."""
        directory = root / ("orders-0" if self.is_partition else "data")
        directory.mkdir(parents=True)
        for number, (name, content) in enumerate(self.files.items()):
            path = directory / name
            path.write_bytes(content)
            path.chmod(0o640 if number % 2 else 0o604)
            os.utime(path, ns=(T0_NS + number * 1_000_000_007, T0_NS + number * 1_000_000_007))
        for name in self.shared:
            (root / "backup").mkdir(exist_ok=True)
            os.link(directory / name, root / "backup" / name)
        return directory

    def plan(self, directory: Path) -> Plan:
        return Plan(
            command=COMMAND,
            directory=str(directory),
            inputs=inputs_of(str(directory)),
            steps=self.steps(directory),
        )


def by_image(change: Callable[[DirectoryImage], None]) -> Callable[[Path], tuple[Step, ...]]:
    """The steps that lead to the image as `change` has changed it."""

    def steps(directory: Path) -> tuple[Step, ...]:
        before = DirectoryImage.of(inputs_of(str(directory)))
        after = before.copy()
        change(after)
        return steps_between(before, after, dict.fromkeys((*before, *after), "a reason"))

    return steps


def _replace(image: DirectoryImage) -> None:
    image.write(LOG, [Span(LOG, 0, 13), Span(LOG_9, 3, 20), Span(LOG, 20, 5)], like=LOG)
    image.write(INDEX, b"a fresh offset index")
    image.remove(TIMES)


def _truncate(image: DirectoryImage) -> None:
    image.truncate(LOG, 25)
    for name in (LOG_9, INDEX_9, SNAPSHOT_9, f"{LOG_9}.swap"):
        image.remove(name)


def _swap(image: DirectoryImage) -> None:
    image.rename(f"{LOG_9}.swap", LOG_9)
    image.write(INDEX_9, b"a fresh offset index of 9")


def _remove(image: DirectoryImage) -> None:
    for name in (INDEX, TIMES, f"{LOG_9}.swap"):
        image.remove(name)


def _side_files(image: DirectoryImage) -> None:
    image.write(EPOCHS, b"0\n1\n0 0\n", like=EPOCHS)
    image.write(f"{20:020}.snapshot", b"a new snapshot")
    image.write("partition.metadata", b"version: 0\n")
    image.write("empty", b"")


def _mixture(image: DirectoryImage) -> None:
    _replace(image)
    image.truncate(f"{LOG_9}.swap", 11)
    image.rename(f"{LOG_9}.swap", LOG_9)
    image.remove(SNAPSHOT_9)
    image.truncate(EPOCHS, 2)


def _checkpoints(image: DirectoryImage) -> None:
    image.write("recovery-point-offset-checkpoint", b"0\n1\norders 0 9\n", like="meta.properties")
    image.write("log-start-offset-checkpoint", b"0\n0\n")
    image.truncate("replication-offset-checkpoint", 4)
    image.remove(".kafka_cleanshutdown")


def _as_the_cleaner(_directory: Path) -> tuple[Step, ...]:
    """.cleaned → .swap → in place, the former log marked as deleted."""
    return (
        Write(f"{LOG_9}.cleaned", (Span(LOG, 0, 9), Span(LOG_9, 0, 9)), "cleaned", LOG_9),
        Rename(f"{LOG_9}.cleaned", f"{LOG_9}.swap", "cleaned"),
        Remove(INDEX_9, "belongs to the former log"),
        Rename(LOG_9, f"{LOG_9}.deleted", "cleaned"),
        Rename(f"{LOG_9}.swap", LOG_9, "cleaned"),
        Rename(LOG, f"{LOG}.deleted", "cleaned"),
    )


_SCRATCH: list[ScratchFile] = []


def _made_ahead(directory: Path) -> tuple[Step, ...]:
    """New files whose content the planner has already written to scratch files, which it keeps until the next plan."""
    while _SCRATCH:
        _SCRATCH.pop().close()
    for content in (b"a log that was made ahead", b"another"):
        _SCRATCH.append(ScratchFile(str(directory)))
        _SCRATCH[-1].write(content)
    log, other = (file.piece for file in _SCRATCH)
    return (
        Remove(INDEX, "belongs to the former log"),
        Write(LOG, (log,), "made ahead", LOG),
        Write(f"{LOG_9}.cleaned", (Span(LOG_9, 0, 4), other), "made ahead, but not all of it"),
    )


def _in_a_ring(_directory: Path) -> tuple[Step, ...]:
    """Two files that exchange names, a file truncated twice, and one that is written and then replaced."""
    return (
        Rename(LOG, "aside", "ring"),
        Truncate("aside", 30, "ring"),
        Rename(LOG_9, LOG, "ring"),
        Rename("aside", LOG_9, "ring"),
        Truncate(LOG_9, 7, "ring"),
        Write(INDEX, (Span(INDEX_9, 0, 4),), "ring"),
        Write(INDEX, (Span(INDEX, 0, 4), Span(LOG, 28, 3)), "ring", INDEX),
        Remove(EPOCHS, "ring"),
        Write(EPOCHS, (), "ring"),
    )


CASES = {
    "replace": Case(PARTITION, by_image(_replace)),
    "truncate": Case(PARTITION, by_image(_truncate)),
    "swap": Case(PARTITION, by_image(_swap)),
    "remove": Case(PARTITION, by_image(_remove)),
    "side files": Case(PARTITION, by_image(_side_files)),
    "cleaner": Case(PARTITION, _as_the_cleaner),
    "made ahead": Case(PARTITION, _made_ahead),
    "ring": Case(PARTITION, _in_a_ring),
    "data directory": Case(LOG_DIR, by_image(_checkpoints), is_partition=False),
    "elsewhere": Case(PARTITION, by_image(_mixture), elsewhere=True),
    "all elsewhere": Case(PARTITION, by_image(_mixture), elsewhere=True, journal_elsewhere=True),
    "data directory, all elsewhere": Case(
        LOG_DIR, by_image(_checkpoints), is_partition=False, elsewhere=True, journal_elsewhere=True
    ),
    "hard links": Case(PARTITION, by_image(_truncate), shared=(LOG, INDEX_9)),
}


# --- carried out

ID = "20260101T000000Z-00000001"
LATER = "20260101T000001Z-00000001"
QUICK = QuickDisk()


def carry_out(case: Case, directory: Path, journal_id: str = ID, disk: Disk = QUICK) -> Applied:
    return apply_plan(case.plan(directory), journal_id=journal_id, disk=disk)


def with_steps(*steps: Step) -> Case:
    return Case(PARTITION, lambda _directory: steps)


def place(applied: Applied) -> JournalLocation:
    found = location_of(applied.journal)
    assert found is not None
    return found


def stopped_in_the_middle(case: Case, directory: Path) -> None:
    """Stop a change after its plan is journaled and before all of its steps are done."""
    for number in range(1000):
        try:
            carry_out(case, directory, disk=StoppingDisk(number))
        except Stopped:
            if half_done(str(directory)):
                return
            complete_unfinished(str(directory), COMMAND, QUICK)
    raise AssertionError("it was never half done")
