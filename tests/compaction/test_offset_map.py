"""The offset map of a pass: it grows as it fills, and the bitmap built from it gives the same answers."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kseg.compaction.cleaner.latest_offsets import LatestOffsets, fastest_lookup
from kseg.compaction.cleaner.options import CleanSettings
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import key_verdicts as J
from kseg.segment.kernel import state_fields as S
from kseg.segment.scanning.decode import Chunk
from kseg.segment.state.offset_map import SLOT_BYTES, KeyLookup, OffsetMap
from tests.segment.kernel.test_keymap import table_of
from tests.support.compact_helpers import Topic, clean, records

PIECE = 250


def chunk_of(keys: Sequence[bytes | None], first_offset: int) -> Chunk:
    body, table = table_of(keys, range(first_offset, first_offset + len(keys)), [b"v"] * len(keys))
    return Chunk(body, table, 0, 0, True, False, None)


def pieces(keys: Sequence[bytes | None]) -> Iterator[tuple[int, Chunk]]:
    """The keys in chunks, each with its first offset."""
    for start in range(0, len(keys), PIECE):
        yield start, chunk_of(keys[start : start + PIECE], start)


def filled(keys: Sequence[bytes | None], slots: int, skipped_ranges: Sequence[int] = ()) -> OffsetMap:
    """A map of the keys with their positions as offsets. Chunks that begin at one of `skipped_ranges` are skipped."""
    offset_map = OffsetMap(CleanSettings(now_ms=0, map_bytes=slots * SLOT_BYTES), 0)
    offset_map.begin(0)
    for start, chunk in pieces(keys):
        offset_map.begin_table()
        if start in skipped_ranges:
            offset_map.skip(start, start + chunk.records.count - 1)
        else:
            assert offset_map.hash(chunk)
            assert offset_map.put(chunk, 0) is None
    offset_map.update_latest_offset(len(keys) - 1)
    return offset_map


def stays(judge: KeyLookup, keys: Sequence[bytes | None]) -> list[bool]:
    batches = Columns(C.BATCH_WIDTH, 1)
    batches.cells[C.MAGIC] = L.MAGIC_V2
    found: list[bool] = []
    for _, chunk in pieces(keys):
        table, flags = chunk.records, bytearray(PIECE)
        tallies, totals = (
            memoryview(array("q", bytes(8 * width))) for width in (C.TALLY_WIDTH, S.TOTAL_WIDTH)
        )
        assert judge.hash(chunk)
        J.judge_rows(
            table.cells,
            table.capacity,
            table.count,
            judge.words,
            judge.slots,
            judge.slot_count,
            judge.latest_offset,
            0,
            1,
            batches.cells,
            1,
            flags,
            tallies,
            totals,
        )
        found += [bool(flag) for flag in flags[: table.count]]
    return found


def random_keys(rng: random.Random, count: int, different: int) -> list[bytes | None]:
    return [None if rng.random() < 0.02 else b"%d" % rng.randrange(different) for _ in range(count)]


@pytest.mark.parametrize(("count", "different"), [(3000, 2000), (20_000, 9000), (60_000, 40_000)])
def test_offset_map_grows_without_losing_keys(count: int, different: int) -> None:
    keys = random_keys(random.Random(count), count, different)
    offset_map = filled(keys, 100_000)
    latest = {key: offset for offset, key in enumerate(keys)}
    # records without a key are not in the map
    assert offset_map.size == len(latest) - 1
    assert len(latest) < offset_map.slot_count <= 100_000
    assert stays(offset_map, keys) == [
        key is not None and latest[key] == offset for offset, key in enumerate(keys)
    ]


@pytest.mark.parametrize("slots", [3, 50, 4096, 5000, 40_000])
def test_offset_map_holds_as_many_keys_as_the_settings_say(slots: int) -> None:
    settings = CleanSettings(now_ms=0, map_bytes=slots * SLOT_BYTES)
    offset_map = OffsetMap(settings, 0)
    offset_map.begin(0)
    keys = [b"%d" % number for number in range(settings.map_keys + 1)]
    for start, chunk in pieces(keys):
        assert offset_map.hash(chunk)
        full = offset_map.put(chunk, 0)
        if full is not None:
            assert start + full.record == settings.map_keys
            return
    raise AssertionError("the map took more than that")


@pytest.mark.parametrize("seed", range(12))
def test_bitmap_answers_like_the_offset_map(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.choice((300, 5000, 20_000))
    keys = random_keys(rng, count, rng.choice((40, 2000, 30_000)))
    skipped_ranges = [start for start in range(0, count, PIECE) if rng.random() < rng.choice((0, 0.1, 0.5))]
    offset_map = filled(keys, 100_000, skipped_ranges)
    bits = fastest_lookup(offset_map, 0)
    if isinstance(bits, LatestOffsets):
        assert stays(bits, keys) == stays(offset_map, keys)
        mapped = (
            (offset, key) for offset, key in enumerate(keys) if offset // PIECE * PIECE not in skipped_ranges
        )
        latest = {key: offset for offset, key in mapped if key is not None}
        for bound in (-1, 0, 1, count // 3, count, L.INT64_MAX):
            assert bits.kept_below(bound) == sum(offset < bound for offset in latest.values())
        bits.close()
    else:
        assert offset_map.size * 16 < offset_map.slot_count


def test_offset_map_is_used_where_a_bitmap_cannot_answer() -> None:
    keys = [b"%d" % (number % 3000) for number in range(5000)]
    assert isinstance(fastest_lookup(filled(keys, 100_000), 0), LatestOffsets)
    later = filled(keys, 100_000)
    # something precedes the range
    later.start_offset = 7
    assert fastest_lookup(later, 0) is later
    turned = filled(keys, 100_000)
    chunk = chunk_of([b"x", b"y"], 10)
    assert turned.hash(chunk) and turned.put(chunk, 0) is None
    assert fastest_lookup(turned, 0) is turned
    beyond = filled(keys, 100_000)
    # a record claims to be after all batches
    beyond.update_latest_offset(4000)
    assert fastest_lookup(beyond, 0) is beyond


@pytest.mark.parametrize("codec", [L.NONE, L.LZ4, L.ZSTD])
@pytest.mark.parametrize("map_slots", [100_000, 6000])
def test_log_with_more_keys_than_slots_is_compacted(tmp_path: Path, codec: int, map_slots: int) -> None:
    """More keys than the first map has slots, more batches than are compressed at a time, and several passes with the small map."""
    rng = random.Random(codec)
    topic = Topic(tmp_path, segment_bytes=200_000)
    table: dict[bytes, bytes] = {}
    for _ in range(500):
        pairs = [(b"%d" % rng.randrange(9000), b"value %d" % rng.randrange(10**6)) for _ in range(40)]
        table.update(pairs)
        topic.send(*pairs, codec=codec)
    topic.roll()
    outcome = clean(topic.close(), map_bytes=map_slots * SLOT_BYTES)
    assert (outcome.result["passes"] > 1) == (map_slots < 9000)
    left = [(record.key, record.value) for record in records(outcome.directory)]
    assert len(left) == len(table)
    assert dict(left) == table
