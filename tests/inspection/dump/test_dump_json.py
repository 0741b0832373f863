"""JSON lines of a dump: the kernel writes the same lines as `rows`, for every byte of the file."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.inspection.dump.batch_filter import BatchFilter
from kseg.inspection.dump.log_json import LogJson
from kseg.inspection.dump.log_rows import LogRows
from kseg.inspection.dump.options import DumpOptions
from kseg.jobs.events import Row, Text
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.json_line import json_line
from kseg.segment.model import NewBatch, Record
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.decode import Decoder, record_at
from kseg.segment.scanning.scan import Scanner
from tests.support.trees import unchanged


def kernel_lines(path: str, data: bytes, base_offset: int, options: DumpOptions) -> list[bytes]:
    dumper = LogJson(path, Scanner(data, base_offset), options, BatchFilter(options.selection))
    return b"".join(event.data for event in dumper.events() if isinstance(event, Text)).splitlines(
        keepends=True
    )


def row_lines(path: str, data: bytes, base_offset: int, options: DumpOptions) -> list[bytes]:
    dumper = LogRows(path, Scanner(data, base_offset), options, BatchFilter(options.selection))
    return [json_line(event.values) for event in dumper.events() if isinstance(event, Row)]


@pytest.mark.parametrize("mode", ["auto", "utf8", "base64", "hex", "size"])
def test_kernel_json_lines_equal_the_rows(capture_small: Path, legacy_small: Path, mode: str) -> None:
    logs = [*capture_small.glob("data/*/*.log"), *legacy_small.glob("data/[01].*/*/hive*/*.log")]
    options = DumpOptions(format="json", print_data_log=True, bytes_mode=mode)
    with unchanged(capture_small / "data"):
        for log in logs:
            base_offset = int(log.name.split(".")[0])
            expected = row_lines(str(log), log.read_bytes(), base_offset, options)
            assert kernel_lines(str(log), log.read_bytes(), base_offset, options) == expected

    assert len(logs) > 40


@given(
    key=st.none() | st.binary(max_size=40),
    value=st.none() | st.binary(max_size=300) | st.text(max_size=60).map(str.encode),
    headers=st.lists(
        st.tuples(st.text(max_size=9).map(str.encode), st.none() | st.binary(max_size=9)), max_size=3
    ),
    timestamp_ms=st.integers(0, 2**50),
)
def test_every_byte_of_a_record_round_trips_through_json(
    key: bytes | None, value: bytes | None, headers: list[tuple[bytes, bytes | None]], timestamp_ms: int
) -> None:
    record = Record(0, timestamp_ms, key, value, tuple(headers))
    data = encode_batch(NewBatch(records=(record,)))

    batch_line, record_line = kernel_lines('a"b\n', data, 0, DumpOptions(deep_iteration=True))
    batch, output = json.loads(batch_line), json.loads(record_line)

    assert batch["file"] == output["file"] == 'a"b\n'
    assert batch["valid"] is True and batch["size"] == len(data)
    assert output["timestamp"] == timestamp_ms
    assert _original(output["key"], output["key_encoding"]) == key
    assert _original(output["value"], output["value_encoding"]) == value
    assert [(name.encode(), _header(data)) for name, data in output["headers"]] == headers


def _original(shown: str | None, encoding: str | None) -> bytes | None:
    if shown is None:
        return None
    return b64decode(shown) if encoding == "base64" else shown.encode()


def _header(shown: str | dict[str, str] | None) -> bytes | None:
    if shown is None:
        return None
    return b64decode(shown["base64"]) if isinstance(shown, dict) else shown.encode()


def test_json_line_longer_than_the_block_is_complete() -> None:
    value = b"\x01" * 700_000
    data = encode_batch(NewBatch(records=(Record(0, 5, b"k", value),)))

    lines = kernel_lines("f", data, 0, DumpOptions(deep_iteration=True))

    assert json.loads(lines[1])["value"].encode() == value


def test_records_in_json_equal_those_of_the_decoder(capture_small: Path) -> None:
    log = capture_small / "data" / "metro-zstd-0" / "00000000000000000000.log"
    data = log.read_bytes()
    decoder = Decoder(data)
    records = [
        record_at(chunk, at)
        for block in Scanner(data).blocks()
        if not isinstance(block, Damage)
        for chunk in decoder.chunks(block)
        for at in range(chunk.records.count)
    ]

    output = [json.loads(line) for line in kernel_lines("f", data, 0, DumpOptions(deep_iteration=True))]

    shown = [line for line in output if line["type"] == "record"]
    assert [line["offset"] for line in shown] == [record.offset for record in records]
    assert [_original(line["value"], line["value_encoding"]) for line in shown] == [r.value for r in records]
