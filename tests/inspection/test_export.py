"""The local export: every format contains what `dump` shows, for all batch formats and codecs; filters, columns, directories."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from kseg.inspection.export import sinks, writers
from kseg.inspection.export.export import export
from kseg.inspection.export.options import COMPRESSIONS, TABLE_FORMS, ExportOptions, Form
from kseg.inspection.export.output_folder import Mode
from kseg.inspection.export.run import DamageFound, ExportRun
from kseg.inspection.record_filter import Selection
from kseg.jobs import fanout
from kseg.jobs.events import Event, Failure, Row
from kseg.segment.errors import Refused
from kseg.segment.findings import Finding
from kseg.segment.partition.targets import FileTarget, PartitionTarget, Target, resolve_targets
from tests.support.expected_exports import ExportedRecord, dumped, exported, files_of, odd_partition, text_of
from tests.support.raw_batches import T0, record, sealed

FORMS = ("parquet", "arrow", "json", "csv")


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    return odd_partition(tmp_path / "in")


def write(output: Path, paths: list[Path], form: str, **wishes: Any) -> list[Event]:
    """Export the partitions at `paths`; returns all events."""
    bytes_mode = wishes.pop("bytes_mode", "base64" if form in ("json", "csv") else "")
    compression = wishes.pop("compression", COMPRESSIONS[Form(form)][0])
    options = ExportOptions(
        form=Form(form), output=str(output), bytes_mode=bytes_mode, compression=compression, **wishes
    )
    targets = _targets(resolve_targets([str(path) for path in paths]))
    run = ExportRun(options)
    with run.held(targets) as held:
        return list(run.through(fanout.run(export, targets, held)))


def _targets(found: Sequence[Target]) -> list[PartitionTarget | FileTarget]:
    return cast("list[PartitionTarget | FileTarget]", found)


def partitions(root: Path) -> list[Path]:
    return sorted({path.parent for path in root.rglob("0*") if path.suffix in (".log", ".kafka")})


def failures(events: list[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, Failure | Finding)]


# --- the same records


@pytest.mark.parametrize("form", FORMS)
def test_export_of_a_data_directory_equals_dump_in_every_format(
    capture_small: Path, form: str, tmp_path: Path
) -> None:
    events = write(tmp_path / "out", [capture_small / "data"], form)
    assert failures(events) == []
    expected = dumped(partitions(capture_small / "data"))
    assert len(expected) > 1000
    assert {
        codec
        for codec in ("gzip", "lz4", "snappy", "zstd", "none")
        if f"metro-{codec}" in {row[0] for row in expected}
    }
    assert exported(tmp_path / "out", form) == expected
    assert any(row[7] for row in expected) and any(row[5] is None for row in expected)
    assert any(row[6] is None for row in expected)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["parquet", "json"])
def test_export_of_old_formats_equals_dump(
    legacy_small: Path, ancient_small: Path, form: str, tmp_path: Path
) -> None:
    found = [path for path in partitions(legacy_small / "data") if path.name != "versions"]
    found.append(ancient_small / "taps-0")
    assert len(found) > 5
    for number, path in enumerate(found):
        write(tmp_path / str(number), [path], form)
        assert exported(tmp_path / str(number), form) == dumped([path]), path


@pytest.mark.parametrize("form", FORMS)
def test_export_distinguishes_null_from_empty(form: str, odd: Path, tmp_path: Path) -> None:
    write(tmp_path / "out", [odd], form)
    rows = exported(tmp_path / "out", form)
    assert [row[5] for row in rows] == [
        None,
        b"",
        b"k\xff\x00",
        b'a "quoted", key\r\nof two lines',
        b"",
        b"last",
    ]
    assert [row[6] for row in rows] == [b"", None, b"\x80", b"  spaces  ", b"", None]
    assert rows[2][7] == (("h", None), ("", b""), ("h", b"\xfe"), ('"\\\n\u2028', b"x"))
    assert rows == dumped([odd])


@pytest.mark.behaviour("X01")
@pytest.mark.parametrize("name", ["fares-0", "gates-append-0", "__transaction_state-0"])
def test_export_of_committed_data_leaves_out_aborted_records(
    capture_small: Path, name: str, tmp_path: Path
) -> None:
    path, selection = capture_small / "data" / name, Selection(read_committed=True)
    write(tmp_path / "out", [path], "parquet", selection=selection)
    expected = dumped([path], selection)
    assert exported(tmp_path / "out", "parquet") == expected
    if name == "fares-0":
        assert 0 < len(expected) < len(dumped([path]))


SELECTIONS = [
    Selection(from_offset=37, to_offset=101),
    Selection(to_offset=0),
    Selection(from_time_ms=1750000050000, to_time_ms=1750000099500),
    Selection(keys=(b"stop8", b"stop0")),
    Selection(key_regex=b"^stop1[0-4]$"),
    Selection(key_regex=b"0", from_offset=40),
    Selection(limit=17),
    Selection(limit=3, keys=(b"stop8",)),
    Selection(leader_epoch=0),
    Selection(leader_epoch=7),
    Selection(producer_id=5),
]


@pytest.mark.parametrize("selection", SELECTIONS, ids=[str(number) for number in range(len(SELECTIONS))])
def test_export_filters_equal_those_of_dump(
    capture_small: Path, selection: Selection, tmp_path: Path
) -> None:
    path = capture_small / "data" / "metro-zstd-0"
    write(tmp_path / "out", [path], "parquet", selection=selection, with_key=True, with_meta=False)
    expected = dumped([path], replace(selection, limit=None))
    if selection.limit is not None:
        expected = expected[: selection.limit]
    assert exported(tmp_path / "out", "parquet") == expected


def test_export_includes_control_records_on_request(capture_small: Path, tmp_path: Path) -> None:
    path = capture_small / "data" / "fares-0"
    all_rows = write(tmp_path / "all", [path], "parquet", with_control=True)
    only = write(tmp_path / "only", [path], "parquet", selection=Selection(control=True), with_meta=False)
    none = write(tmp_path / "none", [path], "parquet")
    counts = [_result(events)["records"] for events in (all_rows, only, none)]
    assert counts[0] == counts[1] + counts[2] and counts[1] > 0
    table = pq.ParquetDataset(tmp_path / "all").read()
    assert sum(each["control"] for each in table.column("_meta").to_pylist()) == counts[1]


def _result(events: list[Event]) -> dict[str, Any]:
    (row,) = (event for event in events if isinstance(event, Row) and event.values["type"] == "result")
    return dict(row.values)


# --- what the files look like


def test_export_leaves_out_unwanted_columns(capture_small: Path, tmp_path: Path) -> None:
    path = capture_small / "data" / "fares-0"
    wishes = {"with_key": False, "with_value": False, "with_headers": False, "with_meta": False}
    write(tmp_path / "out", [path], "parquet", selection=Selection(keys=(b"f1",), producer_id=1), **wishes)
    table = pq.ParquetDataset(tmp_path / "out").read()
    assert table.schema.names == ["topic", "partition", "offset", "timestamp", "timestampType"]
    expected = dumped([path], Selection(keys=(b"f1",), producer_id=1))
    assert table.column("offset").to_pylist() == [row[2] for row in expected]


def test_export_partitions_into_directories(capture_small: Path, tmp_path: Path) -> None:
    columns = ("topic", "partition", "date", "hour")
    found = [capture_small / "data" / name for name in ("metro-none-0", "gates-append-1")]
    write(tmp_path / "out", found, "parquet", partition_by=columns)
    names = {str(path.parent.relative_to(tmp_path / "out")) for path in files_of(tmp_path / "out")}
    assert names >= {"topic=metro-none/partition=0/date=2025-06-15/hour=15"}
    assert all(name.split("/")[0] in ("topic=metro-none", "topic=gates-append") for name in names)
    for path in files_of(tmp_path / "out"):
        assert pq.ParquetFile(path).schema_arrow.names == [
            "key", "value", "offset", "timestamp", "timestampType", "headers", "_meta",
        ]  # fmt: skip
    import pyarrow.dataset as ds

    table = ds.dataset(tmp_path / "out", partitioning="hive").to_table()
    rows = sorted(
        zip(*(table.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    )
    assert rows == [row[:3] for row in dumped(found)]


def test_export_directory_names_are_escaped_as_by_spark() -> None:
    from kseg.inspection.export.writers import split

    topics = ["a b/c=d%é", None, "", "t"]
    batch = pa.RecordBatch.from_pydict({"topic": pa.array(topics), "n": pa.array(range(4))})
    # the first four are named as by Spark 4.3
    assert [(place, rows.column("n").to_pylist()) for place, rows in split(batch, ("topic",))] == [
        ("topic=a b%2Fc%3Dd%25é", [0]),
        ("topic=__HIVE_DEFAULT_PARTITION__", [1]),
        ("topic=__HIVE_DEFAULT_PARTITION__", [2]),
        ("topic=t", [3]),
    ]


def test_export_keeps_few_files_open_and_buffers_little(
    capture_small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If records alternate between directories, more files are created, but no more are open at a time."""
    monkeypatch.setattr(writers, "MAX_OPEN_FILES", 2)
    monkeypatch.setattr(writers, "WAITING_BYTES", 10_000)
    monkeypatch.setattr("kseg.inspection.export.export.RECORDS_PER_BATCH", 16)
    path = capture_small / "data" / "metro-none-0"
    monkeypatch.setattr("kseg.inspection.export.writers._text", _by_offset)
    write(tmp_path / "out", [path], "parquet", partition_by=("partition",))
    found = files_of(tmp_path / "out")
    assert len({each.parent for each in found}) == 5 < len(found)
    import pyarrow.dataset as ds

    rows = ds.dataset([str(each) for each in found]).to_table().column("offset").to_pylist()
    assert sorted(rows) == [row[2] for row in dumped([path])]


