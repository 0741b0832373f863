"""Side files that are well-formed but have odd content, and segment replacements that were interrupted at each of their steps."""

from __future__ import annotations

import os
import struct
from itertools import pairwise

from fixtures.healthy import T0, TOPIC_ID
from kseg.segment import layout as L
from kseg.segment.crc import crc32c
from kseg.segment.partition.names import segment_file_name
from kseg.segment.sidecar.txn_index import AbortedTxn, encode_txn_index
from tests.kafka.random_ground import EPOCHS, SIDE_SUFFIXES, Ground
from tests.kafka.random_logs import DAY_MS

_PARTS = (L.LOG_SUFFIX, L.OFFSET_INDEX_SUFFIX, L.TIME_INDEX_SUFFIX, L.TXN_INDEX_SUFFIX)


def mislead_a_time_index(ground: Ground) -> None:
    """Entries with arbitrary times or offsets."""
    rng = ground.rng
    if path := ground.a_side_file(L.TIME_INDEX_SUFFIX):
        rows = []
        for _ in range(rng.randint(1, 4)):
            time = rng.choice((0, -1, 2**63 - 1, T0, T0 + 5000, T0 + 50 * DAY_MS, -(2**63)))
            rows.append((time, rng.choice((0, 1, 5, 40, -1, 2**31 - 1))))
        if rng.random() < 0.6:
            rows.sort()
        data = b"".join(struct.pack(">qi", *row) for row in rows)
        path.write_bytes((path.read_bytes() if rng.random() < 0.5 else b"") + data)


def odd_index_entries(ground: Ground) -> None:
    """Entries of an offset index that decrease, repeat, are negative, or point beyond the end of the log."""
    rng = ground.rng
    if path := ground.a_side_file(L.OFFSET_INDEX_SUFFIX):
        row = struct.Struct(">ii")
        rows = [
            row.pack(rng.choice((0, 1, 3, 9, -1, 2**31 - 1)), rng.choice((0, 1, 61, 300, -1, 2**31 - 1)))
            for _ in range(rng.randint(1, 4))
        ]
        old = path.read_bytes()
        path.write_bytes(rng.choice((b"", old, old[:8])) + b"".join(rows))


def large_indexes(ground: Ground) -> None:
    """An index larger than segment.index.bytes, filled with entries or zeros."""
    rng = ground.rng
    if path := ground.a_side_file(L.OFFSET_INDEX_SUFFIX, L.TIME_INDEX_SUFFIX):
        size = ground.settings.segment_index_bytes + rng.choice((1, 8, 12, 24, 500))
        data = path.read_bytes()
        path.write_bytes((data + data[-12:] * 50)[:size].ljust(size, b"\0"))


def aborted_transactions(ground: Ground) -> None:
    """A transaction index with several entries, in or out of order, the last one torn."""
    rng = ground.rng
    if path := ground.a_log():
        base = int(path.name.split(".")[0])
        entries = []
        last = min(base, L.INT64_MAX - 100) + rng.choice((-2, 0, 1, 7))
        for _ in range(rng.randint(1, 4)):
            first = last - rng.choice((0, 1, 4))
            entries.append(AbortedTxn(0, rng.choice((1, 17, -1)), first, last, min(last + 1, L.INT64_MAX)))
            last += rng.choice((1, 2, 9, 9, -3, 0))
        data = b"".join(encode_txn_index([entry]) for entry in entries)
        path.with_suffix(L.TXN_INDEX_SUFFIX).write_bytes(data + rng.choice((b"", b"", b"\0", bytes(34))))


def epochs_in_odd_text(ground: Ground) -> None:
    """Numbers, lines and white space that only Java accepts."""
    rng = ground.rng
    end = min(ground.log_end, 10**6)
    epochs = sorted(rng.sample(range(12), rng.randint(1, 4)))
    offsets = sorted(rng.randint(0, end + 5) for _ in epochs)
    if rng.random() < 0.3:
        offsets[-1] = end + rng.choice((0, 1, 1000))
    space = rng.choice((" ",) * 6 + ("  ", "\t", "\u00a0", " \t "))
    line = rng.choice(("\n",) * 6 + ("\r\n", "\r", "\n\n"))
    digits = rng.choice((str,) * 6 + (lambda n: f"+{n}", lambda n: f"0{n}", lambda n: f" {n}"))
    rows = [f"{digits(e)}{space}{digits(o)}" for e, o in zip(epochs, offsets, strict=True)]
    if rng.random() < 0.2:
        rng.shuffle(rows)
    if rng.random() < 0.15:
        rows.append(rows[-1])
    rows[-1] += rng.choice(("",) * 6 + (" ", " 7", "x", ".0"))
    count = str(len(rows) + rng.choice((0,) * 8 + (1, -1, -len(rows) - 1)))
    version = rng.choice(("0",) * 8 + ("00", "+0", "-0", " 0", "0 ", "1", "", "99999999999"))
    text = line.join([version, rng.choice((count,) * 8 + (f" {count}", f"+{count}", "2147483648")), *rows])
    text += rng.choice((line, line, line, "", line * 2, "\n0 0\n", "\0"))
    data = text.encode()
    if rng.random() < 0.1:
        data = rng.choice(
            (b"\xef\xbb\xbf" + data, data + b"\xff\n", b"\xff" + data, data.replace(b" ", b"\x85"))
        )
    (ground.directory / EPOCHS).write_bytes(data)


