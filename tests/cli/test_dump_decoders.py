"""The decoders of `dump`: which one is used, and records that no decoder can read. The texts are those of fact sheet internal topics §1,
observed with the real tool; `tests/kafka/test_dump_decoders.py` compares them again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kseg.cli.main import run
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record

TIME_MS = 1_700_000_000_000
OFFSET_KEY = bytes.fromhex("0001 0001 67 0001 74 00000003")
OFFSET_VALUE = bytes.fromhex("0003 0000000000000005 00000007 0001 6d 0000018bcfe56800")
KEY_TEXT = '{"type":"1","data":{"group":"g","topic":"t","partition":3}}'
VALUE_TEXT = (
    '{"version":"3","data":{"offset":5,"leaderEpoch":7,"metadata":"m","commitTimestamp":1700000000000}}'
)

Pair = tuple[bytes | None, bytes | None]


def log_of(directory: Path, records: Sequence[Pair]) -> Path:
    batch = NewBatch(
        records=tuple(Record(at, TIME_MS, key, value) for at, (key, value) in enumerate(records))
    )
    path = directory / "00000000000000000000.log"
    path.write_bytes(encode_batch(batch))
    return path


def lines(capfdbinary: pytest.CaptureFixture[bytes], *words: str) -> list[str]:
    """The record lines of a dump without their metadata."""
    status = run(["dump", "--no-progress", "--skip-record-metadata", *words])
    out = capfdbinary.readouterr().out.decode()
    assert status in (0, 1)
    return out.splitlines()[3:]


@pytest.mark.behaviour("D10")
def test_offsets_decoder_prints_records_it_cannot_read(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = log_of(
        tmp_path,
        [
            (OFFSET_KEY, OFFSET_VALUE),
            (OFFSET_KEY, None),
            (bytes.fromhex("0063"), b""),
            (b"\0", None),
            (OFFSET_KEY, b""),
            (OFFSET_KEY, bytes.fromhex("0005")),
            (OFFSET_KEY, OFFSET_VALUE[:-1]),
            (OFFSET_KEY[:-4], None),
            (bytes.fromhex("0001 ffff"), None),
        ],
    )
    about_key = "Could not read record with version 1 from key's buffer due to"
    assert lines(capfdbinary, "--offsets-decoder", str(log)) == [
        f"| key: {KEY_TEXT} payload: {VALUE_TEXT}",
        f"| key: {KEY_TEXT} payload: <DELETE>",
        "| key: Unknown record type 99 at offset 2, skipping.",
        "| key: Error at offset 3, skipping. Could not read version from key's buffer.",
        "| key: Error at offset 4, skipping. Could not read version from value's buffer.",
        "| key: Error at offset 5, skipping. Found an unknown record version 5 for 1 type",
        "| key: Error at offset 6, skipping. Could not read record with version 3 from value's buffer due to: null.",
        f"| key: Error at offset 7, skipping. {about_key}: null.",
        f"| key: Error at offset 8, skipping. {about_key}: non-nullable field group was serialized as null.",
    ]


@pytest.mark.behaviour("D10")
def test_dump_continues_after_a_missing_key_that_ends_the_real_tool(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = log_of(tmp_path, [(None, b"x"), (OFFSET_KEY, None)])
    assert run(["dump", "--no-progress", "--offsets-decoder", str(log)]) == 1
    out, err = capfdbinary.readouterr()
    keyless, whole = out.decode().splitlines()[3:]
    assert keyless.endswith("headerKeys: []")
    assert whole.endswith(f" key: {KEY_TEXT} payload: <DELETE>")
    assert b"message had a missing key" in err


def test_first_decoder_in_the_real_tools_order_is_used(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = log_of(tmp_path, [(OFFSET_KEY, None)])
    others = (
        "--share-group-state-decoder",
        "--cluster-metadata-decoder",
        "--value-decoder-class=com.example.D",
    )
    assert lines(capfdbinary, *others, "--offsets-decoder", str(log)) == [
        f"| key: {KEY_TEXT} payload: <DELETE>"
    ]


def test_number_decoders_print_like_the_real_tool(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = log_of(tmp_path, [(b"\xff" * 4, bytes(7) + b"\x09more"), (None, b"\0" * 8), (b"abc", None)])
    package = "org.apache.kafka.tools.api"
    flags = (f"--key-decoder-class={package}.IntegerDecoder", f"--value-decoder-class={package}.LongDecoder")
    assert lines(capfdbinary, *flags, str(log)) == ["| key: -1 payload: 9", "| payload: 0", ""]
    assert run(["dump", "--no-progress", *flags, str(log)]) == 1
    assert b"BufferUnderflowException" in capfdbinary.readouterr().err


def test_decoder_class_without_a_name_means_text(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = log_of(tmp_path, [(b"k", b"v")])
    assert lines(capfdbinary, str(log), "--value-decoder-class") == ["| key: k payload: v"]
    assert lines(capfdbinary, "--key-decoder-class", "--files", str(log)) == ["| key: k payload: v"]