def _by_offset(batch: pa.RecordBatch, column: str) -> pa.Array:
    return pa.array([str(offset % 5) for offset in batch.column("offset").to_pylist()])


def test_parquet_row_groups_are_independent_of_the_batches(
    capture_small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kseg.inspection.export.export.RECORDS_PER_BATCH", 10)
    monkeypatch.setattr(sinks, "ROW_GROUP_ROWS", 50)
    write(tmp_path / "out", [capture_small / "data" / "metro-none-0"], "parquet")
    (path,) = files_of(tmp_path / "out")
    file = pq.ParquetFile(path).metadata
    sizes = [file.row_group(number).num_rows for number in range(file.num_row_groups)]
    assert sum(sizes) == 160 and all(50 <= size < 60 for size in sizes[:-1])


@pytest.mark.parametrize(
    ("form", "compression"),
    [(form, each) for form in Form if form not in TABLE_FORMS for each in COMPRESSIONS[form]],
)
def test_export_compressions(capture_small: Path, form: Form, compression: str, tmp_path: Path) -> None:
    path = capture_small / "data" / "fares-0"
    write(tmp_path / "out", [path], form, compression=compression)
    (file,) = files_of(tmp_path / "out")
    if compression == "bzip2":
        import bz2

        text = bz2.decompress(file.read_bytes()).decode()
        assert len(text.splitlines()) >= 89
        return
    assert exported(tmp_path / "out", form) == dumped([path])
    if form is Form.PARQUET:
        used = pq.ParquetFile(file).metadata.row_group(0).column(0).compression
        assert used == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())


