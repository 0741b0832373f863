"""Random data directories of a stopped broker, and rounds of retention on them, each with its own clock and limits.

A partition is written by kseg, loaded and cleanly closed by the real UnifiedLog, and then given the modification times and checkpoints of
the case. A case is repeated by its seed.
"""

from __future__ import annotations

import os
import random
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fixtures.healthy import T0
from kseg.change.append.partition_writer import PartitionWriter, RollRules
from kseg.compaction.retention.options import Limits, RetainOptions, RetentionPolicy
from kseg.segment import layout as L
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.errors import KsegError
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.sidecar.checkpoint import CheckpointEntry, encode_offset_checkpoint
from tests.kafka.odd_logs import OddLog
from tests.kafka.oracle import Oracle
from tests.kafka.random_logs import DAY_MS, RandomLog

NAME = "metro-0"
INDEX_CONFIG = {"segment.index.bytes": 1200, "index.interval.bytes": 100}


class _CalmLog(RandomLog):
    """Without nonsense, so that every load succeeds. Timestamps jump, and some records have none."""

    def nonsense(self) -> bytes:
        return self._plain()

    def batch(self) -> bytes:
        rng = self.rng
        if rng.random() < 0.2:
            self.time_ms += rng.choice((-2, -1, 1, 1, 2, 3)) * DAY_MS
        if rng.random() < 0.1:
            self.time_ms = max(self.time_ms, 0)
        return super().batch()


def timeless(log: RandomLog) -> bytes:
    """A batch of one record without a timestamp."""
    log.next_offset += 1
    record = Record(log.next_offset - 1, L.NO_TIMESTAMP, b"k", log.rng.randbytes(30))
    return encode_batch(NewBatch(records=(record,), leader_epoch=log.leader_epoch))


@dataclass
class Retention:
    """log_dir: the data directory, with one partition. rounds: the options of each round, each with a later clock. has_lies: an index
    contains something that no broker wrote, so a load may rebuild it. recovery_point: of an unclean stop; None after a clean one."""

    log_dir: Path
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    rounds: list[RetainOptions] = field(default_factory=list)
    has_lies: bool = False
    recovery_point: int | None = None

    @property
    def partition(self) -> Path:
        return self.log_dir / NAME

    @property
    def limits(self) -> Limits:
        return self.rounds[0].limits

    def config(self) -> dict[str, object]:
        """The limits as a Kafka topic configuration."""
        limits = self.limits
        local = "local." if limits.is_copied else ""
        return {
            f"{local}retention.ms": -1 if limits.retention_ms is None else limits.retention_ms,
            f"{local}retention.bytes": -1 if limits.retention_bytes is None else limits.retention_bytes,
            "cleanup.policy": limits.policy_text,
            "remote.storage.enable": str(limits.is_tiered).lower(),
            "remote.log.copy.disable": str(limits.is_tiered and not limits.is_copied).lower(),
            **INDEX_CONFIG,
        }


class OddCalmLog(_CalmLog, OddLog):
    """Extreme timestamps, batches that span many offsets, and other oddities that load and have a timestamp."""

    def __init__(self, rng: random.Random, start_offset: int) -> None:
        super().__init__(rng, start_offset)
        self._odd = [self._odd_times, self._odd_times, self._wide_batch, self._odd_sequence]


def random_retention(
    seed: int, parent: Path, oracle: Oracle, kind: type[RandomLog] | None = None
) -> Retention:
    """Make the case with this seed below `parent`. kind: the class of the log."""
    rng = random.Random(seed)
    log_dir = parent / "data"
    partition = log_dir / NAME
    partition.mkdir(parents=True)
    end = _write(rng, partition, kind or _CalmLog)
    start = rng.choice((0, 0, 0, 0, rng.randint(0, end), rng.choice(_bases(partition))))
    # drawn from a separate generator, so that the rest of a case stays the same as without remote storage
    tiers = random.Random(f"tiers {seed}")
    is_tiered = tiers.random() < 0.3
    config = {**INDEX_CONFIG, "remote.storage.enable": str(is_tiered).lower()}
    again = None
    # the second load treats snapshots differently
    for is_clean in (False, True):
        again = oracle.partition(
            partition,
            in_place=True,
            clean=is_clean,
            now=T0,
            log_start_offset=start,
            config=config,
            tiered=is_tiered,
        )
    assert again is not None
    start, end = (int(again.loaded[name]) for name in ("log_start_offset", "log_end_offset"))
    high_watermark = rng.choice(
        (end, end, end, rng.randint(start, end), rng.choice([*_bases(partition), end]))
    )
    case = Retention(log_dir, start, max(start, high_watermark), end)
    _give_times(rng, partition)
    if rng.random() < 0.15:
        case.has_lies = True
        _lie(rng, partition)
    if rng.random() < 0.2:
        case.recovery_point = rng.choice((0, end, rng.choice(_bases(partition))))
        _leave_preallocated(_logs(partition)[-1].with_suffix(L.TIME_INDEX_SUFFIX))
    case.rounds = _rounds(rng, case)
    if is_tiered:
        _give_tiers(tiers, case)
    _give_checkpoints(case)
    return case


def _give_tiers(rng: random.Random, case: Retention) -> None:
    """Segments have been copied to remote storage up to some offset, or are no longer copied."""
    end = rng.choice((0, case.log_end_offset, rng.randint(0, case.log_end_offset), *_bases(case.partition)))
    # compacted topics cannot be tiered
    policies = case.limits.policies - {RetentionPolicy.COMPACT}
    limits = replace(case.limits, policies=policies, is_tiered=True, is_copied=rng.random() < 0.8)
    case.rounds = [replace(each, limits=limits, remote_end_offset=end) for each in case.rounds]


