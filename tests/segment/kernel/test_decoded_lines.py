"""The kernel that prints messages, interpreted with checked buffers and compiled, gives the same results for any bytes and any buffer
size."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kseg.internal_topics.message_programs import program_of
from kseg.internal_topics.topic_names import TOPICS
from kseg.segment.files import MappedFile
from kseg.segment.kernel.message_fields import ERROR, LINES_STATE_WIDTH, NO_ROOM
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.decode import Decoder, record_at
from kseg.segment.scanning.scan import Scanner
from tests.support.interpreted_kernels import Checked
from tests.support.kernel_variants import COMPILED, INTERPRETED

CASES = 400
LOG = "00000000000000000000.log"


def outcome(
    kernels: dict[str, ModuleType],
    wrap: Callable[[Any], Any],
    topic: str,
    key: bytes,
    value: bytes,
    room: int,
) -> tuple[int, bytes, list[int]]:
    program = program_of(topic)
    state, out = array("q", bytes(8 * LINES_STATE_WIDTH)), bytearray(room)
    end = kernels["decoded_lines"].format_parts(
        wrap(program.ops),
        wrap(program.names),
        wrap(key + value),
        0,
        len(key),
        len(key),
        len(value),
        wrap(out),
        wrap(memoryview(state)),
    )
    return end, bytes(out[: max(0, end)]), list(state)


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__cluster_metadata"])
def test_compiled_and_interpreted_message_printing_agree(capture_small: Path, topic: str) -> None:
    rng = random.Random(topic)
    records = _records(capture_small / "data" / f"{topic}-0" / LOG)
    whole = 0
    for _ in range(CASES):
        key, value = rng.choice(records)
        if rng.random() < 0.6:
            key, value = _damaged(rng, key), _damaged(rng, value)
        for room in (rng.randrange(1, 3000), 1 << 16):
            reported = outcome(COMPILED, memoryview, topic, key, value, room)
            assert reported == outcome(INTERPRETED, Checked, topic, key, value, room)
        assert reported[2][ERROR] != NO_ROOM
        whole += reported[0] > 0
    assert whole > CASES // 4


def test_message_programs_of_all_topics_fit_the_kernel() -> None:
    for topic in TOPICS.values():
        assert len(program_of(topic).ops) > 20


def _records(path: Path) -> list[tuple[bytes, bytes]]:
    found = []
    with MappedFile(str(path)) as file:
        scanner = Scanner.over(file, 0)
        decoder = Decoder(file.view)
        for table in scanner.blocks(0, file.size_bytes):
            if isinstance(table, Damage):
                continue
            for chunk in decoder.chunks(table):
                each = [record_at(chunk, at) for at in range(chunk.records.count) if not chunk.control]
                found += [(record.key or b"", record.value or b"") for record in each]
    return found


def _damaged(rng: random.Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(rng.randrange(3)):
        at = rng.randrange(len(found) + 1)
        if rng.random() < 0.3:
            del found[at:]
        elif at < len(found):
            found[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(found)
