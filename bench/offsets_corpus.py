"""A `__consumer_offsets` segment like a broker's: commits of groups that consume many partitions, each in its own batch, occasional group
metadata with the subscriptions of the members, and tombstones."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record

START_MS = 1_790_000_000_000
GROUPS, TOPICS, PARTITIONS = 200, 40, 24
_MAX_COMMITTED = 12
_METADATA_SHARE, _TOMBSTONE_SHARE = 0.02, 0.02


def make(path: Path, size_bytes: int) -> None:
    """Write a segment of about this size."""
    rng = random.Random(15)
    path.parent.mkdir(parents=True, exist_ok=True)
    offset, now_ms, written = 0, START_MS, 0
    with path.open("wb") as file:
        while written < size_bytes:
            now_ms += rng.randrange(50)
            pairs = list(_pairs(rng, now_ms))
            records = tuple(Record(offset + at, now_ms, key, value) for at, (key, value) in enumerate(pairs))
            written += file.write(encode_batch(NewBatch(records=records)))
            offset += len(pairs)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _pairs(rng: random.Random, now_ms: int) -> Iterator[tuple[bytes, bytes | None]]:
    group = f"service-{rng.randrange(GROUPS)}-consumers"
    if rng.random() < _METADATA_SHARE:
        yield b"\0\2" + _text(group), _group_metadata(rng, group, now_ms)
        return
    topic = f"orders-{rng.randrange(TOPICS)}"
    for partition in rng.sample(range(PARTITIONS), rng.randrange(1, _MAX_COMMITTED + 1)):
        key = b"\0\1" + _text(group) + _text(topic) + struct.pack(">i", partition)
        if rng.random() < _TOMBSTONE_SHARE:
            yield key, None
        else:
            yield key, struct.pack(">hqi", 3, rng.randrange(10**9), 7) + _text("") + struct.pack(">q", now_ms)


def _group_metadata(rng: random.Random, group: str, now_ms: int) -> bytes:
    head = struct.pack(">h", 3) + _text("consumer") + struct.pack(">i", rng.randrange(1000))
    head += _text("range") + _text(f"{group}-1") + struct.pack(">q", now_ms)
    members = b"".join(_member(group, number) for number in range(3))
    return head + struct.pack(">i", 3) + members


def _member(group: str, number: int) -> bytes:
    name = f"{group}-{number}-7e2d6b0e-7f6a-4a34-8c4e-2f6f0a9a1c11"
    topics = struct.pack(">hi", 1, 1) + _text("orders-1") + struct.pack(">ii", -1, 0)
    partitions = range(number, PARTITIONS, 3)
    assigned = struct.pack(">hi", 1, 1) + _text("orders-1") + struct.pack(">i", len(partitions))
    assigned += b"".join(struct.pack(">i", partition) for partition in partitions) + struct.pack(">i", -1)
    fields = _text(name) + struct.pack(">h", -1) + _text(group) + _text("/10.0.3.17")
    fields += struct.pack(">ii", 300_000, 45_000)
    return fields + b"".join(struct.pack(">i", len(part)) + part for part in (topics, assigned))