def _write(rng: random.Random, partition: Path, kind: type[RandomLog]) -> int:
    rules = RollRules(
        segment_bytes=rng.choice((400, 800, 1500, 4000)), segment_index_bytes=1200, index_interval_bytes=100
    )
    start = rng.choice((0, 0, 0, 7, 1000))
    log = kind(rng, start)
    with PartitionWriter(partition, start_offset=start, rules=rules) as writer:
        for _ in range(rng.choice((0, 1, 4, 12, 25, 40))):
            batch = timeless(log) if rng.random() < 0.1 else log.batch()
            # an odd batch that a broker would not accept
            with suppress(KsegError):
                writer.append(batch)
            if rng.random() < 0.12:
                log.next_offset += rng.choice((0, 0, 3))
                writer.roll(log.next_offset)
                # a segment in which no record has a timestamp
                while rng.random() < 0.4:
                    writer.append(timeless(log))
        if rng.random() < 0.2:
            writer.roll(log.next_offset)
        return writer.next_offset


def _logs(partition: Path) -> list[Path]:
    return sorted(partition.glob("*.log"))


def _bases(partition: Path) -> list[int]:
    return [int(path.stem) for path in _logs(partition)]


def _give_times(rng: random.Random, partition: Path) -> None:
    for path in _logs(partition):
        mtime_ns = (T0 + rng.randint(-3 * DAY_MS, 3 * DAY_MS)) * 1_000_000 + rng.choice((0, 999_999))
        os.utime(path, ns=(mtime_ns, mtime_ns))


def _lie(rng: random.Random, partition: Path) -> None:
    """A time index that no broker would leave. After a clean shutdown it is trusted all the same."""
    indexes = sorted(partition.glob("*.timeindex"))
    path = rng.choice(indexes)
    data = path.read_bytes()
    match rng.randrange(5):
        case 0:
            path.write_bytes(data + bytes(24))
        case 1:
            path.write_bytes(bytes(24))
        case 2:
            path.write_bytes(data + (T0 + 9 * DAY_MS).to_bytes(8, "big") + (1).to_bytes(4, "big"))
        case 3:
            path.write_bytes(b"")
        case _:
            path.unlink()


def _leave_preallocated(path: Path) -> None:
    """The time index of the active segment as a crash leaves it."""
    if path.exists():
        path.write_bytes(path.read_bytes().ljust(1200, b"\0"))


def _give_checkpoints(case: Retention) -> None:
    first = _bases(case.partition)[0]
    has_entry = case.limits.is_tiered or case.log_start_offset > first
    starts = [] if not has_entry else [CheckpointEntry("metro", 0, case.log_start_offset)]
    starts.append(CheckpointEntry("other", 3, 77))
    marks = [CheckpointEntry("other", 3, 99), CheckpointEntry("metro", 0, case.high_watermark)]
    for role, entries in ((Role.LOG_START_OFFSETS, starts), (Role.HIGH_WATERMARKS, marks)):
        (case.log_dir / NAME_BY_ROLE[role]).write_bytes(encode_offset_checkpoint(entries))
    if case.recovery_point is None:
        (case.log_dir / NAME_BY_ROLE[Role.CLEAN_SHUTDOWN]).touch()
    else:
        points = encode_offset_checkpoint([CheckpointEntry("metro", 0, case.recovery_point)])
        (case.log_dir / NAME_BY_ROLE[Role.RECOVERY_POINTS]).write_bytes(points)
    (case.log_dir / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")


def _rounds(rng: random.Random, case: Retention) -> list[RetainOptions]:
    sizes = [path.stat().st_size for path in _logs(case.partition)]
    total = sum(sizes)
    limits = Limits(
        retention_ms=rng.choice(
            (None, 0, 1, DAY_MS, DAY_MS, 2 * DAY_MS, 5 * DAY_MS, rng.randint(0, 4 * DAY_MS))
        ),
        retention_bytes=rng.choice(
            (None, None, 0, 1, total, total - sizes[0], rng.randint(0, total + 9), sum(sizes[-2:]))
        ),
        policies=rng.choice(
            (
                frozenset((RetentionPolicy.DELETE,)),
                frozenset((RetentionPolicy.DELETE,)),
                frozenset((RetentionPolicy.DELETE,)),
                frozenset((RetentionPolicy.DELETE, RetentionPolicy.COMPACT)),
                frozenset((RetentionPolicy.COMPACT,)),
                frozenset(),
            )
        ),
    )
    options = RetainOptions(limits=limits, now_ms=T0 + rng.randint(-2 * DAY_MS, 6 * DAY_MS))
    if rng.random() < 0.3:
        options = replace(options, log_start_offset=rng.randint(case.log_start_offset, case.high_watermark))
    rounds = [options]
    while rng.random() < 0.5:
        later = rounds[-1].now_ms + rng.choice((1, DAY_MS, 10 * DAY_MS))
        rounds.append(replace(options, now_ms=later, log_start_offset=None))
    return rounds


def kafka_steps(case: Retention) -> list[dict[str, Any]]:
    """The rounds as steps of the oracle, each followed by its state."""
    steps: list[dict[str, Any]] = []
    if case.limits.is_tiered:
        steps.append({"what": "remote_end_offset", "offset": case.rounds[0].remote_end_offset})
    for options in case.rounds:
        steps.append({"what": "now", "ms": options.now_ms})
        if options.log_start_offset is not None:
            steps.append({"what": "log_start_offset", "offset": options.log_start_offset})
        steps += [{"what": "retain"}, {"what": "state"}]
    return steps