def odd_partition_metadata(ground: Ground) -> None:
    rng = ground.rng
    topic = rng.choice(
        (TOPIC_ID,) * 4 + ("", TOPIC_ID[:-1], TOPIC_ID + "A", "A" * 22, "AAAAAAAAAAAAAAAAAAAAAQ", "=" * 22)
    )
    version = rng.choice(("0",) * 4 + ("1", "-1", "00", " 0", "", "x"))
    lines = [f"version: {version}", f"topic_id: {topic}"]
    match rng.randrange(10):
        case 0:
            lines.reverse()
        case 1:
            lines = [line.replace(": ", ":") for line in lines]
        case 2:
            lines = [line.replace(": ", " : ") for line in lines]
        case 3:
            lines = [lines[0]]
        case 4:
            lines.append("more: 1")
        case 5:
            lines = [f" {line} " for line in lines]
    text = rng.choice(("\n", "\n", "\n", "\r\n", "\r", "\n\n")).join(lines) + rng.choice(("", "\n"))
    (ground.directory / "partition.metadata").write_bytes(
        text.encode() + rng.choice((b"",) * 6 + (b"\xff", b"\0"))
    )


def crafted_snapshot(ground: Ground) -> None:
    """A snapshot with a valid checksum but another version, counts that do not match, or extreme fields."""
    rng = ground.rng
    end = min(ground.log_end, 10**6)
    entries = []
    for producer_id in rng.sample((1, 2, 17, 33, -1, 2**63 - 1), rng.randint(0, 4)):
        last = rng.choice((-1, -2, 0, end - 1, end, end + 5, 2**63 - 1))
        entries.append(
            struct.pack(
                ">qhiqiqiq",
                producer_id,
                rng.choice((0, 0, 1, -1, 2**15 - 1)),
                rng.choice((0, 5, -1, 2**31 - 1)),
                last,
                rng.choice((0, 0, 3, -1, 2**31 - 1)),
                rng.choice((T0, T0, T0 - 3 * DAY_MS, -1, 2**63 - 1)),
                rng.choice((-1, 0, 3, 2**31 - 1)),
                rng.choice((-1, -1, -1, 0, max(0, end - 2), end + 3, -2)),
            )
        )
    count = len(entries) + rng.choice((0,) * 8 + (1, -1, -len(entries) - 1, 2**31 - 1))
    body = (
        struct.pack(">i", min(count, 2**31 - 1))
        + b"".join(entries)
        + rng.choice((b"",) * 5 + (bytes(46), b"tail"))
    )
    version = rng.choice((1,) * 8 + (0, 2, -1))
    crc = crc32c(body) ^ rng.choice((0,) * 12 + (1,))
    bases = [int(path.name.split(".")[0]) for path in ground.logs()]
    for offset in rng.sample([*bases, end, max(0, end - 3), end + 7], 1):
        name = segment_file_name(offset, L.SNAPSHOT_SUFFIX)
        (ground.directory / name).write_bytes(struct.pack(">hI", version, crc) + body)