@pytest.mark.parametrize("mode", ["auto", "utf8", "hex"])
def test_export_encodes_bytes_as_text(mode: str, odd: Path, tmp_path: Path) -> None:
    write(tmp_path / "out", [odd], "json", bytes_mode=mode)
    (file,) = files_of(tmp_path / "out")
    rows = [json.loads(line) for line in text_of(file).split("\n")[:-1]]
    keys = [row.get("key") for row in rows]
    if mode == "hex":
        assert keys[:3] == [None, "", "6bff00"]
    if mode == "utf8":
        assert keys[:3] == [None, "", "k\ufffd\x00"]
    if mode == "auto":
        assert keys[:3] == [None, "", "a/8A"] and keys[3] == 'a "quoted", key\r\nof two lines'
        assert [row.get("key_encoding") for row in rows[:4]] == [None, "utf8", "base64", "utf8"]
        assert rows[2]["value_encoding"] == "base64"
    assert all("key_encoding" in row for row in rows if "key" in row) == (mode == "auto")


@pytest.mark.parametrize("form", ["json", "csv"])
def test_times_beyond_arrows_range_are_written_as_by_spark(form: str, tmp_path: Path) -> None:
    """These instants are written, and directories named, as by Spark 4.3."""
    reported = {
        1_700_000_000_000_000: "+55840-11-08T22:13:20.000Z",  # microseconds where milliseconds belong
        2**63 - 1: "+294247-01-10T04:00:54.775Z",  # the latest possible instant
        971_890_963_200_000: "+32768-01-01T00:00:00.000Z",
        253_402_300_800_000: "+10000-01-01T00:00:00.000Z",
        253_402_300_799_999: "9999-12-31T23:59:59.999Z",
        T0: "2023-11-14T22:13:20.000Z",
        -62_167_219_200_000: "0000-01-01T00:00:00.000Z",
        -62_167_219_200_001: "-0001-12-31T23:59:59.999Z",
        -(2**63): "-290308-12-21T19:59:05.225Z",
    }
    path = tmp_path / "t-0"
    path.mkdir()
    batches = [
        sealed(record(0), 1, base_offset=offset, base_timestamp=time_ms, max_timestamp=time_ms)
        for offset, time_ms in enumerate(reported)
    ]
    (path / "00000000000000000000.log").write_bytes(b"".join(batches))
    assert failures(write(tmp_path / "out", [path], form, partition_by=("date",))) == []
    found = {file.parent.name: text_of(file) for file in files_of(tmp_path / "out")}
    assert len(found) == len(reported)
    for text in reported.values():
        assert f'"{text}"' in found[f"date={text.split('T')[0]}"]


