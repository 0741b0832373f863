"""A file system whose calls can be made to fail, one for each test module."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import shim
from tests.faults.cases import CASES, lines_to_append, words_for
from tests.faults.shim import Machine

WARM = ("recover", "recover as a broker", "recover --output", "compact", "retain", "append", "undo recover")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def machine(place: Path) -> Iterator[Machine]:
    folder = place / "machine"
    folder.mkdir()
    with shim.machine(folder) as one:
        yield one


@pytest.fixture(scope="module")
def warm_machine(machine: Machine, capture_small: Path, place: Path) -> Machine:
    """The same, after each kind of changing command was run once."""
    (place / "warm").mkdir()
    lines_to_append(place / "warm" / "lines.jsonl")
    for name in WARM:
        root = place / "warm" / name
        CASES[name].lay(capture_small, root / "data")
        for words in (*CASES[name].before, CASES[name].words):
            machine.warm_up(words_for(words, root))
    shutil.rmtree(place / "warm")
    return machine
