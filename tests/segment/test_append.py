"""The work of `append`: lines to batches, batches to partitions, and back again by dump."""

from __future__ import annotations

import json
import os
import signal
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fixtures import healthy
from kseg.segment.apply.journal import new_run_id, place_of
from kseg.segment.apply.undo import undo
from kseg.segment.dump.options import DumpOptions
from kseg.segment.dump.work import dump
from kseg.segment.errors import Refused, UsageError
from kseg.segment.events import Advance, Row, Text
from kseg.segment.partition.directory import is_log_directory
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.sidecar.checkpoint import decode_leader_epochs, decode_offset_checkpoint
from kseg.segment.sidecar.snapshot import decode_snapshot
from kseg.segment.sidecar.txn_index import AbortedTxn, TxnIndex
from kseg.segment.targets import Expansion, FileTarget, PartitionTarget, resolve_targets
from kseg.segment.writing.append import append, append_target
from kseg.segment.writing.append_options import AppendOptions
from kseg.segment.writing.batching import BatchRules
from kseg.segment.writing.flush import FlushCounter, FlushRules
from kseg.segment.writing.from_json import BadLine
from kseg.segment.writing.reopen import reopen_partition
from kseg.segment.writing.segment_writer import PartitionWriter, RollRules
from tests import trees

NOW_MS = healthy.T0
DECIDED_BY_BYTES = ("file", "position", "size", "crc")
Lines = list[dict[str, Any]]


def dumped(directory: Path, suffix: str = ".log") -> bytes:
    """The lines of `dump --json --deep-iteration` for the segments of a directory."""
    out = b""
    for target in resolve_targets([str(directory)], expand=Expansion.FILES):
        if target.path.endswith(suffix):
            options = DumpOptions(format="json", deep_iteration=True)
            for event in dump(FileTarget(target.path), options):
                if isinstance(event, Text):
                    out += event.data
                elif isinstance(event, Row):
                    out += json.dumps(event.values).encode() + b"\n"
    return out


def without_bytes(data: bytes) -> Lines:
    """Batch and record lines without what the bytes decide."""
    rows = [json.loads(line) for line in data.splitlines()]
    return [
        {name: value for name, value in row.items() if name not in DECIDED_BY_BYTES}
        for row in rows
        if row["type"] in ("batch", "record")
    ]


def rows_of(directory: Path) -> Lines:
    return without_bytes(dumped(directory))


@pytest.fixture
def appended(tmp_path: Path) -> Callable[..., Mapping[str, object]]:
    """append(directory, lines, **rules of batches or options) → the result row."""

    def run(
        directory: Path,
        lines: bytes | Lines,
        *,
        rolls: RollRules | None = None,
        flush: FlushRules | None = None,
        options: Mapping[str, Any] | None = None,
        **rules: Any,
    ) -> Mapping[str, object]:
        data = lines if isinstance(lines, bytes) else b"".join(json.dumps(x).encode() + b"\n" for x in lines)
        source = tmp_path / "lines.jsonl"
        source.write_bytes(data)
        asked = AppendOptions(
            source=str(source),
            run_id=new_run_id(NOW_MS),
            batches=BatchRules(**{"now_ms": NOW_MS, **rules}),
            rolls=rolls or RollRules(),
            flush=flush or FlushRules(),
            **(options or {}),
        )
        events = list(append(append_target(str(directory)), asked))
        (result,) = [event.values for event in events if isinstance(event, Row)]
        return result

    return run


Appended = Callable[..., Mapping[str, object]]


