"""Backups in tar archives: reading commands give the same answers as for the directory that was packed, and all others refuse."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.support.archives import nothing_attached, tar_of
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of

Unchanged = Callable[..., AbstractContextManager[None]]
COMMANDS = (
    ["list", "--json"],
    ["list", "--topic", "metro-*", "--json"],
    ["verify", "--json"],
    ["verify", "--deep", "--jobs", "2", "--json"],
    ["dump", "--print-data-log", "--deep-iteration"],
    ["dump", "--json", "--jobs", "2"],
    ["lookup", "--latest", "--json"],
    ["lookup", "--offset", "90", "--topic", "fares", "--explain", "--json"],
    ["lookup", "--key", "gate-1", "--all", "--json"],
    ["read", "--offset", "0", "--topic", "fares", "--json"],
    ["groups", "--json"],
    ["metadata", "--json"],
    ["transactions", "--json"],
)


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    with nothing_attached():
        yield


@pytest.fixture(scope="module")
def backups(capture_small: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A data directory with times in whole seconds, as archives keep them, and archives of it."""
    place = tmp_path_factory.mktemp("backups")
    data = Path(shutil.copytree(capture_small / "data", place / "data"))
    log = data / "metro-none-0" / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    content[700] ^= 1
    log.write_bytes(content)
    for path in [*data.rglob("*"), data]:
        _to_whole_seconds(path)
    archives = {name: tar_of(data, place / name) for name in ("b.tar", "b.tgz", "b.tar.zst")}
    return {"data": data, **archives}


def _to_whole_seconds(path: Path) -> None:
    seconds = int(path.stat().st_mtime)
    os.utime(path, (seconds, seconds))


