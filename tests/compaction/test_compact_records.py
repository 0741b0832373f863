"""Which records stay, and what happens to their batches: rows C01 to C28 of Kafka's own tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kseg.compaction.cleaner.options import Damaged
from kseg.segment import layout as L
from kseg.segment.model import NewBatch, Record
from tests.support.compact_helpers import (
    SETTINGS,
    T0,
    Topic,
    batches,
    clean,
    ends,
    kept,
    log,
    records,
    tombstones,
)
from tests.support.trees import files_in

NOW = SETTINGS.now_ms


@pytest.mark.behaviour("C02")
@pytest.mark.behaviour("C59")
def test_record_with_the_highest_offset_of_a_key_is_kept(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.send(("a", 1), ("a", 2), ("b", 3))
    topic.send(("b", 4), ("c", 5))
    topic.roll()
    topic.send(("a", 6))
    topic.roll()
    topic.send(("c", 7))
    before = records(topic.close())
    outcome = clean(topic.directory)
    assert kept(topic.directory) == [(3, "b", "4"), (4, "c", "5"), (5, "a", "6"), (6, "c", "7")]
    assert records(topic.directory) == [before[3], before[4], before[5], before[6]]
    assert outcome.result["next_dirty_offset"] == 6
    assert (outcome.result["records_before"], outcome.result["records_after"]) == (6, 3)


@pytest.mark.behaviour("C01")
def test_only_keys_of_the_dirty_part_lose_records(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    for key in ("a", "b", "a", "c", "b"):
        topic.send((key, "v"))
    directory = topic.roll_and_close()
    clean(directory, first_dirty_offset=4)
    assert [offset for offset, _, _ in kept(directory)] == [0, 2, 3, 4]


@pytest.mark.behaviour("C03")
@pytest.mark.behaviour("C46")
def test_offset_map_for_one_key_needs_a_pass_for_each_key(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    for key in (0, 1, 0, 1, 0):
        topic.send((key, "v"))
    directory = topic.roll_and_close()
    # the passes leave the offsets 1 2 3 4, then 2 3 4, then 3 4
    outcome = clean(directory, first_dirty_offset=2, map_bytes=48)
    assert [offset for offset, _, _ in kept(directory)] == [3, 4]
    assert (outcome.result["passes"], outcome.result["next_dirty_offset"]) == (3, 5)


def test_later_pass_copies_ranges_written_by_the_previous_one(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.send((0, "old"))
    for key in range(6):
        topic.send((key, "x" * 40_000))
    topic.send((6, "last"))
    directory = topic.roll_and_close()
    plan = clean(directory, apply=False, map_bytes=4 * 24)
    outcome = clean(directory, map_bytes=4 * 24)
    assert outcome.result["passes"] == plan.result["passes"] > 1
    assert [offset for offset, _, _ in kept(directory)] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.behaviour("C04")
@pytest.mark.behaviour("C49")
def test_open_transaction_keeps_its_whole_segment_uncleaned(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.send(("a", 1))
    topic.roll()
    topic.send(("a", 2))
    topic.send(("x", 1), producer=7, transactional=True)
    topic.roll()
    topic.send(("a", 3))
    topic.roll()
    exempted = [log(topic.close(), base).read_bytes() for base in (1, 3)]
    outcome = clean(topic.directory)
    assert outcome.result["first_uncleanable_offset"] == 1
    assert outcome.result["held_by"] == "last stable offset"
    assert [log(topic.directory, base).read_bytes() for base in (1, 3)] == exempted
    # a later value counts only in the cleaned part
    assert kept(topic.directory)[0] == (0, "a", "1")


@pytest.mark.behaviour("C05")
@pytest.mark.parametrize("codec", range(5))
def test_batch_that_loses_no_record_is_copied_byte_for_byte(tmp_path: Path, codec: int) -> None:
    topic = Topic(tmp_path)
    topic.send(*[(f"k{n}", "v" * 50) for n in range(20)], codec=codec, leader_epoch=3)
    topic.send(("gone", 1))
    topic.roll()
    topic.send(("gone", 2))
    topic.roll()
    data = log(topic.close(), 0).read_bytes()
    whole = batches(topic.directory)[0].size_bytes
    clean(topic.directory)
    assert log(topic.directory, 0).read_bytes()[:whole] == data[:whole]


@pytest.mark.behaviour("C06")
@pytest.mark.behaviour("C09")
@pytest.mark.behaviour("C11")
@pytest.mark.parametrize("codec", range(5))
def test_batch_that_loses_records_keeps_its_header(tmp_path: Path, codec: int) -> None:
    topic = Topic(tmp_path)
    times = (T0 + 5, T0 + 9, T0 + 7)
    rows = tuple(
        Record(10 + n, times[n], b"k%d" % n, b"value", ((b"h", b"1"), (b"n", None))) for n in range(3)
    )
    topic.put(
        NewBatch(
            records=rows,
            codec=codec,
            leader_epoch=67,
            producer_id=5,
            producer_epoch=2,
            base_sequence=40,
            transactional=False,
        )
    )
    topic.send(("k1", "newer"))
    clean(topic.roll_and_close())
    first = batches(topic.directory)[0]
    assert (first.base_offset, first.last_offset, first.count, first.base_sequence) == (10, 12, 2, 40)
    assert (first.producer_id, first.producer_epoch, first.leader_epoch, first.codec) == (5, 2, 67, codec)
    assert first.crc_valid
    assert first.max_timestamp_ms == T0 + 7
    stays = records(topic.directory)[:2]
    assert [(r.offset, r.timestamp_ms, r.key, r.headers) for r in stays] == [
        (10, T0 + 5, b"k0", rows[0].headers),
        (12, T0 + 7, b"k2", rows[2].headers),
    ]


@pytest.mark.behaviour("C07")
@pytest.mark.behaviour("C08")
@pytest.mark.behaviour("C55")
@pytest.mark.parametrize("codec", [L.NONE, L.GZIP, L.SNAPPY, L.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_become_magic_2(tmp_path: Path, magic: int, codec: int) -> None:
    topic = Topic(tmp_path)
    topic.send(("a", 1), ("b", 2), ("c", 3), magic=magic, codec=codec)
    topic.send(("a", 4), ("d", 5), magic=magic, codec=codec)
    topic.send(("b", 6))
    clean(topic.roll_and_close())
    assert kept(topic.directory) == [(2, "c", "3"), (3, "a", "4"), (4, "d", "5"), (5, "b", "6")]
    found = batches(topic.directory)
    assert {batch.magic for batch in found} == {2}
    assert [batch.codec for batch in found[:-1]] == [codec] * (len(found) - 1)
    # single messages stay single, and a set stays a set
    spans = [(batch.base_offset, batch.last_offset) for batch in found]
    assert spans == ([(2, 2), (3, 3), (4, 4), (5, 5)] if codec == L.NONE else [(2, 2), (3, 4), (5, 5)])
    assert {batch.leader_epoch for batch in found} == {-1}
    assert found[0].max_timestamp_ms == (T0 if magic else -1)


@pytest.mark.behaviour("C10")
def test_log_append_time_is_preserved(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    rows = tuple(Record(n, T0 + n, b"k%d" % n, b"v") for n in range(3))
    topic.put(NewBatch(records=rows, log_append_time=True, max_timestamp_ms=T0 + 500))
    topic.send(("k0", "newer"))
    clean(topic.roll_and_close())
    first = batches(topic.directory)[0]
    assert first.timestamp_type == "LogAppendTime"
    assert first.max_timestamp_ms == T0 + 500
    assert {r.timestamp_ms for r in records(topic.directory)[:2]} == {T0 + 500}


@pytest.mark.behaviour("C12")
@pytest.mark.behaviour("C13")
@pytest.mark.behaviour("C26")
def test_last_batch_of_a_producer_is_kept_as_a_header(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.send(("a", 1), ("b", 2), producer=9, leader_epoch=4)
    topic.send(("a", 3), ("b", 4))
    topic.roll()
    topic.send(("z", 0))
    topic.roll_and_close()
    soon = T0 + 1000
    clean(topic.directory, now_ms=soon)
    first = batches(topic.directory)[0]
    assert (first.size_bytes, first.count, first.base_offset, first.last_offset) == (61, 0, 0, 1)
    assert (first.producer_id, first.base_sequence, first.leader_epoch) == (9, 0, 4)
    assert (first.base_timestamp_ms, first.max_timestamp_ms) == (-1, T0)
    data = log(topic.directory, 0).read_bytes()
    clean(topic.directory, now_ms=soon)
    # the header is still needed, and the 61 bytes are the same
    assert log(topic.directory, 0).read_bytes() == data
    clean(topic.directory)
    # now the producer has expired
    assert ends(topic.directory)[0] == 3


@pytest.mark.behaviour("C14")
def test_aborted_records_are_removed_whatever_the_map_says(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.send(("only here", 1), producer=3, transactional=True)
    topic.end(3, abort=True)
    topic.send(("b", 2))
    clean(topic.roll_and_close())
    assert kept(topic.directory) == [(2, "b", "2")]


@pytest.mark.behaviour("C15")
@pytest.mark.behaviour("C16")
@pytest.mark.parametrize("codec", [L.NONE, L.LZ4])
def test_large_records_and_batches_are_cleaned(tmp_path: Path, codec: int) -> None:
    topic = Topic(tmp_path)
    topic.send(("large", b"x" * 3_000_000), ("old", 1), codec=codec)
    topic.send(*[(f"k{n % 9000}", f"{n:0100}") for n in range(20_000)], codec=codec)
    topic.send(*[(f"k{n}", n) for n in range(9000, 18_000)], codec=codec)
    topic.send(("old", 2))
    clean(topic.roll_and_close())
    found = records(topic.directory)
    assert [record.offset for record in found] == [0, *range(11_002, 20_002), *range(20_002, 29_003)]
    assert found[0].value == b"x" * 3_000_000
    assert [batch.count for batch in batches(topic.directory)] == [1, 9000, 9000, 1]
    assert all(batch.crc_valid for batch in batches(topic.directory))


@pytest.mark.behaviour("C17")
def test_compact_refuses_damage_and_changes_nothing(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    for number in range(4):
        topic.send(("a", number), ("b", number))
    directory = topic.roll_and_close()
    data = bytearray(log(directory, 0).read_bytes())
    data[65] ^= 1
    log(directory, 0).write_bytes(data)
    before = files_in(directory)
    outcome = clean(directory)
    assert outcome.kinds == {"bad-crc"}
    assert [failure.exit_status for failure in outcome.failures] == [4]
    assert "kseg recover" in outcome.failures[0].sentence
    assert files_in(directory) == before


def test_damaged_segments_can_be_skipped(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    for number in range(4):
        topic.send(("a", number), ("b", number))
        topic.roll()
    directory = topic.close()
    data = bytearray(log(directory, 2).read_bytes())
    data[65] ^= 1
    log(directory, 2).write_bytes(data)
    outcome = clean(directory, damaged=Damaged.SKIP, segment_bytes=100)
    assert outcome.kinds == {"bad-crc", "group-left-alone"}
    assert not outcome.failures
    assert log(directory, 2).read_bytes() == bytes(data)
    assert [log(directory, base).stat().st_size for base in (0, 4)] == [0, 0]
    assert outcome.result["groups_skipped"] == 1
    assert outcome.result["next_dirty_offset"] == 2


@pytest.mark.parametrize("map_bytes", [72, 1 << 20])
@pytest.mark.parametrize(("dirty", "clean_to"), [(0, 0), (2, 2), (6, 6)])
def test_skipped_segments_are_cleaned_after_their_repair(
    dirty: int, clean_to: int, map_bytes: int, tmp_path: Path
) -> None:
    """A broker maps keys only from the checkpoint on, so the checkpoint must not be beyond old values."""
    topic = Topic(tmp_path)
    for number in range(4):
        topic.send(("a", number), ("b", number))
        topic.roll()
    directory = topic.close()
    sound = log(directory, 0).read_bytes()
    log(directory, 0).write_bytes(sound[:65] + bytes([sound[65] ^ 1]) + sound[66:])
    settings: dict[str, Any] = {"segment_bytes": 100, "map_bytes": map_bytes}
    first = clean(directory, damaged=Damaged.SKIP, first_dirty_offset=dirty, **settings)
    assert (first.result["groups_skipped"], first.result["next_dirty_offset"]) == (1, clean_to)
    log(directory, 0).write_bytes(sound)
    second = clean(directory, first_dirty_offset=clean_to, **settings)
    assert (second.result["groups_skipped"], second.result["next_dirty_offset"]) == (0, 8)
    assert kept(directory) == [(6, "a", "3"), (7, "b", "3")]


@pytest.mark.behaviour("C24")
def test_records_without_a_key_are_removed_and_counted(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.send((None, 1), ("a", 2), (None, 3))
    topic.send(("b", 1))
    topic.roll()
    topic.send((None, 9))
    directory = topic.close()
    outcome = clean(directory)
    assert kept(directory) == [(1, "a", "2"), (3, "b", "1"), (4, None, "9")]
    assert outcome.result["invalid_records"] == 2


@pytest.mark.behaviour("C25")
def test_last_batch_of_a_round_is_kept_as_a_header(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    for _ in range(3):
        topic.send(("a", 1))
        topic.roll()
    topic.send((None, 1))
    topic.roll()
    topic.send(("a", 2))
    directory = topic.close()
    outcome = clean(directory, first_dirty_offset=0)
    assert outcome.bases == [0, 4]
    found = batches(directory)[:-1]
    assert [(batch.base_offset, batch.last_offset, batch.count) for batch in found] == [(2, 2, 1), (3, 3, 0)]


def test_old_format_batch_at_the_end_of_a_round_becomes_an_empty_v2_batch(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.send(("a", 1))
    topic.send((None, 1), magic=1)
    directory = topic.roll_and_close()
    outcome = clean(directory)
    assert "legacy-batch-emptied" in outcome.kinds
    last = batches(directory)[-1]
    assert (last.magic, last.base_offset, last.last_offset, last.count) == (2, 1, 1, 0)


@pytest.mark.behaviour("C28")
def test_last_of_two_batches_with_the_same_sequences_is_protected(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.send(("a", 1), producer=4, base_sequence=0)
    topic.send(("a", 2), producer=4, base_sequence=0, producer_epoch=1)
    topic.send(("a", 3))
    directory = topic.roll_and_close()
    clean(directory, now_ms=T0 + 1)
    assert [(batch.last_offset, batch.count) for batch in batches(directory)] == [(1, 0), (2, 1)]


@pytest.mark.behaviour("C48")
def test_compact_result_counts_equal_the_plan(tmp_path: Path) -> None:
    directory = tombstones(tmp_path).close()
    plan = clean(directory, apply=False).result
    done = clean(directory).result
    same = [name for name in plan if name not in ("applied", "journal", "quarantine", "room")]
    assert {name: plan[name] for name in same} == {name: done[name] for name in same}
    assert (done["records_before"], done["records_after"], done["superseded_records"]) == (5, 4, 1)
    assert done["bytes_after"] == sum(path.stat().st_size for path in directory.glob("*.log"))
    assert done["live_keys"] == 3
    assert done["dirty_ratio"] == 1.0
