"""The commands whose exit status is tested, and the directories that they are given."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from fixtures.diseases import bad_crc

PARTITION, OTHER, FIRST = "orders.00-1", "orders.00-0", f"{0:020d}"
COMMANDS: dict[str, tuple[str, ...]] = {
    "verify": (),
    "doctor": (),
    "list": (),
    "dump": (),
    "lookup": ("--earliest",),
    "read": ("--offset", "0", "--max-bytes", "1KiB"),
    "groups": (),
    "transactions": (),
    "metadata": (),
    "export": ("--to", "json", "--output", "out"),
    "what-if": ("--codec", "none"),
    "diff": ("base",),
    "recover": (),
    "recover --apply": (),
    "compact": ("--cleanup-policy", "compact"),
    "retain": ("--retention-ms", "7d", "--cleanup-policy", "delete"),
    "append": ("--from", "lines"),
    "undo": (),
    "undo --list": (),
    "undo --forget": (),
}
OF_A_PARTITION = ("read", "append")
# these print a plan, and exit with 1 if there is something to do
DUE = {"compact": 1, "retain": 1, "append": 1}
NO_GROUPS, NO_JOURNAL = {"groups": 2}, {"undo": 3}
NOTHING_KEPT = {"undo --list": 0, "undo --forget": 0}
SOUND = {**dict.fromkeys(COMMANDS, 0), **DUE, **NO_GROUPS, **NO_JOURNAL}
NOT_READABLE = {**dict.fromkeys(COMMANDS, 3), **NOTHING_KEPT}
Make = Callable[[Path], Path]


def healthy(root: Path) -> Path:
    return shutil.copytree(root / "base", root / "data")


def damaged(root: Path) -> Path:
    bad_crc(healthy(root) / PARTITION / f"{FIRST}.log")
    return root / "data"


def empty(root: Path) -> Path:
    (root / "data").mkdir()
    return root / "data"


def missing(root: Path) -> Path:
    return root / "data"


def of_something_else(root: Path) -> Path:
    (empty(root) / "photo.jpg").write_bytes(b"\xff\xd8")
    (root / "data" / "more").mkdir()
    (root / "data" / "more" / "notes").write_text("notes")
    return root / "data"


def a_file(root: Path) -> Path:
    (root / "data").write_text("notes")
    return root / "data"