def partitions_below(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*-[0-9]")):
        if path.is_dir() and list(path.glob("*.log")):
            yield path


# --- round trips


def test_every_partition_of_the_captures_comes_back(
    capture_small: Path, legacy_small: Path, tmp_path: Path, appended: Appended
) -> None:
    sources = [*partitions_below(capture_small / "data"), *partitions_below(legacy_small / "data")]
    assert len(sources) > 60
    for number, source in enumerate(sources):
        lines = dumped(source)
        target = tmp_path / f"copy-{number}"
        result = appended(target, lines)
        assert rows_of(target) == without_bytes(lines), source
        assert result["batches"] == sum(row["type"] == "batch" for row in without_bytes(lines))


@pytest.mark.parametrize("segment_bytes", [5000, 1 << 30])
def test_a_partition_with_everything_comes_back_to_the_byte(
    tmp_path: Path, appended: Appended, segment_bytes: int
) -> None:
    """All but LogAppendTime, which hides the times that the records had."""
    rules = RollRules(segment_bytes=segment_bytes, index_interval_bytes=600)
    source, target = tmp_path / "source-0", tmp_path / "target-0"
    with PartitionWriter(source, topic_id=healthy.TOPIC_ID, rules=rules) as writer:
        for new in healthy.batches():
            if not new.log_append_time:
                writer.append(new)
    appended(target, dumped(source), rolls=rules, options={"topic_id": healthy.TOPIC_ID})
    names = {path.name: path.read_bytes() for path in source.iterdir()}
    assert {path.name: path.read_bytes() for path in target.iterdir() if path.is_file()} == names


def test_two_appends_are_one(tmp_path: Path, appended: Appended) -> None:
    source = healthy.partition(tmp_path / "source-0", RollRules())
    lines = dumped(source).splitlines(keepends=True)
    cut = next(n for n, line in enumerate(lines) if n > 100 and b'"type":"batch"' in line)
    target = tmp_path / "target-0"
    first = appended(target, b"".join(lines[:cut]))
    second = appended(target, b"".join(lines[cut:]))
    assert second["first_offset"] == first["log_end_offset"]
    assert rows_of(target) == rows_of(source)
    snapshot = f"{second['log_end_offset']:020d}.snapshot"
    assert decode_snapshot((target / snapshot).read_bytes()) == decode_snapshot(
        (source / snapshot).read_bytes()
    )
    assert (target / "leader-epoch-checkpoint").read_bytes() == (
        source / "leader-epoch-checkpoint"
    ).read_bytes()


@pytest.mark.parametrize("name", ["lamp.none-0", "lamp.magic0-0", "lamp.one-0", "lamp.void-0"])
def test_0_7_partitions_without_compression_come_back_to_the_byte(
    legacy_small: Path, tmp_path: Path, appended: Appended, name: str
) -> None:
    source = legacy_small / "data" / "0.7" / "1-written" / name
    target = tmp_path / "copy-0"
    appended(target, dumped(source, ".kafka"), options={"ancient": True})
    ours = b"".join(path.read_bytes() for path in sorted(target.glob("*.kafka")))
    assert ours == b"".join(path.read_bytes() for path in sorted(source.glob("*.kafka")))


@pytest.mark.parametrize("name", ["lamp.gzip-0", "lamp.snappy-0", "lamp.codecs-0", "lamp.nested-0"])
def test_0_7_sets_come_back_as_sets(
    legacy_small: Path, tmp_path: Path, appended: Appended, name: str
) -> None:
    def sets_of(directory: Path) -> Lines:
        rows = without_bytes(dumped(directory, ".kafka"))
        number, seen = 0, None
        for row in rows:  # offsets are bytes, which the compressor decides
            place = (row.pop("offset"), row.pop("next_offset"))
            number, seen = number + (place != seen), place
            row["set"] = number
        return rows

    source = legacy_small / "data" / "0.7" / "1-written" / name
    target = tmp_path / "copy-0"
    appended(target, dumped(source, ".kafka"), options={"ancient": True}, rolls=RollRules(segment_bytes=3000))
    assert sets_of(target) == sets_of(source)


# --- records of one's own


def test_only_the_value_is_needed(tmp_path: Path, appended: Appended) -> None:
    target = tmp_path / "own-3"
    result = appended(target, [{"value": "a"}, {"value": None, "key": "k"}, {"value": {"base64": "/w=="}}])
    batch, *records = rows_of(target)
    assert result["records"] == 3 and result["batches"] == 1 and result["partition"] == "own-3"
    assert (batch["base_offset"], batch["last_offset"], batch["leader_epoch"], batch["magic"]) == (0, 2, 0, 2)
    assert [(row["key"], row["value"], row["timestamp"]) for row in records] == [
        (None, "a", NOW_MS),
        ("k", None, NOW_MS),
        (None, "/w==", NOW_MS),
    ]
    assert records[2]["value_encoding"] == "base64"


def test_batches_end_by_records_and_by_bytes(tmp_path: Path, appended: Appended) -> None:
    lines = [{"value": "x" * 79} for _ in range(10)]
    appended(tmp_path / "records-0", lines, batch_records=4)
    appended(tmp_path / "bytes-0", lines, batch_bytes=61 + 3 * 100)
    counts = [
        [row["count"] for row in rows_of(tmp_path / name) if row["type"] == "batch"]
        for name in ("records-0", "bytes-0")
    ]
    assert counts == [[4, 4, 2], [3, 3, 3, 1]]


def test_offsets_are_kept_or_numbered_anew(tmp_path: Path, appended: Appended) -> None:
    lines = [{"value": "a", "offset": 7}, {"value": "b"}, {"value": "c", "offset": 100}]

    def offsets(name: str) -> list[int]:
        return [row["offset"] for row in rows_of(tmp_path / name) if row["type"] == "record"]

    assert appended(tmp_path / "kept-0", lines)["log_start_offset"] == 7
    assert appended(tmp_path / "anew-0", lines, keep_offsets=False)["log_start_offset"] == 0
    assert (offsets("kept-0"), offsets("anew-0")) == ([7, 8, 100], [0, 1, 2])
    with pytest.raises(
        BadLine, match=r"line 1: its offset 7 is not above 100 .--no-keep-offsets numbers anew"
    ):
        appended(tmp_path / "kept-0", lines)
    appended(tmp_path / "kept-0", dumped(tmp_path / "kept-0"), keep_offsets=False)
    assert offsets("kept-0") == [7, 8, 100, 101, 102, 194]


def test_a_far_offset_begins_a_batch_and_a_segment(tmp_path: Path, appended: Appended) -> None:
    target = tmp_path / "far-0"
    result = appended(target, [{"value": "a"}, {"value": "b", "offset": 2**31}])
    assert result["segments_rolled"] == 1
    assert [path.name for path in sorted(target.glob("*.log"))] == [f"{0:020d}.log", f"{2**31:020d}.log"]


def test_an_idempotent_producer_goes_on_where_the_log_knows_it(tmp_path: Path, appended: Appended) -> None:
    target = tmp_path / "idempotent-0"
    for _ in range(2):
        appended(target, [{"value": "a"}, {"value": "b"}], producer_id=9, batch_records=1)
    appended(target, [{"value": "c"}], producer_id=9, producer_epoch=1)
    appended(target, [{"value": "d"}], producer_id=9, base_sequence=2**31 - 1)
    found = [
        (row["producer_epoch"], row["base_sequence"]) for row in rows_of(target) if row["type"] == "batch"
    ]
    assert found == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 2**31 - 1)]


