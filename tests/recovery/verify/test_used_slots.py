"""Counting the used slots of an index without reading the preallocated part."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kseg.recovery.verify.index_check import used_slots
from kseg.segment.files import MappedFile


@pytest.mark.parametrize("width", [8, 12])
@pytest.mark.parametrize("used", [0, 1, 2, 5461, 8192, 20_000])
def test_used_slots_end_at_the_last_nonzero_slot(width: int, used: int) -> None:
    content = bytearray(width * 30_000)
    for slot in range(used):
        # all bytes of an entry but the first may be zero
        content[slot * width] = 1
    assert used_slots(memoryview(content), width) == used


def test_used_slots_does_not_read_a_trailing_hole(tmp_path: Path) -> None:
    """Bytes after `data_end` count as zeros and are not read; in this test they are not zeros."""
    path = tmp_path / "00000000000000000000.index"
    path.write_bytes(bytes([0, 0, 0, 1, 0, 0, 0, 0]) * 3)
    os.truncate(path, 10 << 20)
    with MappedFile(path) as index:
        assert index.data_end < 1 << 20
        assert used_slots(index.view, 8, index.data_end) == 3
    assert used_slots(memoryview(b"\1" * 80), 8, 24) == 3
