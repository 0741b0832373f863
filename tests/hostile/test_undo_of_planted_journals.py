"""Journals planted to make an undo destroy a log: each claims that kseg has written an original file.

Everything in them is valid: checksums, inodes, sizes, times. Only the signature is missing. So everything that the undo removes must still
be somewhere in the directory afterwards.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kseg.change.apply.journal_lines import encoded
from kseg.cli.main import run
from kseg.segment.crc import crc32c

ID = "20260101T000000Z-00000001"
COPY_ID = "20260101T000000Z-00000002"
LOG, INDEX, EPOCHS = f"{0:020}.log", f"{0:020}.index", "leader-epoch-checkpoint"
LAST = f"{9:020}.log"
FILES = {LOG: b"first log " * 40, INDEX: b"entries", LAST: b"last log " * 50, EPOCHS: b"0\n0\n"}
Line = Mapping[str, Any]


def row(path: Path, size_bytes: int | None = None) -> list[object]:
    status = path.stat()
    return [
        path.name,
        status.st_size if size_bytes is None else size_bytes,
        status.st_mtime_ns,
        status.st_ino,
    ]


def rows(directory: Path, but: Sequence[str] = ()) -> list[list[object]]:
    return [
        row(path)
        for path in sorted(directory.iterdir())
        if path.is_file() and path.name not in but and not path.name.startswith("kseg-")
    ]


def header(directory: Path, kind: str, command: str, **fields: object) -> Line:
    return {
        "type": "journal",
        "version": 2,
        "id": ID,
        "kind": kind,
        "command": command,
        "directory": str(directory),
        "directory_mtime_ns": directory.stat().st_mtime_ns,
        "inputs": rows(directory),
        "quarantine": None,
        "partitions": [],
        "after": None,
        **fields,
    }


def plant(path: Path, lines: Sequence[Line]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name == "journal.jsonl":
        (path.parent / "old").mkdir(exist_ok=True)
    data = b""
    for line in lines:
        data += encoded(line, data)
    path.write_bytes(data)


def keep(directory: Path, name: str, content: bytes) -> int:
    """Write a file that the journal keeps; returns its checksum."""
    path = directory / ".kseg" / ID / "old" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    status = (directory / name).stat()
    os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns))
    return crc32c(content)


# --- what the journals say


def an_append_cut_to_nothing(directory: Path) -> list[Line]:
    inputs = [*rows(directory, [LAST]), row(directory / LAST, 0)]
    first = header(
        directory,
        "guard",
        "append",
        inputs=inputs,
        grows=[LAST],
        replaces=[],
        is_new=False,
        new_partitions=[],
    )
    return [first, {"type": "staged", "kept": {}}, {"type": "done", "files": rows(directory)}]


def an_append_that_made_everything(directory: Path) -> list[Line]:
    first = header(
        directory, "guard", "append", inputs=[], grows=[], replaces=[], is_new=True, new_partitions=[]
    )
    made = [{"type": "create", "name": name} for name in FILES]
    return [first, {"type": "staged", "kept": {}}, *made, {"type": "done", "files": rows(directory)}]


def an_append_that_replaced_the_side_files(directory: Path) -> list[Line]:
    kept = {name: keep(directory, name, FILES[name][::-1]) for name in (INDEX, EPOCHS)}
    first = header(directory, "guard", "append", grows=[], replaces=[*kept], is_new=False, new_partitions=[])
    return [first, {"type": "staged", "kept": kept}, {"type": "done", "files": rows(directory)}]


def a_repair_that_wrote_the_logs(directory: Path) -> list[Line]:
    names = (LOG, LAST)
    steps = [
        {"do": "write", "file": name, "size": len(FILES[name]), "pieces": [], "why": "planted"}
        for name in names
    ]
    found = header(directory, "plan", "recover", inputs=rows(directory, names), steps=steps, reasons=[])
    files = [
        [number, inode, size, mtime_ns, crc32c(FILES[str(name)])]
        for number, (name, size, mtime_ns, inode) in enumerate(row(directory / name) for name in names)
    ]
    return [
        found,
        {"type": "staged", "files": files, "kept": [], "copied": [], "tails": []},
        {"type": "done"},
    ]


def a_repair_that_wrote_over_a_log(directory: Path) -> list[Line]:
    """The journal claims that kseg wrote the log and kept the original, which is garbage."""
    keep(directory, LAST, b"garbage")
    held = directory / ".kseg" / ID / "old" / LAST
    steps = [{"do": "write", "file": LAST, "size": len(FILES[LAST]), "pieces": [], "why": "planted"}]
    inputs = [*rows(directory, [LAST]), row(held)]
    name, size, mtime_ns, inode = row(directory / LAST)
    staged = {
        "type": "staged",
        "files": [[0, inode, size, mtime_ns, crc32c(FILES[LAST])]],
        "kept": [[LAST, held.stat().st_ino]],
        "copied": [],
        "tails": [],
    }
    found = header(directory, "plan", "recover", inputs=inputs, steps=steps, reasons=[])
    assert name == LAST
    return [found, staged, {"type": "done"}]


KINDS: dict[str, Callable[[Path], list[Line]]] = {
    kind.__name__: kind
    for kind in (
        an_append_cut_to_nothing,
        an_append_that_made_everything,
        an_append_that_replaced_the_side_files,
        a_repair_that_wrote_the_logs,
        a_repair_that_wrote_over_a_log,
    )
}


def until(lines: Sequence[Line], state: str, directory: Path) -> list[Line]:
    if state == "done":
        return [*lines]
    lines = [line for line in lines if line["type"] != "done"]
    if state == "applying":
        return [*lines]
    old = directory / ".kseg" / ID / "old"
    holders = {path.name: path.stat().st_ino for path in old.iterdir()} if old.exists() else {}
    return [*lines, {"type": "undoing", "holders": holders}]


# --- what must hold


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()
    }


def assert_kept(files: Mapping[str, bytes], root: Path) -> None:
    """Each content is a file somewhere, or a beginning and the pieces that were cut off."""
    found = contents(root)
    for name, content in files.items():
        if content in found.values():
            continue
        pieces = sorted(
            (int(path.removesuffix(".kept").rpartition("-")[2]), data)
            for path, data in found.items()
            if f"-{name}.from-" in path
        )
        assert pieces, f"{name} is lost"
        beginning = content[: pieces[0][0]]
        assert any(data == beginning for data in found.values()), name
        assert beginning + b"".join(data for _, data in pieces) == content, name


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    directory = tmp_path / "data" / "orders-0"
    directory.mkdir(parents=True)
    for number, (name, content) in enumerate(FILES.items()):
        (directory / name).write_bytes(content)
        os.utime(directory / name, ns=(10**18 + number, 10**18 + number))
    return directory


@pytest.mark.parametrize("state", ["applying", "done", "undoing"])
@pytest.mark.parametrize("kind", KINDS)
def test_undo_of_a_planted_journal_keeps_what_it_removes(
    kind: str, state: str, partition: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = until(KINDS[kind](partition), state, partition)
    plant(partition / ".kseg" / ID / "journal.jsonl", lines)
    status = run(["undo", "--json", str(partition)])
    out, err = capfd.readouterr()
    assert status in (0, 4) and "Traceback" not in err
    assert_kept(FILES, partition)
    if status == 0:
        result = json.loads(out)
        assert result["kept"] and all(Path(path).is_file() for path in result["kept"])
        assert not (partition / ".kseg").exists()
    # a repair is undone only from a state that its steps pass through
    else:
        assert state != "done" and "repair" in kind, err


@pytest.mark.evidence("kseg-undone")
def test_undo_of_a_planted_journal_reports_the_path_it_keeps(
    partition: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plant(partition / ".kseg" / ID / "journal.jsonl", an_append_cut_to_nothing(partition))
    assert run(["undo", str(partition)]) == 0
    kept = partition / f"kseg-undone-{ID}-{LAST}.from-0.kept"
    assert (partition / LAST).read_bytes() == b"" and kept.read_bytes() == FILES[LAST]
    output = capfd.readouterr().out
    assert "not signed by this user on this machine" in output and str(kept) in output


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"grows": [LOG]}, "`grows` names another file than the last log"),
        ({"grows": [INDEX]}, "`grows` names another file than the last log"),
        ({"grows": [], "replaces": [LOG]}, "`replaces` names a log"),
    ],
)
def test_planted_impossible_append_is_refused(
    fields: dict[str, object], sentence: str, partition: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first, *rest = an_append_cut_to_nothing(partition)
    plant(partition / ".kseg" / ID / "journal.jsonl", [{**first, **fields}, *rest])
    assert run(["undo", str(partition)]) == 4
    assert sentence in capfd.readouterr().err
    assert {name: (partition / name).read_bytes() for name in FILES} == FILES


@pytest.mark.parametrize(
    ("name", "sentence"), [(LOG, "existed and was created"), (f"{5:020}.log", "was made before")]
)
def test_planted_new_file_no_append_creates_is_refused(
    name: str, sentence: str, partition: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (partition / name).write_bytes(b"a log")
    first, staged, _ = an_append_cut_to_nothing(partition)
    inputs = [each for each in first["inputs"] if each[0] != name or name == LOG]
    plant(
        partition / ".kseg" / ID / "journal.jsonl",
        [{**first, "inputs": inputs}, staged, {"type": "create", "name": name}],
    )
    assert run(["undo", str(partition)]) == 4
    assert sentence in capfd.readouterr().err
    assert (partition / name).read_bytes() == b"a log"


@pytest.mark.parametrize("state", ["applying", "done", "undoing"])
def test_undo_of_a_planted_journal_does_not_truncate_a_hard_linked_log(
    state: str, partition: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.hardlink_to(partition / LAST)
    lines = until(an_append_cut_to_nothing(partition), state, partition)
    plant(partition / ".kseg" / ID / "journal.jsonl", lines)
    assert run(["undo", str(partition)]) == 4
    assert outside.read_bytes() == FILES[LAST]


def test_tampered_signed_journal_counts_as_unsigned(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text('{"value":"a"}\n')
    partition = tmp_path / "orders-0"
    for _ in range(2):
        assert run(["append", "--apply", "--quiet", "--from", str(lines), str(partition)]) == 0
    *_, path = sorted((partition / ".kseg").glob("*/journal.jsonl"), key=lambda each: each.stat().st_mtime_ns)
    log = (partition / LOG).read_bytes()
    rewritten = [json.loads(line) for line in path.read_text().splitlines()]
    for line in rewritten:
        del line["sum"]
    for each in rewritten[0]["inputs"]:
        if each[0] == LOG:
            each[1] = 0
    plant(path, rewritten)
    assert run(["undo", str(path)]) == 0
    assert_kept({LOG: log}, partition)


# --- copies


def copies(data: Path, state: str) -> list[Line]:
    """Lines that claim that `recover --output` created the partition."""
    directory = data / "orders-0"
    first = {
        "type": "journal",
        "version": 2,
        "id": COPY_ID,
        "kind": "copy",
        "command": "recover",
        "directory": str(data),
        "directory_mtime_ns": data.stat().st_mtime_ns,
        "made": [],
    }
    copy = {
        "type": "copy",
        "name": "orders-0",
        "is_whole": True,
        "inode": directory.stat().st_ino,
        "files": rows(directory),
        "over": [],
    }
    lines: list[Line] = [first, {"type": "staged"}, copy]
    if state == "done":
        lines.append({"type": "done"})
    if state == "undoing":
        lines.append({"type": "undoing", "holders": {}})
    return lines


@pytest.mark.parametrize("state", ["applying", "done", "undoing"])
def test_planted_copies_are_kept(state: str, partition: Path) -> None:
    data = partition.parent
    plant(data / f"kseg-journal-{COPY_ID}.jsonl", copies(data, state))
    assert run(["undo", str(data)]) == 0
    assert_kept(FILES, data)


def test_directory_named_like_an_unfinished_copy_is_kept(partition: Path) -> None:
    data = partition.parent
    partition.rename(data / f".orders-0.kseg-{COPY_ID}-x")
    first, staged, *_ = copies_of_none(data)
    plant(data / f"kseg-journal-{COPY_ID}.jsonl", [first, staged])
    assert run(["undo", str(data)]) == 0
    assert_kept(FILES, data)


def copies_of_none(data: Path) -> list[Line]:
    (data / "orders-0").mkdir()
    lines = copies(data, "applying")
    (data / "orders-0").rmdir()
    return lines


def test_planted_journal_in_an_output_loses_nothing(
    partition: Path, tmp_path: Path, capture_small: Path
) -> None:
    """The command undoes its own unfinished output before it starts again."""
    data = partition.parent
    plant(data / f"kseg-journal-{COPY_ID}.jsonl", copies(data, "applying"))
    words = ["recover", "--quiet", "--jobs", "1", "--output", str(data)]
    assert run([*words, str(capture_small / "data" / "fares-0")]) in (0, 1, 4)
    assert_kept(FILES, data)


# --- Kafka 0.7


def test_undo_of_a_planted_journal_keeps_a_0_7_log(tmp_path: Path) -> None:
    partition = tmp_path / "orders-0"
    partition.mkdir()
    names = [f"{base:020}.kafka" for base in (0, 100)]
    files = {name: f"messages of {name} ".encode() * 20 for name in names}
    for name, content in files.items():
        (partition / name).write_bytes(content)
    inputs = [row(partition / names[0]), row(partition / names[1], 3)]
    first = header(
        partition,
        "guard",
        "append",
        inputs=inputs,
        grows=[names[1]],
        replaces=[],
        is_new=False,
        new_partitions=[],
    )
    plant(partition / ".kseg" / ID / "journal.jsonl", [first, {"type": "staged", "kept": {}}])
    assert run(["undo", str(partition)]) == 0
    assert (partition / names[1]).stat().st_size == 3
    assert_kept(files, partition)
