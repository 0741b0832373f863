"""Compaction of one log by two processes gives the result of one process, even if the helper cannot finish."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kseg.change.apply.scratch_file import ScratchFile
from kseg.compaction.cleaner import forked_passes, log_cuts
from kseg.compaction.cleaner.forked_passes import ForkedPasses
from kseg.compaction.cleaner.log_cuts import Cut, SegmentPart, middle, parts, within
from kseg.compaction.cleaner.options import CompactOptions, Damaged
from kseg.compaction.cleaner.segments import CleanerSegment
from kseg.segment import layout as L
from tests.kafka.cleaning import random_case
from tests.support.compact_helpers import SETTINGS, Topic, log
from tests.support.shuffle_helpers import has_failed, kinds, local, output
from tests.support.trees import files_in

CASES = int(os.environ.get("KSEG_FORKED_CASES", "14"))


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Make every log large enough to be divided, and count the passes by name, both those begun and those that were shared."""
    monkeypatch.setattr(log_cuts, "MIN_BYTES", 1)
    # on any machine, and under pytest-xdist
    monkeypatch.setattr(forked_passes, "can_share", lambda: True)
    passes: Counter[str] = Counter()

    def watched(name: str) -> None:
        original = getattr(ForkedPasses, name)

        def run(*arguments: Any) -> Any:
            passes[f"{name} begun"] += 1
            answer = original(*arguments)
            passes[name] += 1
            return answer

        monkeypatch.setattr(ForkedPasses, name, run)

    watched("_first")
    watched("_shared")
    return passes


def both_ways(directory: Path, options: CompactOptions) -> list[tuple[Any, ...]]:
    """The events of the plan, the events of the change, and the files afterwards, with one process and with two."""
    outcomes = []
    for jobs in (1, 2):
        plan = local(directory, replace(options, jobs=jobs))
        copy = directory.parent / f"{directory.name}-{jobs}" / directory.name
        shutil.rmtree(copy.parent, ignore_errors=True)
        shutil.copytree(directory, copy)
        done = local(copy, replace(options, jobs=jobs, apply=True, run_id="run"))
        outcomes.append((output(plan, directory), output(done, copy), files_in(copy)))
    return outcomes


@pytest.mark.slow
def test_two_processes_compact_random_logs_like_one(tmp_path: Path, shared: Counter[str]) -> None:
    # only matter for logs with damage
    choices = list(Damaged)
    for seed in range(CASES):
        (tmp_path / str(seed)).mkdir()
        case = random_case(seed, tmp_path / str(seed))
        options = CompactOptions(settings=case.settings, damaged=choices[seed % len(choices)])
        one, two = both_ways(case.directory, options)
        assert two == one, seed
    assert shared["_first"] > CASES
    assert shared["_shared"] > CASES


def keyed(parent: Path, codec: int = L.NONE, **rules: Any) -> Path:
    """Random keys and tombstones, two producers whose transactions extend over segments, and an empty last segment."""
    rng = random.Random(codec)
    topic = Topic(parent, **rules)
    for number in range(160):
        pairs = [(f"key-{rng.randrange(300)}", rng.choice(("a value", "another", None))) for _ in range(20)]
        producer = 7 + number % 2
        topic.send(*pairs, producer=producer, transactional=True, codec=codec)
        if number % 12 > 9:
            topic.end(producer, abort=number % 36 < 12)
    for producer in (7, 8):
        topic.end(producer)
    return topic.roll_and_close()


@pytest.mark.slow
@pytest.mark.parametrize("codec", [L.NONE, L.LZ4, L.GZIP])
@pytest.mark.parametrize("segment_bytes", [4000, 1 << 20], ids=["many segments", "one segment"])
def test_transactions_across_the_cut_are_compacted_as_by_one_process(
    tmp_path: Path, shared: Counter[str], codec: int, segment_bytes: int
) -> None:
    directory = keyed(tmp_path, codec, segment_bytes=segment_bytes, index_interval_bytes=200)
    one, two = both_ways(directory, CompactOptions(settings=SETTINGS))
    assert two == one
    assert shared == {"_first begun": 2, "_first": 2, "_shared begun": 2, "_shared": 2}


def test_map_that_fills_after_the_cut_is_continued_by_the_parent(
    tmp_path: Path, shared: Counter[str]
) -> None:
    """Half of the 400 slots is too small for the 300 keys of the worker's part, so this process continues after the cut."""
    directory = keyed(tmp_path, segment_bytes=4000, index_interval_bytes=200)
    options = CompactOptions(settings=replace(SETTINGS, map_bytes=24 * 400))
    one, two = both_ways(directory, options)
    assert two == one
    assert shared["_first"] == shared["_first begun"] == 2


