"""Salvage checks its own result, which it reads from memory or from an anonymous file, and merges all rounds into one plan."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.diseases import batch_spans, put
from kseg.change.plan.content import Fresh, Piece, Span
from kseg.change.plan.directory_image import DirectoryImage
from kseg.change.plan.inputs import inputs_of
from kseg.recovery.policy import BrokerState, Repair
from kseg.recovery.salvage import fixpoint, image_reader
from kseg.recovery.salvage.image_reader import ImageReader
from kseg.recovery.salvage.one_pass import salvage_once
from kseg.segment.errors import Refused, UnreadableInput
from tests.support.salvage_cases import CASES, LAST, MIDDLE, log
from tests.support.salvage_helpers import SETTINGS, needs_no_repair, plan, write_repaired


@pytest.fixture
def damaged(partition: Path, tmp_path: Path) -> Path:
    made = Path(shutil.copytree(partition, tmp_path / "metro-0"))
    CASES["damage_everywhere"](made)
    return made


@pytest.mark.parametrize("most_in_memory", [0, 1 << 40])
def test_planned_directory_is_read_as_if_it_existed(
    damaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_in_memory: int
) -> None:
    monkeypatch.setattr(image_reader, "_MAX_IN_MEMORY_BYTES", most_in_memory)
    repair = plan(damaged)
    result = write_repaired(repair, damaged, tmp_path / "result" / "metro-0")
    reader = ImageReader(str(damaged), repair.image)
    for file in result.iterdir():
        path = str(damaged / file.name)
        assert reader.read_small(path) == file.read_bytes()
        with reader.open(path) as opened:
            assert bytes(opened.view) == file.read_bytes()
            assert opened.size_bytes == file.stat().st_size
            assert opened.data_end == opened.size_bytes
    with pytest.raises(UnreadableInput):
        reader.open(str(damaged / "nothing"))
    assert plan(damaged) == repair


def test_too_large_side_file_is_not_read(damaged: Path) -> None:
    metadata = damaged / "partition.metadata"
    # sparse, and costs nothing unless it is read
    os.truncate(metadata, 1 << 40)
    reader = ImageReader(str(damaged), DirectoryImage.of(inputs_of(str(damaged))))
    with pytest.raises(UnreadableInput, match="larger than"):
        reader.read_small(str(metadata))


def test_first_plan_is_kept_without_room_for_large_files(
    damaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repair = plan(damaged)

    def no_room(self: ImageReader, path: str, drop_cache: bool = False) -> None:
        raise Refused("cannot write: No space left on device")

    monkeypatch.setattr(ImageReader, "open", no_room)
    # one round suffices here
    assert plan(damaged).image == repair.image


def test_second_salvage_round_is_part_of_the_plan(
    partition: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planning and applying one round at a time produces the same bytes."""
    damaged = Path(shutil.copytree(partition, tmp_path / "metro-0"))
    chance, file = random.Random(3), log(damaged, LAST)
    for number in (2, 4, 5):
        position, size = batch_spans(file)[number]
        put(file, position + 70, chance.randbytes(min(8, size - 70)))
    file.rename(file.with_name(f"{5000:020d}.log"))
    at_once = write_repaired(plan(damaged), damaged, tmp_path / "once" / "metro-0")
    monkeypatch.setattr(fixpoint, "MAX_ROUNDS", 0)
    source = damaged
    for number in range(8):
        repair = plan(source)
        if needs_no_repair(source, repair):
            break
        source = write_repaired(repair, source, tmp_path / str(number) / "metro-0")
    assert {f.name: f.read_bytes() for f in source.iterdir()} == {
        f.name: f.read_bytes() for f in at_once.iterdir()
    }


@pytest.mark.parametrize(("position", "looks"), [(None, 0), (4, 1)])
def test_consistent_index_needs_no_second_round(
    partition: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, position: int | None, looks: int
) -> None:
    """A crash leaves the indexes of the active segment preallocated. position: of a number in the index that is also altered."""
    crashed = Path(shutil.copytree(partition, tmp_path / "metro-0"))
    for suffix in (".index", ".timeindex"):
        index = log(crashed, LAST).with_suffix(suffix)
        put(index, index.stat().st_size, bytes(480))
        if position is not None and suffix == ".index":
            put(index, position + 3, bytes((index.read_bytes()[position + 3] ^ 1,)))
    # only a clean stop writes it
    max(crashed.glob("*.snapshot")).unlink()
    second_looks = []

    def counted(*words: object, **options: object) -> Repair:
        second_looks.append(words)
        return salvage_once(*words, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(fixpoint, "salvage_once", counted)
    settings = replace(SETTINGS, index_interval_bytes=500)  # so that a rebuilt index has entries
    repair = plan(crashed, broker_state=BrokerState(), settings=settings)
    assert len(second_looks) == looks
    result = write_repaired(repair, crashed, tmp_path / "result" / "metro-0")
    assert needs_no_repair(result, plan(result))
    assert not needs_no_repair(crashed, repair)


def test_merged_plan_consists_of_pieces_of_the_original_files(damaged: Path) -> None:
    """The files of a merged plan consist of pieces of the original files, even if a later round cuts pieces out of an earlier one."""
    file = log(damaged, MIDDLE).name
    found = DirectoryImage.of(inputs_of(str(damaged)))
    pieces: list[Piece] = [Span(file, 10, 90), Fresh(b"0123456789"), Span(file, 110, 40)]
    assert [*fixpoint._slice(tuple(pieces), 85, 20)] == [
        Span(file, 95, 5),
        Fresh(b"0123456789"),
        Span(file, 110, 5),
    ]
    assert [*fixpoint._as_found(tuple(pieces))] == [
        Span(file, 10, 90),
        Span(file, 100, 10),
        Span(file, 110, 40),
    ]
    assert found.size_bytes(file) > 150
