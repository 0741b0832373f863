"""Batches whose records other libraries compressed, some of them damaged: kseg reads or rejects each as the real Kafka does.

`KSEG_STREAMS` is the number of batches (default 400), `KSEG_STREAMS_SEED` the first seed.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from kseg.segment.encoding.legacy import encode_message
from tests.kafka.foreign_streams import CODECS, XERIAL, foreign_stream
from tests.kafka.oracle import Oracle
from tests.kafka.test_decode import agree, asked, ours
from tests.support.raw_batches import T0, record, sealed

pytestmark = pytest.mark.kafka
COUNT = int(os.environ.get("KSEG_STREAMS", "400"))
FIRST_SEED = int(os.environ.get("KSEG_STREAMS_SEED", "1"))


def compressed_batch(rng: random.Random) -> bytes:
    """A batch of any magic around a foreign stream. Half of the streams are damaged under a valid checksum."""
    magic = rng.choice((0, 1, 2, 2, 2))
    codec = rng.choice(CODECS)
    count = rng.choice((1, 1, 2, 5, 30))
    sizes = rng.choice(((0, 5, 40), (10, 300), (3000, 70_000, 140_000)))
    values = [_value(rng, rng.choice(sizes)) for _ in range(count)]
    if magic == 2:
        content = b"".join(record(at, value=value) for at, value in enumerate(values))
        return sealed(_damaged(rng, foreign_stream(rng, codec, content)), count, attributes=codec)
    inner = b"".join(
        encode_message(magic, at if magic else 1000 + at, T0, 0, b"k", value)
        for at, value in enumerate(values)
    )
    packed = _damaged(rng, foreign_stream(rng, codec, inner))
    return encode_message(magic, 1000 + count - 1, T0, codec, None, packed)


def _value(rng: random.Random, size_bytes: int) -> bytes:
    match rng.randrange(3):
        case 0:
            return bytes([rng.randrange(256)]) * size_bytes
        case 1:
            return rng.randbytes(size_bytes)
        case _:
            return (b"%d " % rng.randrange(10**6) * (size_bytes // 3 + 1))[:size_bytes]


def _damaged(rng: random.Random, stream: bytes) -> bytes:
    data = bytearray(stream)
    if rng.random() < 0.5:
        return stream
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.choice((rng.randrange(len(data) + 1), rng.randrange(min(len(data), 24) + 1)))
        match rng.randrange(5):
            case 0:
                data[at:] = b""
            case 1:
                data[at:at] = rng.choice((bytes(1), bytes(4), rng.randbytes(3)))
            case 2:
                del data[at : at + rng.choice((1, 4))]
            case 3:
                data += rng.choice((data[at:], data[: at + 1]))
            case _ if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
    return bytes(data)


def difference(oracle: Oracle, seed: int, place: Path) -> str:
    """How kseg and Kafka differ on the batch of this seed; empty if they agree."""
    data = compressed_batch(random.Random(f"stream {seed}"))
    theirs, failed = asked(oracle, data, place)
    records, refused = ours(data)
    what = f"seed {seed}, magic {data[16]}"
    if refused == failed:
        agreed = failed or agree(records, theirs, failed)
        return "" if agreed else f"{what}: {_shown(theirs)} by kafka, {_shown(records)} by ours"
    if failed and oracle.records(place)[-1]["exception"] == "java.lang.OutOfMemoryError":
        # garbage was taken for a size; with a larger heap, Kafka could not read the message either
        return ""
    if refused and data.count(XERIAL[:4]) > data.count(XERIAL):
        # whether a reader gets past an invalid header depends on where its buffers end
        return ""
    return f"{what}: {'refused' if failed else 'read'} by kafka, not by ours"


def _shown(records: list[tuple[Any, ...]]) -> str:
    return f"{len(records)} records {str(records)[:200]}"


def test_streams_of_other_libraries_are_read_or_rejected_like_kafka(oracle: Oracle, tmp_path: Path) -> None:
    place = tmp_path / "00000000000000000000.log"
    found = [difference(oracle, seed, place) for seed in range(FIRST_SEED, FIRST_SEED + COUNT)]
    assert not any(found), "\n".join(filter(None, found))


@pytest.mark.parametrize("seed", [23, 1145, 10850, 16223])
def test_streams_that_once_differed_are_read_or_rejected_like_kafka(
    oracle: Oracle, tmp_path: Path, seed: int
) -> None:
    """Snappy: a one-byte literal at the end of a block whose length follows its tag, and a second header of which only the first bytes are
    valid."""
    assert not difference(oracle, seed, tmp_path / "00000000000000000000.log")