@pytest.mark.parametrize(
    ("name", "command"),
    [
        *(("b.tar", command) for command in COMMANDS),
        *((name, COMMANDS[number]) for name in ("b.tgz", "b.tar.zst") for number in (0, 2, 5, 6)),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_reading_commands_give_the_same_output_for_an_archive(
    backups: dict[str, Path], name: str, command: list[str], unchanged: Unchanged, capfd: Capfd
) -> None:
    status = run([*command, str(backups["data"])])
    expected = capfd.readouterr()
    with unchanged(backups[name]):
        assert run([*command, f"{backups[name]}/data"]) == status
    reported = capfd.readouterr()

    shown = f"{backups[name]}/data", str(backups["data"])
    assert reported.out.replace(*shown) == expected.out
    assert _without_next_command(reported.err.replace(*shown)) == _without_next_command(expected.err)


def _without_next_command(text: str) -> list[str]:
    """Without the suggestion to repair damage, which is impossible in an archive."""
    return [line for line in text.splitlines() if not line.startswith("next: ")]


def test_parts_of_an_archive_can_be_given_as_paths(backups: dict[str, Path], capfd: Capfd) -> None:
    for path in ("b.tar", "b.tar/data/", "b.tar/data/fares-0", "b.tar/data/fares-0/00000000000000000000.log"):
        assert run(["dump", str(backups["b.tar"].parent / path)]) in (0, 1), path
    capfd.readouterr()
    assert run(["list", str(backups["b.tar"]) + "/nothing"]) == 3
    assert "b.tar/nothing: No such file or directory" in capfd.readouterr().err


def test_diff_and_what_if_give_the_same_output_for_an_archive(backups: dict[str, Path], capfd: Capfd) -> None:
    backup = f"{backups['b.tar']}/data"
    rows = rows_of(capfd, "diff", backups["data"], backup, status=1)
    verdicts = [row["verdict"] for row in rows if row["type"] == "comparison"]
    assert len(verdicts) == 12 and verdicts.count("damaged") == 1 and verdicts.count("same") == 11

    sizes = list[list[int]]()
    for path in (str(backups["data"]), backup):
        rows = rows_of(capfd, "what-if", "--codec", "gzip", "--topic", "fares", path, status=0)
        sizes.append([row["bytes"] for row in rows if row["type"] == "setting"])
    assert sizes[0] and sizes[0] == sizes[1]
    assert run(["what-if", "--compaction", backup]) == 4


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_export_reads_an_archive(backups: dict[str, Path], jobs: str, tmp_path: Path, capfd: Capfd) -> None:
    pytest.importorskip("pyarrow")
    for name, path in (("from-disk", backups["data"]), ("from-tar", f"{backups['b.tar.zst']}/data")):
        command = [
            "export",
            *["--to", "csv", "--no-meta", "--topic", "metro-*", "--partition-by", "topic", "--jobs"],
            jobs,
        ]
        # status 1, because one log is damaged
        assert run([*command, "--output", str(tmp_path / name), str(path)]) == 1
        capfd.readouterr()
    written = {name: _csv_by_topic(tmp_path / name) for name in ("from-disk", "from-tar")}
    assert len(written["from-disk"]) == 5
    assert written["from-tar"] == written["from-disk"]


def _csv_by_topic(output: Path) -> dict[str, list[bytes]]:
    """The CSV files by topic. Their names contain the paths of the logs."""
    return {
        folder.name: [path.read_bytes() for path in sorted(folder.glob("*.csv"))]
        for folder in output.iterdir()
        if folder.is_dir()
    }


@pytest.mark.parametrize(
    "command",
    [
        ["recover"],
        ["recover", "--output", "out"],
        ["compact"],
        ["retain"],
        ["append", "--from", "-"],
        ["undo"],
        ["doctor"],
    ],
    ids=" ".join,
)
def test_commands_that_change_directories_refuse_archives(
    backups: dict[str, Path], command: list[str], unchanged: Unchanged, capfd: Capfd
) -> None:
    path = f"{backups['b.tar']}/data/fares-0"
    with unchanged(*backups.values()):
        assert run([*command, path]) == 4
    reported = capfd.readouterr()
    assert reported.out == ""
    assert reported.err.startswith(
        f"kseg: kseg {command[0]} works on directories on disk only, and {path} is in"
    )


@pytest.mark.parametrize(
    "words", [["export", "--to", "json", "--output"], ["recover", "--output"], ["retain", "--journal"]]
)
def test_output_to_a_url_is_refused(
    words: list[str], capture_small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capfd
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(os.listdir())
    assert run([*words, "s3://bucket/out", str(capture_small / "data")]) == 2
    assert "s3://bucket/out" in capfd.readouterr().err
    assert sorted(os.listdir()) == before


def test_truncated_archive_is_reported_as_damaged(
    backups: dict[str, Path], tmp_path: Path, capfd: Capfd
) -> None:
    archive = tmp_path / "half.tar"
    archive.write_bytes(backups["b.tar"].read_bytes()[: backups["b.tar"].stat().st_size // 2])
    for command in ("list", "verify"):
        rows = rows_of(capfd, command, archive, status=1)
        (finding,) = (row for row in rows if row.get("id") == "archive-cut-off")
        assert finding["path"] == str(archive)
        assert finding["message"].startswith("the archive ends too early (")


def test_archive_is_recognized_by_its_content(tmp_path: Path, capfd: Capfd) -> None:
    (tmp_path / "x.tar").write_bytes(b"no archive" * 100)
    assert run(["list", str(tmp_path / "x.tar")]) == 3
    assert f"cannot read {tmp_path / 'x.tar'}: not a tar archive" in capfd.readouterr().err
    # a topic name may end like that of an archive
    (tmp_path / "t.tar-0").mkdir()
    (tmp_path / "t.tar-0" / "00000000000000000000.log").write_bytes(b"")
    assert run(["list", str(tmp_path / "t.tar-0")]) == 0


def test_spawned_worker_opens_the_archive_itself(
    backups: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capfd: Capfd
) -> None:
    # with two threads, workers are spawned rather than forked
    monkeypatch.setattr("threading.active_count", lambda: 2)
    path = f"{backups['b.tar']}/data"
    rows = rows_of(capfd, "lookup", "--latest", "--jobs", "2", path, status=0)
    assert len(rows) == 12 and all(row["type"] == "lookup" for row in rows)
