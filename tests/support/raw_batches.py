"""Handmade batches for the decoder, valid and damaged, with correct checksums, written byte by byte without kseg's writers.

The real Kafka decodes the same cases (`tests/kafka/test_decode.py`), so the expectations are its results.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import google_crc32c

from kseg.segment.kernel import record_walk as R

T0 = 1_700_000_000_000
INT_MAX = 2**31 - 1


def varint(number: int) -> bytes:
    """Zigzag, in the shortest form."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*out, rest])


def field(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def fields_of(
    offset_delta: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: bytes = b"\x00",
    timestamp_delta: int = 0,
) -> bytes:
    """A record without its length; headers: count and headers, encoded."""
    return b"\x00" + varint(timestamp_delta) + varint(offset_delta) + field(key) + field(value) + headers


def record(offset_delta: int = 0, **kinds: bytes | int | None) -> bytes:
    return sized(fields_of(offset_delta, **kinds))  # type: ignore[arg-type]


def sized(fields: bytes, declared: int | None = None) -> bytes:
    return varint(len(fields) if declared is None else declared) + fields


def sealed(
    body: bytes,
    count: int,
    *,
    base_offset: int = 1000,
    last_delta: int | None = None,
    attributes: int = 0,
    base_timestamp: int = T0,
    max_timestamp: int = T0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """A magic 2 batch around a body, with correct length and checksum. producer: id, epoch, base sequence."""
    producer_id, epoch, sequence = producer
    delta = max(0, count - 1) if last_delta is None else last_delta
    covered = struct.pack(
        ">hiqqqhii", attributes, delta, base_timestamp, max_timestamp, producer_id, epoch, sequence, count
    )
    crc = google_crc32c.value(covered + body)
    return struct.pack(">qiibI", base_offset, 49 + len(body), 0, 2, crc) + covered + body


def message(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    magic: int = 1,
    attributes: int = 0,
    timestamp: int = T0,
    raw: bytes | None = None,
) -> bytes:
    """A message of magic 0 or 1; raw: the bytes after the attributes (and timestamp) instead of key and value."""
    covered = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value) if raw is None else ():
        covered += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    covered += raw or b""
    return struct.pack(">qiI", offset, 4 + len(covered), zlib.crc32(covered)) + covered


def gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(data) + packer.flush()


def wrapper(
    offset: int, content: bytes, *, magic: int = 1, attributes: int = 0, timestamp: int = T0
) -> bytes:
    """A gzip-compressed message set."""
    return message(offset, None, gzip(content), magic=magic, attributes=attributes | 1, timestamp=timestamp)


Headers = tuple[tuple[str, bytes | None], ...]
Expected = tuple[int, int, int, bytes | None, bytes | None, Headers]


@dataclass(frozen=True)
class Case:
    """name. data: one batch. records: (offset, timestamp, sequence, key, value, headers) returned before the error. error: code of
    `kernel.record_walk`, OK if there is none; None when the wrapper cannot be decompressed."""

    name: str
    data: bytes
    records: tuple[Expected, ...] = ()
    error: int | None = R.OK
    rows: tuple[str, ...] = ()


def plain(offset: int, timestamp: int = T0, sequence: int = -1, headers: Headers = ()) -> Expected:
    return (offset, timestamp, sequence, b"k", b"v", headers)


def damage(name: str, body: bytes, error: int, *rows: str, count: int = 1, before: int = 0) -> Case:
    """One batch whose body has an error after `before` valid records."""
    records = tuple(plain(1000 + row) for row in range(before))
    front = b"".join(record(row) for row in range(before))
    return Case(name, sealed(front + body, count + before), records, error, rows)


SOUND = (
    Case("one", sealed(record(), 1), (plain(1000),), rows=("F03", "F15")),
    Case(
        "null and empty",
        sealed(
            record(0, key=None)
            + record(1, value=None)
            + record(2, key=None, value=None)
            + record(3, key=b"", value=b""),
            4,
        ),
        (
            (1000, T0, -1, None, b"v", ()),
            (1001, T0, -1, b"k", None, ()),
            (1002, T0, -1, None, None, ()),
            (1003, T0, -1, b"", b"", ()),
        ),
        rows=("F14",),
    ),
    Case(
        "headers",
        sealed(
            record(
                0,
                headers=varint(3)
                + field(b"a")
                + field(None)
                + field(b"")
                + field(b"")
                + field(b"a")
                + field(b"x"),
            ),
            1,
        ),
        (plain(1000, headers=(("a", None), ("", b""), ("a", b"x"))),),
        rows=("F14", "F18"),
    ),
    Case(
        "a producer",
        sealed(b"".join(record(row) for row in range(3)), 3, base_offset=1234567, producer=(23423, 145, 983)),
        (plain(1234567, sequence=983), plain(1234568, sequence=984), plain(1234569, sequence=985)),
        rows=("F04",),
    ),
    Case(
        "sequences wrap",
        sealed(b"".join(record(row) for row in range(3)), 3, producer=(1, 0, INT_MAX - 1)),
        (plain(1000, sequence=INT_MAX - 1), plain(1001, sequence=INT_MAX), plain(1002, sequence=0)),
        rows=("F05",),
    ),
    Case(
        "times before the first",
        sealed(record(0, timestamp_delta=5) + record(1, timestamp_delta=-7), 2, max_timestamp=T0 + 5),
        (plain(1000, T0 + 5), plain(1001, T0 - 7)),
    ),
    Case(
        "log append time",
        sealed(record(0, timestamp_delta=5) + record(1), 2, attributes=8, max_timestamp=T0 + 99),
        (plain(1000, T0 + 99), plain(1001, T0 + 99)),
        rows=("F12",),
    ),
    Case(
        "delete horizon",
        sealed(record(0, timestamp_delta=-86_400_000), 1, attributes=64, base_timestamp=T0 + 86_400_000),
        (plain(1000),),
        rows=("F51",),
    ),
    Case(
        "offsets with gaps",
        sealed(record(3) + record(70000), 2, last_delta=100_000),
        (plain(1003), plain(71000)),
    ),
    Case("no records, nothing", sealed(b"", 0, last_delta=4), rows=("F02",)),
    Case("no records, bytes behind", sealed(b"\xff" * 9, 0, last_delta=4)),
    Case(
        "widest varints",
        sealed(
            record(INT_MAX, timestamp_delta=2**62) + record(-(2**31), timestamp_delta=-(2**62)),
            2,
            base_offset=2**40,
            base_timestamp=1,
            last_delta=INT_MAX,
        ),
        (plain(2**40 + INT_MAX, 2**62 + 1), plain(2**40 - 2**31, 1 - 2**62)),
    ),
    Case(
        "varints longer than they need be",
        sealed(
            sized(
                b"\x00"
                + b"\x80\x80\x00"
                + b"\x82\x80\x80\x80\x00"
                + b"\x82\x00k"
                + b"\x82\x80\x00v"
                + b"\x80\x00"
            ),
            1,
        ),
        (plain(1001),),
    ),
    Case(
        "a varint's bits above the 32nd are lost",
        sealed(sized(b"\x00\x00" + b"\x82\x80\x80\x80\x70" + field(b"k") + field(b"v") + b"\x00"), 1),
        (plain(1001),),
    ),
    Case(
        "a varlong of ten bytes",
        sealed(
            sized(b"\x00" + b"\xff" * 9 + b"\x01" + b"\x00" + field(b"k") + field(b"v") + b"\x00"),
            1,
            base_timestamp=5,
        ),
        (plain(1000, 5 - 2**63 + 2**64 if 5 - 2**63 < -(2**63) else 5 - 2**63),),
    ),
    Case(
        "a timestamp that overflows",
        sealed(record(0, timestamp_delta=2**62), 1, base_timestamp=2**62 + 2**61),
        (plain(1000, 2**62 + 2**62 + 2**61 - 2**64),),
    ),
)

STRUCTURE = (
    damage("count too high", b"", R.TOO_FEW_RECORDS, "F08", before=2),
    damage("count too low", record(1), R.BYTES_LEFT_OVER, "F08", count=0, before=1),
    damage("bytes left over", b"\x00", R.BYTES_LEFT_OVER, count=0, before=1),
    damage("count without records", b"", R.TOO_FEW_RECORDS, "F08"),
    Case("count below zero", sealed(record(), -1, last_delta=0), error=R.NEGATIVE_COUNT),
    damage("a record of 10 bytes in 5", sized(fields_of()[:5], 10), R.RECORD_TOO_LONG, "F20"),
    damage("a record of no bytes", b"\x00", R.BAD_STRUCTURE),
    damage("a record of less than no bytes", varint(-5) + bytes(9), R.BAD_STRUCTURE),
    damage("a length of six bytes", b"\x80\x80\x80\x80\x80\x00" + bytes(9), R.TOO_FEW_RECORDS),
    damage("a length that ends too early", b"\x80\x80", R.TOO_FEW_RECORDS, "F19"),
    damage("no timestamp", sized(b"\x00"), R.BAD_STRUCTURE, "F19"),
    damage("a cut timestamp", sized(b"\x00\x80"), R.BAD_STRUCTURE, "F19"),
    damage(
        "a varlong of eleven bytes",
        sized(b"\x00" + b"\x80" * 10 + b"\x00" + fields_of()[2:]),
        R.BAD_STRUCTURE,
        "F19",
    ),
    damage("a cut offset", sized(b"\x00\x00\x80"), R.BAD_STRUCTURE, "F19"),
    damage(
        "an offset of six bytes",
        sized(b"\x00\x00" + b"\x80" * 5 + b"\x00" + fields_of()[3:]),
        R.BAD_STRUCTURE,
        "F19",
    ),
    damage("no key", sized(b"\x00\x00\x00"), R.BAD_STRUCTURE),
    damage(
        "a key of 105 in a body of 100",
        sized(b"\x00\x00\x00" + varint(105) + bytes(95)),
        R.BAD_STRUCTURE,
        "F17",
    ),
    damage(
        "a value of 105 in a body of 100",
        sized(b"\x00\x00\x00" + field(b"k") + varint(105) + bytes(93)),
        R.BAD_STRUCTURE,
        "F17",
    ),
    damage("no value", sized(b"\x00\x00\x00" + field(b"k")), R.BAD_STRUCTURE),
    damage("no header count", sized(fields_of(headers=b"")), R.BAD_STRUCTURE),
    damage("bytes behind the headers", sized(fields_of(headers=b"\x00\x00")), R.SIZE_MISMATCH, "F16"),
    damage("headers -1", sized(fields_of(headers=varint(-1))), R.BAD_HEADER_COUNT, "F16"),
    damage(
        "more headers than bytes",
        sized(fields_of(headers=varint(100) + field(b"n") + field(b"v"))),
        R.BAD_HEADER_COUNT,
        "F16",
    ),
    damage(
        "one header too many",
        sized(fields_of(headers=varint(2) + field(b"n") + field(b"v"))),
        R.BAD_STRUCTURE,
        "F16",
    ),
    damage(
        "one header too few",
        sized(fields_of(headers=varint(1) + (field(b"n") + field(b"v")) * 2)),
        R.SIZE_MISMATCH,
        "F16",
    ),
    damage(
        "a header without a name",
        sized(fields_of(headers=varint(1) + varint(-1) + field(b"v"))),
        R.NEGATIVE_HEADER_NAME,
        "F18",
    ),
    damage(
        "a header name beyond the body",
        sized(fields_of(headers=varint(1) + varint(50) + b"n")),
        R.BAD_STRUCTURE,
        "F18",
    ),
    damage(
        "a header value beyond the body",
        sized(fields_of(headers=varint(1) + field(b"n") + varint(50) + b"v")),
        R.BAD_STRUCTURE,
        "F18",
    ),
    damage("trouble in the third", sized(fields_of(headers=varint(-1))), R.BAD_HEADER_COUNT, before=2),
)


def three(magic: int, *offsets: int, attributes: int = 0) -> bytes:
    """Inner messages, one millisecond apart."""
    return b"".join(
        message(offset, b"k", b"v", magic=magic, attributes=attributes, timestamp=T0 + row)
        for row, offset in enumerate(offsets)
    )


def inner(*offsets: int, timestamps: tuple[int, ...] | None = None) -> tuple[Expected, ...]:
    times = tuple(T0 + row for row in range(len(offsets))) if timestamps is None else timestamps
    return tuple(plain(offset, time) for offset, time in zip(offsets, times, strict=True))


LEGACY = (
    Case("v1", message(7, b"k", b"v"), (plain(7),), rows=("F21",)),
    Case("v0", message(7, b"k", b"v", magic=0), (plain(7, -1),), rows=("F21",)),
    Case("v1 nulls", message(7, None, None), ((7, T0, -1, None, None, ()),), rows=("F21",)),
    Case("v0 empty", message(7, b"", b"", magic=0), ((7, -1, -1, b"", b"", ()),), rows=("F21",)),
    Case("v1 log append time", message(7, b"k", b"v", attributes=8), (plain(7),)),
    Case(
        "wrapper of relative offsets",
        wrapper(500, three(1, 0, 1, 2)),
        inner(498, 499, 500),
        rows=("F25", "F28"),
    ),
    Case("wrapper of a compacted set", wrapper(500, three(1, 0, 7)), inner(493, 500), rows=("F25",)),
    Case("wrapper at 2", wrapper(2, three(1, 0, 1, 2)), inner(0, 1, 2), rows=("F25",)),
    Case("wrapper offset 0", wrapper(0, three(1, 0, 1, 2)), inner(0, 1, 2), rows=("F26",)),
    Case("wrapper offset too small", wrapper(1, three(1, 0, 1, 2)), error=None, rows=("F27",)),
    Case(
        "wrapper log append time",
        wrapper(500, three(1, 0, 1, 2), attributes=8, timestamp=T0 + 99),
        inner(498, 499, 500, timestamps=(T0 + 99,) * 3),
        rows=("F28",),
    ),
    Case(
        "v0 wrapper of absolute offsets",
        wrapper(12, three(0, 10, 11, 12), magic=0),
        inner(10, 11, 12, timestamps=(-1, -1, -1)),
    ),
    Case(
        "v1 wrapper of v0 messages",
        wrapper(500, three(0, 0, 1, 2)),
        inner(498, 499, 500, timestamps=(-1,) * 3),
        rows=("V14",),
    ),
    Case("wrapper cut inside", wrapper(500, three(1, 0, 1, 2)[:-5]), inner(499, 500), rows=("F24",)),
    Case("wrapper of nothing", wrapper(500, b""), error=None, rows=("F24",)),
    Case("wrapper of null", message(500, None, None, attributes=1), error=None, rows=("F24",)),
    Case("wrapper of garbage", message(500, None, b"no gzip at all", attributes=1), error=None),
    Case("wrapper in a wrapper", wrapper(500, wrapper(0, three(1, 0))), error=R.INNER_COMPRESSED),
    Case("inner size too small", wrapper(500, struct.pack(">qi", 0, 13) + bytes(13)), error=None),
    Case("zstd in v1", message(500, None, b"x", attributes=4), error=None, rows=("F29",)),
)
CASES = SOUND + STRUCTURE + LEGACY
