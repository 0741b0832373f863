"""Data that an undo removes because of an unsigned journal is kept, after a kill at any point, with or without free space."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from kseg.change.apply import journal_signature, room, undo_quarantine
from kseg.change.apply.disk import Disk
from kseg.change.apply.journal import read_journal
from kseg.change.apply.journal_lines import encoded
from kseg.change.apply.journal_scan import journals_in
from kseg.change.apply.room import Room
from kseg.change.apply.undo import undo
from kseg.segment.errors import Refused
from tests.change.test_append_journal import CASE, ROLLED, write_stream
from tests.support.failing_disks import Held, QuickDisk, held, outlives
from tests.support.plan_cases import CASES, LOG_9, PARTITION, carry_out

QUICK = QuickDisk()


def unsign(directory: Path) -> None:
    """Turn the journal into what another user would have written."""
    (journal,) = journals_in(str(directory))
    path = Path(journal.path)
    data = b""
    for text in path.read_text().splitlines():
        line = json.loads(text)
        del line["sum"], line["signature"]
        data += encoded(line, data)
    path.write_bytes(data)


def files(directory: Path) -> dict[str, Held]:
    return {name: file for name, file in held(directory).items() if not name.startswith("kseg-")}


def kept(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("kseg-undone-*")}


def roll_back(directory: Path, disk: Disk) -> None:
    for journal in journals_in(str(directory), disk):
        if Path(journal.path).exists():
            undo(journal.location, disk)


def test_undo_of_an_append_killed_anywhere_keeps_the_appended_bytes(tmp_path: Path) -> None:
    for number in itertools.count():
        directory = CASE.lay(tmp_path / str(number))
        start = files(directory)
        write_stream(directory, QUICK)
        end = files(directory)
        unsign(directory)
        survived = outlives(lambda disk, at=directory: roll_back(at, disk), number)  # type: ignore[misc]
        found = {**{name: file.content for name, file in files(directory).items()}, **kept(directory)}
        assert any(b"a batch" in content for content in found.values())
        assert any(content == end[ROLLED].content for content in found.values())
        roll_back(directory, QUICK)
        assert files(directory) == start
        assert not [path for path in directory.rglob(".kseg/*/*") if path.is_file()]
        tail = f"kseg-undone-{journal_id(directory)}-{LOG_9}.from-{len(PARTITION[LOG_9])}"
        assert [content for name, content in kept(directory).items() if name.startswith(tail)] == [b"a batch"]
        if survived:
            break
    assert number > 10


def journal_id(directory: Path) -> str:
    (name, *_) = kept(directory)
    return name.removeprefix("kseg-undone-").split("Z-")[0] + "Z-" + name.split("Z-")[1].split("-")[0]


@pytest.mark.parametrize("name", CASES)
def test_undo_of_an_unsigned_plan_keeps_what_its_steps_made(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    directory = case.lay(tmp_path / "directory")
    start = files(directory)
    carry_out(case, directory)
    end = files(directory)
    unsign(directory)
    (undone,) = undo(journals_in(str(directory))[0].location, QUICK)
    assert files(directory) == start
    contents = {file.content for file in start.values()} | {*kept(directory).values()}
    assert {file.content for file in end.values()} - contents <= cut_files(start, end)
    assert {Path(path).name for path in undone.kept} == {*kept(directory)}


def cut_files(start: dict[str, Held], end: dict[str, Held]) -> set[bytes]:
    """Files whose content is the beginning of an original file, which the undo restores."""
    return {
        file.content
        for file in end.values()
        if any(each.content.startswith(file.content) for each in start.values())
    }


def test_undo_with_a_signed_journal_keeps_nothing(tmp_path: Path) -> None:
    directory = CASE.lay(tmp_path / "directory")
    start = held(directory)
    write_stream(directory, QUICK)
    (journal,) = journals_in(str(directory))
    assert journal.is_signed
    (undone,) = undo(journal.location, QUICK)
    assert undone.kept == () and held(directory) == start


def test_journal_of_another_user_or_machine_is_unsigned(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    directory = CASE.lay(tmp_path / "directory")
    write_stream(directory, QUICK)
    (journal,) = journals_in(str(directory))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    assert not read_journal(journal.location).is_signed
    (undone,) = undo(journal.location, QUICK)
    assert undone.kept


@pytest.mark.parametrize("fault", ["mode", "link", "short", "directory"])
def test_signing_key_readable_by_others_is_not_used(
    fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(journal_signature, "_keys", {})
    data = encoded({"type": "journal"}, b"", is_signed=True)
    assert journal_signature.is_signed(data)
    path = tmp_path / "kseg" / "journal-key"
    assert path.stat().st_mode & 0o777 == 0o600 and len(path.read_bytes()) == 32
    match fault:
        case "mode":
            path.chmod(0o640)
        case "link":
            path.rename(tmp_path / "key")
            path.symlink_to(tmp_path / "key")
        case "short":
            path.write_bytes(b"key")
        case _:
            path.unlink()
            path.mkdir()
    monkeypatch.setattr(journal_signature, "_keys", {})
    assert not journal_signature.is_signed(data)
    # with a new key of this process
    again = encoded({"type": "journal"}, b"", is_signed=True)
    assert again != data and journal_signature.is_signed(again)


def test_journal_signature_covers_each_line_and_its_predecessors() -> None:
    first = encoded({"type": "journal", "id": "x"}, b"", is_signed=True)
    second = encoded({"type": "staged"}, first, is_signed=True)
    assert journal_signature.is_signed(first + second)
    for data in (
        b"",
        second,
        second + first,
        first + encoded({"type": "staged"}, first),
        first[:-20] + b"\n",
    ):
        assert not journal_signature.is_signed(data)


def test_signature_of_a_completed_change_does_not_match_a_repeated_one() -> None:
    line = {"type": "journal", "id": "x", "inputs": []}
    first, again = (encoded(line, b"", is_signed=True) for _ in range(2))
    # so that a plan and its execution compute the same space
    assert len(first) == len(again)
    journal_signature.spend([first + encoded({"type": "done"}, first, is_signed=True)])
    assert not journal_signature.is_signed(first)
    assert journal_signature.is_signed(again)


def test_truncated_bytes_move_in_pieces_if_space_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undo_quarantine, "COPY_BYTES", 3)
    monkeypatch.setattr(undo_quarantine, "rooms_for", lambda needs: [Room("/", needs[0][1], 3)])
    for number in itertools.count():
        directory = CASE.lay(tmp_path / str(number))
        start = files(directory)
        write_stream(directory, QUICK)
        unsign(directory)
        survived = outlives(lambda disk, at=directory: roll_back(at, disk), number)  # type: ignore[misc]
        roll_back(directory, QUICK)
        assert files(directory) == start
        pieces = {
            int(name.removesuffix(".kept").split(".from-")[1].split(".")[0]): content
            for name, content in kept(directory).items()
            if ".from-" in name
        }
        assert b"".join(pieces[at] for at in sorted(pieces)) == b"a batch"
        assert max(map(len, pieces.values())) == 3
        if survived:
            break


def test_undo_without_space_for_a_piece_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = CASE.lay(tmp_path / "directory")
    write_stream(directory, QUICK)
    unsign(directory)
    end = files(directory)
    monkeypatch.setattr(undo_quarantine, "rooms_for", lambda needs: [Room("/disk", needs[0][1], 1)])
    monkeypatch.setattr(room, "_can_be_had", lambda _room: False)
    with pytest.raises(
        Refused,
        match=r"7 bytes are needed on the file system of /disk, and 1 are free; nothing was changed; ",
    ):
        roll_back(directory, QUICK)
    assert files(directory) == end and not kept(directory)
