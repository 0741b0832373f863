"""Odd partition directories: like `random_directories`, but with logs and side files that differ more from what brokers write."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kseg.change.append.partition_writer import PartitionWriter, RollRules
from kseg.recovery.policy import BrokerState
from kseg.segment import layout as L
from kseg.segment.errors import KsegError
from tests.kafka import odd_side_files as odd
from tests.kafka.foreign_logs import ForeignLog
from tests.kafka.odd_logs import OddLog
from tests.kafka.random_directories import DAMAGES, Case, broker_state
from tests.kafka.random_ground import EPOCHS, SIDE_SUFFIXES, Ground

ODD_DAMAGES: list[tuple[Callable[[Ground], None], int]] = [
    *((damage, max(1, weight // 4)) for damage, weight in DAMAGES),
    (odd.mislead_a_time_index, 4),
    (odd.odd_index_entries, 4),
    (odd.large_indexes, 3),
    (odd.aborted_transactions, 4),
    (odd.epochs_in_odd_text, 4),
    (odd.odd_partition_metadata, 3),
    (odd.crafted_snapshot, 5),
    (odd.preallocated, 3),
    (odd.replace_in_steps, 8),
    (odd.odd_suffixes, 2),
    (odd.odd_numbers, 2),
    (odd.two_of_a_number, 1),
]


def odd_case(seed: int, parent: Path) -> Case:
    """Make the case with this seed below `parent`."""
    return _case(random.Random(f"odd {seed}"), parent, OddLog)


def foreign_case(seed: int, parent: Path) -> Case:
    """The same with logs that clients with other libraries wrote."""
    return _case(random.Random(f"foreign {seed}"), parent, ForeignLog)


def _case(rng: random.Random, parent: Path, kind: type[OddLog]) -> Case:
    name = rng.choice(("metro-0",) * 20 + (f"metro-0.{'0a' * 16}-delete", f"metro-0.{'0b' * 16}-future"))
    directory = parent / name
    directory.mkdir()
    ground = Ground(rng, directory)
    _write_files(ground, kind)
    for _ in range(rng.choice((0, 0, 1, 1, 2, 2, 3))):
        damage = rng.choices(*zip(*ODD_DAMAGES, strict=True))[0]
        ground.done.append(damage.__name__.strip("_"))
        damage(ground)
    return Case(directory, _broker_state(ground), ground.settings, ground.done)


def _write_files(ground: Ground, kind: type[OddLog]) -> None:
    rng = ground.rng
    rules = RollRules(
        segment_bytes=rng.choice((600, 1500, 4000, 10_000_000)),
        segment_index_bytes=max(ground.settings.segment_index_bytes, 36),
        index_interval_bytes=ground.settings.index_interval_bytes,
    )
    start = rng.choice((0,) * 20 + (5, 5, 5, 2**31 - 5, 2**31 - 5, 2**62))
    log = kind(rng, start)
    rest = []
    with PartitionWriter(ground.directory, start_offset=start, rules=rules) as writer:
        for _ in range(rng.choice((0, 1, 3, 12, 25, 40))):
            batch = _next(log)
            if batch is None:
                break
            try:
                writer.append(batch)
            except (
                KsegError,
                ValueError,
                OverflowError,
                # nonsense, written to the last log all the same
            ):
                rest.append(batch)
                rest += [another for _ in range(rng.choice((0, 1, 6))) if (another := _next(log))]
                break
            if rng.random() < 0.06:
                log.next_offset += rng.choice((0, 0, 3))
                writer.roll(log.next_offset)
        ground.log_end = writer.next_offset
    if rest and ground.logs():
        with ground.logs()[-1].open("ab") as file:
            file.write(b"".join(rest))
        ground.log_end = min(log.next_offset, L.INT64_MAX)
    if rng.random() < 0.3:
        ground.done.append("no side files")
        for path in ground.files(*SIDE_SUFFIXES, EPOCHS):
            if not path.name.endswith(L.OFFSET_INDEX_SUFFIX) or rng.random() < 0.5:
                path.unlink()


def _next(log: OddLog) -> bytes | None:
    """The next offset; None if there is none."""
    try:
        return log.batch()
    except KsegError:
        return None


def _broker_state(ground: Ground) -> BrokerState:
    rng = ground.rng
    around = broker_state(ground)
    around = replace(around, log_start_offset=min(around.log_start_offset, L.INT64_MAX))
    if rng.random() < 0.12:
        far = rng.choice((ground.log_end + 1, ground.log_end + 10**6, L.INT64_MAX, 2**31))
        far = min(far, L.INT64_MAX)
        if rng.choice(("recovery_point", "log_start_offset")) == "recovery_point":
            around = replace(around, recovery_point=far)
        else:
            around = replace(around, log_start_offset=far)
        if rng.random() < 0.3:
            around = replace(around, recovery_point=rng.choice((-1, -5)))
    return around