# --- damage


@pytest.fixture
def damaged(capture_small: Path, tmp_path: Path) -> Path:
    import shutil

    path = tmp_path / "in" / "metro-none-0"
    shutil.copytree(capture_small / "data" / "metro-none-0", path)
    log = path / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[1000] ^= 1
    log.write_bytes(data)
    return path


def test_export_reports_damage_and_skips_it(damaged: Path, tmp_path: Path) -> None:
    events = write(tmp_path / "out", [damaged], "parquet")
    (finding,) = failures(events)
    assert isinstance(finding, Finding) and finding.id == "bad-crc" and finding.position == 874
    result = _result(events)
    assert result["damaged_bytes"] == finding.length and result["records"] == 160 - 12
    assert exported(tmp_path / "out", "parquet") == dumped([damaged])
    # because records are missing
    assert not (tmp_path / "out" / "_SUCCESS").exists()


def test_fail_on_damage_ends_the_export(damaged: Path, capture_small: Path, tmp_path: Path) -> None:
    with pytest.raises(DamageFound):
        write(tmp_path / "out", [capture_small / "data" / "fares-0", damaged], "parquet", fail_on_damage=True)
    assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_unreadable_partition_does_not_prevent_the_export_of_others(
    capture_small: Path, tmp_path: Path
) -> None:
    options = ExportOptions(
        form=Form.JSON, output=str(tmp_path / "out"), bytes_mode="base64", compression="none"
    )
    good = _targets(resolve_targets([str(capture_small / "data" / "fares-0")]))
    targets: list[PartitionTarget | FileTarget] = [
        *good,
        FileTarget(str(tmp_path / "00000000000000000000.log")),
        FileTarget(str(tmp_path / "x.index")),
    ]
    run = ExportRun(options)
    with run.held(good) as held:
        events = list(run.through(fanout.run(export, targets, held)))
    assert [type(event) for event in events if isinstance(event, Failure)] == [Failure, Failure]
    assert len(exported(tmp_path / "out", "json")) == 89
    # because the result is incomplete
    assert not (tmp_path / "out" / "_SUCCESS").exists()


@pytest.mark.parametrize("form", FORMS)
def test_export_of_nothing_writes_an_empty_output(capture_small: Path, form: str, tmp_path: Path) -> None:
    write(tmp_path / "out", [capture_small / "data"], form, selection=Selection(keys=(b"nobody",)))
    assert (tmp_path / "out" / "_SUCCESS").exists()
    found = files_of(tmp_path / "out")
    assert len(found) == (0 if form == "json" else 1)
    if form == "parquet":
        assert pq.ParquetFile(found[0]).schema_arrow.names[-1] == "_meta"


def test_export_output_inside_the_input_is_refused(capture_small: Path, tmp_path: Path) -> None:
    data = capture_small / "data"
    for output in (data / "out", data / "fares-0" / "out", data, data / "fares-0", capture_small):
        with pytest.raises(Refused, match="the output"):
            write(output, [data / "fares-0"], "json", mode=Mode.OVERWRITE)
    segment = data / "fares-0" / "00000000000000000000.log"
    for output in (data / "out", data / "fares-0" / "out"):
        with pytest.raises(Refused, match="is in the input directory"):
            write(output, [segment], "json", mode=Mode.OVERWRITE)
    alone = tmp_path / segment.name
    alone.write_bytes(segment.read_bytes())
    write(tmp_path / "out", [alone], "json")
    assert len(files_of(tmp_path / "out")) == 1


def test_export_of_a_single_segment(capture_small: Path, tmp_path: Path) -> None:
    path = capture_small / "data" / "fares-0" / "00000000000000000000.log"
    for committed in (False, True):
        selection = Selection(read_committed=committed)
        write(tmp_path / str(committed), [path], "arrow", selection=selection)
        expected: list[ExportedRecord] = dumped([path], selection)
        assert exported(tmp_path / str(committed), "arrow") == expected
