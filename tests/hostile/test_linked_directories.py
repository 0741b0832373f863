"""Partition directories that are links. A broker follows them, and so do commands that only read; others change them only with
--follow-links."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from kseg.cli.main import run
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from tests.support.broker_dirs import broker_dir

LOG = f"{0:020}.log"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with one damaged partition that is a link to a directory outside, and one that is not a link."""
    directory = tmp_path / "data"
    directory.mkdir()
    (directory / "meta.properties").write_bytes(b"version=1\nnode.id=1\ncluster.id=x\n")
    batch = encode_batch(NewBatch(records=(Record(0, 1, b"key", b"value", ()),)))
    for path in (directory / "here-0", tmp_path / "outside" / "there-0"):
        path.mkdir(parents=True)
        (path / LOG).write_bytes(batch + b"torn")
    (directory / "there-0").symlink_to("../outside/there-0")
    return directory


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


CHANGES = (
    ["recover", "--apply"],
    ["compact", "--apply", "--cleanup-policy", "compact"],
    ["retain", "--apply", "--retention-ms", "1", "--cleanup-policy", "delete"],
)


@pytest.mark.parametrize("command", CHANGES, ids=lambda command: command[0])
def test_linked_partition_is_not_changed_without_follow_links(
    command: list[str], data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = contents(data.parent)
    for path in (data, data / "there-0"):
        assert run([*command, str(path)]) == 4
        assert "--follow-links" in capfd.readouterr().err
    assert contents(data.parent) == before


def test_append_follows_a_link_only_with_follow_links(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = data.parent / "lines"
    lines.write_text('{"value":"x"}\n')
    path = data.parent / "outside" / "there-0" / LOG
    run(["recover", "--apply", "--follow-links", str(data / "there-0")])
    capfd.readouterr()
    before = contents(data.parent)
    assert run(["append", "--apply", "--from", str(lines), str(data / "there-0")]) == 4
    assert "--follow-links" in capfd.readouterr().err
    assert contents(data.parent) == before
    assert run(["append", "--apply", "--follow-links", "--from", str(lines), str(data / "there-0")]) == 0
    written = b"".join(log.read_bytes() for log in path.parent.glob("*.log"))
    assert len(written) > len(before[str(path)])


@pytest.mark.evidence("linked-directory")
def test_follow_links_changes_a_linked_partition_and_undo_restores_it(
    data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = data.parent / "outside" / "there-0" / LOG
    before = log.read_bytes()
    run(["recover", "--apply", "--follow-links", "--json", "--topic", "there", str(data)])
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert log.read_bytes() == before[:-4]
    assert [row["path"] for row in rows if row.get("id") == "linked-directory"] == [str(data / "there-0")]
    (journal,) = (log.parent / ".kseg").glob("*/journal.jsonl")
    asked = data / "there-0" / ".kseg" / journal.parent.name
    assert run(["undo", str(asked)]) == 4
    assert "--follow-links" in capfd.readouterr().err
    assert log.read_bytes() == before[:-4]
    assert run(["undo", "--follow-links", str(asked)]) == 0
    assert log.read_bytes() == before


def test_verify_and_recover_report_a_linked_directory(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for command in ("verify", "recover"):
        run([command, "--json", str(data)])
        rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        assert [row["path"] for row in rows if row.get("id") == "linked-directory"] == [str(data / "there-0")]
        assert any("there-0" in str(row) for row in rows if row.get("id") != "linked-directory")


@pytest.mark.parametrize(
    "words",
    [
        ["recover"],
        ["compact", "--cleanup-policy", "compact", "--include-active"],
        ["retain", "--cleanup-policy", "delete", "--retention-bytes", "1"],
    ],
    ids=lambda words: words[0],
)
def test_printed_next_command_includes_follow_links(
    words: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = broker_dir(tmp_path / "data", 1, 3, running=False)
    next(data.glob("*-1/*.index")).unlink()
    linked = next(data.glob("*-0"))
    linked.symlink_to(linked.rename(tmp_path / linked.name))
    run([*words, str(data)])
    (suggested,) = (line for line in capfd.readouterr().out.splitlines() if line.startswith("next: "))
    assert suggested.startswith(f"next: kseg {words[0]} --apply") and "--follow-links" in suggested
    assert run(shlex.split(suggested.removeprefix("next: kseg "))) == 0


def test_links_to_directories_of_data_directories_are_not_followed(
    data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A link to a directory that contains data directories is not followed, because it could lead anywhere."""
    other = data.parent / "machine" / "var" / "kafka"
    shutil.copytree(data, other, symlinks=True)
    (data / "everything-0").symlink_to(data.parent / "machine")
    run(["verify", "--json", str(data)])
    assert str(data / "everything-0" / "var" / "kafka") not in capfd.readouterr().out


def test_given_data_directory_may_be_a_link(data: Path) -> None:
    (data / "there-0").unlink()
    link = data.parent / "link"
    link.symlink_to(data)
    run(["recover", "--apply", str(link)])
    assert not (data / "here-0" / LOG).read_bytes().endswith(b"torn")


@pytest.mark.parametrize("is_damaged", [False, True])
def test_linked_log_is_refused_only_if_it_would_change(
    capture_small: Path, tmp_path: Path, is_damaged: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """A broker follows the link, but a rename would replace it."""
    data = Path(shutil.copytree(capture_small / "data", tmp_path / "node" / "data"))
    log = max((data / "fares-0").glob("*.log"))
    if is_damaged:
        log.write_bytes(log.read_bytes()[:-1])
    log.rename(tmp_path / "elsewhere.log")
    log.symlink_to(tmp_path / "elsewhere.log")
    before = contents(tmp_path)
    for words in (("recover",), ("recover", "--apply")):
        assert run([*words, str(data)]) == (5 if is_damaged else 0)
        assert ("is a link to a file elsewhere" in capfd.readouterr().err) is is_damaged
        run([*words, "--json", str(data)])
        shown = map(json.loads, capfd.readouterr().out.splitlines())
        assert not [row for row in shown if row["type"] == "step" and row.get("partition") == "fares-0"]
    limits = ["--cleanup-policy", "delete", "--retention-bytes", "1" if is_damaged else "1TiB"]
    assert run(["retain", "--apply", *limits, str(data / "fares-0")]) == (4 if is_damaged else 0)
    assert contents(tmp_path) == before and log.is_symlink()
