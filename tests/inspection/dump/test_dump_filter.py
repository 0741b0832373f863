"""Filters of a dump: in both formats, the output equals the unfiltered dump after plain filtering, with an index to start from and without
one, and a wrong index changes nothing."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from kseg.inspection.dump.options import DumpOptions
from kseg.inspection.record_filter import Selection
from kseg.jobs.events import Text
from kseg.segment.partition.targets import FileTarget
from tests.support.one_target import dump
from tests.support.trees import copy_tree, unchanged

PARTITIONS = ("fares-0", "metro-zstd-0", "metro-none-0", "stations-0", "gates-append-0")


def lines(log: Path, selection: Selection, shape: str = "json") -> list[Any]:
    options = DumpOptions(format=shape, print_data_log=True, selection=selection)
    data = b"".join(event.data for event in dump(FileTarget(str(log)), options) if isinstance(event, Text))
    return [json.loads(line) for line in data.splitlines()] if shape == "json" else data.splitlines()


def pairs(log: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(batch, record) of the unfiltered dump."""
    batch: dict[str, Any] = {}
    found = []
    for line in lines(log, Selection()):
        if line["type"] == "batch":
            batch = line
        else:
            found.append((batch, line))
    return found


def wanted(batch: dict[str, Any], record: dict[str, Any], want: Selection) -> bool:
    offset, time_ms, key = record["offset"], record["timestamp"], record["key"]
    control = want.control is None or batch["control"] == want.control
    return (
        (want.from_offset is None or offset >= want.from_offset)
        and (want.to_offset is None or offset < want.to_offset)
        and (want.from_time_ms is None or time_ms >= want.from_time_ms)
        and (want.to_time_ms is None or time_ms < want.to_time_ms)
        and (want.producer_id is None or batch["producer_id"] == want.producer_id)
        and (want.leader_epoch is None or batch["leader_epoch"] == want.leader_epoch)
        and control
        and (not want.keys or (key is not None and key.encode() in want.keys))
        and (
            want.key_regex is None
            or (key is not None and re.search(want.key_regex, key.encode()) is not None)
        )
    )


def random_selection(
    chance: random.Random, records: list[tuple[dict[str, Any], dict[str, Any]]]
) -> Selection:
    batch, record = chance.choice(records)
    bounds: dict[str, Any] = {}
    for _ in range(chance.randint(1, 2)):
        match chance.randrange(9):
            case 0:
                bounds["from_offset"] = record["offset"] + chance.randint(-2, 2)
            case 1:
                bounds["to_offset"] = record["offset"] + chance.randint(0, 9)
            case 2:
                bounds["from_time_ms"] = record["timestamp"] + chance.randint(-1, 1)
            case 3:
                bounds["to_time_ms"] = record["timestamp"] + chance.randint(-1, 1)
            case 4:
                bounds["producer_id"] = batch["producer_id"]
            case 5:
                bounds["leader_epoch"] = batch["leader_epoch"]
            case 6:
                bounds["control"] = chance.random() < 0.5
            case 7:
                bounds["keys"] = tuple((r["key"] or "none").encode() for _, r in chance.sample(records, 2))
            case 8:
                bounds["key_regex"] = chance.choice((b"1", b"^st.*[27]$", b"f[01]", b"nothing"))
    return Selection(**bounds)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_filtered_dump_equals_a_plainly_filtered_one(capture_small: Path, partition: str) -> None:
    chance = random.Random(partition)
    compared = 0
    with unchanged(capture_small / "data" / partition):
        for log in sorted((capture_small / "data" / partition).glob("*.log")):
            records = [(batch, record) for batch, record in pairs(log) if record["key_encoding"] != "base64"]
            for _ in range(40 if records else 0):
                selection = random_selection(chance, records)
                expected = [record for batch, record in records if wanted(batch, record, selection)]
                shown = [line for line in lines(log, selection) if line["type"] == "record"]
                assert [line for line in shown if line["key_encoding"] != "base64"] == expected, selection
                offsets = [
                    int(line.split()[2]) for line in lines(log, selection, "kafka") if line.startswith(b"| ")
                ]
                assert [o for o in offsets if o in {r["offset"] for _, r in records}] == [
                    record["offset"] for record in expected
                ], selection
                compared += 1

    assert compared >= 40


@pytest.mark.parametrize("partition", PARTITIONS)
def test_batches_alone_are_selected_by_their_first_and_their_newest_record(
    capture_small: Path, partition: str
) -> None:
    """`--to-time` had no effect on a dump without records."""
    for log in sorted((capture_small / "data" / partition).glob("*.log")):
        batches: dict[int, tuple[Any, Any]] = {}
        for batch, record in pairs(log):
            batches.setdefault(batch["position"], (batch, record))
        for _, record in pairs(log)[:: max(1, len(batches) // 8)]:
            bound_ms = record["timestamp"]
            expected = [
                batch["position"]
                for batch, first in batches.values()
                if batch["max_timestamp"] >= bound_ms - 9_000
                and (first["timestamp"] < bound_ms or batch["delete_horizon_ms"] is not None)
            ]
            selection = Selection(from_time_ms=bound_ms - 9_000, to_time_ms=bound_ms)
            shown = dump(FileTarget(str(log)), DumpOptions(format="json", selection=selection))
            data = b"".join(event.data for event in shown if isinstance(event, Text))
            assert [json.loads(line)["position"] for line in data.splitlines()] == expected
            text = dump(FileTarget(str(log)), DumpOptions(selection=selection))
            assert b"".join(event.data for event in text if isinstance(event, Text)).count(
                b"baseOffset: "
            ) == len(expected)


def test_dump_limit_counts_records(capture_small: Path) -> None:
    log = capture_small / "data" / "metro-zstd-0" / "00000000000000000000.log"
    everything = [line for line in lines(log, Selection()) if line["type"] == "record"]

    shown = [line for line in lines(log, Selection(limit=7, from_offset=3)) if line["type"] == "record"]

    assert shown == [line for line in everything if line["offset"] >= 3][:7]


@pytest.mark.parametrize("lie", ["beyond", "between", "too-far", "missing"])
def test_wrong_index_does_not_change_a_filtered_dump(capture_small: Path, tmp_path: Path, lie: str) -> None:
    directory = copy_tree(capture_small / "data" / "metro-none-0", tmp_path / "metro-none-0")
    log = sorted(directory.glob("*.log"))[1]
    index = log.with_suffix(".index")
    base_offset = int(log.stem)
    selection = Selection(from_offset=base_offset + 3)
    expected = lines(log, selection)
    positions = [line["position"] for line in lines(log, Selection()) if line["type"] == "batch"]
    position = {"beyond": 1 << 29, "between": positions[1] + 5, "too-far": positions[-1], "missing": 0}[lie]
    index.write_bytes((1).to_bytes(4, "big") + position.to_bytes(4, "big"))
    if lie == "missing":
        index.unlink()

    assert lines(log, selection) == expected
    assert expected
    shutil.rmtree(directory)
