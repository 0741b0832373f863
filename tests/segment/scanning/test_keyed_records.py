"""Records of one key: the same records and problems as after decoding everything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.segment import header_tables as C
from kseg.segment.codecs.codec import compress
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.layout import INT64_MAX
from kseg.segment.model import NewBatch, Record
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.decode import Chunk, Decoder, record_at
from kseg.segment.scanning.keyed_records import KeyedRecords
from kseg.segment.scanning.scan import Scanner
from kseg.segment.state.control import EndTransactionMarker, end_transaction_batch
from tests.support.raw_batches import CASES, T0, record, sealed

Found = tuple[list[tuple[int, Record]], list[tuple[int, int | None, str]]]


def gathered(view: memoryview, key: bytes, keyed: KeyedRecords | None) -> Found:
    """(position of its batch, record) for each match, and (position, code, sentence) for each problem."""
    matches, problems = [], []
    decoder = Decoder(view)
    for table in Scanner(view).blocks():
        if isinstance(table, Damage):
            continue
        for chunk in decoder.chunks(table) if keyed is None else keyed.chunks(table):
            for at in range(chunk.records.count) if keyed is None else keyed.rows(chunk):
                found = record_at(chunk, at)
                if found.key == key and not chunk.control:
                    matches.append((table.at(C.POSITION, chunk.records.at(C.R_BATCH, at)), found))
            if chunk.problem is not None:
                position = table.at(C.POSITION, chunk.problem.row)
                problems.append((position, chunk.problem.code, chunk.problem.sentence))
    return matches, problems


def search(data: bytes, key: bytes, lowest: int = 0, above: int = INT64_MAX, earliest: int = -1) -> Found:
    view = memoryview(data)
    return gathered(view, key, KeyedRecords(view, key, lowest, above, earliest))


def some_batches(kinds: Iterable[int]) -> bytes:
    """A log of batches by kind: 0 to 4 the codec, 5 a marker, 6 a body that cannot be decoded, 7 one that cannot be decompressed, 8 emptied
    by a cleaner, 9 one whose body is larger than a run."""
    data, offset = b"", 0
    for kind in kinds:
        if kind == 5:
            new = end_transaction_batch(EndTransactionMarker(False, 0, T0), offset, 7, 0, 0)
            data += encode_batch(new)
            offset += 1
            continue
        if kind in (6, 7):
            body = record() + record(1, key=b"a") + b"\x7f" if kind == 6 else b"no lz4 at all"
            data += sealed(body, 2, base_offset=offset, attributes=0 if kind == 6 else 3)
            offset += 2
            continue
        if kind == 8:
            data += encode_batch(NewBatch(base_offset=offset, last_offset=offset + 1, max_timestamp_ms=T0))
            offset += 2
            continue
        keys = (b"a", b"ab", None, b"", b"b")
        value = b"v" * (70_000 if kind == 9 else 10)
        records = tuple(Record(offset + at, T0 + offset, key, value) for at, key in enumerate(keys))
        data += encode_batch(NewBatch(records=records, codec=4 if kind == 9 else kind))
        offset += len(keys)
    return data


@given(st.lists(st.integers(0, 9), max_size=12), st.sampled_from([b"a", b"", b"b", b"none"]))
def test_key_search_over_any_batches_equals_full_decoding(kinds: list[int], key: bytes) -> None:
    data = some_batches(kinds)
    assert search(data, key) == gathered(memoryview(data), key, None)


@pytest.mark.parametrize("key", [b"k", b"", b"other"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_key_search_over_every_batch_layout_equals_full_decoding(case: object, key: bytes) -> None:
    """Old formats and every structural error, alone and between compressed batches."""
    assert isinstance(getattr(case, "data", None), bytes)
    data: bytes = case.data  # type: ignore[attr-defined]
    packed = sealed(compress(3, 2, record()), 1, base_offset=1, attributes=3)
    for around in (data, packed + data + sealed(compress(3, 2, record()), 1, base_offset=9000, attributes=3)):
        assert search(around, key) == gathered(memoryview(around), key, None)


def test_markers_do_not_end_a_decompressed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """All compressed batches of a transactional log are decompressed into one buffer, each of them once."""
    from kseg.segment.scanning import decompressed_runs

    runs = []
    original = decompressed_runs.DecompressionBuffer.runs

    def counted(*arguments: object) -> Iterator[decompressed_runs.DecompressedRun]:
        for run in original(*arguments):  # type: ignore[arg-type]
            runs.append((run.first, run.stop))
            yield run

    monkeypatch.setattr(decompressed_runs.DecompressionBuffer, "runs", counted)
    matches, problems = search(some_batches([3, 5, 3, 0, 5, 3, 3]), b"ab")
    assert runs == [(0, 7)]
    assert [found.offset for _, found in matches] == [1, 7, 12, 18, 23]
    assert problems == []


def test_batches_excluded_by_their_headers_are_not_decompressed() -> None:
    """The body that cannot be decompressed is excluded by the limits, so no problem is reported."""
    data = some_batches([3, 7, 3])
    assert [each[1].offset for each in search(data, b"a")[0]] == [0, 7]
    assert len(search(data, b"a")[1]) == 1
    assert search(data, b"a", above=5)[1] == []
    assert [each[1].offset for each in search(data, b"a", lowest=7)[0]] == [7]
    assert search(data, b"a", earliest=T0 + 8) == ([], [])


def test_batches_without_the_key_are_not_decoded_into_columns() -> None:
    """A batch without the key is not decoded into columns."""
    data = some_batches([0, 3, 0]) + sealed(record(key=b"here"), 1, base_offset=99)
    view = memoryview(data)
    keyed = KeyedRecords(view, b"here", 0, INT64_MAX, -1)
    (table,) = Scanner(view).blocks()
    assert not isinstance(table, Damage)
    chunks: list[tuple[int, int]] = []
    for chunk in keyed.chunks(table):
        assert isinstance(chunk, Chunk)
        chunks.append((chunk.first_row, chunk.records.count))
    assert chunks == [(3, 1)]
