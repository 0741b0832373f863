"""Records as Arrow batches equal the records that the decoder returns one by one, for everything that real brokers left on disk."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from kseg.inspection.arrow.arrow_schema import META, META_FIELDS, RECORD_SCHEMA
from kseg.inspection.arrow.log_ranges import Aborted, LogPiece, Reading
from kseg.inspection.arrow.planning import ReadPlanOptions, segment_reads
from kseg.inspection.arrow.record_batches import read_piece
from kseg.segment import layout as L
from kseg.segment.findings import Finding
from kseg.segment.model import Batch
from kseg.segment.partition.bounds import Bounds
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.scanning.batches import batch_at
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.decode import Decoder, record_at
from kseg.segment.scanning.scan import Scanner
from tests.support.raw_batches import field, message, record, sealed, varint, wrapper
from tests.support.scan_helpers import batch, plain_file

EVERYTHING = Reading(include_control=True)
EVERYWHERE = Bounds()
Row = dict[str, Any]


def read(
    piece: LogPiece, reading: Reading = EVERYTHING, schema: Any = RECORD_SCHEMA
) -> tuple[list[Row], list[Finding]]:
    rows: list[Row] = []
    findings = []
    for each in read_piece(piece, reading, schema):
        if isinstance(each, Finding):
            findings.append(each)
            continue
        each.validate(full=True)
        assert each.schema.equals(schema) and 0 < each.num_rows <= reading.records_per_batch
        timestamps = (
            each.column("timestamp").cast(pa.int64()).to_pylist() if "timestamp" in schema.names else []
        )
        columns = [name for name in schema.names if name != "timestamp"]
        for at, row in enumerate(each.select(columns).to_pylist()):
            rows.append(row | ({"timestamp": timestamps[at]} if timestamps else {}))
    return rows, findings


def one_by_one(path: Path, topic: str = "t", partition: int = 0) -> Iterator[Row]:
    """The records one by one, as values."""
    data = path.read_bytes()
    decoder = Decoder(data)
    for block in Scanner(data, int(path.stem)).blocks():
        if isinstance(block, Damage):
            continue
        for row in range(block.count):
            of = batch_at(block, row)
            for chunk in decoder.chunks(block, row, row + 1):
                for at in range(chunk.records.count):
                    each = record_at(chunk, at)
                    kinds = {L.NO_TIMESTAMP_TYPE: -1, L.CREATE_TIME: 0, L.LOG_APPEND_TIME: 1}
                    yield {
                        "key": each.key,
                        "value": each.value,
                        "topic": topic,
                        "partition": partition,
                        "offset": each.offset,
                        "timestamp": each.timestamp_ms * 1000,
                        "timestampType": kinds[of.timestamp_type],
                        "headers": [{"key": name.decode(), "value": value} for name, value in each.headers]
                        or None,
                        META: meta_of(path, of)
                        | {
                            "sequence": each.sequence,
                            "crc": of.crc if each.crc is None else each.crc,
                        },
                    }


def meta_of(path: Path, of: Batch) -> Row:
    return {
        "file": str(path),
        "position": of.position,
        "base_offset": of.base_offset,
        "leader_epoch": of.leader_epoch,
        "producer_id": of.producer_id,
        "producer_epoch": of.producer_epoch,
        "transactional": of.is_transactional,
        "control": of.is_control,
        "codec": L.codec_name(of.codec),
        "valid": True,
    }


def logs(*trees: Path) -> list[Path]:
    return sorted(path for tree in trees for path in tree.rglob("*.log") if path.stem.isdigit())


def test_arrow_records_of_the_captures_equal_the_decoders(capture_small: Path, legacy_small: Path) -> None:
    seen = 0
    for path in logs(capture_small / "before", capture_small / "data", legacy_small / "data"):
        rows, findings = read(LogPiece(str(path), "t", 0, int(path.stem)))
        assert rows == list(one_by_one(path)), path
        assert not findings
        seen += len(rows)
    assert seen > 5_000


@pytest.mark.parametrize(("rows", "size_bytes"), [(1, 10**9), (3, 10**9), (8192, 1), (8192, 200), (7, 300)])
def test_arrow_batches_are_bounded(capture_small: Path, rows: int, size_bytes: int) -> None:
    reading = Reading(records_per_batch=rows, bytes_per_batch=size_bytes, include_control=True)
    for path in logs(capture_small / "data" / "metro-gzip-0", capture_small / "data" / "fares-0"):
        piece = LogPiece(str(path), "t", 0, int(path.stem))
        for each in read_piece(piece, reading, RECORD_SCHEMA):
            assert isinstance(each, pa.RecordBatch)
            sizes = [
                len(row["key"] or b"") + len(row["value"] or b"")
                for row in each.select(["key", "value"]).to_pylist()
            ]
            assert len(sizes) <= rows and (sum(sizes) <= size_bytes or len(sizes) == 1)
        assert read(piece, reading)[0] == list(one_by_one(path))


def test_arrow_headers_are_bounded_like_values(tmp_path: Path) -> None:
    """A producer may put all of its data into headers."""
    sizes = [1000] * 25 + [50_000] + [1000] * 4
    records = [
        record(number, key=None, value=None, headers=varint(1) + field(b"h") + field(b"x" * size))
        for number, size in enumerate(sizes)
    ]
    piece = written(tmp_path, sealed(b"".join(records), len(records), base_offset=0))
    batches = list(read_piece(piece, Reading(bytes_per_batch=10_100), RECORD_SCHEMA))
    assert [len(each) for each in batches if isinstance(each, pa.RecordBatch)] == [10, 10, 5, 1, 4]
    assert [len(row["headers"][0]["value"]) for row in read(piece)[0]] == sizes
    schema = pa.schema([RECORD_SCHEMA.field("value")])
    (whole,) = read_piece(piece, Reading(bytes_per_batch=10_100), schema)
    assert isinstance(whole, pa.RecordBatch) and len(whole) == len(sizes)


@pytest.mark.parametrize(
    "words", ["offset", "_meta key", "value partition topic", "headers", "timestampType timestamp"]
)
def test_arrow_batches_have_only_the_requested_columns(capture_small: Path, words: str) -> None:
    names = words.split()
    path = logs(capture_small / "data" / "metro-lz4-0")[0]
    schema = pa.schema([RECORD_SCHEMA.field(name) for name in names])
    rows, _ = read(LogPiece(str(path), "t", 0, int(path.stem)), schema=schema)
    assert rows == [{name: row[name] for name in names} for row in one_by_one(path)]


def test_meta_column_has_only_the_requested_members(capture_small: Path) -> None:
    path = logs(capture_small / "data" / "metro-none-0")[0]
    members = [each for each in META_FIELDS if each.name in ("crc", "file")]
    schema = pa.schema([pa.field(META, pa.struct(members), nullable=False)])
    rows, _ = read(LogPiece(str(path), "t", 0, int(path.stem)), schema=schema)
    whole = [row[META] for row in one_by_one(path)]
    assert [row[META] for row in rows] == [{"file": meta["file"], "crc": meta["crc"]} for meta in whole]


def test_offset_and_time_bounds_divide_batches(capture_small: Path, legacy_small: Path) -> None:
    chance = random.Random(5)
    for path in chance.sample(logs(capture_small / "data", legacy_small / "data"), 60):
        whole = list(one_by_one(path))
        if not whole:
            continue
        low, high = sorted(chance.choices([row["offset"] for row in whole], k=2))
        times = sorted(chance.choices([row["timestamp"] // 1000 for row in whole], k=2))
        for bounds in (
            Bounds(low, high),
            Bounds(from_ms=times[0], to_ms=times[1]),
            Bounds(low, from_ms=times[1]),
        ):
            rows, _ = read(LogPiece(str(path), "t", 0, int(path.stem), bounds))
            assert rows == [
                row
                for row in whole
                if bounds.from_offset <= row["offset"] < bounds.to_offset
                and bounds.from_ms <= row["timestamp"] // 1000 < bounds.to_ms
            ], (path, bounds)


def test_control_records_are_left_out_unless_requested(capture_small: Path) -> None:
    for path in logs(capture_small / "data" / "fares-0"):
        piece = LogPiece(str(path), "t", 0, int(path.stem))
        rows, _ = read(piece, Reading())
        assert rows == [row for row in one_by_one(path) if not row[META]["control"]]
        assert len(rows) < len(read(piece)[0])


# --- what no broker writes


def written(tmp_path: Path, data: bytes, base_offset: int = 0) -> LogPiece:
    path = tmp_path / f"{base_offset:020d}.log"
    path.write_bytes(data)
    return LogPiece(str(path), "t", 0, base_offset)


def test_aborted_batches_are_left_out_of_committed_records(tmp_path: Path) -> None:
    def transactional(offset: int, producer: int) -> bytes:
        return sealed(record(0), 1, base_offset=offset, attributes=16, producer=(producer, 0, offset))

    piece = written(tmp_path, b"".join(transactional(offset, 1 + offset % 2) for offset in range(8)))
    aborted = (Aborted(1, 2, 5), Aborted(2, 7, 9))
    rows, _ = read(LogPiece(piece.path, "t", 0, 0, aborted=aborted))
    assert [row["offset"] for row in rows] == [0, 1, 3, 5, 6]


def test_damage_is_reported_and_the_other_records_are_read(tmp_path: Path) -> None:
    data, positions = plain_file(6)
    damaged = bytearray(data)
    damaged[positions[2] + 70] ^= 1
    rows, findings = read(written(tmp_path, bytes(damaged)))
    assert [row["offset"] for row in rows] == [0, 1, 2, 3, 6, 7, 8, 9, 10, 11]
    (found,) = findings
    assert (found.id, found.position, found.length) == ("bad-crc", positions[2], positions[3] - positions[2])
    assert (found.first_offset, found.last_offset) == (4, 5)


def test_damage_outside_the_bounds_is_not_reported(tmp_path: Path) -> None:
    data, positions = plain_file(6)
    damaged = bytearray(data)
    damaged[positions[2] + 70] ^= 1
    piece = written(tmp_path, bytes(damaged))
    for bounds, count in ((Bounds(6), 0), (Bounds(to_offset=4), 0), (Bounds(5), 1), (Bounds(to_offset=5), 1)):
        assert len(read(LogPiece(piece.path, "t", 0, 0, bounds))[1]) == count, bounds


@pytest.mark.parametrize(("number", "value"), [(5, 1), (3, 4000)])
def test_altered_offset_beside_damage_does_not_hide_lost_records(
    tmp_path: Path, number: int, value: int
) -> None:
    """In the batch before or after the damage: records 8 and 9 are reported as lost all the same."""
    data, positions = plain_file(10)
    damaged = bytearray(data)
    damaged[positions[4] + 70] ^= 1
    damaged[positions[number] : positions[number] + 8] = value.to_bytes(8, "big")
    piece = written(tmp_path, bytes(damaged))
    found = read(LogPiece(piece.path, "t", 0, 0, Bounds(8, 9)))[1]
    assert [(each.id, each.first_offset, each.last_offset) for each in found] == [("bad-crc", 8, 9)]


def test_records_of_invalid_batches_are_read_on_request(tmp_path: Path) -> None:
    data, positions = plain_file(6)
    damaged = bytearray(data)
    damaged[positions[2] + 70] ^= 1
    rows, findings = read(written(tmp_path, bytes(damaged)), Reading(include_invalid=True))
    assert [(row["offset"], row[META]["valid"]) for row in rows] == [
        (offset, offset not in (4, 5)) for offset in range(12)
    ]
    assert [found.id for found in findings] == ["bad-crc"]


def test_message_with_a_wrong_checksum_in_a_set_is_left_out(tmp_path: Path) -> None:
    inner = bytearray(message(0, b"a", b"one") + message(1, b"b", b"two") + message(2, b"c", b"three"))
    inner[inner.index(b"two")] ^= 1
    piece = written(tmp_path, wrapper(12, bytes(inner)))
    rows, findings = read(piece)
    assert [(row["offset"], row["value"]) for row in rows] == [(10, b"one"), (12, b"three")]
    assert [(found.id, found.first_offset, found.last_offset) for found in findings] == [("bad-crc", 11, 11)]
    below_all = LogPiece(piece.path, "t", 0, 0, Bounds(-5))
    assert [row["offset"] for row in read(below_all)[0]] == [10, 12]
    rows, _ = read(piece, Reading(include_invalid=True))
    assert [(row["offset"], row[META]["valid"]) for row in rows] == [(10, True), (11, False), (12, True)]


def test_undecodable_record_is_a_finding_after_the_valid_ones(tmp_path: Path) -> None:
    bad = sealed(record(0) + b"\x7f\x00", 2, base_offset=1)
    rows, findings = read(written(tmp_path, batch(0, 1) + bad + batch(3, 1)))
    assert [row["offset"] for row in rows] == [0, 1, 3]
    assert [(found.id, found.first_offset) for found in findings] == [("undecodable-batch", 1)]


def test_timestamps_beyond_microseconds_are_clamped(tmp_path: Path) -> None:
    far = sealed(record(0), 1, base_timestamp=2**63 - 1, max_timestamp=2**63 - 1)
    near = sealed(record(0), 1, base_offset=1001, base_timestamp=-(2**63), max_timestamp=-(2**63))
    rows, _ = read(written(tmp_path, far + near, 1000))
    most = (2**63 - 1) // 1000 * 1000
    assert [row["timestamp"] for row in rows] == [most, -most]


def test_header_names_that_are_not_utf_8_are_replaced(tmp_path: Path) -> None:
    headers = varint(2) + field(b"\xff\xfe") + field(b"1") + field("\u00e9".encode()) + field(None)
    rows, _ = read(written(tmp_path, sealed(record(0, headers=headers) + record(1), 2, base_offset=0)))
    assert rows[0]["headers"] == [{"key": "\ufffd\ufffd", "value": b"1"}, {"key": "\u00e9", "value": None}]
    assert rows[1]["headers"] is None


def test_paths_that_are_not_utf_8_are_replaced(tmp_path: Path) -> None:
    directory = tmp_path / "caf\udce9-0"
    directory.mkdir()
    piece = written(directory, batch(0, 1))
    rows, _ = read(LogPiece(piece.path, "caf\udce9", 0, 0))
    assert rows[0]["topic"] == "caf\ufffd"
    assert rows[0][META]["file"].endswith("caf\ufffd-0/00000000000000000000.log")


# --- pieces


def planned(
    directory: Path, bounds: Bounds = EVERYWHERE, part_bytes: int = 2**62, part_offsets: int | None = None
) -> list[LogPiece]:
    with PartitionLog(PartitionTarget(str(directory))) as log:
        stretches = segment_reads(log, "t", 0, bounds, ReadPlanOptions())
        if part_offsets is not None:
            return [piece for each in stretches for piece in each.cut_by_offsets(part_offsets)]
        return [piece for each in stretches for piece in each.cut(part_bytes)]


def all_rows(pieces: list[LogPiece]) -> list[Row]:
    return [row for piece in pieces for row in read(piece)[0]]


@pytest.mark.parametrize("keep_index", [True, False])
def test_pieces_of_a_large_segment_give_every_record_once(tmp_path: Path, keep_index: bool) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    batches = [batch(2 * number, 2, b"v" * 900) for number in range(300)]
    log = directory / "00000000000000000000.log"
    log.write_bytes(b"".join(batches))
    if keep_index:
        size = len(batches[0])
        entries = [(2 * n + 1).to_bytes(4, "big") + (n * size).to_bytes(4, "big") for n in range(4, 300, 4)]
        (directory / "00000000000000000000.index").write_bytes(b"".join(entries))
    whole = list(one_by_one(log))
    pieces = planned(directory, part_bytes=65536)
    assert len(pieces) == log.stat().st_size // 65536
    assert pieces[0].start == 0 and pieces[-1].stop is None
    assert [piece.stop for piece in pieces[:-1]] == [piece.start for piece in pieces[1:]]
    assert all_rows(pieces) == whole
    few = planned(directory, Bounds(101, 455), part_bytes=65536)
    assert all_rows(few) == [row for row in whole if 101 <= row["offset"] < 455]
    if keep_index:
        assert few[0].start > 0 and few[-1].stop is not None
    by_offsets = planned(directory, part_offsets=77)
    assert len(by_offsets) == 8 and all_rows(by_offsets) == whole


@pytest.mark.parametrize("keep_index", [True, False])
def test_offset_gap_creates_no_pieces(tmp_path: Path, keep_index: bool) -> None:
    """As in what is left of a compacted topic, and in a file named after an offset that was never written."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    offsets = (0, 2, 5, 1_000_003, 1_000_004, 2_000_000_000)
    batches = [batch(offset, 1, b"v" * 900) for offset in offsets]
    (directory / "00000000000000000000.log").write_bytes(b"".join(batches))
    if keep_index:
        size = len(batches[0])
        entries = [offsets[n].to_bytes(4, "big") + (n * size).to_bytes(4, "big") for n in range(1, 6)]
        (directory / "00000000000000000000.index").write_bytes(b"".join(entries))
    (directory / f"{2**63 - 10}.log").write_bytes(batch(2**63 - 10, 1))
    pieces = planned(directory, part_offsets=4)
    assert [row["offset"] for row in all_rows(pieces)] == [*offsets, 2**63 - 10]
    starts = [piece.bounds.from_offset for piece in pieces]
    assert {0, 4, 1_000_000, 1_000_004, 2_000_000_000, 2**63 - 10} <= set(starts) and len(starts) < 12
    assert all(start % 4 == 0 for start in starts[:-1])


