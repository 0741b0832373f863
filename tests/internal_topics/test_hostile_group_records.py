"""Hostile records in group topics: mutated records of every type are replayed and converted to rows without a traceback, with memory
proportional to their bytes."""

from __future__ import annotations

import json
import os
import random
import tracemalloc
from collections.abc import Iterator

from kseg.internal_topics import schemas
from kseg.internal_topics.coordinator_log import CoordinatorEntry, CoordinatorRecord, TransactionMarker
from kseg.internal_topics.groups.group_records import CONSUMER_OFFSETS
from kseg.internal_topics.groups.group_replay import load_groups
from kseg.internal_topics.groups.group_rows import (
    TopicNames,
    group_row,
    member_rows,
    offset_row,
    pending_row,
    rewind_row,
)
from kseg.internal_topics.groups.partition_ends import PartitionEnds
from kseg.internal_topics.groups.share_rows import share_offset_row
from kseg.internal_topics.groups.share_state import SHARE_GROUP_STATE, load_share_state
from tests.internal_topics.coordinator_logs import key, value

RECORDS = int(os.environ.get("KSEG_GROUP_RECORDS", "4000"))
NAMES = TopicNames({}, {}, {})
MAX_BYTES = 64 << 20


def _samples(topic: str) -> list[tuple[bytes, bytes | None]]:
    """A record of each type and version, and its tombstone."""
    made: list[tuple[bytes, bytes | None]] = []
    for message in schemas.messages():
        if message.topic == topic and message.kind == "value" and message.type is not None:
            fields = schemas.message(topic, "key", message.type)
            assert fields is not None
            name = key(
                topic, message.type, **{each.name: "m" for each in fields.fields if each.type == "string"}
            )
            versions = range(message.versions.first, message.last_version + 1)
            made += [(name, value(topic, message.type, version)) for version in versions]
            made.append((name, None))
    return made


def _mutated(lots: random.Random, data: bytes | None) -> bytes | None:
    if data is None or lots.random() < 0.4:
        return data
    changed = bytearray(data)
    for _ in range(lots.randint(1, 4)):
        where = lots.randrange(len(changed) + 1)
        match lots.randrange(4):
            case 0 if where < len(changed):
                changed[where] = lots.choice((0, 1, 0x7F, 0x80, 0xFF, lots.randrange(256)))
            case 1:
                del changed[where:]
            case 2:
                changed[where:where] = lots.randbytes(lots.randint(1, 40))
            case _:
                changed[where : where + 4] = lots.choice(
                    (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\2")
                )
    return bytes(changed)


def _log(topic: str, seed: int) -> Iterator[CoordinatorEntry]:
    lots = random.Random(seed)
    samples = _samples(topic)
    for offset in range(RECORDS):
        name, content = lots.choice(samples)
        producer_id = lots.choice((-1, -1, -1, 7))
        if lots.random() < 0.05:
            yield TransactionMarker(offset, offset, 7, 0, lots.random() < 0.5, 0)
            continue
        whole = name if lots.random() < 0.7 else _mutated(lots, name)
        yield CoordinatorRecord(offset, offset, whole, _mutated(lots, content), producer_id, 0, False)


def test_mutated_group_records_are_replayed_in_bounded_memory() -> None:
    tracemalloc.start()
    loaded = load_groups(_log(CONSUMER_OFFSETS, 1))
    ends = PartitionEnds({})
    rows = [group_row(group) for group in loaded.metadata.groups.values()]
    rows += [row for group in loaded.metadata.groups.values() for row in member_rows(group, NAMES)]
    rows += [offset_row(where, record, NAMES, ends) for where, record in loaded.offsets.offsets.items()]
    rows += [
        pending_row(where, record, loaded.offsets.offsets.get(where))
        for waiting in loaded.offsets.pending.values()
        for where, record in waiting.items()
    ]
    rows += [rewind_row(each) for each in loaded.offsets.rewinds]
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert loaded.failures
    assert len(loaded.metadata.groups) > 3
    assert json.loads(json.dumps(rows)) == rows
    assert most < MAX_BYTES


def test_mutated_share_states_are_replayed_in_bounded_memory() -> None:
    loaded = load_share_state(_log(SHARE_GROUP_STATE, 2))
    rows = [share_offset_row(where, state, NAMES, None) for where, state in loaded.states.items()]
    assert loaded.failures
    assert json.loads(json.dumps(rows)) == rows
