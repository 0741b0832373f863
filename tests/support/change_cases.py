"""Data directories in which recover, compact and retain have something to do, and runs of these commands as function calls."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kseg.change.run.pipeline import TargetGroup
from kseg.change.run.run_lifecycle import RunLifecycle
from kseg.compaction.cleaner.compact import compact_group
from kseg.compaction.cleaner.options import CleanSettings, CompactOptions
from kseg.compaction.cleaner.run import CompactRun
from kseg.compaction.retention.options import Limits, RetainOptions
from kseg.compaction.retention.retain import retain_group
from kseg.compaction.retention.run import RetainRun
from kseg.jobs import fanout
from kseg.jobs.events import Event
from kseg.recovery.policy import LoadSettings
from kseg.recovery.repair.options import RecoverOptions
from kseg.recovery.repair.recover import recover_group
from kseg.recovery.repair.run import RecoverRun
from kseg.segment.partition.targets import resolve_targets
from tests.support.compact_helpers import Topic
from tests.support.retried_changes import GroupWork

FIRST = f"{0:020}.log"
# later than the real clock, from which files get the time of their mark
NOW_MS = 4_000_000_000_000
NOW = str(NOW_MS)
OLD_NS = 1_600_000_000_000_000_000
DAMAGED = ("metro-none-0", "metro-zstd-0")
_META = "version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n"


def damage_logs(capture: Path, made: Path) -> None:
    """A data directory marked as cleanly shut down, with two damaged partitions and a checkpoint beyond the end of its log."""
    made.mkdir(parents=True)
    for name in ("fares-0", *DAMAGED):
        shutil.copytree(capture / "data" / name, made / name)
    shutil.copy2(capture / "data" / "meta.properties", made)
    for name in DAMAGED:
        data = bytearray((made / name / FIRST).read_bytes())
        data[600] ^= 0x55
        (made / name / FIRST).write_bytes(data)
    (made / "recovery-point-offset-checkpoint").write_text("0\n1\nmetro-zstd 0 9000\n")
    # every broker creates it
    (made / ".lock").touch()
    (made / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}')


def keyed_logs(_capture: Path, made: Path) -> None:
    """A data directory with two partitions to compact and a checkpoint of the cleaner."""
    for name in ("accounts-0", "stock-3"):
        topic = Topic(made, name=name)
        for number in range(3):
            topic.send(("a", number), ("b", number), (number, "x"), producer=number)
            topic.roll()
        topic.close()
    (made / "meta.properties").write_text(_META)
    (made / "cleaner-offset-checkpoint").write_text("0\n1\nstock 3 2\n")
    (made / ".lock").touch()


def old_logs(_capture: Path, made: Path) -> None:
    """A data directory with two partitions that are older than the retention time and one that is not. In one of the two, and in another
    partition without other changes, there are files marked as deleted that may be purged."""
    for name in ("orders-0", "orders-1", "fresh-0"):
        topic = Topic(made, name=name)
        topic.time_ms = NOW_MS if name == "fresh-0" else topic.time_ms
        for number in range(3):
            topic.send((number, number))
            topic.roll()
        topic.close()
    for name in ("orders-1", "fresh-0"):
        for suffix in (".log", ".index"):
            marked = made / name / f"{90:020}{suffix}.deleted"
            marked.write_bytes(b"gone soon")
            os.utime(marked, ns=(OLD_NS, OLD_NS))
    (made / "meta.properties").write_text(_META)
    (made / "log-start-offset-checkpoint").write_text("0\n1\norders 1 1\n")
    (made / ".lock").touch()


@dataclass(frozen=True, slots=True)
class Changing:
    """One way to change a data directory. lay: creates it, from a capture. words: of the command, without the path."""

    lay: Callable[[Path, Path], None]
    words: tuple[str, ...]
    work: GroupWork
    run: Callable[[Any], RunLifecycle[Any]]
    options: Callable[..., Any]

    def events(
        self,
        log_dir: Path,
        over: Callable[[GroupWork, Sequence[TargetGroup], Any], Iterator[Event]],
        **options: Any,
    ) -> list[Event]:
        """The events of a run whose groups are processed by `over`."""
        targets = resolve_targets([str(log_dir)])
        groups = [TargetGroup((target,)) for target in targets]  # type: ignore[arg-type]
        whole = self.run(self.options(**options))
        with whole.held(targets) as held:
            return list(whole.through(over(self.work, groups, held)))


RECOVER = Changing(
    damage_logs,
    ("recover", "--now", NOW),
    recover_group,
    partial(RecoverRun, over=fanout.run),
    partial(RecoverOptions, settings=LoadSettings(now_ms=NOW_MS)),
)
COMPACT = Changing(
    keyed_logs,
    ("compact", "--cleanup-policy", "compact", "--now", NOW),
    compact_group,
    CompactRun,
    partial(CompactOptions, settings=CleanSettings(now_ms=NOW_MS)),
)
RETAIN = Changing(
    old_logs,
    ("retain", "--cleanup-policy", "delete", "--retention-ms", "1d", "--purge", "--now", NOW),
    retain_group,
    RetainRun,
    partial(RetainOptions, limits=Limits(retention_ms=86_400_000), now_ms=NOW_MS, purge=True),
)
CHANGINGS = {"recover": RECOVER, "compact": COMPACT, "retain": RETAIN}