def test_batch_reaching_into_a_gap_belongs_to_each_of_its_pieces(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    wide = sealed(record(0) + record(40_000), 2, base_offset=0, last_delta=40_000)
    damaged = bytearray(batch(70_000, 1))
    damaged[-1] ^= 1
    (directory / "00000000000000000000.log").write_bytes(wide + damaged + batch(90_000, 1))
    pieces = planned(directory, part_offsets=1000)
    assert [row["offset"] for row in all_rows(pieces)] == [0, 40_000, 90_000]
    assert {found.position for piece in pieces for found in read(piece)[1]} == {len(wide)}


def test_wrong_index_does_not_divide_a_segment(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    log = directory / "00000000000000000000.log"
    log.write_bytes(b"".join(batch(2 * number, 2, b"v" * 900) for number in range(300)))
    entries = [(7 * n).to_bytes(4, "big") + (n * 1000 + 13).to_bytes(4, "big") for n in range(1, 500)]
    (directory / "00000000000000000000.index").write_bytes(b"".join(entries))
    pieces = planned(directory, part_bytes=65536)
    assert [(piece.start, piece.stop) for piece in pieces] == [(0, None)]
    assert all_rows(planned(directory, Bounds(101, 455))) == [
        row for row in one_by_one(log) if 101 <= row["offset"] < 455
    ]


def test_hostile_files_are_read_as_arrow_without_exception(tmp_path: Path) -> None:
    chance = random.Random(11)
    whole, _ = plain_file(20)
    for number in range(150):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 20)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        piece = written(tmp_path, bytes(data[: chance.randint(0, len(data))]))
        read(piece, Reading(include_invalid=bool(number % 2), include_control=True))
