"""Rows of the acceptance list about what verify accepts and what it reports."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

import pytest

from fixtures.diseases import put, wrong_record_count
from kseg.change.append.partition_writer import PartitionWriter, RollRules
from kseg.segment import layout as L
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from kseg.segment.sidecar.txn_index import AbortedTxn, encode_txn_index
from kseg.segment.state.control import EndTransactionMarker, end_transaction_batch
from tests.support.verify_helpers import judge

T0 = 1_700_000_000_000


def records(first: int, count: int, step: int = 1) -> tuple[Record, ...]:
    return tuple(Record(first + k * step, T0 + first + k, b"k%d" % k, b"v" * 40) for k in range(count))


def plain(first: int, count: int = 4, **fields: object) -> NewBatch:
    return NewBatch(records=records(first, count), leader_epoch=0, **fields)  # type: ignore[arg-type]


def marker(offset: int, producer_id: int, is_abort: bool) -> NewBatch:
    return end_transaction_batch(EndTransactionMarker(is_abort, 0, T0 + offset), offset, producer_id, 0, 0)


def in_transaction(first: int, producer_id: int, sequence: int = 0, count: int = 2) -> NewBatch:
    return plain(
        first, count, transactional=True, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
    )


def build_log(directory: Path, batches: Iterable[NewBatch], **rules: int) -> Path:
    with PartitionWriter(directory, rules=RollRules(**rules)) as writer:
        for batch in batches:
            writer.append(batch)
    return directory


def loud(path: Path, level: str = "deep") -> set[str]:
    return judge(path, level).ids("error", "warning")


@pytest.mark.behaviour("V01")
def test_compacted_batches_are_valid(tmp_path: Path) -> None:
    batches = [
        NewBatch(records=records(2, 2, step=3), base_offset=0, last_offset=9, leader_epoch=0),
        NewBatch(records=records(30, 1), base_offset=25, last_offset=33, leader_epoch=0),
        plain(70),
    ]
    directory = build_log(tmp_path / "t-0", batches)
    verdict = judge(directory, "deep")
    assert verdict.output() == {("offset-gap", "00000000000000000000.log")}
    assert verdict.of("offset-gap")[0].numbers == {"gaps": 2, "missing_offsets": 15 + 36}


@pytest.mark.behaviour("V02", "V03")
@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_empty_batches_are_valid(control: bool, last: bool, tmp_path: Path) -> None:
    empty = NewBatch(
        base_offset=4,
        last_offset=7,
        leader_epoch=0,
        max_timestamp_ms=T0,
        producer_id=5,
        producer_epoch=0,
        base_sequence=-1 if control else 0,
        transactional=control,
        control=control,
    )
    assert loud(build_log(tmp_path / "t-0", [plain(0), empty, *([] if last else [plain(8)])])) == set()


@pytest.mark.behaviour("V04")
def test_empty_segment_in_the_middle_is_valid(tmp_path: Path) -> None:
    directory = build_log(tmp_path / "t-0", [plain(at * 4) for at in range(30)], segment_bytes=1000)
    _, second, *_ = sorted(directory.glob("*.log"))
    for suffix in (".log", ".index", ".timeindex"):
        second.with_suffix(suffix).write_bytes(b"")
    assert loud(directory) == set()


@pytest.mark.behaviour("V09")
def test_offset_index_entry_other_than_the_last_offset_is_a_mismatch(tmp_path: Path) -> None:
    directory = build_log(tmp_path / "t-0", [plain(at * 4) for at in range(30)], index_interval_bytes=900)
    (index,) = directory.glob("*.index")
    relative, position = struct.unpack_from(">ii", index.read_bytes(), 8)
    put(index, 8, struct.pack(">ii", relative - 4, position))
    (found,) = judge(directory).findings
    assert (found.id, found.position, found.first_offset) == ("index-entry-mismatch", 8, relative - 4)


@pytest.mark.parametrize("style", ["first", "last of several"])
def test_offset_index_entries_of_older_brokers_are_an_info(style: str, tmp_path: Path) -> None:
    directory = build_log(tmp_path / "t-0", [plain(at * 4) for at in range(60)], index_interval_bytes=400)
    (index,) = directory.glob("*.index")
    entries = list(struct.iter_unpack(">ii", index.read_bytes()))
    change = -3 if style == "first" else 4
    index.write_bytes(
        b"".join(struct.pack(">ii", relative + change, position) for relative, position in entries)
    )
    (found,) = judge(directory).findings
    assert (found.id, found.severity) == ("index-entry-old-style", "info")
    assert found.numbers["old_style"] == len(entries)


@pytest.mark.behaviour("V10")
def test_wrong_time_index_entries_have_three_findings(tmp_path: Path) -> None:
    directory = build_log(tmp_path / "t-0", [plain(at * 4) for at in range(40)], index_interval_bytes=200)
    (index,) = directory.glob("*.timeindex")
    slots = list(struct.iter_unpack(">qi", index.read_bytes()))

    def output(slot: int, timestamp: int, relative: int) -> tuple[set[str], int | None]:
        changed = [*slots]
        changed[slot] = (timestamp, relative)
        index.write_bytes(b"".join(struct.pack(">qi", *each) for each in changed))
        (found,) = judge(directory).findings
        return {found.id}, found.position

    timestamp, relative = slots[3]
    assert output(3, timestamp - 1, relative) == ({"time-index-mismatch"}, 36)
    assert output(3, slots[2][0] - 5, relative) == ({"time-index-out-of-order"}, 36)
    last = len(slots) - 1
    assert output(last, slots[last][0], 10_000) == ({"time-index-offset-not-found"}, 12 * last)


def test_time_index_that_ends_too_early_is_incomplete(tmp_path: Path) -> None:
    directory = build_log(tmp_path / "t-0", [plain(at * 4) for at in range(40)], index_interval_bytes=200)
    (index,) = directory.glob("*.timeindex")
    index.write_bytes(index.read_bytes()[:-12])
    assert judge(directory).output() == {("time-index-incomplete", index.name)}


@pytest.mark.behaviour("V11")
def test_transaction_index_entry_may_outlive_its_compacted_transaction(tmp_path: Path) -> None:
    """Data and marker of offsets 0 to 2 are gone, as after two passes of the cleaner. The index entry remains."""
    directory = build_log(tmp_path / "t-0", [plain(3), plain(7)])
    entry = AbortedTxn(0, 9, first_offset=0, last_offset=2, last_stable_offset=3)
    log = directory / "00000000000000000000.log"
    log.with_suffix(".txnindex").write_bytes(encode_txn_index([entry]))
    assert loud(directory) == set()


@pytest.mark.behaviour("V11")
def test_abort_marker_may_outlive_the_data_of_its_transaction(tmp_path: Path) -> None:
    directory = build_log(tmp_path / "t-0", [plain(0), marker(6, 9, is_abort=True), plain(7)])
    entry = AbortedTxn(0, 9, first_offset=4, last_offset=6, last_stable_offset=7)
    (directory / "00000000000000000000.txnindex").write_bytes(encode_txn_index([entry]))
    assert loud(directory) == set()


@pytest.mark.behaviour("V12")
def test_abort_marker_without_data_needs_no_index_entry(tmp_path: Path) -> None:
    assert loud(build_log(tmp_path / "t-0", [plain(0), marker(4, 9, is_abort=True), plain(5)])) == set()


@pytest.mark.behaviour("V13")
def test_stored_batches_may_violate_the_rules_of_an_append(tmp_path: Path) -> None:
    def of(offset: int, epoch: int, sequence: int) -> NewBatch:
        return plain(offset, 2, producer_id=3, producer_epoch=epoch, base_sequence=sequence)

    batches = [
        of(0, 5, 100),  # a first sequence other than 0
        of(2, 5, 900),  # a gap
        of(4, 1, 0),  # a lower epoch
        end_transaction_batch(EndTransactionMarker(False, 8, T0), 6, 4, 0, 0),
        end_transaction_batch(EndTransactionMarker(True, 2, T0), 7, 4, 0, 0),  # a lower coordinator epoch
    ]
    verdict = judge(build_log(tmp_path / "t-0", batches), "deep")
    assert verdict.ids() == {"sequence-gap"}
    assert verdict.ids("error", "warning") == set()


def test_transactional_offset_commits_may_all_start_at_sequence_0(tmp_path: Path) -> None:
    """Coordinators of all versions write TxnOffsetCommit so to `__consumer_offsets`. In another topic it is a gap."""
    batches = [in_transaction(0, 7), in_transaction(2, 7), marker(4, 7, is_abort=False)]
    assert judge(build_log(tmp_path / "__consumer_offsets-0", batches)).ids() == set()
    for name in ("orders-0", "mirrored.__consumer_offsets-0"):
        assert judge(build_log(tmp_path / name, batches)).ids() == {"sequence-gap"}


@pytest.mark.behaviour("V14")
def test_wrapper_may_contain_messages_of_another_magic(tmp_path: Path) -> None:
    """A wrapper of magic 1 with inner messages of magic 0 (KAFKA-4298)."""
    from kseg.segment.codecs.codec import compress
    from kseg.segment.crc import crc32

    def message(magic: int, attributes: int, value: bytes) -> bytes:
        body = bytes((magic, attributes)) + (struct.pack(">q", T0) if magic else b"")
        body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
        return struct.pack(">I", crc32(body)) + body

    inner = b"".join(
        struct.pack(">qi", at, len(message(0, 0, b"%d" % at))) + message(0, 0, b"%d" % at) for at in range(3)
    )
    outer = message(1, L.GZIP, bytes(compress(L.GZIP, 1, inner, None)))
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(struct.pack(">qi", 2, len(outer)) + outer)
    verdict = judge(log, "deep")
    assert verdict.findings == ()
    assert verdict.sums["records"] == 3


@pytest.mark.behaviour("V15")
def test_log_start_in_the_middle_of_a_segment_is_valid(sound: Path, damaged: Path) -> None:
    (damaged / "log-start-offset-checkpoint").write_text("0\n1\nmetro 0 41\n")
    assert judge(damaged).output() == judge(sound).output()


@pytest.mark.behaviour("V16")
@pytest.mark.parametrize("damage", ["empty", "truncated", "zeroed", "version", "crc"])
def test_unreadable_snapshot_is_an_error(damage: str, damaged: Path) -> None:
    snapshot = damaged / "metro-0/00000000000000000198.snapshot"
    data = snapshot.read_bytes()
    snapshot.write_bytes(
        {
            "empty": b"",
            "truncated": data[: len(data) // 2],
            "zeroed": bytes(len(data)),
            "version": b"\x00\x02" + data[2:],
            "crc": data[:3] + bytes([data[3] ^ 1]) + data[4:],
        }[damage]
    )
    verdict = judge(damaged)
    assert verdict.output("error", "warning") == {
        ("snapshot-corrupt", "metro-0/00000000000000000198.snapshot")
    }
    assert verdict.sums["bytes_damaged"] == snapshot.stat().st_size


def test_snapshot_of_another_moment_is_a_mismatch(damaged: Path) -> None:
    """A snapshot taken at another moment is detected by an exact replay, even if its name fits."""
    earlier = damaged / "metro-1/00000000000000000102.snapshot"
    later = damaged / "metro-1/00000000000000000198.snapshot"
    earlier.write_bytes(later.read_bytes())
    assert ("snapshot-mismatch", "metro-1/00000000000000000102.snapshot") in judge(damaged).output("warning")


@pytest.mark.behaviour("F08")
@pytest.mark.parametrize("codec", [L.NONE, L.GZIP])
@pytest.mark.parametrize("change", [1, -1])
def test_wrong_record_count_is_found_by_the_deep_level(codec: int, change: int, tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000000.log"
    # five offsets for four records, so that the header alone does not reveal a wrong count
    batch = NewBatch(records=records(0, 4), last_offset=4, codec=codec)
    log.write_bytes(encode_batch(batch))
    assert judge(log, "deep").findings == ()
    wrong_record_count(log, 0, change)
    assert judge(log, "default").findings == ()
    assert judge(log, "deep").ids() == {"record-count-mismatch"}


@pytest.mark.behaviour("F07", "F33")
@pytest.mark.parametrize("size_field", [-1, 0, 13, 14, 48])
def test_impossible_size_field_is_a_bad_length(size_field: int, tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(b"".join(encode_batch(plain(at * 4)) for at in range(3)))
    size = log.stat().st_size // 3
    put(log, size + 8, struct.pack(">i", size_field))
    (found,) = judge(log).findings
    assert (found.id, found.position, found.length) == ("bad-length", size, size)


@pytest.mark.behaviour("F34")
@pytest.mark.parametrize("magic", [0, 1, 3, 127, 128, 255])
def test_unknown_magic_byte_is_a_bad_magic(magic: int, tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(b"".join(encode_batch(plain(at * 4)) for at in range(3)))
    size = log.stat().st_size // 3
    put(log, size + 16, bytes([magic]))
    verdict = judge(log)
    (found,) = verdict.findings
    assert (found.id, found.position, found.length) == ("bad-magic", size, size)
    assert verdict.sums["bytes_damaged"] == size


@pytest.mark.behaviour("F35")
def test_segment_above_2_gib_is_oversized(tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(encode_batch(plain(0)))
    with log.open("r+b") as file:
        file.truncate(2**31)
    from kseg.recovery.verify.options import VerifyOptions
    from kseg.recovery.verify.verify import verify
    from kseg.segment.findings import Finding
    from kseg.segment.partition.targets import FileTarget

    events = verify(FileTarget(str(log)), VerifyOptions(level="quick", now_ms=T0))
    assert "oversized-segment" in {event.id for event in events if isinstance(event, Finding)}


@pytest.mark.evidence("open-transaction")
def test_open_transaction_is_reported_with_its_producer_and_start(tmp_path: Path) -> None:
    directory = build_log(
        tmp_path / "t-0", [plain(0), in_transaction(4, 77), in_transaction(6, 77, 2), plain(8)]
    )
    (found,) = judge(directory).findings
    assert (found.id, found.severity, found.first_offset) == ("open-transaction", "info", 4)
    assert found.numbers["producer_id"] == 77
    assert found.numbers["since_ms"] == T0 + 5


def test_non_transactional_write_in_a_transaction_is_an_error(tmp_path: Path) -> None:
    outside = plain(6, 2, producer_id=77, producer_epoch=0, base_sequence=2)
    log = tmp_path / "t-0" / "00000000000000000000.log"
    log.parent.mkdir()
    log.write_bytes(b"".join(map(encode_batch, (plain(0), in_transaction(4, 77), outside))))
    assert "non-transactional-in-transaction" in judge(log.parent).ids("error")


def test_repeated_sequences_are_reported(tmp_path: Path) -> None:
    def of(offset: int, sequence: int) -> NewBatch:
        return plain(offset, 2, producer_id=3, producer_epoch=0, base_sequence=sequence)

    log = tmp_path / "t-0" / "00000000000000000000.log"
    log.parent.mkdir()
    log.write_bytes(b"".join(map(encode_batch, (of(0, 5), of(2, 7), of(4, 7)))))
    assert judge(log.parent).of("sequence-duplicate")[0].first_offset == 4


def test_timestamp_in_the_future_is_a_warning(tmp_path: Path) -> None:
    directory = build_log(tmp_path / "t-0", [plain(0), plain(4)])
    assert judge(directory, now_ms=T0).findings == ()
    (found,) = judge(directory, now_ms=T0 - 3_600_000 + 4).findings
    assert (found.id, found.severity, found.first_offset) == ("future-timestamp", "warning", 7)


def test_transaction_index_entry_with_a_wrong_start_is_found(tmp_path: Path) -> None:
    directory = build_log(tmp_path / "t-0", [plain(0), in_transaction(4, 9), marker(6, 9, is_abort=True)])
    (index,) = directory.glob("*.txnindex")
    put(index, 10, struct.pack(">q", 3))
    (found,) = judge(directory).findings
    assert (found.id, found.position, found.length) == ("txn-index-wrong-entry", 0, 34)


def test_aborted_transaction_with_only_an_emptied_batch_needs_no_entry(tmp_path: Path) -> None:
    """Its index entry may be missing, because there is nothing to hide from consumers."""
    emptied = NewBatch(
        base_offset=4,
        last_offset=5,
        leader_epoch=0,
        max_timestamp_ms=T0,
        producer_id=9,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    for batch, expected in ((emptied, set()), (in_transaction(4, 9), {"txn-index-missing-entry"})):
        directory = build_log(tmp_path / f"t-{len(expected)}", [plain(0), batch, marker(6, 9, is_abort=True)])
        for index in directory.glob("*.txnindex"):
            index.unlink()
        assert judge(directory).ids("error", "warning") == expected


@pytest.mark.evidence("file-name")
def test_overlapping_segments_and_gaps_are_found(tmp_path: Path) -> None:
    directory = build_log(tmp_path / "t-0", [plain(at * 4) for at in range(30)], segment_bytes=1000)
    first, second, *_ = sorted(directory.glob("*.log"))
    whole = second.read_bytes()
    for file in directory.glob(f"{second.stem}.*"):
        file.unlink()
    hole = judge(directory)
    assert hole.of("segment-gap")[0].first_offset == int(second.stem)
    second.write_bytes(encode_batch(plain(int(second.stem) - 4)) + whole)
    second.rename(second.with_name(f"{int(second.stem) - 4:020d}.log"))
    assert "segment-overlap" in judge(directory).ids("error")
    assert first.exists()


@pytest.mark.evidence("file-name")
def test_offset_below_the_segment_name_is_found(tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000100.log"
    log.write_bytes(b"".join(encode_batch(plain(at * 4)) for at in range(3)))
    assert judge(log).ids() == {"offset-below-segment"}


def test_offset_too_far_above_the_segment_is_an_overflow(tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(encode_batch(plain(0)) + encode_batch(plain(2**31 + 12345)))
    assert judge(log).ids("error") == {"offset-overflow"}


def test_many_findings_of_one_kind_are_counted(tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(b"".join(encode_batch(plain(at * 4)) for at in range(400)))
    size = log.stat().st_size // 400
    for at in range(1, 400, 2):
        put(log, at * size + size - 1, b"\xff")
    verdict = judge(log)
    assert len(verdict.of("bad-crc")) == 101
    assert verdict.of("bad-crc")[-1].numbers == {"more": 100}
    assert verdict.sums["bytes_damaged"] == 200 * size
