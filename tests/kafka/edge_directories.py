"""Partition directories with offsets at the limits of 64 bits, where a broker's arithmetic overflows: segments that begin just below 2^63,
and batches at 2^63 - 1, -1 and -2^63."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

from kseg.recovery.policy import BrokerState
from kseg.segment import layout as L
from kseg.segment.errors import FormatError
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry, encode_snapshot
from tests.kafka.odd_directories import ODD_DAMAGES
from tests.kafka.random_directories import Case
from tests.kafka.random_ground import EPOCHS, Ground
from tests.kafka.random_logs import RandomLog

_BASES = (
    0,
    0,
    5,
    2**31,
    2**62,
    2**63 - 2**31 - 3,
    2**63 - 2**31,
    2**63 - 40,
    2**63 - 6,
    2**63 - 2,
    2**63 - 1,
)
_OFFSETS = (0, -1, -5, -(2**63), -(2**63) + 1, 2**63 - 1, 2**63 - 2, 2**63 - 4)


def edge_case(seed: int, parent: Path) -> Case:
    """Make the case with this seed below `parent`."""
    rng = random.Random(f"edge {seed}")
    directory = parent / "metro-0"
    directory.mkdir()
    ground = Ground(rng, directory)
    bases = sorted(set(rng.choices(_BASES, k=rng.choice((1, 1, 2, 3)))))
    jumps = rng.choice((0.0, 0.1, 0.4))
    ends = [_write_segment(ground, base, jumps) for base in bases]
    ground.log_end = min(max(ends[-1], 0), L.INT64_MAX - 1000)
    _write_side_files(ground, [*bases, *(max(0, end) for end in ends)])
    if rng.random() < 0.3:
        damage = rng.choices(*zip(*ODD_DAMAGES, strict=True))[0]
        ground.done.append(damage.__name__.strip("_"))
        # it draws offsets that a file cannot contain
        with suppress(FormatError):
            damage(ground)
    known = [0, 0, 0, *bases, *bases, *(max(0, end) for end in ends), L.INT64_MAX, L.INT64_MAX - 1]
    state = BrokerState(
        is_clean=rng.random() < 0.5,
        recovery_point=rng.choice(known),
        log_start_offset=rng.choice([0] * 6 + known),
    )
    return Case(directory, state, ground.settings, ground.done)


def _write_segment(ground: Ground, base: int, jumps: float) -> int:
    """Write a segment; returns the offset after its last batch, with Java's overflow."""
    rng, data, offset = ground.rng, bytearray(), base
    log = RandomLog(rng, 0)
    for _ in range(rng.choice((0, 1, 2, 3, 6, 12))):
        if rng.random() < jumps:
            near = (base - 1, base, base + L.INT32_MAX - 3, base + L.INT32_MAX, base + 2**31)
            offset = L.as_int64(rng.choice((*_OFFSETS, *near)))
        batch = log.batch()
        data += offset.to_bytes(8, "big", signed=True) + batch[8:]
        offset = L.as_int64(offset + int.from_bytes(batch[23:27], "big") % 1000 + 1)
    (ground.directory / f"{base:020}.log").write_bytes(data)
    return offset


def _write_side_files(ground: Ground, offsets: list[int]) -> None:
    rng, directory = ground.rng, ground.directory
    for log in ground.logs():
        for suffix in (L.OFFSET_INDEX_SUFFIX, L.TIME_INDEX_SUFFIX):
            if rng.random() < 0.6:
                log.with_suffix(suffix).write_bytes(b"")
        # relative offsets that overflow, at positions where batches begin
        if rng.random() < 0.3:
            positions = rng.choices(ground.bounds(log), k=3)
            relative = [rng.choice((0, 1, 5, 40, L.INT32_MAX)) for _ in positions]
            slots = zip(sorted(relative), sorted(positions), strict=True)
            entries = b"".join(first.to_bytes(4, "big") + at.to_bytes(4, "big") for first, at in slots)
            log.with_suffix(L.OFFSET_INDEX_SUFFIX).write_bytes(entries)
    for offset in rng.sample(offsets, rng.choice((0, 0, 1, 2))):
        producers = [
            ProducerSnapshotEntry(rng.choice((1, 2, 17)), 0, 3, each, 0, ground.settings.now_ms, 0, first)
            for each in rng.choices(_OFFSETS, k=rng.choice((0, 1, 2)))
            for first in (rng.choice((None, each)),)
        ]
        (directory / f"{offset:020}.snapshot").write_bytes(encode_snapshot(producers))
    if rng.random() < 0.4:
        starts = sorted(rng.choices([*offsets, 0, L.INT64_MAX], k=rng.choice((0, 1, 2, 3))))
        lines = [f"{epoch} {start}\n" for epoch, start in enumerate(starts)]
        (directory / EPOCHS).write_text(f"0\n{len(lines)}\n{''.join(lines)}")