@pytest.mark.parametrize(("end", "kind"), [("commit", "COMMIT"), ("abort", "ABORT"), ("open", None)])
def test_a_transaction_ends_as_asked(tmp_path: Path, appended: Appended, end: str, kind: str | None) -> None:
    target = tmp_path / "txn-0"
    rules = {"producer_id": 5, "producer_epoch": 2, "transactional": True, "end_transaction": end}
    appended(target, [{"value": "a"}, {"value": "b"}], **rules)
    rows = rows_of(target)
    assert rows[0]["transactional"] is True and rows[0]["base_sequence"] == 0
    assert [row["control"]["kind"] for row in rows if "control" in row and row["type"] == "record"] == (
        [] if kind is None else [kind]
    )
    assert len(list(target.glob("*.txnindex"))) == (kind == "ABORT")


def test_markers_and_other_control_records_without_a_header(tmp_path: Path, appended: Appended) -> None:
    target = tmp_path / "txn-0"
    marker = {"control": {"kind": "ABORT", "coordinator_epoch": 4}, "value": None}
    appended(target, [{"value": "a"}, marker, {"value": "b"}], producer_id=5, transactional=True)
    kinds = [
        (row["control"]["kind"], row["control"]["coordinator_epoch"])
        for row in rows_of(target)
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
def test_old_formats(tmp_path: Path, appended: Appended, magic: int, codec: int) -> None:
    target = tmp_path / "old-0"
    appended(target, [{"value": f"v{n}", "timestamp": 1000 + n} for n in range(5)], magic=magic, codec=codec)
    rows = rows_of(target)
    assert {row["magic"] for row in rows if row["type"] == "batch"} == {magic}
    records = [row for row in rows if row["type"] == "record"]
    assert [row["value"] for row in records] == [f"v{n}" for n in range(5)]
    assert [row["timestamp"] for row in records] == [-1 if magic == 0 else 1000 + n for n in range(5)]
    assert decode_leader_epochs((target / "leader-epoch-checkpoint").read_bytes()) == ()


def test_other_codecs_and_epochs_for_dumped_batches(tmp_path: Path, appended: Appended) -> None:
    source = healthy.partition(tmp_path / "source-0")
    target = tmp_path / "target-0"
    appended(target, dumped(source), codec=4, leader_epoch=11)
    batches = [row for row in rows_of(target) if row["type"] == "batch"]
    assert {row["leader_epoch"] for row in batches} == {11}
    assert {row["compression"] for row in batches if row["count"] and not row["control"]} == {"zstd"}
    assert [row for row in rows_of(target) if row["type"] == "record"] == [
        row for row in rows_of(source) if row["type"] == "record"
    ]


def test_a_leader_epoch_never_falls(tmp_path: Path, appended: Appended) -> None:
    target = tmp_path / "epochs-0"
    appended(target, [{"value": "a"}], leader_epoch=7)
    appended(target, [{"value": "b"}])
    assert [row["leader_epoch"] for row in rows_of(target) if row["type"] == "batch"] == [7, 7]
    with pytest.raises(BadLine, match="line 1: leader epoch 6 is below 7, the latest"):
        appended(target, [{"value": "c"}], leader_epoch=6)


PRODUCERS_INTERLEAVED = (
    (1, 5), (None, 3), (2, 2), (1, 4), (3, 3), (None, 2), (1, 10), (1, "ABORT"), (2, 6), (4, 3), (None, 10),
    (3, 9), (3, "COMMIT"), (4, 8), (2, 7), (2, "ABORT"), (None, 10), (4, 4), (4, "COMMIT"),
)  # fmt: skip


@pytest.mark.behaviour("X01", "X07")
@pytest.mark.parametrize("segment_bytes", [400, 1200, 1 << 30])
def test_aborts_stand_in_the_index_of_the_segment_with_their_marker(
    tmp_path: Path, appended: Appended, segment_bytes: int
) -> None:
    """Ninety offsets of four producers, whose transactions abort at 29 and 74 and commit at 58 and 89."""
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


# --- filtered and damaged input


def test_batches_with_missing_records_are_refused_unless_asked_for(
    tmp_path: Path, appended: Appended
) -> None:
    source = tmp_path / "source-0"
    appended(source, [{"value": f"v{n}", "key": f"k{n}"} for n in range(6)])
    lines = [line for line in dumped(source).splitlines(keepends=True) if b'"k3"' not in line]
    with pytest.raises(BadLine, match="line 1: its batch has 6 records, 5 follow"):
        appended(tmp_path / "strict-0", b"".join(lines))
    assert not (tmp_path / "strict-0" / f"{0:020d}.log").read_bytes()
    appended(tmp_path / "loose-0", b"".join(lines), partial_batches=True)
    rows = rows_of(tmp_path / "loose-0")
    assert (rows[0]["count"], rows[0]["last_offset"]) == (5, 5)
    with pytest.raises(BadLine, match=r"no records behind it .dump with --deep-iteration."):
        appended(tmp_path / "shallow-0", lines[0], partial_batches=True)


def test_damaged_batches_and_other_lines_are_left_out_and_counted(tmp_path: Path, appended: Appended) -> None:
    source = tmp_path / "source-0"
    appended(source, [{"value": f"v{n}"} for n in range(3)], batch_records=1)
    log = source / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 3 + 66] ^= 1
    log.write_bytes(data)
    result = appended(tmp_path / "target-0", dumped(source) + b'{"type":"finding"}\n\n{"type":"summary"}\n')
    assert (result["batches"], result["batches_left_out"]) == (2, 1)
    assert result["lines_ignored"] == {"finding": 1, "summary": 1}
    assert [row["offset"] for row in rows_of(tmp_path / "target-0") if row["type"] == "record"] == [0, 2]