def preallocated(ground: Ground) -> None:
    """The files of the active segment as a killed broker with log.preallocate leaves them."""
    rng = ground.rng
    if logs := ground.logs():
        path = logs[-1]
        path.write_bytes(path.read_bytes() + bytes(rng.choice((100, 1000, 5000))))
        full = ground.settings.segment_index_bytes
        for suffix, slot in ((L.OFFSET_INDEX_SUFFIX, 8), (L.TIME_INDEX_SUFFIX, 12)):
            index = path.with_suffix(suffix)
            if index.exists() and rng.random() < 0.8:
                index.write_bytes(index.read_bytes().ljust(full // slot * slot, b"\0"))


def replace_in_steps(ground: Ground) -> None:
    """Kafka's replacement of segments (LocalLog.replaceSegments), up to one of its changes of the file system.

    The new files are complete with the suffix .cleaned; from the last new segment to the first each gets .swap; the old
    segments get .deleted, and the new ones their names.
    """
    rng = ground.rng
    logs = ground.logs()
    if not logs:
        return
    first = rng.randrange(len(logs))
    old = logs[first : first + rng.choice((1, 1, 2, 3))]
    content = b"".join(path.read_bytes() for path in old)
    bounds = [0]
    for path in old:
        bounds += [bounds[-1] + at for at in ground.bounds(path)[1:]]
    base = int(old[0].name.split(".")[0])
    new: list[tuple[int, bytes]] = []
    # a split: one segment becomes several
    if len(bounds) > 2 and rng.random() < 0.4:
        at = rng.choice(bounds[1:-1])
        second = int.from_bytes(content[at : at + 8], "big") % 2**63 if at + 8 <= len(content) else base + 1
        new = [(base, content[:at]), (second, content[at:])]
    # a cleaning
    else:
        kept = [content[a:b] for a, b in pairwise(bounds) if rng.random() < 0.7]
        new = [(base, b"".join(kept))]
    place = ground.directory
    for offset, data in new:
        for suffix in _PARTS[: rng.choice((3, 3, 4))]:
            (place / segment_file_name(offset, suffix + ".cleaned")).write_bytes(
                data if suffix == L.LOG_SUFFIX else b""
            )
    steps: list[tuple[str, str]] = []
    for offset, _ in reversed(new):
        steps += [
            (segment_file_name(offset, s + ".cleaned"), segment_file_name(offset, s + ".swap"))
            for s in _PARTS
        ]
    for path in old:
        steps += [(path.with_suffix(s).name, path.with_suffix(s).name + ".deleted") for s in _PARTS]
    for offset, _ in new:
        steps += [(segment_file_name(offset, s + ".swap"), segment_file_name(offset, s)) for s in _PARTS]
    for source, target in steps[: rng.randint(0, len(steps))]:
        if (place / source).exists():
            (place / source).rename(place / target)


def odd_suffixes(ground: Ground) -> None:
    """A file with a second suffix after another one, or with a suffix that no numbered file has."""
    rng = ground.rng
    if path := ground.a_side_file(*SIDE_SUFFIXES, L.LOG_SUFFIX):
        ending = rng.choice(
            (
                ".cleaned.swap",
                ".swap.cleaned",
                ".deleted.swap",
                ".swap.deleted",
                ".cleaned",
                ".swap",
                ".tmp",
                ".deleted",
                ".log",
                ".index",
            )
        )
        target = path.with_name(path.name + ending)
        if rng.random() < 0.5:
            target.write_bytes(path.read_bytes())
        else:
            path.rename(target)


def odd_numbers(ground: Ground) -> None:
    """Names whose number only Java would accept, or is out of range."""
    rng = ground.rng
    suffix = rng.choice((*SIDE_SUFFIXES, L.LOG_SUFFIX))
    stem = rng.choice(
        (
            "-1",
            "+5",
            "0",
            "00000000000000000007",
            str(2**63 - 1),
            str(2**63),
            "\u0663",
            "-9223372036854775808",
            "",
            "5 ",
            "0x5",
            f"{ground.rng.randint(0, 60):021d}",
            f"{ground.rng.randint(0, 60):020d}",
        )
    )
    path = ground.directory / f"{stem}{suffix}{rng.choice(('', '', '', '.swap', '.cleaned', '.deleted'))}"
    if not path.exists():
        log = ground.a_log()
        path.write_bytes(log.read_bytes() if log and rng.random() < 0.4 else b"")


def two_of_a_number(ground: Ground) -> None:
    """A base offset that two files spell differently, with and without leading zeros."""
    rng = ground.rng
    if path := ground.a_side_file(
        *SIDE_SUFFIXES[:3],
        L.LOG_SUFFIX,
        # of two snapshots, Kafka uses the last one that Java lists
    ):
        number = int(path.name.split(".")[0])
        other = path.with_name(f"{number:0{rng.choice((1, 19, 21))}d}{path.suffix}")
        if not other.exists():
            other.write_bytes(path.read_bytes())
            if rng.random() < 0.3:
                os.truncate(other, other.stat().st_size // 2)
