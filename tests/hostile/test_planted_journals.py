"""Journals planted to make kseg write outside of a directory, or remove what it must not remove.

An attacker who can place files in the evidence can place journals with valid checksums, links, pipes, and the names of other files.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kseg.change.apply.append_journal import Guard
from kseg.change.apply.executor import apply_plan
from kseg.change.apply.journal_lines import encoded
from kseg.change.apply.journal_location import JournalLocation
from kseg.change.apply.journal_scan import journals_in
from kseg.change.apply.lock import claimed, locked
from kseg.change.apply.undo import undo
from kseg.change.apply.unfinished import complete_unfinished, half_done_findings
from kseg.segment.errors import KsegError, Refused
from kseg.spark.shuffle.exchange_dir import ExchangeDir
from tests.support.plan_cases import CASES, COMMAND, ID, LATER, LOG, LOG_9, PARTITION, QUICK, Case, carry_out


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    return CASES["swap"].lay(tmp_path / "data")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory full of files that must not be touched."""
    directory = tmp_path / "outside"
    directory.mkdir()
    for name in ("passwd", "0", LOG):
        (directory / name).write_bytes(b"precious " + name.encode())
    return directory


def contents(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()}


def header(directory: Path, **fields: object) -> dict[str, object]:
    status = directory.stat()
    files = [
        [path.name, path.stat().st_size, path.stat().st_mtime_ns, path.stat().st_ino]
        for path in sorted(directory.iterdir())
        if path.is_file()
    ]
    return {
        "type": "journal",
        "version": 2,
        "id": ID,
        "kind": "plan",
        "command": COMMAND,
        "directory": str(directory),
        "directory_mtime_ns": status.st_mtime_ns,
        "inputs": files,
        "steps": [],
        "reasons": [],
        "quarantine": None,
        "partitions": [],
        "after": None,
        **fields,
    }


def plant(directory: Path, *lines: Mapping[str, object]) -> Path:
    """Write a journal with valid checksums."""
    folder = directory / ".kseg" / ID
    folder.mkdir(parents=True, exist_ok=True)
    data = b""
    for line in lines:
        data += encoded(line, data)
    (folder / "journal.jsonl").write_bytes(data)
    return folder


STAGED: dict[str, Any] = {"type": "staged", "files": [], "kept": [], "copied": [], "tails": []}


def every_command(directory: Path) -> list[str]:
    """Complete, change and undo whatever is there; each operation refuses or does no harm. Returns the messages of the refusals."""
    output = []
    for action in (
        lambda: complete_unfinished(str(directory), COMMAND, QUICK),
        lambda: carry_out(CASES["remove"], directory, LATER),
        lambda: [undo(journal.location, QUICK) for journal in journals_in(str(directory))],
    ):
        try:
            action()
        except KsegError as error:
            assert error.exit_status == 4 and "\n" not in str(error)
            output.append(str(error))
    return output


# --- links in the place of directories


@pytest.mark.parametrize("part", ["new", "old"])
def test_planted_journal_in_a_linked_folder_changes_nothing_outside(
    part: str, partition: Path, outside: Path
) -> None:
    before = contents(outside)
    folder = plant(partition, header(partition))
    (folder / part).symlink_to(outside)
    assert every_command(partition)
    assert contents(outside) == before


@pytest.mark.parametrize("name", [".kseg", f".kseg/{ID}"])
@pytest.mark.parametrize("kind", ["link", "file", "pipe", "dangling"])
def test_planted_journal_place_changes_nothing_outside(
    name: str, kind: str, partition: Path, outside: Path
) -> None:
    before = contents(outside)
    (outside / "new").mkdir()
    (outside / "new" / "0").write_bytes(b"")
    path = partition / name
    path.parent.mkdir(exist_ok=True)
    match kind:
        case "link":
            path.symlink_to(outside)
        case "dangling":
            path.symlink_to(outside / "not there")
        case "pipe":
            os.mkfifo(path)
        case _:
            path.write_bytes(b"")
    assert len(every_command(partition)) == 3
    assert (outside / "new" / "0").exists() and not (outside / "not there").exists()
    shutil.rmtree(outside / "new")
    assert contents(outside) == before


def put_odd_file(kind: str, path: Path, outside: Path) -> None:
    """Put something at a path that is not a file as kseg or a broker writes it."""
    match kind:
        case "dangling":
            path.symlink_to(outside / "made")
        case "link":
            path.symlink_to(outside / "passwd")
        case "pipe":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/zero")
        case "large":
            with path.open("wb") as file:
                file.truncate(1 << 30)
        case _:
            path.write_bytes(b"[" * 1_000_000 + b"\n")


@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "device", "large", "deep"])
def test_planted_journal_that_is_not_a_regular_file_is_not_followed(
    kind: str, partition: Path, outside: Path
) -> None:
    folder = plant(partition, header(partition))
    path = folder / "journal.jsonl"
    path.unlink()
    put_odd_file(kind, path, outside)
    before = contents(outside)
    assert len(every_command(partition)) == 3
    (finding,) = half_done_findings(str(partition))
    assert finding.id == "half-done-journal" and contents(outside) == before