BAD_LINES = {
    b"{": "it is no JSON",
    b"nonsense": "it is no JSON",
    b"[1]": "it is no JSON object",
    b'{"value":"a"} x': "something stands behind its JSON object",
    b'{"value":"\xff"}': "it is not UTF-8",
    b'{"value":"\\ud800"}': "its value is no text",
    b'{"key":"k"}': "it has no value",
    b'{"value":1}': "its value is neither text, nor base64, nor null",
    b'{"value":"?","value_encoding":"base64"}': "its value is no base64",
    b'{"value":"xy","value_encoding":"hex"}': "its value is no hex",
    b'{"value":5,"value_encoding":"size"}': "its value was dumped as size, which cannot be turned back",
    b'{"value":"a","offset":"1"}': "its offset is no whole number",
    b'{"value":"a","offset":true}': "its offset is no whole number",
    b'{"value":"a","timestamp":1.5}': "its timestamp is no whole number",
    b'{"value":"a","timestamp":-2}': "-2 is no timestamp",
    b'{"value":"a","timestamp":99999999999999999999999}': "is no timestamp",
    b'{"value":"a","offset":99999999999999999999999}': "no batch can span the offsets",
    b'{"value":"a","headers":["a"]}': "a header is no pair",
    b'{"value":"a","headers":{}}': None,
    b'{"type":"batch","compression":"brotli"}': "there is no compression 'brotli'",
    b'{"type":"batch","magic":"2"}': "its magic is no whole number",
    b'{"type":"batch","count":0}': "its batch has no records behind it",
    b'{"type":"batch","count":0,"base_offset":3,"last_offset":2}': "no batch can span",
    b'{"type":"batch","count":0,"base_offset":3,"last_offset":3,"magic":9}': "no message format with magic 9",
    b'{"type":"batch","transactional":1}': "its transactional is neither true nor false",
    b'{"value":' + b"[" * 100_000: "it is no JSON",
    b'{"value":"a","timestamp":' + b"1" * 5000 + b"}": "it is no JSON",
}