@pytest.mark.parametrize("damaged", list(Damaged))
@pytest.mark.parametrize("number", [0, -3])
def test_damage_on_either_side_of_the_cut_is_found_as_by_one_process(
    tmp_path: Path, damaged: Damaged, number: int
) -> None:
    directory = keyed(tmp_path, segment_bytes=4000, index_interval_bytes=200)
    path = sorted(directory.glob("*.log"))[number]
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    options = CompactOptions(settings=SETTINGS, damaged=damaged)
    one, two = both_ways(directory, options)
    assert two == one
    events = local(directory, replace(options, jobs=2))
    assert "bad-crc" in kinds(events)
    assert has_failed(events) == (damaged is Damaged.REFUSE)


def test_index_that_points_between_batches_disables_the_cut(tmp_path: Path, shared: Counter[str]) -> None:
    directory = keyed(tmp_path, index_interval_bytes=200)
    path = log(directory, 0).with_suffix(".index")
    entries = bytearray(path.read_bytes())
    # the positions in the entries
    for at in range(4, len(entries), 8):
        position = int.from_bytes(entries[at : at + 4], "big")
        entries[at : at + 4] = (position + 1).to_bytes(4, "big")
    path.write_bytes(entries)
    one, two = both_ways(directory, CompactOptions(settings=SETTINGS))
    assert two == one
    assert shared["_first begun"] == shared["_shared begun"] == 2
    assert not shared["_first"] and not shared["_shared"]


@pytest.mark.parametrize("work", ["_LaterParts.rewrite", "OffsetMapBuilder.track"])
def test_dead_helper_process_does_not_change_the_result(
    tmp_path: Path, shared: Counter[str], monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    def die(*_: object) -> None:
        os._exit(9)

    kind, name = work.split(".")
    monkeypatch.setattr(getattr(forked_passes, kind), name, die)
    directory = keyed(tmp_path, segment_bytes=4000, index_interval_bytes=200)
    one, two = both_ways(directory, CompactOptions(settings=SETTINGS))
    assert two == one
    assert shared["_first" if kind == "OffsetMapBuilder" else "_shared"] == 0


def test_forked_pass_leaves_no_descriptors_open(tmp_path: Path) -> None:
    directory = keyed(tmp_path, segment_bytes=4000, index_interval_bytes=200)
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    local(directory, CompactOptions(settings=SETTINGS, jobs=2))
    after = set(os.listdir("/proc/self/fd")) if before else set()
    assert len(after) <= len(before)


# --- cuts


def sized(*sizes: int) -> list[CleanerSegment]:
    return [
        CleanerSegment(
            base_offset=number,
            path="",
            size_bytes=size,
            mtime_ms=0,
            index_bytes=0,
            time_index_bytes=0,
            largest_timestamp_ms=0,
            origins=(),
        )
        for number, size in enumerate(sizes)
    ]


def test_cut_is_between_segments_without_an_index() -> None:
    assert middle(sized(10, 10, 10, 10)) == Cut(2, 0)
    assert middle(sized(10, 30)) == Cut(1, 0)
    assert middle(sized(1, 100)) is None
    assert middle(sized(100)) is None
    assert middle(sized()) is None
    assert middle(sized(100, 10, 10), first_position=90) == Cut(1, 0)


class Kept:
    """A result that keeps every record at these offsets."""

    def __init__(self, *offsets: int) -> None:
        self._offsets = offsets

    def kept_below(self, offset: int) -> int:
        return sum(kept < offset for kept in self._offsets)


def test_cut_divides_the_work_in_half() -> None:
    segments = sized(10, 10, 10, 10, 10, 10)
    assert middle(segments, kept=Kept()) == Cut(3, 0)
    assert middle(segments, kept=Kept(4, 5)) == Cut(4, 0)
    assert middle(segments, kept=Kept(0, 1)) == Cut(2, 0)
    assert middle(segments, kept=Kept(*range(6))) == Cut(3, 0)


def test_parts_on_both_sides_of_a_cut_are_complete() -> None:
    segments = sized(10, 10, 10)
    assert list(parts(segments, None, Cut(1, 4))) == [SegmentPart(0, 0, None), SegmentPart(1, 0, 4)]
    assert list(parts(segments, Cut(1, 4), None)) == [SegmentPart(1, 4, None), SegmentPart(2, 0, None)]
    assert list(parts(segments, None, Cut(1, 0))) == [SegmentPart(0, 0, None)]
    assert list(parts(segments, Cut(1, 0), None)) == [SegmentPart(1, 0, None), SegmentPart(2, 0, None)]
    assert list(parts(segments, None, Cut(0, 0))) == []
    assert within(Cut(2, 5), 1, 2) == Cut(1, 5)
    assert within(Cut(2, 5), 0, 2) is None
    assert within(Cut(2, 5), 3, 2) is None


def test_scratch_file_filled_by_another_process_is_read(tmp_path: Path) -> None:
    with ScratchFile(str(tmp_path)) as scratch:
        child = os.fork()
        if not child:
            scratch.write(b"from there")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        scratch.filled(10)
        assert bytes(scratch.view) == b"from there"
