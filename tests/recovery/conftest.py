"""A healthy data directory; tests damage copies of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures import healthy
from tests.support.trees import copy_tree, unchanged


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A healthy data directory. Shared: copy before writing (`damaged`)."""
    directory = healthy.log_dir(tmp_path_factory.mktemp("sound") / "data")
    with unchanged(directory):
        yield directory


@pytest.fixture(scope="session")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A single healthy partition. Shared: copy before writing."""
    directory = healthy.partition(tmp_path_factory.mktemp("healthy") / "metro-0")
    with unchanged(directory):
        yield directory


@pytest.fixture
def damaged(sound: Path, tmp_path: Path) -> Path:
    """A copy that the test may damage."""
    return copy_tree(sound, tmp_path / "data")
