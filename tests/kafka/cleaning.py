"""Compact random logs with kseg and with the real cleaner, in rounds with an advancing clock, and compare the results.

A case is repeated by its seed. Both sides start from the same directory. Between rounds both logs, which are equal by then, get the same
new batches. If the real cleaner throws, only kseg's result is checked.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fixtures.healthy import T0
from kseg.change.append.partition_writer import PartitionWriter, RollRules
from kseg.change.append.reopen import reopen_partition
from kseg.change.apply.journal_location import new_run_id
from kseg.compaction.cleaner.options import CleanSettings, CompactOptions
from kseg.jobs.events import Failure, Row
from kseg.segment import layout as L
from kseg.segment.errors import KsegError
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.scanning.batches import batch_at
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.decode import Decoder, record_at
from kseg.segment.scanning.scan import Scanner
from tests.kafka.oracle import Oracle
from tests.kafka.random_logs import DAY_MS, RandomLog
from tests.support.one_target import compact

SUFFIXES = (L.LOG_SUFFIX, L.OFFSET_INDEX_SUFFIX, L.TIME_INDEX_SUFFIX, L.TXN_INDEX_SUFFIX)
KEYS = 10


class KeyedLog(RandomLog):
    """A log of a compacted topic: keys recur, and nonsense is too rare to occur."""

    def __init__(self, rng: random.Random, start_offset: int) -> None:
        super().__init__(rng, start_offset)
        self._weights[-1] = 0

    def nonsense(self) -> bytes:
        return self.batch()


@dataclass
class Case:
    """directory: the initial state of both sides. log: writes further batches. log_start_offset: in the checkpoint of the data
    directory."""

    seed: int
    directory: Path
    log: RandomLog
    settings: CleanSettings
    rng: random.Random
    from_offsets: bool
    log_start_offset: int = 0
    done: list[str] = field(default_factory=list)


def random_case(seed: int, parent: Path, kind: type[RandomLog] = KeyedLog) -> Case:
    """Make the case with this seed below `parent`. kind: the class of the log."""
    rng = random.Random(f"clean {seed}")
    directory = parent / "keyed-0"
    start = rng.choice((0, 0, 0, 5, 100))
    interval = rng.choice((0, 100, 400, 4096))
    log = kind(rng, start)
    rules = RollRules(
        segment_bytes=rng.choice((600, 1500, 4000, 10_000)),
        segment_index_bytes=rng.choice((1000, 4003)),
        index_interval_bytes=interval,
    )
    leaps = rng.random() < 0.1
    with PartitionWriter(directory, start_offset=start, rules=rules) as writer:
        for _ in range(rng.choice((3, 12, 25, 40, 80))):
            if leaps and rng.random() < 0.12:
                log.leap()
            # an odd batch that a broker would not accept
            with suppress(KsegError):
                writer.append(log.batch())
            if rng.random() < 0.06:
                log.next_offset += rng.choice((0, 0, 3))
                writer.roll(log.next_offset)
        if rng.random() < 0.8:
            writer.roll(log.next_offset)
    times = sorted(rng.randint(0, 3 * DAY_MS) for _ in range(1000))
    for number, path in enumerate(sorted(directory.glob("*.log"))):
        os.utime(path, ns=((T0 + times[number]) * 10**6,) * 2)
    settings = CleanSettings(
        now_ms=T0 + rng.choice((0, DAY_MS // 2, 2 * DAY_MS, 10 * DAY_MS)),
        delete_retention_ms=rng.choice((0, 1000, DAY_MS, DAY_MS)),
        min_compaction_lag_ms=rng.choice((0, 0, 0, 0, DAY_MS)),
        segment_bytes=rng.choice((1000, 4000, 20_000, 1 << 30)),
        segment_index_bytes=rng.choice((1, 2, 5)) * largest_index_bytes(directory),
        index_interval_bytes=interval,
        map_bytes=24 * rng.choice((3, 6, 12, 1000, 1000, 1000)),
        producer_id_expiration_ms=rng.choice((DAY_MS, DAY_MS, 1000)),
    )
    return Case(seed, directory, log, settings, rng, rng.random() < 0.4)


def largest_index_bytes(directory: Path) -> int:
    """A size that suffices for the indexes of the largest segment and some more. The index of the active segment is preallocated to this
    size."""
    sizes = [path.stat().st_size for path in directory.iterdir() if path.name.endswith("index")]
    return max(sizes, default=0) + 500


def config_of(settings: CleanSettings) -> dict[str, str]:
    return {
        "cleanup.policy": "compact",
        "delete.retention.ms": str(settings.delete_retention_ms),
        "min.compaction.lag.ms": str(settings.min_compaction_lag_ms),
        "internal.segment.bytes": str(settings.segment_bytes),
        "segment.index.bytes": str(settings.segment_index_bytes),
        "index.interval.bytes": str(settings.index_interval_bytes),
    }


@dataclass
class Theirs:
    """The result of the real cleaner. threw: its exception, if any."""

    directory: Path
    next_dirty_offset: int = -1
    first_uncleanable_offset: int = -1
    cleanable_bytes: int = 0
    rounds: int = 0
    threw: str = ""


def real_clean(
    oracle: Oracle,
    directory: Path,
    settings: CleanSettings,
    first_dirty: int | None,
    log_start_offset: int = 0,
) -> Theirs:
    """Run the real cleaner on a copy until the range is clean."""
    copy = oracle.copy(directory)
    theirs = Theirs(copy)
    while True:
        step: dict[str, Any] = {"what": "clean", "map_bytes": settings.map_bytes}
        if first_dirty is not None:
            step["first_dirty_offset"] = first_dirty
        answer = oracle.partition(
            copy,
            [{"what": "expire_producers"}, step],
            in_place=True,
            clean=True,
            log_start_offset=log_start_offset,
            now=settings.now_ms,
            config=config_of(settings),
            producer_id_expiration_ms=settings.producer_id_expiration_ms,
        )
        line = answer.found[1]
        if "exception" in line:
            theirs.threw = f"{line['exception']}: {line['message']}"
            return theirs
        theirs.first_uncleanable_offset = line["first_uncleanable_offset"]
        if not line["cleanable_bytes"]:
            return theirs
        theirs.cleanable_bytes = theirs.cleanable_bytes or line["cleanable_bytes"]
        theirs.next_dirty_offset = first_dirty = line["next_dirty_offset"]
        theirs.rounds += 1
        if first_dirty >= line["first_uncleanable_offset"]:
            return theirs


@dataclass
class Ours:
    """The result of kseg. refused: why it did nothing, if it did nothing."""

    result: dict[str, Any]
    findings: list[Finding]
    refused: str = ""


def our_clean(directory: Path, settings: CleanSettings, first_dirty: int | None, **options: Any) -> Ours:
    """Run `compact` in place."""
    chosen = CompactOptions(
        settings=settings,
        first_dirty_offset=first_dirty,
        **{"apply": True, "run_id": new_run_id(settings.now_ms), **options},
    )
    events = list(compact(PartitionTarget(str(directory)), chosen))
    failures = [event.sentence for event in events if isinstance(event, Failure)]
    findings = [event for event in events if isinstance(event, Finding)]
    if failures:
        return Ours({}, findings, "; ".join(failures))
    results = [dict(e.values) for e in events if isinstance(e, Row) and e.values["type"] == "result"]
    assert len(results) == 1
    return Ours(results[0], findings)


def files_of(directory: Path, *, without: int | None = None) -> dict[str, bytes]:
    """The segment files in use, without those of the active segment, which a load modifies."""
    bases = sorted(int(path.name[:20]) for path in directory.glob("*.log"))
    active = bases[-1]
    return {
        path.name: path.read_bytes()
        for path in directory.iterdir()
        if path.name.endswith(SUFFIXES) and int(path.name[:20]) != active
    }


def records_of(data: bytes) -> list[tuple[Any, ...]]:
    """Batches and records of a log, without compressed bytes and what depends on them."""
    found: list[tuple[Any, ...]] = []
    decoder = Decoder(data)
    for block in Scanner(data).blocks():
        assert isinstance(block, Columns) and not isinstance(block, Damage)
        for row in range(block.count):
            batch = batch_at(block, row)
            fields = (
                batch.magic,
                batch.base_offset,
                batch.last_offset,
                batch.count,
                batch.attributes,
                batch.leader_epoch,
                batch.base_timestamp_ms,
                batch.max_timestamp_ms,
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
            )
            records = []
            for chunk in decoder.chunks(block, row, row + 1):
                assert chunk.problem is None
                records += [record_at(chunk, at) for at in range(chunk.records.count)]
            found.append((fields, records))
    return found


def has_packed(data: bytes) -> bool:
    return any(fields[4] & L.CODEC_MASK for fields, _ in records_of(data))


def all_records(files: dict[str, bytes]) -> list[tuple[Any, ...]]:
    names = sorted(name for name in files if name.endswith(L.LOG_SUFFIX))
    return [batch for name in names for batch in records_of(files[name])]


def assert_same(theirs: Path, ours: Path) -> None:
    """Check that the files are equal byte for byte, or equal in content where a compressor had a choice."""
    real, made = files_of(theirs), files_of(ours)
    # other compressed sizes after the first round lead to other groups of segments in the second
    if sorted(real) != sorted(made):
        assert any(has_packed(data) for name, data in real.items() if name.endswith(L.LOG_SUFFIX))
        assert all_records(real) == all_records(made)
        return
    for name, data in real.items():
        if data == made[name]:
            continue
        log = name[:20] + L.LOG_SUFFIX
        assert has_packed(real[log]), name
        if name == log:
            assert records_of(data) == records_of(made[name]), name
        else:
            assert len(real[log]) != len(made[log]) or name.endswith(L.TXN_INDEX_SUFFIX) is False, name


def marked(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name.endswith(L.DELETED_SUFFIX))


def rounds(case: Case, oracle: Oracle) -> Iterator[tuple[Theirs, Ours]]:
    """Compare round after round; yields both results."""
    rng, settings = case.rng, case.settings
    first_dirty: int | None = None
    for number in range(rng.choice((1, 2, 3, 4))):
        if number:
            for path in case.directory.glob(f"*{L.DELETED_SUFFIX}"):
                path.unlink()
            shutil.rmtree(case.directory / ".kseg", ignore_errors=True)
            more_batches(case)
            later = rng.choice((0, 999, 1000, DAY_MS, DAY_MS, 3 * DAY_MS))
            settings = replace(settings, now_ms=settings.now_ms + later)
        if case.from_offsets and not number:
            first_dirty = rng.choice((None, case.log.next_offset // 2, case.log.next_offset + 5, 3))
        theirs = real_clean(oracle, case.directory, settings, first_dirty, case.log_start_offset)
        ours = our_clean(case.directory, settings, first_dirty, log_start_offset=case.log_start_offset)
        yield theirs, ours
        if theirs.threw or ours.refused:
            return
        first_dirty = theirs.next_dirty_offset if theirs.cleanable_bytes else first_dirty


def more_batches(case: Case) -> None:
    """Append batches as a broker would after a clean shutdown, mostly in closed segments."""
    rng, directory = case.rng, case.directory
    rules = RollRules(
        segment_bytes=rng.choice((600, 1500, 4000)), index_interval_bytes=case.settings.index_interval_bytes
    )
    with PartitionLog(PartitionTarget(str(directory))) as log:
        partition = reopen_partition(log, rules)
    with PartitionWriter(directory, partition=partition, existing=os.listdir(directory)) as writer:
        for _ in range(rng.choice((0, 1, 5, 20))):
            with suppress(KsegError):
                writer.append(case.log.batch())
        if rng.random() < 0.9:
            writer.roll(case.log.next_offset)