@pytest.mark.parametrize("line", BAD_LINES, ids=lambda line: line[:40].decode("latin-1"))
def test_a_bad_line_is_named_and_what_stood_before_it_stays(
    tmp_path: Path, appended: Appended, line: bytes
) -> None:
    target = tmp_path / "bad-0"
    why = BAD_LINES[line]
    if why is None:
        appended(target, line + b"\n")
        return
    with pytest.raises(BadLine) as raised:
        appended(target, b'{"value":"good"}\n\n' + line + b"\n" + b'{"value":"behind"}\n', batch_records=1)
    assert str(raised.value).startswith(f"{tmp_path / 'lines.jsonl'}, line 3: ") and why in str(raised.value)
    assert [row["value"] for row in rows_of(target) if row["type"] == "record"] == ["good"]
    assert (target / f"{1:020d}.snapshot").exists() and (target / f"{0:020d}.index").exists()


def test_a_bad_first_line_makes_nothing(tmp_path: Path, appended: Appended) -> None:
    with pytest.raises(BadLine):
        appended(tmp_path / "none-0", b"x\n")
    assert not (tmp_path / "none-0").exists()


def test_lines_are_found_wherever_blocks_end(tmp_path: Path, appended: Appended) -> None:
    value = "ü" * 700_000  # longer than a block of input
    appended(tmp_path / "long-0", [{"value": value}, {"value": "b"}])
    assert [row["value"] for row in rows_of(tmp_path / "long-0") if row["type"] == "record"] == [value, "b"]
    appended(tmp_path / "crlf-0", b'{"value":"a"}\r\n  {"value":"b"}\r\n\r\n{"value":"c"}')
    assert [row["value"] for row in rows_of(tmp_path / "crlf-0") if row["type"] == "record"] == [
        "a",
        "b",
        "c",
    ]


# --- refusals


def hurt_tail(directory: Path) -> None:
    log = max(directory.glob("*.log"))
    log.write_bytes(log.read_bytes()[:-3])


def hurt_index(directory: Path) -> None:
    index = max(directory.glob("*.index"))
    index.write_bytes(index.read_bytes() + bytes(800))


def hurt_time_index(directory: Path) -> None:
    index = max(directory.glob("*.timeindex"))
    index.write_bytes(index.read_bytes() + struct.pack(">qi", 2**60, 2**30))


def hurt_snapshot(directory: Path) -> None:
    snapshot = max(directory.glob("*.snapshot"))
    snapshot.write_bytes(snapshot.read_bytes()[:-1])


def hurt_swap(directory: Path) -> None:
    (directory / f"{0:020d}.log.swap").write_bytes(b"")


def hurt_missing(directory: Path) -> None:
    min(directory.glob("*.index")).unlink()


def hurt_epochs(directory: Path) -> None:
    (directory / "leader-epoch-checkpoint").write_bytes(b"0\n1\nnonsense\n")


