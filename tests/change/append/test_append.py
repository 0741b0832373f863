"""The work of `append`: lines become batches and batches become partitions, and dump returns the lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures import healthy
from kseg.change.append.json_input import BadLine
from kseg.change.append.partition_writer import PartitionWriter, RollRules
from kseg.segment.errors import UsageError
from kseg.segment.partition.topic_settings import REMOTE_STORAGE, Setting, Source, TopicSettings
from kseg.segment.sidecar.checkpoint import decode_leader_epochs, encode_leader_epochs
from kseg.segment.sidecar.leader_epochs import EpochEntry
from kseg.segment.sidecar.snapshot import decode_snapshot
from kseg.segment.sidecar.txn_index import AbortedTxn, TxnIndex
from tests.support.append_helpers import NOW_MS, Appended, Lines, dumped, without_bytes, written_rows
from tests.support.trees import files_in


def partitions_below(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*-[0-9]")):
        if path.is_dir() and list(path.glob("*.log")):
            yield path


# --- round trips


@pytest.mark.slow
def test_dumped_captures_are_appended_with_equal_rows(
    capture_small: Path, legacy_small: Path, tmp_path: Path, appended: Appended
) -> None:
    sources = [*partitions_below(capture_small / "data"), *partitions_below(legacy_small / "data")]
    assert len(sources) > 60
    for number, source in enumerate(sources):
        lines = dumped(source)
        target = tmp_path / f"copy-{number}"
        result = appended(target, lines)
        assert written_rows(target) == without_bytes(lines), source
        assert result["batches"] == sum(row["type"] == "batch" for row in without_bytes(lines))


@pytest.mark.parametrize("segment_bytes", [5000, 1 << 30])
def test_dumped_partition_of_every_feature_is_appended_byte_for_byte(
    tmp_path: Path, appended: Appended, segment_bytes: int
) -> None:
    """Except for LogAppendTime, which hides the timestamps of the records."""
    rules = RollRules(segment_bytes=segment_bytes, index_interval_bytes=600)
    source, target = tmp_path / "source-0", tmp_path / "target-0"
    with PartitionWriter(source, topic_id=healthy.TOPIC_ID, rules=rules) as writer:
        for new in healthy.batches():
            if not new.log_append_time:
                writer.append(new)
    appended(target, dumped(source), rolls=rules, options={"topic_id": healthy.TOPIC_ID})
    names = {path.name: path.read_bytes() for path in source.iterdir()}
    assert files_in(target) == names


def test_two_appends_give_the_files_of_one(tmp_path: Path, appended: Appended) -> None:
    source = healthy.partition(tmp_path / "source-0", RollRules())
    lines = dumped(source).splitlines(keepends=True)
    cut = next(n for n, line in enumerate(lines) if n > 100 and b'"type":"batch"' in line)
    target = tmp_path / "target-0"
    first = appended(target, b"".join(lines[:cut]))
    second = appended(target, b"".join(lines[cut:]))
    assert second["first_offset"] == first["log_end_offset"]
    assert written_rows(target) == written_rows(source)
    snapshot = f"{second['log_end_offset']:020d}.snapshot"
    assert decode_snapshot((target / snapshot).read_bytes()) == decode_snapshot(
        (source / snapshot).read_bytes()
    )
    assert (target / "leader-epoch-checkpoint").read_bytes() == (
        source / "leader-epoch-checkpoint"
    ).read_bytes()


@pytest.mark.parametrize("name", ["lamp.none-0", "lamp.magic0-0", "lamp.one-0", "lamp.void-0"])
def test_uncompressed_0_7_partitions_are_appended_byte_for_byte(
    legacy_small: Path, tmp_path: Path, appended: Appended, name: str
) -> None:
    source = legacy_small / "data" / "0.7" / "1-written" / name
    target = tmp_path / "copy-0"
    appended(target, dumped(source, ".kafka"), options={"kafka07": True})
    ours = b"".join(path.read_bytes() for path in sorted(target.glob("*.kafka")))
    assert ours == b"".join(path.read_bytes() for path in sorted(source.glob("*.kafka")))


@pytest.mark.parametrize("name", ["lamp.gzip-0", "lamp.snappy-0", "lamp.codecs-0", "lamp.nested-0"])
def test_compressed_0_7_sets_are_appended_as_sets(
    legacy_small: Path, tmp_path: Path, appended: Appended, name: str
) -> None:
    def sets_of(directory: Path) -> Lines:
        rows = without_bytes(dumped(directory, ".kafka"))
        number, seen = 0, None
        # here offsets are bytes, which depend on the compressor
        for row in rows:
            place = (row.pop("offset"), row.pop("next_offset"))
            number, seen = number + (place != seen), place
            row["set"] = number
        return rows

    source = legacy_small / "data" / "0.7" / "1-written" / name
    target = tmp_path / "copy-0"
    appended(target, dumped(source, ".kafka"), options={"kafka07": True}, rolls=RollRules(segment_bytes=3000))
    assert sets_of(target) == sets_of(source)


# --- records of one's own


def test_append_needs_only_a_value(tmp_path: Path, appended: Appended) -> None:
    target = tmp_path / "own-3"
    result = appended(target, [{"value": "a"}, {"value": None, "key": "k"}, {"value": {"base64": "/w=="}}])
    batch, *records = written_rows(target)
    assert result["records"] == 3 and result["batches"] == 1 and result["partition"] == "own-3"
    assert (batch["base_offset"], batch["last_offset"], batch["leader_epoch"], batch["magic"]) == (0, 2, 0, 2)
    assert [(row["key"], row["value"], row["timestamp"]) for row in records] == [
        (None, "a", NOW_MS),
        ("k", None, NOW_MS),
        (None, "/w==", NOW_MS),
    ]
    assert records[2]["value_encoding"] == "base64"


def test_batches_are_limited_by_records_and_by_bytes(tmp_path: Path, appended: Appended) -> None:
    lines = [{"value": "x" * 79} for _ in range(10)]
    appended(tmp_path / "records-0", lines, batch_records=4)
    appended(tmp_path / "bytes-0", lines, batch_bytes=61 + 3 * 100)
    counts = [
        [row["count"] for row in written_rows(tmp_path / name) if row["type"] == "batch"]
        for name in ("records-0", "bytes-0")
    ]
    assert counts == [[4, 4, 2], [3, 3, 3, 1]]


def test_offsets_are_kept_or_renumbered(tmp_path: Path, appended: Appended) -> None:
    lines = [{"value": "a", "offset": 7}, {"value": "b"}, {"value": "c", "offset": 100}]

    def offsets(name: str) -> list[int]:
        return [row["offset"] for row in written_rows(tmp_path / name) if row["type"] == "record"]

    assert appended(tmp_path / "kept-0", lines)["log_start_offset"] == 7
    assert appended(tmp_path / "anew-0", lines, keep_offsets=False)["log_start_offset"] == 0
    assert (offsets("kept-0"), offsets("anew-0")) == ([7, 8, 100], [0, 1, 2])
    with pytest.raises(BadLine, match=r"line 1: its offset 7 is not above 100 .--no-keep-offsets renumbers"):
        appended(tmp_path / "kept-0", lines)
    appended(tmp_path / "kept-0", dumped(tmp_path / "kept-0"), keep_offsets=False)
    assert offsets("kept-0") == [7, 8, 100, 101, 102, 194]


def test_distant_offset_starts_a_batch_and_a_segment(tmp_path: Path, appended: Appended) -> None:
    target = tmp_path / "far-0"
    result = appended(target, [{"value": "a"}, {"value": "b", "offset": 2**31}])
    assert result["segments_rolled"] == 1
    assert [path.name for path in sorted(target.glob("*.log"))] == [f"{0:020d}.log", f"{2**31:020d}.log"]


def test_idempotent_producer_continues_its_sequence_in_the_log(tmp_path: Path, appended: Appended) -> None:
    target = tmp_path / "idempotent-0"
    for _ in range(2):
        appended(target, [{"value": "a"}, {"value": "b"}], producer_id=9, batch_records=1)
    appended(target, [{"value": "c"}], producer_id=9, producer_epoch=1)
    appended(target, [{"value": "d"}], producer_id=9, base_sequence=2**31 - 1)
    found = [
        (row["producer_epoch"], row["base_sequence"])
        for row in written_rows(target)
        if row["type"] == "batch"
    ]
    assert found == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 2**31 - 1)]


@pytest.mark.parametrize(("end", "kind"), [("commit", "COMMIT"), ("abort", "ABORT"), ("open", None)])
def test_appended_transaction_ends_with_the_requested_marker(
    tmp_path: Path, appended: Appended, end: str, kind: str | None
) -> None:
    target = tmp_path / "txn-0"
    rules = {"producer_id": 5, "producer_epoch": 2, "transactional": True, "end_transaction": end}
    appended(target, [{"value": "a"}, {"value": "b"}], **rules)
    rows = written_rows(target)
    assert rows[0]["transactional"] is True and rows[0]["base_sequence"] == 0
    assert [row["control"]["kind"] for row in rows if "control" in row and row["type"] == "record"] == (
        [] if kind is None else [kind]
    )
    assert len(list(target.glob("*.txnindex"))) == (kind == "ABORT")


def test_control_lines_without_a_batch_header_become_markers(tmp_path: Path, appended: Appended) -> None:
    target = tmp_path / "txn-0"
    marker = {"control": {"kind": "ABORT", "coordinator_epoch": 4}, "value": None}
    appended(target, [{"value": "a"}, marker, {"value": "b"}], producer_id=5, transactional=True)
    kinds = [
        (row["control"]["kind"], row["control"]["coordinator_epoch"])
        for row in written_rows(target)
        if row["type"] == "record" and "control" in row
    ]
    assert kinds == [("ABORT", 4), ("COMMIT", 0)]
    with pytest.raises(BadLine, match="line 1: a control record of kind 'KRAFT_VOTERS' needs key and value"):
        appended(target, [{"control": {"kind": "KRAFT_VOTERS"}}])
    leader_change = {"control": {}, "key": "AAAAAg==", "key_encoding": "base64", "value": ""}
    with pytest.raises(BadLine, match="line 1: a LEADER_CHANGE record in a producer's control batch"):
        appended(target, [leader_change], producer_id=5)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_append_writes_old_formats(tmp_path: Path, appended: Appended, magic: int, codec: int) -> None:
    target = tmp_path / "old-0"
    appended(target, [{"value": f"v{n}", "timestamp": 1000 + n} for n in range(5)], magic=magic, codec=codec)
    rows = written_rows(target)
    assert {row["magic"] for row in rows if row["type"] == "batch"} == {magic}
    records = [row for row in rows if row["type"] == "record"]
    assert [row["value"] for row in records] == [f"v{n}" for n in range(5)]
    assert [row["timestamp"] for row in records] == [-1 if magic == 0 else 1000 + n for n in range(5)]
    assert decode_leader_epochs((target / "leader-epoch-checkpoint").read_bytes()) == ()


def test_codec_and_epoch_of_dumped_batches_can_be_changed(tmp_path: Path, appended: Appended) -> None:
    source = healthy.partition(tmp_path / "source-0")
    target = tmp_path / "target-0"
    appended(target, dumped(source), codec=4, leader_epoch=11)
    batches = [row for row in written_rows(target) if row["type"] == "batch"]
    assert {row["leader_epoch"] for row in batches} == {11}
    assert {row["compression"] for row in batches if row["count"] and not row["control"]} == {"zstd"}
    assert [row for row in written_rows(target) if row["type"] == "record"] == [
        row for row in written_rows(source) if row["type"] == "record"
    ]


def test_append_never_lowers_the_leader_epoch(tmp_path: Path, appended: Appended) -> None:
    target = tmp_path / "epochs-0"
    appended(target, [{"value": "a"}], leader_epoch=7)
    appended(target, [{"value": "b"}])
    assert [row["leader_epoch"] for row in written_rows(target) if row["type"] == "batch"] == [7, 7]
    with pytest.raises(BadLine, match="line 1: leader epoch 6 is below 7, the latest"):
        appended(target, [{"value": "c"}], leader_epoch=6)


@pytest.mark.parametrize("is_emptied", [False, True])
def test_append_keeps_the_leader_epoch_of_a_log_whose_records_were_deleted(
    tmp_path: Path, appended: Appended, is_emptied: bool
) -> None:
    """The only epoch begins at the log end, since all records are below the log start: a load drops it (Kafka: LogLoader.load)."""
    target, end = tmp_path / "metro-0", 2
    assert appended(target, [{"value": "a"}, {"value": "b"}], leader_epoch=4)["log_end_offset"] == end
    (target / "leader-epoch-checkpoint").write_bytes(encode_leader_epochs([EpochEntry(4, end)]))
    if is_emptied:
        # the segment before it was deleted
        for path in target.glob(f"{0:020d}.*"):
            path.unlink()
        for suffix in (".log", ".index", ".timeindex"):
            (target / f"{end:020d}{suffix}").touch()
    appended(target, [{"value": "c"}])
    assert [row["leader_epoch"] for row in written_rows(target) if row["type"] == "batch"][-1] == 4
    assert (target / "leader-epoch-checkpoint").read_bytes() == encode_leader_epochs([EpochEntry(4, end)])


PRODUCERS_INTERLEAVED = (
    (1, 5), (None, 3), (2, 2), (1, 4), (3, 3), (None, 2), (1, 10), (1, "ABORT"), (2, 6), (4, 3), (None, 10),
    (3, 9), (3, "COMMIT"), (4, 8), (2, 7), (2, "ABORT"), (None, 10), (4, 4), (4, "COMMIT"),
)  # fmt: skip


@pytest.mark.behaviour("X01", "X07")
@pytest.mark.parametrize("segment_bytes", [400, 1200, 1 << 30])
def test_aborted_transactions_are_in_the_index_of_the_markers_segment(
    tmp_path: Path, appended: Appended, segment_bytes: int
) -> None:
    """Ninety offsets of four producers. Transactions abort at 29 and 74 and commit at 58 and 89."""
    target = tmp_path / "txn-0"
    sequences = dict.fromkeys(range(1, 5), 0)
    lines: Lines = []
    for producer, what in PRODUCERS_INTERLEAVED:
        header: dict[str, Any] = {"type": "batch", "count": 1 if isinstance(what, str) else what}
        if producer is not None:
            header |= {"producer_id": producer, "producer_epoch": 0, "transactional": True}
        if isinstance(what, str):
            lines += [header | {"control": True}, {"control": {"kind": what}}]
            continue
        if producer is not None:
            header["base_sequence"] = sequences[producer]
            sequences[producer] += what
        lines += [header, *({"value": "v"} for _ in range(what))]
    result = appended(target, lines, rolls=RollRules(segment_bytes=segment_bytes))
    assert result["log_end_offset"] == 90
    bases = sorted(int(path.stem) for path in target.glob("*.log"))
    found = {int(path.stem): list(TxnIndex(path.read_bytes(), 0)) for path in target.glob("*.txnindex")}
    expected: dict[int, list[AbortedTxn]] = {}
    for entry in (AbortedTxn(0, 1, 0, 29, 8), AbortedTxn(0, 2, 8, 74, 36)):
        expected.setdefault(max(base for base in bases if base <= entry.last_offset), []).append(entry)
    assert found == expected


@pytest.mark.behaviour("P16")
def test_every_rolled_segment_has_a_snapshot_at_its_base(tmp_path: Path, appended: Appended) -> None:
    target = tmp_path / "rolled-0"
    for _ in range(2):
        appended(target, [{"value": "x" * 100} for _ in range(20)], producer_id=3, batch_records=2,
                 rolls=RollRules(segment_bytes=1000))  # fmt: skip
    bases = sorted(int(path.stem) for path in target.glob("*.log"))
    snapshots = {int(path.stem): decode_snapshot(path.read_bytes()) for path in target.glob("*.snapshot")}
    assert len(bases) > 5 and set(bases[1:]) | {40} <= snapshots.keys()
    for offset, (entry,) in snapshots.items():
        assert (entry.producer_id, entry.last_offset, entry.last_sequence) == (3, offset - 1, offset - 1)


# --- tiered storage

TIERED = TopicSettings({REMOTE_STORAGE: Setting("true", Source.TOPIC)})


@pytest.mark.parametrize("is_there", [False, True])
def test_tiered_partition_without_segments_needs_to_know_where_it_begins(
    is_there: bool, tmp_path: Path, appended: Appended
) -> None:
    """At offset 0 it would contradict its remote segments."""
    target = tmp_path / "orders-0"
    if is_there:
        target.mkdir()
        (target / "partition.metadata").write_text(f"version: 0\ntopic_id: {healthy.TOPIC_ID}\n")
    with pytest.raises(UsageError, match="--start-offset"):
        appended(target, [{"value": "v"}], options={"topic": TIERED})
    result = appended(target, [{"value": "v"}], options={"topic": TIERED, "start_offset": 390})
    assert (result["first_offset"], result["log_end_offset"]) == (390, 391)
    assert appended(target, [{"value": "v"}], options={"topic": TIERED})["first_offset"] == 391


def test_lines_with_offsets_say_where_a_tiered_partition_begins(tmp_path: Path, appended: Appended) -> None:
    result = appended(tmp_path / "orders-0", [{"value": "v", "offset": 70}], options={"topic": TIERED})
    assert result["first_offset"] == 70
