"""On a read-only file system, commands that change files fail with one sentence, and all others work."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.support.bad_sectors import DyingDisk, dying_disk
from tests.support.change_cases import NOW, damage_logs
from tests.support.trees import tree_state

LOG = f"{0:020}.log"
READ_ONLY = os.strerror(errno.EROFS)


@pytest.fixture(scope="module")
def disk(capture_small: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DyingDisk]:
    """A data directory with two damaged partitions, a repaired one that can be undone, and files that are due for a purge."""
    place = tmp_path_factory.mktemp("read-only")
    with dying_disk(place) as disk:
        damage_logs(capture_small, disk.root / "data")
        shutil.copytree(capture_small / "data" / "metro-lz4-0", disk.root / "repaired" / "metro-lz4-0")
        log = disk.root / "repaired" / "metro-lz4-0" / LOG
        data = bytearray(log.read_bytes())
        data[600] ^= 0x55
        log.write_bytes(data)
        assert run(["recover", "--quiet", "--apply", str(log.parent)]) == 0
        marked = disk.root / "marked" / "metro-zstd-0"
        shutil.copytree(capture_small / "data" / "metro-zstd-0", marked)
        (marked / LOG).rename(f"{marked / LOG}.deleted")
        disk.make_read_only()
        yield disk


CHANGING = [
    "recover --apply DATA",
    "recover --policy kafka --apply DATA",
    "recover --apply DATA/metro-zstd-0",
    "recover --mark-clean --apply REPAIRED",
    "recover --output DATA/../out DATA/fares-0",
    "compact --cleanup-policy compact --include-active --apply DATA/fares-0",
    f"retain --cleanup-policy delete --retention-ms 1d --now {NOW} --apply DATA/fares-0",
    f"retain --cleanup-policy delete --purge --now {NOW} --apply MARKED",
    "append --apply --from LINES DATA/fares-0",
    "append --apply --from LINES --topic-id Pm0fXkDvQ0yTn7Qq3uXJ8A DATA/new-0",
    "undo REPAIRED/metro-lz4-0",
    "export --to csv --output DATA/../tables DATA/fares-0",
]
READING = [
    "verify DATA",
    "dump DATA/fares-0",
    "dump --json --deep-iteration DATA/metro-zstd-0",
    "list DATA",
    "lookup --offset 100 DATA/fares-0",
    "read --offset 50 DATA/fares-0",
]
PLANNING = [
    "recover DATA",
    f"retain --cleanup-policy delete --retention-ms 1d --now {NOW} DATA/fares-0",
    "compact --cleanup-policy compact --include-active DATA/fares-0",
    "append --from LINES DATA/fares-0",
]


def words(line: str, root: Path, tmp_path: Path) -> list[str]:
    places = {"DATA": root / "data", "REPAIRED": root / "repaired", "MARKED": root / "marked"}
    for name, path in (places | {"LINES": tmp_path / "lines"}).items():
        line = line.replace(name, str(path))
    return (
        [*line.split(), "--jobs", "1"]
        if not line.startswith(("append", "undo", "read ", "lookup"))
        else line.split()
    )


@pytest.mark.evidence("read-only")
@pytest.mark.parametrize("line", CHANGING)
def test_changing_commands_on_a_read_only_disk_fail_with_one_sentence(
    disk: DyingDisk, line: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lines").write_text('{"value":"x"}\n')
    before = tree_state(disk.root)
    status = run(words(line, disk.root, tmp_path))
    printed = capfd.readouterr()
    assert status in (3, 4, 5), printed
    assert READ_ONLY in printed.err and "bug in kseg" not in printed.err
    assert "Traceback" not in printed.err
    assert tree_state(disk.root) == before
    assert [path.name for path in tmp_path.iterdir()] == ["lines"]


@pytest.mark.parametrize("line", READING)
def test_reading_commands_work_on_a_read_only_disk(
    disk: DyingDisk, line: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(disk.root / "data", tmp_path / "data")
    answers = []
    for root in (disk.root, tmp_path):
        status = run(words(line, root, tmp_path))
        printed = capfd.readouterr()
        answers.append(
            (status, printed.out.replace(str(root), "ROOT"), printed.err.replace(str(root), "ROOT"))
        )
    here, elsewhere = answers
    if line.startswith("verify"):
        assert READ_ONLY in here[1] and "once a broker can write there" in here[1]
        here = (here[0], _but_for_the_mount(here[1]), here[2])
    assert here == elsewhere


@pytest.mark.evidence("read-only")
@pytest.mark.parametrize("line", PLANNING)
def test_plan_for_a_read_only_disk_ends_with_what_comes_first(
    disk: DyingDisk, line: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lines").write_text('{"value":"x"}\n')
    shutil.copytree(disk.root / "data", tmp_path / "data")
    plans = []
    for root in (disk.root, tmp_path):
        assert run(words(line, root, tmp_path)) == 1
        printed = capfd.readouterr()
        lines = f"{printed.out}{printed.err}".replace(str(root), "ROOT").splitlines()
        is_read_only = root == disk.root
        command = "doctor ROOT/data" if is_read_only else f"{line.split()[0]} --apply "
        assert [each for each in lines if each.startswith("next: ")][-1].startswith(f"next: kseg {command}")
        assert any("is mounted read-only" in each for each in lines) == is_read_only
        plans.append(
            [each for each in lines if not each.startswith("next: ") and "is mounted read-only" not in each]
        )
    assert plans[0] == plans[1]


def _but_for_the_mount(text: str) -> str:
    """The text without the lines of the start forecast about the mount. The following lines are unindented, as they are without those."""
    lines = [line for line in text.splitlines() if READ_ONLY not in line and "read-only" not in line]
    return "".join(
        f"{line.removeprefix('  ') if 'a 4.3.1 broker' in line or 'as stray' in line else line}\n"
        for line in lines
    )


@pytest.mark.parametrize("command", ["recover", "compact --cleanup-policy compact"])
def test_recover_output_copies_from_a_read_only_disk(disk: DyingDisk, command: str, tmp_path: Path) -> None:
    output = tmp_path / "copy"
    line = f"{command} --quiet --output {output} DATA/{'metro-zstd-0' if command == 'recover' else 'fares-0'}"
    assert run(words(line, disk.root, tmp_path)) in (0, 1)
    assert run(["verify", "--quiet", str(output)]) in (0, 1)
    assert list(output.rglob("*.log"))
