"""The map of a compaction compared with a dictionary, and its hash with the published SipHash, compiled and interpreted."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kseg.segment import header_tables as C
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import key_verdicts as J
from kseg.segment.kernel import keymap as K
from kseg.segment.kernel import state_fields as S
from tests.support.interpreted_kernels import Checked
from tests.support.kernel_variants import COMPILED, INTERPRETED
from tests.support.paths import ROOT
from tests.support.trees import files_in

MASK = (1 << 64) - 1


def siphash_128(key: bytes, data: bytes, rounds: int, last_rounds: int) -> bytes:
    """SipHash-c-d with 128 bits, written simply from the paper and the authors' reference, independent of the kernel."""
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    v[1] ^= 0xEE

    def rotl(word: int, bits: int) -> int:
        return (word << bits | word >> (64 - bits)) & MASK

    def mix(times: int) -> None:
        for _ in range(times):
            v[0] = (v[0] + v[1]) & MASK
            v[1] = rotl(v[1], 13) ^ v[0]
            v[0] = rotl(v[0], 32)
            v[2] = (v[2] + v[3]) & MASK
            v[3] = rotl(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & MASK
            v[3] = rotl(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & MASK
            v[1] = rotl(v[1], 17) ^ v[2]
            v[2] = rotl(v[2], 32)

    padded = data + bytes(-(len(data) + 1) % 8) + bytes([len(data) & 255])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        mix(rounds)
        v[0] ^= word
    v[2] ^= 0xEE
    mix(last_rounds)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    mix(last_rounds)
    return first.to_bytes(8, "little") + (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")


def table_of(
    keys: Sequence[bytes | None], offsets: Sequence[int], values: Sequence[bytes | None]
) -> tuple[bytes, Columns]:
    """The records of a batch as the decoder would leave them."""
    body, records = b"", Columns(C.RECORD_WIDTH, max(1, len(keys)))
    records.count = len(keys)
    for at, (key, offset, value) in enumerate(zip(keys, offsets, values, strict=True)):
        cells = {C.R_OFFSET: offset, C.R_TIMESTAMP: offset * 10}
        for start, length, field in (
            (C.R_KEY_START, C.R_KEY_LENGTH, key),
            (C.R_VALUE_START, C.R_VALUE_LENGTH, value),
        ):
            cells[start] = -1 if field is None else len(body)
            cells[length] = -1 if field is None else len(field)
            body += field or b""
        for column, number in cells.items():
            records.cells[column * records.capacity + at] = number
    return body, records


def hashed(kernel: Any, body: bytes, records: Columns, wrap: Callable[[Any], Any] = lambda it: it) -> Any:
    hashes = memoryview(array("q", bytes(16 * records.capacity)))
    done = kernel.hash_rows(
        wrap(body),
        wrap(records.cells),
        records.capacity,
        records.count,
        0x0706050403020100,
        0x0F0E0D0C0B0A0908,
        wrap(hashes),
    )
    assert done == records.count
    return hashes


def test_reference_siphash_matches_the_published_vectors() -> None:
    key = bytes(range(16))
    assert siphash_128(key, b"", 2, 4).hex() == "a3817f04ba25a8e66df67214c7550293"
    assert siphash_128(key, bytes([0]), 2, 4).hex() == "da87c1d86b99af44347659119b22fc45"


@pytest.mark.parametrize(
    "kernel", [COMPILED.get("keymap"), INTERPRETED["keymap"]], ids=["compiled", "interpreted"]
)
def test_key_hash_equals_the_published_siphash(kernel: ModuleType | None) -> None:
    if kernel is None:
        pytest.skip("the kernels are not compiled")
    keys = [
        bytes(range(200, 200 + n)) if n < 50 else b"x" * n for n in (*range(40), 63, 64, 65, 255, 256, 300)
    ]
    body, records = table_of(keys, range(len(keys)), [None] * len(keys))
    wrap: Callable[[Any], Any] = Checked if kernel is INTERPRETED["keymap"] else lambda it: it
    hashes = hashed(kernel, body, records, wrap)
    for at, key in enumerate(keys):
        found = b"".join((hashes[2 * at + half] & MASK).to_bytes(8, "little") for half in (0, 1))
        assert found == siphash_128(bytes(range(16)), key, 1, 3), len(key)


def test_null_key_is_not_put_into_the_map() -> None:
    body, records = table_of([None, b""], [0, 1], [b"v", b"v"])
    slots = memoryview(array("q", bytes(24 * 8)))
    state = memoryview(array("q", bytes(8 * S.MAP_WIDTH)))
    hashes = hashed(K, body, records)
    assert K.put_rows(records.cells, records.capacity, 0, 2, hashes, 0, slots, 8, 7, state) == 2
    assert (state[S.MAP_SIZE], state[S.MAP_OFFSET]) == (1, 1)


def test_key_hash_notices_fields_outside_their_body() -> None:
    body, records = table_of([b"a", b"bcd"], [0, 1], [b"1", b"2"])
    hashes = memoryview(array("q", bytes(64)))
    assert K.hash_rows(body[:-2], records.cells, records.capacity, 2, 1, 2, hashes) == 1
    records.cells[C.R_VALUE_START * records.capacity] = -1
    assert K.hash_rows(body, records.cells, records.capacity, 2, 1, 2, hashes) == 0


@pytest.mark.parametrize("seed", range(20))
def test_key_map_equals_a_dictionary_with_a_limit(seed: int) -> None:
    rng = random.Random(seed)
    slot_count = rng.choice((2, 3, 7, 50, 400))
    limit = max(1, int(slot_count * 0.9))
    limit = min(limit, slot_count - 1)
    count = rng.choice((1, 20, 300))
    keys = [
        None if rng.random() < 0.1 else b"%d" % rng.randint(0, rng.choice((3, 40, 1000)))
        for _ in range(count)
    ]
    start = rng.choice((0, 0, count // 3))
    body, records = table_of(keys, range(count), [b"v"] * count)
    hashes = hashed(K, body, records)
    slots = memoryview(array("q", bytes(24 * slot_count)))
    state = memoryview(array("q", bytes(8 * S.MAP_WIDTH)))
    stopped = K.put_rows(
        records.cells, records.capacity, 0, count, hashes, start, slots, slot_count, limit, state
    )
    model: dict[bytes, int] = {}
    expected = count
    for offset, key in enumerate(keys):
        if key is not None and offset >= start:
            if len(model) >= limit:
                expected = offset
                break
            model[key] = offset
    assert stopped == expected
    assert state[S.MAP_SIZE] == len(model)
    batches = Columns(C.BATCH_WIDTH, 1)
    batches.cells[C.MAGIC] = 2
    flags, tallies = bytearray(count), memoryview(array("q", bytes(8 * C.TALLY_WIDTH)))
    totals = memoryview(array("q", bytes(8 * S.TOTAL_WIDTH)))
    latest = stopped - 1
    J.judge_rows(
        records.cells,
        records.capacity,
        count,
        hashes,
        slots,
        slot_count,
        latest,
        0,
        1,
        batches.cells,
        1,
        flags,
        tallies,
        totals,
    )
    stays = [
        offset > latest or (key is not None and offset >= model.get(key, -1))
        for offset, key in enumerate(keys)
    ]
    assert [bool(flag) for flag in flags] == stays
    assert tallies[C.T_KEPT] == sum(stays)
    assert tallies[C.T_RECORDS] == count


def test_key_map_distinguishes_many_keys() -> None:
    slot_count = 60_000
    slots = memoryview(array("q", bytes(24 * slot_count)))
    state = memoryview(array("q", bytes(8 * S.MAP_WIDTH)))
    for first in range(0, 50_000, 5000):
        keys = [b"%d" % n for n in range(first, first + 5000)]
        body, records = table_of(keys, range(first, first + 5000), [None] * 5000)
        K.put_rows(
            records.cells,
            records.capacity,
            0,
            5000,
            hashed(K, body, records),
            0,
            slots,
            slot_count,
            54_000,
            state,
        )
    assert state[S.MAP_SIZE] == 50_000


@pytest.mark.parametrize("seed", [3, 10, 16])
def test_interpreted_kernels_compact_like_compiled_ones(seed: int, tmp_path: Path) -> None:
    from tests.kafka.cleaning import our_clean, random_case

    case = random_case(seed, tmp_path)
    twin = tmp_path / "twin" / case.directory.name
    shutil.copytree(case.directory, twin)
    our_clean(case.directory, case.settings, None)
    script = (
        "import sys; from tests.support.interpreted_kernels import install; install();"
        "from pathlib import Path; from tests.kafka.cleaning import our_clean, random_case;"
        "import tempfile; folder = Path(tempfile.mkdtemp());"
        f"our_clean(Path(sys.argv[1]), random_case({seed}, folder).settings, None)"
    )
    subprocess.run([sys.executable, "-c", script, str(twin)], check=True, cwd=ROOT, timeout=120)
    left = files_in(case.directory)
    assert files_in(twin) == left
