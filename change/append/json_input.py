"""Parse JSON lines into records and batch headers: the output of `dump --json --deep-iteration`, or less (docs/json.md).

    line     one JSON object in UTF-8; empty lines do not count
    batch    {"type":"batch", …}: a header that the records after it belong to
    record   {"type":"record", …}, or an object without a type; only `value` is needed
    export   {"timestampType": …} without a type: a record as `export --to json` writes it, its bytes in base64
    others skipped and counted by type (findings, entries of side files, the summary)

    bytes    null · text, whose encoding is `key_encoding` or `value_encoding`: utf8 (also when absent), base64, hex
             · {"base64": …}, the only other form that a header's value has

All fields of a batch header are used, except those that follow from the bytes (position, size, crc, count, last sequence). An invalid
line raises BadLine with its number.
"""

import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kseg.segment import layout as L
from kseg.segment.errors import FormatError, UsageError
from kseg.segment.model import Headers, Record
from kseg.segment.partition.names import FileName, Role, parse_file_name
from kseg.segment.quantities import read_time
from kseg.segment.state.control import ABORT, COMMIT, control_key, control_value
from kseg.segment.values import dataclass

Row = Mapping[str, Any]
Numbered = tuple[int, Row]

COUNTED = ("batch", "record")  # the types of lines that are appended
MAX_LINE_BYTES = 1 << 30  # a value that fills the largest batch is not much longer with every byte escaped
_SNAPSHOTS = (Role.METADATA_SNAPSHOT, Role.BOOTSTRAP_SNAPSHOT)
_scan = json.JSONDecoder().raw_decode  # unlike `loads`, does not look for white space around every line
_CODEC_IDS = {name: codec for codec, name in enumerate(L.CODEC_NAMES)}


class BadLine(UsageError):
    """An invalid line. number: counted from 1. why: the message without it. source: the name of the input."""

    def __init__(self, number: int, why: str, source: str = "") -> None:
        super().__init__(f"{source}{', ' if source else ''}line {number}: {why}")
        self.number = number
        self.why = why


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLine:
    """The header of a batch. number: of its line. count: None if the dump did not know it (a wrapper of an old format).

    base_offset, last_offset: None in an old format, where the records contain them. source: file and position from which it was dumped.
    is_valid: False for a batch that was dumped in spite of a wrong checksum, and has no records. is_of_log: False for
    one from a snapshot of KRaft, which is not part of the log beside it.
    """

    number: int
    magic: int
    codec: int
    count: int | None
    base_offset: int | None
    last_offset: int | None
    leader_epoch: int | None
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    control: bool
    log_append_time: bool
    delete_horizon_ms: int | None
    max_timestamp_ms: int | None
    is_valid: bool
    is_of_log: bool
    source: tuple[object, object]


def json_rows(blocks: Iterable[bytes]) -> Iterator[Numbered]:
    """(line number, object) of each line that is not empty. blocks: the bytes, cut anywhere. Raises BadLine."""
    number = 1
    begun: list[bytes] = []  # of a line whose end was not read yet
    begun_bytes = 0
    for block in blocks:
        whole, newline, tail = block.rpartition(b"\n")
        if newline:
            yield from _rows_of(b"".join((*begun, whole)), number)
            number += whole.count(b"\n") + 1
            begun, begun_bytes = [], 0
        begun.append(tail)
        begun_bytes += len(tail)
        if begun_bytes > MAX_LINE_BYTES:
            raise BadLine(number, f"it is longer than {MAX_LINE_BYTES} bytes")
    yield from _rows_of(b"".join(begun), number)


def _rows_of(data: bytes, number: int) -> Iterator[Numbered]:
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        good = data[: data.rfind(b"\n", 0, error.start) + 1]
        yield from _rows_of(good, number)
        raise BadLine(number + good.count(b"\n"), "it is not UTF-8") from None
    for line in lines:
        if line and not line.isspace():
            yield number, _row(line, number)
        number += 1


