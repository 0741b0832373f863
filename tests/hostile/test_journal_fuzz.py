"""Journals that somebody forged or a disk corrupted: every line and every field of real ones is replaced.

Each draw makes a real change in some state (begun, unfinished, done, partly undone), tampers with its journal, and runs one of the commands
that follow journals. Afterwards every original byte must be in the directory or its quarantine, nothing around the directory may have
changed, and a refusal is one sentence with status 4.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kseg.change.apply.executor import apply_plan, finish
from kseg.change.apply.journal import read_journal
from kseg.change.apply.journal_lines import encoded
from kseg.change.apply.journal_scan import journals_in
from kseg.change.apply.keeping import Keeping
from kseg.change.apply.undo import undo
from kseg.change.apply.unfinished import complete_unfinished, half_done_findings
from kseg.segment.errors import KsegError
from tests.change.test_append_journal import write_stream
from tests.support.failing_disks import Held, QuickDisk, Stopped, StoppingDisk, held
from tests.support.plan_cases import CASES, COMMAND, ID, LOG, LOG_9, QUICK, Case, stopped_in_the_middle

pytestmark = pytest.mark.slow

DRAWS = int(os.environ.get("KSEG_JOURNALS", "200"))
SEED = int(os.environ.get("KSEG_JOURNALS_SEED", "12"))

DEEP = "@deep@"
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    7,
    1 << 31,
    (1 << 63) - 1,
    1 << 64,
    1 << 5000,
    1.5,
    float("nan"),
    float("inf"),
    "",
    ".",
    "..",
    "../outside/precious",
    "/",
    "a\0b",
    "\ud800",
    "\u202e",
    "x" * 300,
    LOG,
    LOG_9,
    ".lock",
    ".kseg",
    "kseg-journal-x.jsonl",
    "undo",
    [],
    [[]],
    {},
    DEEP,
)
_NESTED = "[" * 30_000 + "]" * 30_000


# --- how a journal goes there


def abandoned(case: Case, directory: Path, quarantine: str | None) -> None:
    for number in range(1000):
        try:
            apply(case, directory, quarantine, StoppingDisk(number))
        except Stopped:
            if journals_in(str(directory)):
                if number > 8:
                    return
                complete_unfinished(str(directory), COMMAND, QUICK)
            continue
        raise AssertionError("it was never begun")


def half_way(case: Case, directory: Path, quarantine: str | None) -> None:
    if quarantine is None:
        stopped_in_the_middle(case, directory)
    else:
        apply(case, directory, quarantine, QUICK)


def done(case: Case, directory: Path, quarantine: str | None) -> None:
    apply(case, directory, quarantine, QUICK)


def half_undone(case: Case, directory: Path, quarantine: str | None) -> None:
    apply(case, directory, quarantine, QUICK)
    (journal,) = journals_in(str(directory))
    for number in range(3, 1000):
        try:
            undo(journal.location, StoppingDisk(number))
        except Stopped:
            if read_journal(journal.location).state in ("undoing", "undone"):
                return


def apply(case: Case, directory: Path, quarantine: str | None, disk: QuickDisk) -> None:
    apply_plan(case.plan(directory), journal_id=ID, keeping=Keeping(None, quarantine), disk=disk)


STAGES: tuple[Callable[[Case, Path, str | None], None], ...] = (abandoned, half_way, done, half_undone)


# --- how it is tampered with


def tampered(content: bytes, draw: random.Random, outside: Path) -> tuple[bytes, str]:
    """A tampered journal, and a description of how it was made."""
    content = content[: content.rfind(b"\n") + 1]
    if draw.random() < 0.15 or not content:
        return _spoilt(content, draw)
    lines = [json.loads(line) for line in content.splitlines()]
    for line in lines:
        line.pop("sum")
    words = draw.choice((_lines_moved, _field_replaced, _field_replaced, _field_replaced))(
        lines, draw, outside
    )
    if draw.random() < 0.2:
        return _plain(lines), f"{words}, sums forgotten"
    data = b""
    for line in lines:
        data += encoded(line, data).replace(b'"@deep@"', _NESTED.encode())
    return data, words


def _plain(lines: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def _spoilt(content: bytes, draw: random.Random) -> tuple[bytes, str]:
    at = draw.randrange(len(content) or 1)
    match draw.randrange(5) if content else 3:
        case 0:
            return content[:at], f"cut at {at}"
        case 1:
            return content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[
                at + 1 :
            ], f"bit at {at}"
        case 2:
            return content[:at] + draw.randbytes(40) + content[at:], f"bytes at {at}"
        case 3:
            return bytes(200), "zeros"
        case _:
            return b"", "empty"


def _lines_moved(lines: list[dict[str, Any]], draw: random.Random, _outside: Path) -> str:
    at = draw.randrange(len(lines))
    match draw.randrange(4):
        case 0:
            del lines[at]
            return f"line {at} dropped"
        case 1:
            lines.insert(at, dict(lines[at]))
            return f"line {at} doubled"
        case 2:
            lines[at], lines[0] = lines[0], lines[at]
            return f"lines {at} and 0 swapped"
        case _:
            del lines[at + 1 :]
            return f"lines from {at + 1} dropped"


def _field_replaced(lines: list[dict[str, Any]], draw: random.Random, outside: Path) -> str:
    paths = [(at, *path) for at, line in enumerate(lines) for path in _paths(line)]
    path = draw.choice(paths)
    value: Any = lines
    for step in path[:-1]:
        value = value[step]
    last = path[-1]
    if draw.random() < 0.15:
        del value[last]
        return f"{path} deleted"
    new = draw.choice((*VALUES, str(outside), str(outside / "precious"), f"{outside}/kseg-{ID}/.."))
    value[last] = new
    return f"{path} = {str(new)[:40]!r}"


def _paths(value: Any) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (key,)
        yield from ((key, *rest) for rest in _paths(inner))


# --- what must hold


def contents(root: Path) -> dict[Path, bytes | str]:
    return {
        path: os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
        for path in sorted(root.rglob("*"))
    }


def assert_nothing_lost(start: dict[str, Held], places: list[Path], words: str) -> None:
    """Every original file exists somewhere, either complete or as its beginning and the end that was cut off."""
    found = {path: path.read_bytes() for place in places for path in place.rglob("*") if path.is_file()}
    for name, file in start.items():
        if any(content.startswith(file.content) for content in found.values()):
            continue
        whole = b""
        for path, content in sorted(
            found.items(), key=lambda item: item[0].name.rpartition("-")[2].zfill(20)
        ):
            if f"{name}.from-" in path.name:
                position = int(path.name.removesuffix(".kept").rpartition("-")[2].split(".")[0])
                beginning = whole or next(
                    c for c in found.values() if c[:position] == file.content[:position]
                )
                whole = beginning[:position] + content
        assert whole == file.content, f"{name} is lost: {words}"


ACTIONS = ("settle", "finish", "undo", "look")


def follow(action: str, directory: Path) -> None:
    if action == "settle":
        complete_unfinished(str(directory), COMMAND, QUICK)
        return
    if action == "look":
        list(half_done_findings(str(directory)))
        return
    for journal in journals_in(str(directory)):
        if journal.header or Path(journal.path).exists():
            (finish if action == "finish" else undo)(journal.location, QUICK)


def test_tampered_journal_loses_nothing(tmp_path: Path) -> None:
    draw = random.Random(SEED)
    refused = 0
    for number in range(DRAWS):
        root = tmp_path / str(number)
        outside = root / "outside"
        outside.mkdir(parents=True)
        (outside / "precious").write_bytes(b"nobody may touch this")
        name, case = draw.choice([*CASES.items()])
        directory = case.lay(root / "evidence")
        shared = {p: p.read_bytes() for p in (root / "evidence").rglob("backup/*")}
        start = held(directory)
        quarantine = str(root / "elsewhere") if case.elsewhere else None
        stage = draw.choice(STAGES)
        if draw.random() < 0.15 and case.is_partition:
            name, stage_name, quarantine = "stream", "guard", None
            with suppress(Stopped):
                write_stream(directory, StoppingDisk(draw.randrange(8, 40)))
        else:
            stage(case, directory, quarantine)
            stage_name = stage.__name__
        journals = journals_in(str(directory))
        if not journals or not Path(journals[0].path).exists():
            continue
        path = Path(journals[0].path)
        data, words = tampered(path.read_bytes(), draw, outside)
        action = draw.choice(ACTIONS)
        words = f"draw {number}: {name}, {stage_name}, {words}, {action}"
        path.write_bytes(data)
        around = contents(outside)
        try:
            follow(action, directory)
        except KsegError as error:
            refused += 1
            assert error.exit_status == 4, f"{words}: {error}"
            assert "\n" not in str(error), words
        except Exception as error:
            raise AssertionError(words) from error
        assert contents(outside) == around, words
        assert_nothing_lost(start, [directory, *root.glob("elsewhere")], words)
        assert shared == {p: p.read_bytes() for p in shared}, words
        shutil.rmtree(root)
    assert refused > DRAWS // 4
