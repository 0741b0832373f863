"""A file system whose calls can be made to fail, one for each test module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import shim
from tests.faults.shim import Machine


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def machine(place: Path) -> Iterator[Machine]:
    folder = place / "machine"
    folder.mkdir()
    with shim.machine(folder) as one:
        yield one