def test_leftover_cleanup_does_not_follow_a_linked_work_directory(partition: Path, outside: Path) -> None:
    """Leftovers of a killed process of a cluster are removed, but never through a link."""
    before = contents(outside)
    (partition / ".kseg").mkdir()
    (partition / ".kseg" / ".work-x").symlink_to(outside)
    place = ExchangeDir(str(partition), LATER)
    assert Path(place.path).is_dir()
    place.close()
    assert contents(outside) == before


# --- what the lines say


@pytest.mark.parametrize(
    "quarantine",
    [
        "{outside}",
        "{outside}/kseg-{id}/..",
        "{outside}/kseg-{id}/orders-0.{inode:x}/..",
        "outside/kseg-{id}/orders-0.{inode:x}",
        "{link}/kseg-{id}/orders-0.{inode:x}",
        "{outside}/./kseg-{id}/orders-0.{inode:x}",
        "{outside}/kseg-{id}/orders-0.1",
    ],
)
@pytest.mark.parametrize("is_decided", [False, True])
def test_planted_quarantine_of_another_directory_is_not_used(
    quarantine: str, is_decided: bool, partition: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(outside.parent)
    (outside.parent / "link").symlink_to(outside)
    inode = partition.stat().st_ino
    for tail in ("orders-0.1", f"orders-0.{inode:x}"):
        folder = outside / f"kseg-{ID}" / tail
        folder.mkdir(parents=True)
        (folder / LOG).write_bytes(b"precious")
    (outside / f"kseg-{ID}" / LOG).write_bytes(b"precious")
    precious = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    words = quarantine.format(outside=outside, link=outside.parent / "link", id=ID, inode=inode)
    steps = [{"do": "remove", "file": LOG, "why": "planted"}]
    lines = [header(partition, quarantine=words, steps=steps)]
    if is_decided:
        lines.append({**STAGED, "copied": [[LOG, 0]]})
    plant(partition, *lines)
    assert len(every_command(partition)) == 3
    assert precious == {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    assert (partition / LOG).read_bytes() == PARTITION[LOG]


def test_planted_removal_without_a_kept_copy_is_refused(partition: Path) -> None:
    inode = (partition / LOG).stat().st_ino
    steps = [{"do": "remove", "file": LOG, "why": "planted"}]
    plant(partition, header(partition, steps=steps), {**STAGED, "kept": [[LOG, inode]]})
    assert len(every_command(partition)) == 3
    assert (partition / LOG).read_bytes() == PARTITION[LOG]


def test_planted_truncation_without_a_kept_end_is_refused(partition: Path) -> None:
    log = partition / LOG
    steps = [{"do": "truncate", "file": LOG, "size": 0, "why": "planted"}]
    lines = (
        header(partition, steps=steps),
        {**STAGED, "kept": [[LOG, log.stat().st_ino]], "tails": [[0, 0]]},
    )
    folder = plant(partition, *lines)
    (folder / "old").mkdir()
    (folder / "old" / LOG).hardlink_to(log)
    (folder / "old" / f"{LOG}.from-0").write_bytes(b"something of the same length....")
    assert len(every_command(partition)) == 3
    assert log.read_bytes() == PARTITION[LOG]


def test_planted_truncation_of_a_hard_linked_file_is_refused(partition: Path, outside: Path) -> None:
    precious = outside / "linked"
    precious.hardlink_to(partition / LOG)
    before = contents(outside)
    log = partition / LOG
    from kseg.segment.crc import crc32c

    steps = [{"do": "truncate", "file": LOG, "size": 0, "why": "planted"}]
    lines = (
        header(partition, steps=steps),
        {**STAGED, "kept": [[LOG, log.stat().st_ino]], "tails": [[0, crc32c(PARTITION[LOG])]]},
    )
    folder = plant(partition, *lines)
    (folder / "old").mkdir()
    (folder / "old" / LOG).hardlink_to(log)
    (folder / "old" / f"{LOG}.from-0").write_bytes(PARTITION[LOG])
    output = every_command(partition)
    assert "hard link" in output[0] and contents(outside) == before


def test_planted_undo_of_files_no_step_wrote_is_refused(partition: Path) -> None:
    log = partition / LOG
    status = log.stat()
    others = [row for row in header(partition)["inputs"] if row[0] != LOG]  # type: ignore[attr-defined]
    steps = [{"do": "write", "file": LOG, "size": status.st_size, "pieces": [], "why": "planted"}]
    staged = {**STAGED, "files": [[0, status.st_ino, status.st_size, status.st_mtime_ns, 1]]}
    plant(partition, header(partition, inputs=others, steps=steps), staged, {"type": "done"})
    with pytest.raises(Refused, match="is not what was written there"):
        undo(JournalLocation(str(partition), ID, in_log_dir=False), QUICK)
    assert log.read_bytes() == PARTITION[LOG]


def test_evidence_moved_below_an_abandoned_journal_stays(partition: Path) -> None:
    folder = plant(partition, header(partition))
    (folder / "old").mkdir()
    (partition / LOG_9).rename(folder / "old" / LOG_9)
    output = every_command(partition)
    assert all("bytes are not in" in sentence for sentence in output)
    assert (folder / "old" / LOG_9).read_bytes() == PARTITION[LOG_9]


def test_planted_append_does_not_truncate_a_hard_linked_file(partition: Path, outside: Path) -> None:
    (outside / "linked").hardlink_to(partition / LOG_9)
    before = contents(outside)
    first = header(partition, kind="guard", command="append", grows=[LOG_9], replaces=[], is_new=False)
    rows = [[name, 0 if name == LOG_9 else size, *more] for name, size, *more in first["inputs"]]  # type: ignore[attr-defined]
    plant(partition, {**first, "inputs": rows}, {"type": "staged", "kept": {}})
    assert "hard link" in every_command(partition)[-1]
    assert contents(outside) == before


def test_hard_linked_journal_is_not_written_to(partition: Path, outside: Path) -> None:
    steps = [{"do": "rename", "file": LOG, "to": "other", "why": "planted"}]
    kept = [[LOG, (partition / LOG).stat().st_ino]]
    folder = plant(partition, header(partition, steps=steps), {**STAGED, "kept": kept})
    (folder / "old").mkdir()
    (folder / "old" / LOG).hardlink_to(partition / LOG)
    (outside / "journal").hardlink_to(folder / "journal.jsonl")
    before = contents(outside)
    assert every_command(partition)
    assert contents(outside) == before


# --- names that change between a look and the use


def test_directory_replaced_by_a_link_during_a_change_is_not_followed(tmp_path: Path, outside: Path) -> None:
    """The change is made in the directory that was opened, wherever its path leads by then."""

    class Swapping(type(QUICK)):  # type: ignore[misc]
        done = False

        def create(self, path: str) -> int:
            if not self.done:
                type(self).done = True
                directory.rename(tmp_path / "aside")
                directory.symlink_to(outside)
            return int(super().create(path))

    directory = CASES["swap"].lay(tmp_path / "data")
    before = contents(outside)
    apply_plan(CASES["swap"].plan(directory), journal_id=ID, disk=Swapping())
    assert contents(outside) == before
    assert (tmp_path / "aside" / ".kseg" / ID / "journal.jsonl").is_file()


def test_linked_partition_is_not_claimed(tmp_path: Path) -> None:
    directory = CASES["swap"].lay(tmp_path / "elsewhere")
    link = tmp_path / "orders-0"
    link.symlink_to(directory)
    with pytest.raises(Refused, match="--follow-links"):
        carry_out(CASES["swap"], link)
    with pytest.raises(Refused, match="--follow-links"), Guard(str(link), "append", journal_id=ID):
        pass
    with pytest.raises(Refused), claimed(str(link)):
        pass
    assert not (directory / ".kseg").exists()


# --- the lock


@pytest.mark.parametrize("kind", ["dangling", "link", "pipe", "directory", "device"])
def test_lock_that_is_not_a_regular_file_is_refused(kind: str, tmp_path: Path, outside: Path) -> None:
    path = tmp_path / ".lock"
    put_odd_file(kind, path, outside)
    before = contents(outside)
    with (
        pytest.raises(Refused, match=r"cannot lock .*\.lock: it is (a link|not a regular file)"),
        locked([str(tmp_path)]),
    ):
        pass
    assert contents(outside) == before


def test_journal_ids_that_overlap_are_refused(tmp_path: Path) -> None:
    """`kseg-journal-X-old-Y.jsonl` would be both a file of journal X and a journal."""
    case = Case({"meta.properties": b"version=1\n"}, lambda _directory: (), is_partition=False)
    directory = case.lay(tmp_path)
    (directory / f"kseg-journal-{ID}-old-y.jsonl").write_bytes(b"evidence")
    places = {journal.location for journal in journals_in(str(directory))}
    assert places == {JournalLocation(str(directory), ID, in_log_dir=True)}
    with pytest.raises(Refused):
        complete_unfinished(str(directory), COMMAND, QUICK)
    assert (directory / f"kseg-journal-{ID}-old-y.jsonl").read_bytes() == b"evidence"


def test_real_journal_has_the_fields_of_the_planted_ones(partition: Path) -> None:
    """Otherwise the tests above could pass only because of a field that real journals do not have."""
    applied = carry_out(CASES["swap"], partition)
    first = json.loads(Path(applied.journal).read_text().splitlines()[0])
    assert {*first} == {*header(partition), "nonce", "signature", "sum"}
