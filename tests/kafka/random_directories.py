"""Random partition directories in every state in which a broker may find one, and what the broker knows about them.

A directory is a random log in several segments, with side files as after a clean shutdown or without any, with up to five kinds of damage.
A case is repeated by its seed; `done` lists the damage.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kseg.change.append.partition_writer import PartitionWriter, RollRules
from kseg.recovery.policy import BrokerState, LoadSettings
from kseg.segment import layout as L
from kseg.segment.errors import KsegError
from tests.kafka import random_log_damage as logs
from tests.kafka import random_side_damage as sides
from tests.kafka.random_ground import EPOCHS, SIDE_SUFFIXES, Ground
from tests.kafka.random_logs import RandomLog

DAMAGES: list[tuple[Callable[[Ground], None], int]] = [
    (logs.flip_a_bit, 10),
    (logs.put_zeros, 4),
    (logs.cut_a_log, 6),
    (logs.append_garbage, 4),
    (logs.append_zeros, 4),
    (logs.repeat_bytes, 3),
    (logs.move_bytes, 2),
    (logs.alter_a_header, 6),
    (logs.lower_an_offset, 4),
    (logs.append_nonsense, 3),
    (logs.remove_a_segment, 2),
    (logs.empty_a_log, 2),
    (logs.join_segments, 3),
    (logs.rename_a_segment, 2),
    (sides.remove_side_files, 10),
    (sides.remove_all_of_a_kind, 5),
    (sides.damage_a_side_file, 8),
    (sides.pad_side_files, 4),
    (sides.mislead_an_index, 3),
    (sides.stray_snapshots, 4),
    (sides.false_snapshot, 3),
    (sides.false_txn_index, 3),
    (sides.orphan_indexes, 3),
    (sides.leave_deleted, 3),
    (sides.leave_cleaned, 4),
    (sides.leave_swap, 8),
    (sides.odd_epochs, 4),
    (sides.other_files, 2),
    (sides.odd_names, 1),
]


@dataclass
class Case:
    """A directory, what a broker knows about it, and how it was made."""

    directory: Path
    broker_state: BrokerState
    settings: LoadSettings
    done: list[str] = field(default_factory=list)


def random_case(seed: int, parent: Path) -> Case:
    """Make the case with this seed below `parent`."""
    rng = random.Random(seed)
    name = rng.choice(("metro-0",) * 20 + (f"metro-0.{'0a' * 16}-delete", f"metro-0.{'0b' * 16}-future"))
    directory = parent / name
    directory.mkdir()
    ground = Ground(rng, directory)
    write_files(ground)
    for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 5))):
        damage = rng.choices(*zip(*DAMAGES, strict=True))[0]
        ground.done.append(damage.__name__.strip("_"))
        damage(ground)
    return Case(directory, broker_state(ground), ground.settings, ground.done)


def write_files(ground: Ground) -> None:
    rng = ground.rng
    rules = RollRules(
        segment_bytes=rng.choice((600, 1500, 4000, 10_000_000)),
        segment_index_bytes=max(ground.settings.segment_index_bytes, 36),
        index_interval_bytes=ground.settings.index_interval_bytes,
    )
    start = rng.choice((0, 0, 0, 5, 100))
    log = RandomLog(rng, start)
    leaps = rng.random() < 0.12
    refused = b""
    with PartitionWriter(ground.directory, start_offset=start, rules=rules) as writer:
        for _ in range(rng.choice((0, 1, 3, 12, 25, 40))):
            if leaps and rng.random() < 0.12:
                log.leap()
            batch = log.batch()
            try:
                writer.append(batch)
            except KsegError:
                # nonsense, written to the last log all the same
                refused = batch
                break
            if rng.random() < 0.06:
                log.next_offset += rng.choice((0, 0, 3))
                writer.roll(log.next_offset)
        ground.log_end = writer.next_offset
    if leaps and rng.random() < 0.7:
        logs.join_segments(ground)
    tail = refused + b"".join(log.batch() for _ in range(rng.choice((0, 0, 0, 0, 1, 4))))
    if tail and ground.logs():
        with ground.logs()[-1].open("ab") as file:
            file.write(tail)
        ground.log_end = log.next_offset
    if rng.random() < 0.25:
        ground.done.append("no side files")
        for path in ground.files(*SIDE_SUFFIXES, EPOCHS):
            if not path.name.endswith(L.OFFSET_INDEX_SUFFIX) or rng.random() < 0.5:
                path.unlink()


def broker_state(ground: Ground) -> BrokerState:
    rng = ground.rng
    bases = [int(path.name.split(".")[0]) for path in ground.logs()]
    ends = [
        ground.log_end,
        ground.log_end,
        max(0, ground.log_end - 1),
        rng.randint(0, min(ground.log_end, 10**6) + 5),
    ]
    return BrokerState(
        is_clean=rng.random() < 0.35,
        recovery_point=rng.choice([0, 0, 0, *bases, *ends]),
        log_start_offset=rng.choice(
            [0] * 12
            + bases[:3]
            + [rng.randint(0, min(ground.log_end, 10**6))] * 3
            + ends
            + [ground.log_end + 500]
        ),
    )
