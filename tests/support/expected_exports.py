"""The expected content of an export, from `dump`, and its actual content, read without kseg."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kseg.inspection.dump.options import DumpOptions
from kseg.inspection.record_filter import Selection
from kseg.jobs.events import Text
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.targets import Expansion, FileTarget, resolve_targets
from tests.support.one_target import dump
from tests.support.raw_batches import field, record, sealed, varint

TIME_TYPES = {"CreateTime": 0, "LogAppendTime": 1, "NoTimestampType": -1, None: -1}
Headers = tuple[tuple[str, bytes | None], ...]
# topic, partition, offset, timestamp in ms, its type, key, value, headers
ExportedRecord = tuple[str, int, int, int, int, bytes | None, bytes | None, Headers]


def odd_partition(parent: Path) -> Path:
    """A partition whose records have null, empty and binary values, and text that needs escaping."""
    headers = (("h", None), ("", b""), ("h", b"\xfe"), ('"\\\n\u2028', b"x"))
    reported = varint(len(headers)) + b"".join(field(name.encode()) + field(value) for name, value in headers)
    keys = (None, b"", b"k\xff\x00", b'a "quoted", key\r\nof two lines', b"", b"last")
    values = (b"", None, b"\x80", b"  spaces  ", b"", None)
    body = b"".join(
        record(row, key=key, value=value, headers=reported if row == 2 else b"\x00")
        for row, (key, value) in enumerate(zip(keys, values, strict=True))
    )
    path = parent / "odd-0"
    path.mkdir(parents=True)
    (path / "00000000000000001000.log").write_bytes(sealed(body, len(keys)))
    return path


def dumped(paths: Iterable[Path], selection: Selection | None = None) -> list[ExportedRecord]:
    """The records of partitions as in `kseg dump --json`, without control records."""
    options = DumpOptions(
        format="json", print_data_log=True, bytes_mode="base64", selection=selection or Selection()
    )
    found = []
    for target in resolve_targets([str(path) for path in paths], expand=Expansion.FILES):
        assert isinstance(target, FileTarget)
        if not target.path.endswith((".log", ".kafka")):
            continue
        name = own_partition_name(str(Path(target.path).parent))
        assert name is not None
        # positions of batches with a bad checksum, which dump prints nevertheless
        damaged = set()
        for event in dump(target, options):
            if isinstance(event, Finding) and event.id == "bad-crc":
                damaged.add(event.position)
            for line in bytes(event.data).splitlines() if isinstance(event, Text) else ():
                row = json.loads(line)
                has_valid_crc = row.get("valid") is not False and row["position"] not in damaged
                if row["type"] == "record" and "control" not in row and has_valid_crc:
                    found.append(_exported_record(name.topic, name.partition, row))
    return sorted(found, key=_order)


def _exported_record(topic: str, partition: int, row: dict[str, Any]) -> ExportedRecord:
    headers = tuple((name, _bytes(value)) for name, value in row["headers"])
    timestamp = -1 if row["timestamp"] is None else row["timestamp"]
    kind = TIME_TYPES[row["timestamp_type"]]
    return topic, partition, row["offset"], timestamp, kind, _bytes(row["key"]), _bytes(row["value"]), headers


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)


def _order(reported: ExportedRecord) -> tuple[Any, ...]:
    # the messages of a 0.7 set have the same offset
    return *reported[:3], reported[6] or b""


def files_of(directory: Path) -> list[Path]:
    """The data files that readers of the format consider."""
    return sorted(path for path in directory.rglob("part-*") if path.is_file())


def exported(directory: Path, form: str) -> list[ExportedRecord]:
    """The records of an export, read by an independent reader of the format."""
    rows: list[dict[str, Any]] = []
    for path in files_of(directory):
        rows += {"parquet": _parquet, "arrow": _arrow, "json": _json, "csv": _csv}[form](path)
    return sorted((_from_row(row) for row in rows), key=_order)


def _from_row(row: dict[str, Any]) -> ExportedRecord:
    headers = tuple((each["key"], each["value"]) for each in row["headers"] or ())
    numbers = (row["partition"], row["offset"], row["timestamp"], row["timestampType"])
    return row["topic"], *numbers, row["key"], row["value"], headers


def _parquet(path: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    return _rows(pq.ParquetFile(path).read())


def _arrow(path: Path) -> list[dict[str, Any]]:
    import pyarrow.ipc

    with path.open("rb") as file:
        return _rows(pyarrow.ipc.open_file(file).read_all())


def _rows(table: Any) -> list[dict[str, Any]]:
    import pyarrow as pa

    at = table.schema.get_field_index("timestamp")
    assert table.schema.field(at).type == pa.timestamp("us", tz="UTC")
    micros = table.column(at).cast(pa.int64())
    rows: list[dict[str, Any]] = table.drop_columns("timestamp").to_pylist()
    for row, time in zip(rows, micros.to_pylist(), strict=True):
        assert time % 1000 == 0
        row["timestamp"] = time // 1000
    return rows


def text_of(path: Path) -> str:
    """The text of a file, compressed or not."""
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def _json(path: Path) -> list[dict[str, Any]]:
    rows = []
    for line in text_of(path).split("\n")[:-1]:
        row = json.loads(line)
        assert None not in row.values()
        row["timestamp"] = _milliseconds(row["timestamp"])
        for name in ("key", "value"):
            row[name] = _bytes(row.get(name))
        row["headers"] = _headers(row.get("headers"))
        rows.append(row)
    return rows


def _headers(reported: Sequence[dict[str, str]] | None) -> list[dict[str, Any]]:
    return [{"key": each["key"], "value": _bytes(each.get("value"))} for each in reported or ()]


def _csv(path: Path) -> list[dict[str, Any]]:
    """Read CSV that was exported with --bytes base64. The csv module cannot distinguish null from an empty string, so `_marked` marks the
    nulls first."""
    rows = []
    for row in csv.DictReader(io.StringIO(_marked(text_of(path)), newline="")):
        values: dict[str, Any] = {name: None if value == NULL else value for name, value in row.items()}
        for name in ("partition", "offset", "timestampType"):
            values[name] = int(values[name])
        values["timestamp"] = _milliseconds(values["timestamp"])
        for name in ("key", "value"):
            values[name] = _bytes(values[name])
        values["headers"] = _headers(json.loads(values["headers"]) if values["headers"] else None)
        rows.append(values)
    return rows


NULL = "\x00null"


def _marked(text: str) -> str:
    """The text with NULL in every field that has no characters, not even quotes."""
    out, inside, at_start = [], False, True
    for char in text:
        if char == '"':
            inside = not inside
            at_start = False
        elif char in ",\n" and not inside:
            if at_start:
                out.append(NULL)
            at_start = True
        else:
            at_start = False
        out.append(char)
    return "".join(out)


def _milliseconds(text: str) -> int:
    import datetime

    moment = datetime.datetime.fromisoformat(text)
    return (moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(milliseconds=1)
