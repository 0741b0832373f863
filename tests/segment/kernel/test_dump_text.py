"""The kernels that write text, compiled and interpreted, and a complete dump with interpreted kernels."""

from __future__ import annotations

import random
import subprocess
import sys
from array import array
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.segment.java.java_output import decode_utf8
from kseg.segment.kernel import state_fields as S
from tests.support import interpreted_kernels
from tests.support.kernel_variants import COMPILED, SEEDS, both, buffers, numbers, read_rows, table_of
from tests.support.paths import ROOT
from tests.support.raw_batches import sealed
from tests.support.scan_helpers import batch


@given(buffers(), st.sampled_from([0, 1, 2, 3, 4, 7, 8, 15]), st.sampled_from([0, 700, 1500, 20000]))
def test_compiled_and_interpreted_dump_lines_agree(data: bytes, flags: int, room: int) -> None:
    batches, count = table_of(data)
    if not count:
        return

    def run(kernel: dict[str, ModuleType], wrap: Callable[[Any], Any]) -> list[bytes]:
        cells = array("q", bytes(8 * 12 * 64))
        state = read_rows(kernel, wrap, data, batches, count, cells)
        filled, at = state[S.WALK_COUNT], numbers(0, 0)
        last = min(count - 1, state[S.WALK_ROW])
        pieces = []
        for _ in range(200):
            out = bytearray(room)
            end = kernel["dump_text"].format_lines(
                wrap(data), wrap(batches), 16, last, wrap(cells), 64, filled, flags, wrap(out), 0, wrap(at)
            )
            if not end:
                break
            pieces.append(bytes(out[:end]))
        return pieces

    both(run)


@given(
    st.binary(max_size=30)
    | st.text(max_size=12).map(str.encode)
    | st.lists(
        st.sampled_from(
            [
                b"\xed\xa0\x80",
                b"\xe0\x80",
                b"\xf4\x90\x80\x80",
                b"\xf0\x9f\x98\x80",
                b"\xc2",
                b"a",
                b"\xed\xbf",
                b"\xf0\x80\x80",
                b"\xef\xbf\xbd",
            ]
        ),
        max_size=5,
    ).map(b"".join)
)
def test_bytes_are_decoded_like_java(value: bytes) -> None:
    """Tests with the real Kafka compare `java_output` with real Java."""
    assert _printed(value) == decode_utf8(value).encode()


@pytest.mark.parametrize("seed", range(12))
def test_malformed_utf8_across_block_boundaries_is_decoded_like_java(seed: int) -> None:
    """The bytes fill several blocks of the kernel, with sequences of all kinds across block boundaries, followed by text."""
    lots = random.Random(seed)
    pieces = [bytes([each]) for each in b"a\x7f\x80\xbf\xc0\xc1\xc2\xdf\xe0\xed\xef\xf0\xf4\xf5\xff"]
    pieces += [
        b"\xc3\xa9",
        b"\xe2\x82\xac",
        b"\xf0\x9f\x98\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xf0\x9f\x98",
    ]
    for length in (1023 + 256, 1024 + 257, 1600, 2500):
        noise = lots.randbytes(length) if seed % 3 == 0 else b"".join(lots.choices(pieces, k=length))[:length]
        value = noise + "é€😀a".encode() * (seed % 2 * 40)
        assert _printed(value) == decode_utf8(value).encode()


def _printed(value: bytes) -> bytes:
    """The text that a dump prints for a value, in a buffer of exactly the size that the kernel asks for."""
    data = sealed(_record(value), 1)
    batches, _ = table_of(data)

    def run(kernel: dict[str, ModuleType], wrap: Callable[[Any], Any]) -> bytes:
        cells, state, at = array("q", bytes(8 * 12)), array("q", bytes(48)), numbers(0, 0)
        kernel["record_walk"].read_plain(wrap(data), 0, wrap(batches), 16, wrap(cells), 1, wrap(state))
        out = bytearray(1500 + 4 * len(value))
        end = kernel["dump_text"].format_lines(
            wrap(data), wrap(batches), 16, 0, wrap(cells), 1, 1, 3, wrap(out), 0, wrap(at)
        )
        return bytes(out[:end])

    line: bytes = both(run)
    return line.partition(b" payload: ")[2].removesuffix(b"\n")


def _record(value: bytes) -> bytes:
    from tests.support.raw_batches import record

    return record(0, value=value)


# --- the whole library on interpreted kernels


@pytest.mark.skipif(not COMPILED, reason="the kernels are not compiled: there is nothing to compare with")
def test_complete_dump_with_interpreted_kernels_is_the_same(tmp_path: Path) -> None:
    """Another process, whose kernels are plain Python with checked buffers, dumps hundreds of damaged files."""
    lots = random.Random(7)
    for number in range(60):
        data = bytearray(
            b"".join(lots.choices([*SEEDS, batch(9, 3, b"\xff\xe2\x28 text", 2, lots.randrange(5))], k=3))
        )
        for _ in range(lots.randrange(4)):
            data[lots.randrange(len(data))] = lots.choice([0, 1, 2, 0x80, 0xFF, lots.randrange(256)])
        (tmp_path / f"{number:020d}.log").write_bytes(data)
    other = subprocess.run(
        [sys.executable, "-m", "tests.support.interpreted_kernels", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert other.returncode == 0, other.stderr[-3000:]
    assert other.stdout.splitlines() == interpreted_kernels.dumps(tmp_path)