def hurt_beyond(directory: Path) -> None:
    newest = max(directory.glob("*.snapshot"))
    newest.rename(directory / f"{9999:020d}.snapshot")


@pytest.mark.parametrize(
    "hurt",
    [
        hurt_tail,
        hurt_index,
        hurt_time_index,
        hurt_snapshot,
        hurt_swap,
        hurt_missing,
        hurt_epochs,
        hurt_beyond,
    ],
)
def test_what_would_not_load_cleanly_is_refused_untouched(
    tmp_path: Path, appended: Appended, hurt: Callable[[Path], None]
) -> None:
    target = healthy.partition(tmp_path / "hurt-0")
    hurt(target)
    with (
        trees.unchanged(target),
        pytest.raises(Refused, match=r"nothing was appended .kseg recover .*hurt-0"),
    ):
        appended(target, [{"value": "a"}])


def test_names_and_files_that_are_no_partition(tmp_path: Path, appended: Appended) -> None:
    with pytest.raises(UsageError, match="it is not named topic-partition"):
        appended(tmp_path / "nonsense", [{"value": "a"}])
    (tmp_path / "file-0").write_bytes(b"")
    with pytest.raises(UsageError, match="is a file"):
        appended(tmp_path / "file-0", [{"value": "a"}])
    gone = healthy.partition(tmp_path / f"gone-0.{'a' * 32}-delete")
    with pytest.raises(Refused, match="is set aside as delete"):
        appended(gone, [{"value": "a"}])


def test_0_7_takes_only_what_it_knows(tmp_path: Path, appended: Appended) -> None:
    target = tmp_path / "old-0"
    for line, why in (
        ({"value": None}, "no null messages"),
        ({"value": "a", "key": "k"}, "neither keys nor headers"),
        ({"value": "a", "magic": 2}, "no messages of magic 2"),
    ):
        with pytest.raises(BadLine, match=why):
            appended(target, [line], options={"ancient": True})
    with pytest.raises(BadLine, match="no codec zstd"):
        appended(target, [{"value": "a"}], options={"ancient": True}, codec=4)
    appended(target, [{"value": "a"}, {"value": "b"}], codec=1)  # it is 0.7 by what lies there
    (file,) = target.glob("*.kafka")
    file.write_bytes(file.read_bytes()[:-1])
    with trees.unchanged(target), pytest.raises(Refused, match="is valid up to byte 0 only"):
        appended(target, [{"value": "c"}])


# --- flushing


def test_flush_rules_count_messages_and_time() -> None:
    now = [0]
    counter = FlushCounter(FlushRules(messages=10, interval_ms=5), 100, lambda: now[0])
    assert not counter.is_due(109) and counter.is_due(110)
    now[0] = 5_000_000
    assert counter.is_due(101) and not counter.is_due(100)
    counter.flushed(110)
    assert counter.flushes == 1 and not counter.is_due(119)
    assert not FlushCounter(FlushRules(), 0, lambda: now[0]).is_due(1 << 40)


