"""Random damage to the logs of a partition directory."""

from __future__ import annotations

import struct

from kseg.segment import layout as L
from kseg.segment.partition.names import segment_file_name
from tests.kafka.random_ground import SIDE_SUFFIXES, Ground
from tests.kafka.random_logs import RandomLog

# --- damaging logs


def flip_a_bit(ground: Ground) -> None:
    if path := ground.a_log():
        data = bytearray(path.read_bytes())
        data[ground.rng.randrange(len(data))] ^= 1 << ground.rng.randrange(8)
        path.write_bytes(data)


def put_zeros(ground: Ground) -> None:
    if path := ground.a_log():
        data = bytearray(path.read_bytes())
        begin = ground.rng.randrange(len(data))
        end = min(len(data), begin + ground.rng.choice((1, 20, 100, 10**6)))
        data[begin:end] = bytes(end - begin)
        path.write_bytes(data)


def cut_a_log(ground: Ground) -> None:
    if path := ground.a_log():
        size = path.stat().st_size
        at = ground.rng.choice((size - 1, size - 18, ground.rng.randrange(size), *ground.bounds(path)[-3:]))
        with path.open("rb+") as file:
            file.truncate(max(0, at))


def append_garbage(ground: Ground) -> None:
    if path := ground.a_log():
        count = ground.rng.choice((1, 5, 17, 18, 30, 62, 200))
        path.write_bytes(path.read_bytes() + ground.rng.randbytes(count))


def append_zeros(ground: Ground) -> None:
    if path := ground.a_log():
        path.write_bytes(path.read_bytes() + bytes(ground.rng.choice((1, 17, 18, 19, 500))))


def repeat_bytes(ground: Ground) -> None:
    if path := ground.a_log():
        data, bounds = path.read_bytes(), ground.bounds(path)
        begin = ground.rng.choice(bounds)
        end = ground.rng.choice([bound for bound in bounds if bound >= begin])
        at = ground.rng.choice((len(data), end, ground.rng.choice(bounds)))
        path.write_bytes(data[:at] + data[begin:end] + data[at:])


def move_bytes(ground: Ground) -> None:
    if path := ground.a_log():
        data, bounds = path.read_bytes(), ground.bounds(path)
        begin, middle, end = sorted(ground.rng.choices(bounds, k=3))
        path.write_bytes(data[:begin] + data[middle:end] + data[begin:middle] + data[end:])


def alter_a_header(ground: Ground) -> None:
    """Change a field that the checksum does not cover: base offset, length, leader epoch, magic."""
    path = ground.a_log()
    if path is None:
        return
    data = bytearray(path.read_bytes())
    at = ground.rng.choice(ground.bounds(path)[:-1])
    if at + 61 > len(data):
        return
    offset = int.from_bytes(data[at : at + 8], "big")
    length = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
    position, new = ground.rng.choice(
        (
            (0, struct.pack(">q", max(0, (offset + ground.rng.randint(-9, 9)) % 2**63))),
            (0, struct.pack(">q", (offset ^ (1 << ground.rng.randrange(40))) % 2**63)),
            (8, struct.pack(">i", length + ground.rng.choice((-40, -1, 1, 13)))),
            (8, struct.pack(">i", ground.rng.choice((-1, 0, 13, 14, 20, 48, 2**30)))),
            (12, struct.pack(">i", ground.rng.choice((-1, 0, 3, 99)))),
            (16, bytes([ground.rng.choice((0, 1, 3, 128, 255))])),
        )
    )
    data[at + position : at + position + len(new)] = new
    path.write_bytes(data)


def lower_an_offset(ground: Ground) -> None:
    """Give a batch the base offset of an earlier one."""
    if path := ground.a_log():
        data, bounds = bytearray(path.read_bytes()), ground.bounds(path)[:-1]
        earlier, later = sorted(ground.rng.choices(bounds, k=2))
        data[later : later + 8] = data[earlier : earlier + 8]
        path.write_bytes(data)


def append_nonsense(ground: Ground) -> None:
    if path := ground.a_log():
        log = RandomLog(ground.rng, ground.log_end)
        with path.open("ab") as file:
            file.write(log.nonsense() + b"".join(log.batch() for _ in range(ground.rng.choice((0, 0, 2)))))


def remove_a_segment(ground: Ground) -> None:
    if path := ground.a_log():
        path.unlink()


def empty_a_log(ground: Ground) -> None:
    if path := ground.a_log():
        path.write_bytes(b"")


def join_segments(ground: Ground) -> None:
    """Append the log of a segment to that of the previous one: offsets overlap or overflow."""
    logs = ground.logs()
    if len(logs) < 2:
        return
    at = ground.rng.randrange(len(logs) - 1)
    logs[at].write_bytes(logs[at].read_bytes() + logs[at + 1].read_bytes())
    if ground.rng.random() < 0.8:
        logs[at + 1].unlink()
    if ground.rng.random() < 0.5:
        for suffix in SIDE_SUFFIXES:
            logs[at].with_suffix(suffix).unlink(missing_ok=True)


def rename_a_segment(ground: Ground) -> None:
    """Give a segment a wrong base offset."""
    if path := ground.a_log():
        base = int(path.name.split(".")[0])
        new = max(0, base + ground.rng.choice((-(2**31), -5, -1, 1, 3, 1000)))
        for suffix in (L.LOG_SUFFIX, *SIDE_SUFFIXES):
            if path.with_suffix(suffix).exists() and (suffix == L.LOG_SUFFIX or ground.rng.random() < 0.8):
                path.with_suffix(suffix).rename(ground.directory / segment_file_name(new, suffix))
