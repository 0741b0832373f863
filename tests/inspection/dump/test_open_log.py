"""A log that stays open for its indexes does not change the findings about them, and is read only once."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from kseg.inspection.dump import open_log
from kseg.inspection.dump.dump import Dump
from kseg.inspection.dump.options import DumpOptions
from kseg.jobs.events import Event
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.targets import Expansion, FileTarget, resolve_targets
from tests.support.one_target import dump

STEM = "00000000000000000000"


def files(directory: Path) -> list[FileTarget]:
    found = resolve_targets([str(directory)], expand=Expansion.FILES)
    return [target for target in found if isinstance(target, FileTarget)]


def findings(events: Iterator[Event]) -> list[str]:
    return [event.id for event in events if isinstance(event, Finding)]


def batch(offset: int, timestamp_ms: int, header_ms: int | None = None) -> bytes:
    record = Record(offset, timestamp_ms, b"key", b"value")
    return encode_batch(NewBatch(records=(record,), max_timestamp_ms=header_ms))


def put_segment(directory: Path, batches: list[bytes], times: list[int]) -> None:
    """Write a segment whose indexes refer to every batch. Record n has offset n."""
    positions = [sum(map(len, batches[:at])) for at in range(len(batches))]
    (directory / f"{STEM}.log").write_bytes(b"".join(batches))
    entries = (struct.pack(">ii", offset, position) for offset, position in enumerate(positions))
    (directory / f"{STEM}.index").write_bytes(b"".join(entries))
    (directory / f"{STEM}.timeindex").write_bytes(
        b"".join(struct.pack(">qi", time, offset) for offset, time in enumerate(times))
    )


def damage(file: Path, chance: random.Random) -> None:
    data = bytearray(file.read_bytes())
    match chance.randrange(6):
        case 0:
            file.unlink()
            return
        case 1:
            data += bytes(chance.choice((8, 12, 100)))
        case 2:
            del data[chance.randrange(len(data)) :]
        case _ if data:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)


@pytest.mark.parametrize("shape", ["kafka", "json"])
def test_one_dump_run_equals_single_dumps(capture_small: Path, tmp_path: Path, shape: str) -> None:
    options = DumpOptions(format=shape)
    chance = random.Random(7)
    compared = 0
    for number, partition in enumerate(sorted(path.parent for path in capture_small.glob("data/*/*0.log"))):
        for copy in range(4):
            directory = tmp_path / f"{partition.name.rpartition('-')[0]}-{100 * number + copy}"
            shutil.copytree(partition, directory)
            for file in sorted(directory.glob(f"{STEM}.*")) if copy else ():
                if chance.random() < 0.5 and file.stat().st_size:
                    damage(file, chance)
            run = Dump()
            for target in files(directory):
                assert list(run(target, options)) == list(dump(target, options)), target.path
                compared += 1
    assert compared > 50


def test_log_is_opened_once_for_itself_and_its_indexes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_segment(tmp_path, [batch(0, 10), batch(1, 20)], [10, 20])
    opened = []

    class Counted(MappedFile):
        def __init__(self, path: str | os.PathLike[str], drop_cache: bool = False) -> None:
            opened.append(os.path.basename(path))
            super().__init__(path, drop_cache)

    monkeypatch.setattr(open_log, "MappedFile", Counted)
    run = Dump()
    for target in files(tmp_path):
        assert findings(run(target, DumpOptions())) == []
    assert opened == [f"{STEM}.log"]


def test_grown_log_is_read_again_for_its_indexes(tmp_path: Path) -> None:
    put_segment(tmp_path, [batch(0, 10)], [10])
    log, index, time_index = files(tmp_path)
    run = Dump()
    list(run(log, DumpOptions()))

    put_segment(tmp_path, [batch(0, 10), batch(1, 20)], [10, 20])

    assert findings(run(index, DumpOptions())) == []
    assert findings(run(time_index, DumpOptions())) == []


def test_deleted_log_is_not_used_for_its_indexes(tmp_path: Path) -> None:
    put_segment(tmp_path, [batch(0, 10)], [10])
    log, index, time_index = files(tmp_path)
    run = Dump()
    list(run(log, DumpOptions()))
    os.unlink(log.path)

    # preallocated indexes begin with an entry at position 0
    assert findings(run(index, DumpOptions())) == ["official-tool-stops", "orphan-index"]
    assert findings(run(time_index, DumpOptions())) == ["orphan-index"]


def test_wrong_batch_header_does_not_confirm_a_time_index(tmp_path: Path) -> None:
    put_segment(tmp_path, [batch(0, 10), batch(1, 20, header_ms=25)], [10, 25])
    run = Dump()
    assert [findings(run(target, DumpOptions())) for target in files(tmp_path)] == [
        [],
        [],
        ["time-index-mismatch"],
    ]


def test_time_index_entry_of_an_empty_batch_has_its_header_timestamp(tmp_path: Path) -> None:
    """The cleaner keeps such a batch for its sequence numbers, and adds it to the index (Kafka: MemoryRecords.filterTo)."""
    put_segment(
        tmp_path,
        [batch(0, 10), encode_batch(NewBatch(base_offset=1, last_offset=1, max_timestamp_ms=20))],
        [10, 20],
    )
    run = Dump()
    assert [findings(run(target, DumpOptions())) for target in files(tmp_path)] == [[], [], []]


def test_no_log_stays_open_with_drop_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_segment(tmp_path, [batch(0, 10)], [10])
    dropped: list[int] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda descriptor, *_: dropped.append(descriptor))
    run = Dump()
    for target in files(tmp_path):
        assert findings(run(target, DumpOptions(drop_cache=True))) == []
    # each of the three files, and the log again for each of its indexes
    assert len(dropped) == 5


def test_pickled_dump_has_no_open_log(tmp_path: Path) -> None:
    put_segment(tmp_path, [batch(0, 10)], [10])
    log, index, _ = files(tmp_path)
    run = Dump()
    list(run(log, DumpOptions()))

    twin = pickle.loads(pickle.dumps(run))

    assert list(twin(index, DumpOptions())) == list(run(index, DumpOptions()))
