"""A genuine journal by the same user, of a change that is over, is put back by somebody who kept a copy: following it loses nothing.

All of kseg's files are copied when the change is done, hard links with their inodes (as somebody on the same file system could keep them),
and put back after the change was undone or forgotten, and after later changes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kseg.change.apply import journal_signature
from kseg.cli.main import run
from tests.support.trees import files_in, tree_state

LOG = f"{0:020}.log"
Change = tuple[str, ...]


@pytest.fixture
def place(capture_small: Path, tmp_path: Path) -> Path:
    return shutil.copytree(capture_small / "data" / "fares-0", tmp_path / "data" / "fares-0")


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.jsonl"
    path.write_text(
        "".join(json.dumps({"value": f"v{at}", "timestamp": 1_700_000_000_000}) + "\n" for at in range(20))
    )
    return path


def kept_copy(place: Path, aside: Path) -> None:
    """Copy the journal and its files. The files are kept as hard links, so that their inodes stay the same."""
    shutil.copytree(place / ".kseg", aside, copy_function=os.link)
    for path in aside.rglob("*.jsonl"):
        data, status = path.read_bytes(), path.stat()
        path.unlink()
        path.write_bytes(data)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def put_back(place: Path, aside: Path) -> Path:
    shutil.copytree(aside, place / ".kseg", copy_function=os.link, dirs_exist_ok=True)
    (journal,) = aside.rglob("*.jsonl")
    return place / ".kseg" / journal.relative_to(aside)


def all_bytes(place: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()]


def is_somewhere(place: Path, content: bytes) -> bool:
    """Whether a content exists completely, or as its beginning in one file and the part that was cut off in another."""
    there = all_bytes(place)
    if content in there:
        return True
    return any(data and content.startswith(data) and content[len(data) :] in there for data in there)


def tear(place: Path) -> None:
    log = max(place.glob("*.log"))
    os.truncate(log, log.stat().st_size - 7)


CHANGES: dict[str, tuple[Callable[[Path], None] | None, tuple[str, ...]]] = {
    "append": (None, ("append", "--apply", "--now", "1700000000000", "--from", "LINES")),
    "recover": (tear, ("recover", "--apply")),
    "rebuild": (None, ("recover", "--apply", "--rebuild")),
}


@pytest.mark.parametrize("over", [("undo",), ("undo", "--forget", "--apply")])
@pytest.mark.parametrize("since", ["nothing", "the same again", "others"])
@pytest.mark.parametrize("name", CHANGES)
def test_replayed_journal_of_a_completed_change_loses_nothing(
    place: Path, lines: Path, tmp_path: Path, name: str, over: tuple[str, ...], since: str
) -> None:
    damage, words = CHANGES[name]
    command = [str(lines) if word == "LINES" else word for word in words]
    if damage is not None:
        damage(place)
    assert run([*command, str(place)]) in (0, 1)
    aside = tmp_path / "aside"
    kept_copy(place, aside)
    assert run([*over, str(place)]) == 0
    if since == "the same again":
        assert run([*command, str(place)]) in (0, 1)
        run(["undo", "--forget", "--apply", str(place)])
    elif since == "others":
        # 4: the log is torn again
        assert run(["append", "--apply", "--from", str(lines), str(place)]) in (0, 4)
        run(["undo", "--forget", "--apply", str(place)])
    before = files_in(place)
    journal = put_back(place, aside)
    for follow in (["undo", str(journal)], ["undo", "--finish", str(place)], ["undo", str(place)]):
        assert run(follow) in (0, 3, 4)
        for content in before.values():
            assert is_somewhere(place, content), follow
    assert run(["verify", "--quick", str(place)]) in (0, 1)


def test_journal_of_a_completed_change_loses_its_signature(place: Path, lines: Path, tmp_path: Path) -> None:
    run(["append", "--apply", "--from", str(lines), str(place)])
    (journal,) = (place / ".kseg").rglob("*.jsonl")
    data = journal.read_bytes()
    assert journal_signature.is_signed(data)
    assert run(["undo", str(place)]) == 0
    assert not journal_signature.is_signed(data)
    assert run(["append", "--apply", "--from", str(lines), str(place)]) == 0
    (again,) = (place / ".kseg").rglob("*.jsonl")
    assert journal_signature.is_signed(again.read_bytes())


def test_record_of_spent_signatures_is_bounded(
    place: Path, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_signature, "_MOST_SPENT_BYTES", 330)
    seen: list[bytes] = []
    for _ in range(25):
        run(["append", "--apply", "--quiet", "--from", str(lines), str(place)])
        (journal,) = (place / ".kseg").rglob("*.jsonl")
        seen.append(journal.read_bytes())
        run(["undo", "--quiet", str(place)])
    notes = Path(os.environ["XDG_STATE_HOME"]) / "kseg" / "spent-journals"
    assert notes.stat().st_size <= 2 * 330 and notes.stat().st_mode & 0o777 == 0o600
    assert not any(map(journal_signature.is_signed, seen[-4:])), "the newest are known"


def test_unwritable_state_directory_does_not_prevent_undo(place: Path, lines: Path) -> None:
    before = tree_state(place)
    run(["append", "--apply", "--from", str(lines), str(place)])
    notes = Path(os.environ["XDG_STATE_HOME"]) / "kseg" / "spent-journals"
    notes.unlink(missing_ok=True)
    notes.mkdir()
    try:
        assert run(["undo", str(place)]) == 0
    finally:
        notes.rmdir()
    assert tree_state(place) == before


@pytest.mark.parametrize("name", ["append", "rebuild"])
def test_undo_keeps_everything_signed_by_executors_with_another_key(
    place: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The executors of a cluster sign with the keys of their own machines. An undo on this machine trusts none of these, and keeps what it
    removes."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "executor"))
        command = [str(lines) if word == "LINES" else word for word in CHANGES[name][1]]
        assert run([*command, str(place)]) in (0, 1)
    changed = files_in(place)
    assert run(["undo", str(place)]) == 0
    assert list(place.glob("kseg-undone-*.kept"))
    for content in changed.values():
        assert is_somewhere(place, content)