def _row(line: str, number: int) -> Row:
    try:
        row, end = _scan(line) if line[0] == "{" else (json.loads(line), len(line))
        if end != len(line) and not line[end:].isspace():
            raise BadLine(number, f"unexpected text after its JSON object: {line[end : end + 40]!r}")
    except (ValueError, RecursionError) as error:
        raise BadLine(number, f"it is not JSON: {error}") from None
    if not isinstance(row, dict):
        raise BadLine(number, "it is not a JSON object")
    return _as_dumped(row, number) if "timestampType" in row and "type" not in row else row


def _as_dumped(row: Row, number: int) -> Row:
    """A line of `export --to json` (Spark's columns: bytes in base64, ISO times, a null left out) as a line of `dump --json`."""
    place = row.get("_meta")
    if isinstance(place, dict) and place.get("control"):
        raise BadLine(number, "it is a control record; export without --include-control leaves these out")
    headers = row.get("headers") or []
    if not isinstance(headers, list) or not all(isinstance(header, dict) for header in headers):
        raise BadLine(number, "its headers are not a list of objects")
    try:
        timestamp = row.get("timestamp")
        timestamp_ms = int(read_time(timestamp)) if isinstance(timestamp, str) else timestamp
    except ValueError as error:
        raise BadLine(number, f"its timestamp {error}") from None
    return {
        "type": "record",
        "exported": True,
        "offset": row.get("offset"),
        "timestamp": timestamp_ms,
        "key": row.get("key"),
        "key_encoding": "base64",
        "value": row.get("value"),
        "value_encoding": "base64",
        "headers": [[header.get("key", ""), _base64(header.get("value"))] for header in headers],
    }


def _base64(text: object) -> object:
    return None if text is None else {"base64": text}


def codec_of(row: Row, number: int) -> int:
    """The codec id that a line names; no compression if it names none. Raises BadLine."""
    name = row.get("compression", "none")
    codec = _CODEC_IDS.get(name) if isinstance(name, str) else None
    if codec is None:
        raise BadLine(number, f"unknown compression {str(name)[:80]!r}")
    return codec


def batch_line(row: Row, number: int) -> BatchLine:
    """The header that a line of type `batch` describes."""
    magic = _integer(row, "magic", number, L.MAGIC_V2)
    is_old = magic < L.MAGIC_V2
    timestamp_type = row.get("timestamp_type")
    codec = codec_of(row, number)
    return BatchLine(
        number=number,
        magic=magic,
        codec=codec,
        count=_optional(row, "count", number),
        base_offset=None if is_old else _optional(row, "base_offset", number),
        last_offset=None if is_old else _optional(row, "last_offset", number),
        leader_epoch=_optional(row, "leader_epoch", number),
        producer_id=_integer(row, "producer_id", number, L.NO_PRODUCER_ID),
        producer_epoch=_integer(row, "producer_epoch", number, L.NO_PRODUCER_EPOCH),
        base_sequence=_integer(row, "base_sequence", number, L.NO_SEQUENCE),
        transactional=_flag(row, "transactional", number),
        control=_flag(row, "control", number),
        log_append_time=timestamp_type == L.LOG_APPEND_TIME,
        delete_horizon_ms=_optional(row, "delete_horizon_ms", number),
        max_timestamp_ms=_optional(row, "max_timestamp", number),
        is_valid=row.get("valid", True) is not False,
        is_of_log=_role_of_file(row) not in _SNAPSHOTS,
        source=(row.get("file"), row.get("position")),
    )


def record_line(row: Row, number: int, offset: int, timestamp_ms: int, *, keep_offset: bool = True) -> Record:
    """The record in a line. offset, timestamp_ms: used if the line has none; the offset also if keep_offset is false."""
    found = row.get("offset")
    if found is not None and keep_offset:
        offset = found if type(found) is int else _integer(row, "offset", number, offset)
    found = row.get("timestamp")
    if found is not None:
        timestamp_ms = found if type(found) is int else _integer(row, "timestamp", number, timestamp_ms)
    headers = row.get("headers")
    if "control" in row:
        key, value = _control_bytes(row, number)
    else:
        key = _bytes(row.get("key"), row.get("key_encoding"), "key", number)
        value = _bytes(row.get("value"), row.get("value_encoding"), "value", number)
        if value is None and "value" not in row:
            raise BadLine(number, "it has no value (a tombstone says null)")
    return Record(offset, timestamp_ms, key, value, _headers(headers, number) if headers else ())


