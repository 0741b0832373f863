"""Random damage: no byte is unaccounted for, and a damaged batch does not affect the others."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kseg.segment import layout as L
from tests.support import reference_reader
from tests.support.scan_helpers import batch, file_of, scanned, without


@st.composite
def files(draw: st.DrawFn) -> tuple[bytes, list[int]]:
    """Batches of different magics with increasing offsets, from a bare header to some hundred bytes."""
    offset, pieces = draw(st.integers(0, 2**40)), []
    for _ in range(draw(st.integers(2, 8))):
        magic = draw(st.sampled_from([0, 1, 2, 2, 2]))
        # lz4 may store small contents uncompressed; then messages are found inside of a damaged magic 0 wrapper
        codec = draw(st.sampled_from([0, 0, L.GZIP, L.LZ4 if magic == 2 else L.GZIP]))
        count = draw(st.integers(1, 3)) if magic == 2 or codec else 1
        pieces.append(batch(offset, count, draw(st.binary(max_size=80)), magic, codec))
        offset += count + draw(st.integers(0, 5))
    return file_of(pieces)


@given(files(), st.data())
def test_one_damaged_batch_affects_no_other(file: tuple[bytes, list[int]], draws: st.DataObject) -> None:
    data, positions = file
    number = draws.draw(st.integers(0, len(positions) - 1))
    start, stop = positions[number], [*positions[1:], len(data)][number]
    piece = bytearray(data[start:stop])
    match draws.draw(st.sampled_from(["body", "length", "cut", "zero"])):
        case "body":
            at = draws.draw(st.integers(22 if piece[16] == 2 else 18, len(piece) - 1))
            piece[at] ^= draws.draw(st.integers(1, 255))
        case "length":
            piece[8:12] = draws.draw(st.binary(min_size=4, max_size=4))
            assume(piece != data[start:stop])
        case "cut":
            del piece[draws.draw(st.integers(18, len(piece) - 1)) :]
        case "zero":
            piece = bytearray(len(piece))
    damaged = data[:start] + piece + data[stop:]
    # cut zeros may be replaced by those of the next offset, in which case the next batch is the damaged one
    assume(damaged[start:stop] != data[start:stop])
    shift = len(damaged) - len(data)
    # the length of a cut batch may by chance lead to the start of another one or to the end, and is then trusted
    assume(shift == 0 or stop not in [len(damaged), *(position + shift for position in positions)])
    found = scanned(damaged, base_offset=int.from_bytes(data[:8], "big"))
    assert found.positions == [p if p < start else p + shift for p in without(positions, number)]
    assert (found.only.position, found.only.length) == (start, len(piece))


@given(st.binary(max_size=3000))
def test_random_bytes_are_accounted_for(data: bytes) -> None:
    scanned(data)


@given(files(), st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), max_size=12))
def test_many_random_changes_are_accounted_for(
    file: tuple[bytes, list[int]], changes: list[tuple[int, int]]
) -> None:
    data = bytearray(file[0])
    for at, byte in changes:
        data[at % len(data)] = byte
    verify = bytes(data)
    for batch_ in scanned(data).batches:
        assert next(reference_reader.batches(verify, batch_.position)) == batch_


@settings(max_examples=60)
@given(files(), st.lists(st.tuples(st.integers(0, 2**20), st.binary(max_size=60), st.booleans()), max_size=6))
def test_cuts_and_insertions_are_accounted_for(
    file: tuple[bytes, list[int]], edits: list[tuple[int, bytes, bool]]
) -> None:
    data = bytearray(file[0])
    for at, junk, insert in edits:
        at %= len(data) + 1
        data[at : at if insert else at + len(junk)] = junk
    scanned(data)
    scanned(data, end=len(data) // 2)
