"""Batches and records as the JSON lines of the command contract (design §7; docs/json.md).

Bytes: under `auto` valid UTF-8 is text and anything else base64, and `key_encoding`/`value_encoding` name the encoding;
the other modes use one encoding for all. Null is null. Header values follow the same rule individually, but
have no member for an encoding: under `auto` a value that is not UTF-8 becomes {"base64": …}.
"""

from base64 import b64encode
from collections.abc import MutableMapping
from typing import Protocol

from kseg.segment import layout as L
from kseg.segment.errors import FormatError
from kseg.segment.java.java_output import decode_utf8
from kseg.segment.model import Batch, Record
from kseg.segment.state.control import as_row, parse_control_record

Shown = tuple[object, str | None]


class LogRowDecoder(Protocol):
    """Adds the decoded keys and values of one log to the rows of its records. Never raises because of the content of a record."""

    def amend(self, row: MutableMapping[str, object], record: Record) -> None:
        """Change the row of a record; not called for control records."""

    def program(self) -> tuple[memoryview, bytes] | None:
        """The program with which `kernel.message_rows` writes the same rows, if header bytes are printed as text; None to call `amend` per
        record."""


class RowDecoder(Protocol):
    """Returns for each log the decoder of its rows. Picklable."""

    def for_log(self, path: str) -> LogRowDecoder | None:
        """None if no row of the log would change, so that the fast path can write them."""


def show_bytes(data: bytes | None, mode: str) -> Shown:
    """(value for JSON, name of its encoding) of a key or value; null has no encoding."""
    if data is None:
        return None, None
    match mode:
        case "auto":
            try:
                return data.decode("utf-8"), "utf8"
            except UnicodeDecodeError:
                return b64encode(data).decode("ascii"), "base64"
        case "utf8":
            return decode_utf8(data), "utf8"
        case "hex":
            return data.hex(), "hex"
        case "base64":
            return b64encode(data).decode("ascii"), "base64"
        case "size":
            return len(data), "size"
        case "redacted":
            import hashlib  # loads OpenSSL

            return f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()[:16]}", "redacted"
    raise AssertionError(f"unknown bytes mode {mode}")


def _header_value(data: bytes | None, mode: str) -> object:
    value, encoding = show_bytes(data, mode)
    return {"base64": value} if mode == "auto" and encoding == "base64" else value


def batch_row(file: str, batch: Batch) -> dict[str, object]:
    """The line `{"type":"batch", …}`."""
    return {
        "type": "batch",
        "file": file,
        "position": batch.position,
        "size": batch.size_bytes,
        "magic": batch.magic,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "count": batch.count,
        "base_sequence": batch.base_sequence,
        "last_sequence": batch.last_sequence,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "leader_epoch": batch.leader_epoch,
        "transactional": batch.is_transactional,
        "control": batch.is_control,
        "delete_horizon_ms": batch.delete_horizon_ms,
        "timestamp_type": batch.timestamp_type,
        "max_timestamp": batch.max_timestamp_ms,
        "compression": L.codec_name(batch.codec),
        "crc": batch.crc,
        "valid": batch.crc_valid,
    }


def record_row(
    file: str, batch: Batch, record: Record, mode: str = "auto", decoder: LogRowDecoder | None = None
) -> dict[str, object]:
    """The line `{"type":"record", …}`; `position` is that of the record's batch. `valid`: false if the checksum of the record or of its
    batch is wrong. A record of magic 2 has no checksum, so it has the field only if it is false."""
    key, key_encoding = show_bytes(record.key, mode)
    value, value_encoding = show_bytes(record.value, mode)
    row: dict[str, object] = {
        "type": "record",
        "file": file,
        "position": batch.position,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": batch.timestamp_type,
        "sequence": record.sequence,
        "key": key,
        "value": value,
        "headers": [[decode_utf8(name), _header_value(data, mode)] for name, data in record.headers],
        "key_encoding": key_encoding,
        "value_encoding": value_encoding,
    }
    if record.crc is not None:
        row["crc"] = record.crc
        row["valid"] = bool(record.crc_valid) and batch.crc_valid
    elif not batch.crc_valid:
        row["valid"] = False
    if batch.is_control:
        row["control"] = control_row(record)
    elif decoder is not None:
        decoder.amend(row, record)
    return row


def control_row(record: Record) -> dict[str, object] | None:
    """The meaning of a control record, None if it cannot be parsed."""
    try:
        return as_row(parse_control_record(record.key, record.value))
    except FormatError:
        return None