def is_copy(row: Row) -> bool:
    """Whether a record line is from a dump or an export, and so of a record that a log holds."""
    return "file" in row or "exported" in row


def base_offset_of_file(row: Row) -> int | None:
    """The base offset of the segment from which a line was dumped; None if it has none."""
    name = _file_name(row)
    return None if name is None or name.role is not Role.LOG else name.base_offset


def _role_of_file(row: Row) -> Role | None:
    name = _file_name(row)
    return None if name is None else name.role


def _file_name(row: Row) -> FileName | None:
    name = row.get("file")
    return parse_file_name(name.rpartition("/")[2]) if isinstance(name, str) else None


def _bytes(shown: object, encoding: object, name: str, number: int) -> bytes | None:
    if shown is None:
        return None
    if encoding not in (None, "utf8", "base64", "hex"):  # such as the output of a decoder, text or not
        raise BadLine(number, f"its {name} was dumped as {encoding}, which cannot be decoded")
    try:
        if isinstance(shown, str):
            if encoding is None or encoding == "utf8":
                return shown.encode("utf-8")
            if encoding == "base64":
                return binascii.a2b_base64(shown, strict_mode=True)
            if encoding == "hex":
                return bytes.fromhex(shown)
        elif isinstance(shown, dict) and shown.keys() == {"base64"}:
            return binascii.a2b_base64(shown["base64"], strict_mode=True)
    except (ValueError, TypeError) as error:
        raise BadLine(number, f"its {name} is not valid {encoding or 'text'}: {error}") from None
    raise BadLine(number, f"its {name} is neither text, nor base64, nor null")


def _headers(headers: object, number: int) -> Headers:
    if not isinstance(headers, list):
        raise BadLine(number, "its headers are not a list")
    made = []
    for header in headers:
        if not isinstance(header, list) or len(header) != 2 or not isinstance(header[0], str):
            raise BadLine(number, "a header is not a pair of name and value")
        name = _bytes(header[0], None, "header name", number)
        made.append((name or b"", _bytes(header[1], None, "header", number)))
    return tuple(made)


def _control_bytes(row: Row, number: int) -> tuple[bytes | None, bytes | None]:
    """Key and value as dumped, or encoded from the fields of an end-of-transaction marker."""
    if row.get("key") is not None:
        return (
            _bytes(row["key"], row.get("key_encoding"), "key", number),
            _bytes(row.get("value"), row.get("value_encoding"), "value", number),
        )
    control = row["control"]
    kind = control.get("kind") if isinstance(control, dict) else None
    if kind not in (ABORT, COMMIT):
        raise BadLine(number, f"a control record of kind {kind!r} needs key and value as dump shows them")
    try:
        epoch = control.get("coordinator_epoch", 0)
        return control_key(kind), control_value(kind, {"coordinatorEpoch": epoch})
    except FormatError as error:
        raise BadLine(number, str(error)) from None


def _integer(row: Row, name: str, number: int, default: int) -> int:
    value = _optional(row, name, number)
    return default if value is None else value


def _optional(row: Row, name: str, number: int) -> int | None:
    value = row.get(name)
    if value is None or (type(value) is int and -L.INT64_MAX <= value <= L.INT64_MAX):
        return value
    raise BadLine(number, f"its {name} is not a whole number: {value!r:.80}")


def _flag(row: Row, name: str, number: int) -> bool:
    value = row.get(name, False)
    if isinstance(value, bool):
        return value
    raise BadLine(number, f"its {name} is neither true nor false")
