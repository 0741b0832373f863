"""The clean-shutdown marker of a data directory that `recover` changes in part: it is kept byte for byte, with the broker's epoch, if
everything it vouches for is true, and is removed otherwise. Only --mark-clean writes one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from tests.support.command_lines import Capfd, json_run
from tests.support.trees import copy_tree, unchanged

MARKER = ".kafka_cleanshutdown"
FIRST = f"{0:020}"
PARTITIONS = ("fares-0", "metro-none-0", "metro-zstd-0")

Inflict = Callable[[Path], None]


@pytest.fixture
def data(capture_small: Path, tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    for name in PARTITIONS:
        shutil.copytree(capture_small / "data" / name, made / name)
    for file in (capture_small / "data").iterdir():
        if file.is_file():
            shutil.copy2(file, made / file.name)
    return made


def lose_index(partition: Path) -> None:
    (partition / f"{FIRST}.index").unlink()


def break_time_index(partition: Path) -> None:
    index = partition / f"{FIRST}.timeindex"
    index.write_bytes(index.read_bytes()[:-5])


def lose_snapshots(partition: Path) -> None:
    for snapshot in partition.glob("*.snapshot"):
        snapshot.unlink()


def break_batch(partition: Path) -> None:
    log = partition / f"{FIRST}.log"
    data = bytearray(log.read_bytes())
    data[600] ^= 0x55
    log.write_bytes(data)


def tear(partition: Path) -> None:
    log = max(partition.glob("*.log"))
    log.write_bytes(log.read_bytes()[:-7])


SIDE_FILES: list[Inflict] = [lose_index, break_time_index, lose_snapshots]
LOGS: list[Inflict] = [break_batch, tear]


def marker_steps(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["type"] == "step" and row["file"].endswith(MARKER)]


@pytest.mark.evidence("marker-kept")
@pytest.mark.parametrize("damage", SIDE_FILES)
@pytest.mark.parametrize("narrowed", ["path", "topic", "segment", "whole"])
def test_clean_marker_stays_if_no_byte_is_removed_from_a_log(
    data: Path, damage: Inflict, narrowed: str, capfd: Capfd
) -> None:
    if narrowed == "segment" and damage is lose_snapshots:
        pytest.skip("a snapshot is no part of a segment")
    damage(data / "fares-0")
    before = (data / MARKER).read_bytes()
    words: dict[str, list[str | Path]] = {
        "path": [data / "fares-0"],
        "topic": ["--topic", "fares", data],
        "segment": [data / "fares-0" / f"{FIRST}.log"],
        "whole": [data],
    }
    status, planned = json_run("recover", *words[narrowed], capfd=capfd)
    assert status == 1 and not marker_steps(planned)
    assert json_run("recover", "--apply", *words[narrowed], capfd=capfd)[0] == 0
    assert (data / MARKER).read_bytes() == before == b'{"version":0,"brokerEpoch":103}'
    assert run(["verify", "--json", str(data)]) == 0


@pytest.mark.evidence("marker-goes")
@pytest.mark.parametrize("damage", LOGS)
@pytest.mark.parametrize("narrowed", [True, False])
def test_clean_marker_loses_its_epoch_if_bytes_are_removed_from_a_log(
    data: Path, damage: Inflict, narrowed: bool, tmp_path: Path, capfd: Capfd
) -> None:
    damage(data / "metro-zstd-0")
    found = copy_tree(data, tmp_path / "found")
    path = data / "metro-zstd-0" if narrowed else data
    _, planned = json_run("recover", path, capfd=capfd)
    (step,) = marker_steps(planned)
    assert step["do"] == "write" and "metro-zstd-0" in step["why"]
    status, done = json_run("recover", "--apply", path, capfd=capfd)
    assert status == 0 and marker_steps(done) == [step]
    assert (data / MARKER).read_bytes() == b""
    assert run(["verify", "--json", str(data)]) == 0
    whole = next(row["journal"] for row in done if row["type"] == "result" and "log_dir" in row)
    assert run(["undo", whole]) == 0
    for file in found.rglob("*"):
        assert file.is_dir() or (data / file.relative_to(found)).read_bytes() == file.read_bytes()


def test_clean_marker_is_removed_if_an_unexamined_partition_contradicts_it(data: Path, capfd: Capfd) -> None:
    lose_index(data / "metro-zstd-0")
    tear(data / "fares-0")
    _, done = json_run("recover", "--apply", data / "metro-zstd-0", capfd=capfd)
    (step,) = marker_steps(done)
    assert step["do"] == "remove" and "fares-0 does not end with a complete batch" in step["why"]
    assert not (data / MARKER).exists()


def test_each_data_directory_keeps_its_own_clean_marker(data: Path, tmp_path: Path, capfd: Capfd) -> None:
    other = copy_tree(data, tmp_path / "other")
    # of another node; otherwise it would be a copy with which no broker starts
    meta = other / "meta.properties"
    meta.write_text(
        meta.read_text().replace("node.id=1", "node.id=2").replace("directory.id=U", "directory.id=A")
    )
    break_batch(data / "fares-0")
    lose_index(other / "fares-0")
    assert json_run("recover", "--apply", data, other, capfd=capfd)[0] == 0
    assert (data / MARKER).read_bytes() == b"" and b"brokerEpoch" in (other / MARKER).read_bytes()


@pytest.mark.parametrize("damage", [*SIDE_FILES, *LOGS])
@pytest.mark.parametrize("narrowed", [True, False])
def test_recover_creates_no_clean_marker(data: Path, damage: Inflict, narrowed: bool, capfd: Capfd) -> None:
    (data / MARKER).unlink()
    damage(data / "metro-zstd-0")
    assert json_run("recover", "--apply", data / "metro-zstd-0" if narrowed else data, capfd=capfd)[0] == 0
    assert not (data / MARKER).exists()


def test_clean_marker_is_not_read_without_a_repair(data: Path, capfd: Capfd) -> None:
    with unchanged(data):
        before = (data / MARKER).stat()
        assert json_run("recover", "--apply", data, capfd=capfd)[0] == 0
        assert json_run("recover", "--apply", data / "fares-0", capfd=capfd)[0] == 0
        assert (data / MARKER).stat() == before


# --- --mark-clean


@pytest.mark.parametrize(
    ("damage", "content"),
    [
        *((damage, b'{"version":0,"brokerEpoch":103}') for damage in SIDE_FILES),
        *((damage, b"") for damage in LOGS),
    ],
)
def test_mark_clean_keeps_a_valid_broker_epoch(
    data: Path, damage: Inflict, content: bytes, capfd: Capfd
) -> None:
    damage(data / "fares-0")
    assert json_run("recover", "--apply", "--mark-clean", data, capfd=capfd)[0] == 0
    assert (data / MARKER).read_bytes() == content


def test_mark_clean_accepts_an_empty_partition(data: Path, capfd: Capfd) -> None:
    """A partition that was created and never written to is checked as well."""
    (data / MARKER).unlink()
    (data / "new-0").mkdir()
    assert json_run("recover", "--apply", "--mark-clean", data, capfd=capfd)[0] == 0
    assert (data / MARKER).read_bytes() == b""


def test_mark_clean_is_refused_for_a_part_of_a_data_directory(data: Path, capfd: Capfd) -> None:
    (data / MARKER).unlink()
    for words in ([data / "fares-0"], ["--topic", "fares", data]):
        with unchanged(data):
            assert json_run("recover", "--apply", "--mark-clean", *words, capfd=capfd)[0] == 4


# --- copies


@pytest.mark.parametrize(("damage", "has_epoch"), [(lose_index, True), (break_batch, False)])
def test_copy_has_the_broker_epoch_only_while_nothing_is_lost(
    data: Path, damage: Inflict, has_epoch: bool, tmp_path: Path, capfd: Capfd
) -> None:
    damage(data / "fares-0")
    with unchanged(data):
        assert json_run("recover", "--output", tmp_path / "copy", data, capfd=capfd)[0] == 0
    assert (tmp_path / "copy" / MARKER).read_bytes() == ((data / MARKER).read_bytes() if has_epoch else b"")