def test_the_log_is_forced_to_the_disk_every_m_messages(
    tmp_path: Path, appended: Appended, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[int] = []
    real = os.fdatasync

    def fdatasync(descriptor: int) -> None:
        forced.append(os.fstat(descriptor).st_size)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    lines = [{"value": "x"} for _ in range(20)]
    result = appended(tmp_path / "f-0", lines, flush=FlushRules(messages=6), batch_records=2)
    assert result["flushes"] == 3
    size = (tmp_path / "f-0" / f"{0:020d}.log").stat().st_size
    assert forced == [size * 3 // 10, size * 6 // 10, size * 9 // 10, size]
    forced.clear()
    result = appended(tmp_path / "g-0", lines, flush=FlushRules(messages=6), codec=1, batch_records=2,
                      options={"ancient": True})  # fmt: skip
    assert result["flushes"] == 3 and len(forced) == 4


# --- the log dir, and the way back


def changes(before: dict[str, trees.Entry], directory: Path) -> list[str]:
    """What is different now; not the times of directories, where locks and journals come and go."""
    now = trees.tree_state(directory)
    for name in before.keys() & now.keys():
        if before[name].kind == now[name].kind == "directory":
            now[name] = replace(now[name], mtime_ns=before[name].mtime_ns)
    return trees.differences(before, now)


def test_checkpoints_follow_and_undo_restores_everything(tmp_path: Path, appended: Appended) -> None:
    log_dir = healthy.log_dir(tmp_path / "data")
    before = trees.tree_state(log_dir)
    result = appended(log_dir / "metro-1", [{"value": f"v{n}" * 50} for n in range(200)], batch_records=5,
                      rolls=healthy.RULES)  # fmt: skip
    end = result["log_end_offset"]
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        entries = {
            (e.topic, e.partition): e.offset for e in decode_offset_checkpoint((log_dir / name).read_bytes())
        }
        assert entries["metro", 1] == end and entries["metro", 0] < end and len(entries) == 3
    assert (log_dir / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":17}'
    assert not (log_dir / ".lock").exists() and is_log_directory(str(log_dir))
    appended(log_dir / "new-0", [{"value": "a"}], options={"topic_id": healthy.TOPIC_ID})
    newest = max(log_dir.glob("kseg-journal-*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    for journal in (newest, Path(str(result["journal"]))):
        place = place_of(str(journal))
        assert place is not None
        undo(place)
    assert changes(before, log_dir) == []


def test_an_unclean_log_dir_keeps_its_recovery_points(tmp_path: Path, appended: Appended) -> None:
    log_dir = healthy.log_dir(tmp_path / "data")
    (log_dir / ".kafka_cleanshutdown").unlink()
    points = (log_dir / "recovery-point-offset-checkpoint").read_bytes()
    appended(log_dir / "metro-0", [{"value": "a"}])
    assert (log_dir / "recovery-point-offset-checkpoint").read_bytes() == points
    assert not (log_dir / ".kafka_cleanshutdown").exists()


def test_a_directory_without_segments_starts_where_the_lines_do(tmp_path: Path, appended: Appended) -> None:
    target = tmp_path / "bare-0"
    target.mkdir()
    (target / "partition.metadata").write_bytes(b"version: 0\ntopic_id: Pm0fXkDvQ0yTn7Qq3uXJ8A")
    before = trees.tree_state(target)
    result = appended(target, [{"value": "a", "offset": 5000}])
    assert (result["log_start_offset"], result["log_end_offset"]) == (5000, 5001)
    assert (target / f"{5000:020d}.log").exists()
    place = place_of(str(result["journal"]))
    assert place is not None
    undo(place)
    assert changes(before, target) == []


def test_closed_early_it_keeps_what_was_appended(tmp_path: Path) -> None:
    source, target = tmp_path / "lines.jsonl", tmp_path / "early-0"
    source.write_bytes(b'{"value":"a"}\n' * 300_000)
    options = AppendOptions(
        source=str(source), run_id=new_run_id(NOW_MS), batches=BatchRules(now_ms=NOW_MS, batch_records=100)
    )
    events = append(append_target(str(target)), options)
    assert isinstance(next(events), Advance)
    events.close()  # type: ignore[attr-defined]
    with PartitionLog(PartitionTarget(str(target))) as log:
        assert reopen_partition(log, RollRules()).next_offset == 100
    assert len(rows_of(target)) == 101


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_new_files_belong_to_the_owner_of_the_partition(tmp_path: Path, appended: Appended) -> None:
    log_dir = healthy.log_dir(tmp_path / "data")
    for path in (log_dir, *log_dir.rglob("*")):
        os.chown(path, 1234, 1235)
        if path.is_file():
            path.chmod(0o640)
    appended(
        log_dir / "metro-0", [{"value": "x" * 200} for _ in range(40)], rolls=healthy.RULES, batch_records=5
    )
    for path in (
        *(log_dir / "metro-0").iterdir(),
        *log_dir.glob("*checkpoint"),
        log_dir / ".kafka_cleanshutdown",
    ):
        assert (path.stat().st_uid, path.stat().st_gid) == (1234, 1235), path
    assert (log_dir / "recovery-point-offset-checkpoint").stat().st_mode & 0o777 == 0o640


def test_nothing_to_append_changes_nothing(tmp_path: Path, appended: Appended) -> None:
    log_dir = healthy.log_dir(tmp_path / "data")
    before = trees.tree_state(log_dir)
    result = appended(log_dir / "metro-0", b'{"type":"summary"}\n')
    assert changes(before, log_dir) == []
    assert (result["records"], result["journal"]) == (0, None)


def test_a_failing_disk_leaves_everything_as_it_was(
    tmp_path: Path, appended: Appended, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = healthy.log_dir(tmp_path / "data")
    before = trees.tree_state(log_dir)
    real, room = os.write, [5]

    def write(descriptor: int, data: bytes) -> int:
        room[0] -= 1
        if room[0] < 0:
            raise OSError(28, os.strerror(28))
        return real(descriptor, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        with pytest.raises(Refused, match="No space left on device"):
            appended(log_dir / "metro-0", [{"value": "x" * 300} for _ in range(60)], batch_records=1,
                     rolls=healthy.RULES)  # fmt: skip
    assert changes(before, log_dir) == []


def killed_after(writes: int, target: PartitionTarget, options: AppendOptions) -> bool:
    """Run the append in a process that is killed at its n-th write or rename; whether it was killed."""
    pid = os.fork()
    if pid == 0:
        left = [writes]

        def counted(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **named: Any) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **named)

            return call

        for name in ("write", "pwrite", "replace", "unlink"):
            setattr(os, name, counted(getattr(os, name)))
        list(append(target, options))
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def test_a_kill_at_any_write_can_be_undone(tmp_path: Path) -> None:
    source = tmp_path / "lines.jsonl"
    source.write_text("".join(json.dumps({"value": f"v{n}" * 60}) + "\n" for n in range(40)))
    options = AppendOptions(
        source=str(source),
        run_id=new_run_id(NOW_MS),
        batches=BatchRules(now_ms=NOW_MS, batch_records=4),
        rolls=healthy.RULES,
    )
    log_dir = healthy.log_dir(tmp_path / "data")
    before = trees.tree_state(log_dir)
    for name in ("metro-0", "fresh-0"):
        target = append_target(str(log_dir / name))
        for writes in range(0, 1000, 2):
            if not killed_after(writes, target, replace(options, run_id=new_run_id(NOW_MS))):
                break
            (log_dir / ".lock").unlink(missing_ok=True)
            marker = (log_dir / ".kafka_cleanshutdown").exists()
            journals = [path for path in log_dir.glob("kseg-journal-*.jsonl") if path.name not in before]
            if journals and not marker:
                with pytest.raises(Refused, match="append was interrupted"):
                    list(append(target, options))
            for journal in journals:
                place = place_of(str(journal))
                assert place is not None
                undo(place)
            if (log_dir / name).is_dir() and not any((log_dir / name).iterdir()):
                (log_dir / name).rmdir()  # killed between mkdir and journal: nothing in it
            assert changes(before, log_dir) == [], (name, writes)
        assert writes > 30
        before = trees.tree_state(log_dir)


# --- hostile lines

names = st.sampled_from(
    ["type", "value", "key", "headers", "offset", "timestamp", "control", "count", "base_offset", "last_offset",
     "magic", "compression", "producer_id", "producer_epoch", "base_sequence", "leader_epoch", "transactional",
     "max_timestamp", "delete_horizon_ms", "timestamp_type", "position", "file", "next_offset", "value_encoding",
     "valid"]
)  # fmt: skip
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(2**70), max_value=2**70),
    st.integers(min_value=-2, max_value=5),
    st.sampled_from(["batch", "record", "LogAppendTime", "gzip", "none", "base64", "5.log", "x"]),
    st.lists(st.lists(st.sampled_from(["n", None, 1]), max_size=3), max_size=2),
    st.dictionaries(
        st.sampled_from(["kind", "base64", "coordinator_epoch"]), st.sampled_from(["COMMIT", "AA==", 2**40])
    ),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(st.dictionaries(names, values, max_size=8), max_size=6),
    magic=st.sampled_from([0, 1, 2]),
    ancient=st.booleans(),
    keep_offsets=st.sampled_from([None, True, False]),
)
def test_no_line_breaks_more_than_itself(
    tmp_path_factory: pytest.TempPathFactory,
    appended: Appended,
    lines: Lines,
    magic: int,
    ancient: bool,
    keep_offsets: bool | None,
) -> None:
    target = tmp_path_factory.mktemp("hostile") / "own-0"
    try:
        appended(target, lines, magic=magic, keep_offsets=keep_offsets, options={"ancient": ancient})
    except BadLine:
        if not target.exists():
            return
    if ancient:
        return
    with PartitionLog(PartitionTarget(str(target))) as log:
        reopen_partition(log, RollRules())
    appended(target, [])
