"""Kinds of damage whose cost is measured. Each takes a log and the number of a batch in it, and changes the partition."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fixtures import diseases
from fixtures.diseases import batch_spans, put

InflictedDamage = Callable[[Path, int], object]


@dataclass(frozen=True, slots=True)
class Kind:
    """takes_away: batches disappear without a trace, and do not count as a cost of a policy."""

    name: str
    damage: InflictedDamage
    takes_away: bool = False


def _field(
    position: int, form: str, change: Callable[[int], int], *, sealed: bool = False
) -> InflictedDamage:
    """Change a field of the header. `sealed`: correct the checksum afterwards."""

    def damage(log: Path, batch: int) -> None:
        start, _ = batch_spans(log)[batch]
        (value,) = struct.unpack_from(form, log.read_bytes(), start + position)
        put(log, start + position, struct.pack(form, change(value)))
        if sealed:
            diseases.seal(log, start)

    return damage


def _cut(share: float) -> InflictedDamage:
    def damage(log: Path, batch: int) -> None:
        position, size = batch_spans(log)[batch]
        os.truncate(log, position + int(size * share))

    return damage


def _zeros_across(log: Path, batch: int) -> None:
    """Zeros from the middle of a batch on, as many bytes as the batch is long."""
    position, size = batch_spans(log)[batch]
    start = position + size // 2
    put(log, start, bytes(min(size, log.stat().st_size - start)))


def _moved_to_the_end(log: Path, batch: int) -> None:
    position, size = batch_spans(log)[batch]
    data = log.read_bytes()
    log.write_bytes(data[:position] + data[position + size :] + data[position : position + size])


def _copied_to_the_end(log: Path, batch: int) -> None:
    position, size = batch_spans(log)[batch]
    data = log.read_bytes()
    log.write_bytes(data + data[position : position + size])


def _two(log: Path, batch: int) -> None:
    diseases.bad_crc(log, batch)
    diseases.bad_crc(log, min(batch + 2, len(batch_spans(log)) - 1))


def _damaged_without_index(log: Path, batch: int) -> None:
    diseases.bad_crc(log, batch)
    log.with_suffix(".index").unlink(missing_ok=True)


def _without_index(log: Path, batch: int) -> None:
    log.with_suffix(".index").unlink(missing_ok=True)


def _index_field(at: int, mask: int) -> InflictedDamage:
    def damage(log: Path, batch: int) -> None:
        index = log.with_suffix(".index")
        data = bytearray(index.read_bytes())
        if data:
            data[at] ^= mask
            index.write_bytes(data)

    return damage


def _lower_index_offset(log: Path, batch: int) -> None:
    index = log.with_suffix(".index")
    data = bytearray(index.read_bytes())
    if data:
        data[-5] &= 0x03
        index.write_bytes(data)


def _time_index_later(log: Path, batch: int) -> None:
    """The last entry of a time index refers to an offset after the end of the log."""
    index = log.with_suffix(".timeindex")
    data = bytearray(index.read_bytes())
    if data:
        data[-3] ^= 0x10
        index.write_bytes(data)


def _missing_segment(log: Path, batch: int) -> None:
    for file in log.parent.glob(f"{log.stem}.*"):
        if file.suffix != ".snapshot":
            file.unlink()


def _copied_segment(log: Path, batch: int) -> None:
    """Copy a segment to the name of an offset inside it, without its time index, which would reveal a later end."""
    name = f"{int(log.stem) + 1:020d}"
    for suffix in (".log", ".index"):
        if log.with_suffix(suffix).exists():
            shutil.copy(log.with_suffix(suffix), log.with_name(name + suffix))


def _next_to_last(disease: Callable[[Path, int], object]) -> InflictedDamage:
    """Damage that needs a batch after the damaged one. A log of one batch gets a wrong checksum instead."""

    def damage(log: Path, batch: int) -> None:
        last = len(batch_spans(log)) - 1
        if last:
            disease(log, min(batch, last - 1))
        else:
            diseases.bad_crc(log, batch)

    return damage


def _both_lower(log: Path, batch: int) -> None:
    """Lower record count and last offset delta by one, with a valid checksum. Only the bytes that remain reveal it."""
    start, _ = batch_spans(log)[batch]
    data = log.read_bytes()
    for position in (23, 57):
        (value,) = struct.unpack_from(">i", data, start + position)
        put(log, start + position, struct.pack(">i", max(0, value - 1)))
    diseases.seal(log, start)


def _sealed_count(change: Callable[[int], int]) -> InflictedDamage:
    return _field(57, ">i", change, sealed=True)


def _sealed_bit(bit: int) -> InflictedDamage:
    return _field(21, ">h", lambda attributes: attributes ^ bit, sealed=True)


# Wrong header fields under a valid checksum: every policy keeps such batches, and consumers stop there or skip records.
SEALED_KINDS = (
    Kind("count-lower", _sealed_count(lambda count: count - 1)),
    Kind("count-half", _sealed_count(lambda count: count // 2)),
    Kind("count-zero", _sealed_count(lambda count: 0)),
    Kind("count-higher", _sealed_count(lambda count: count + 3)),
    Kind("count-negative", _sealed_count(lambda count: -count)),
    Kind("count-and-last-offset-lower", _both_lower),
    Kind("control", _sealed_bit(0x20)),
    Kind("transactional", _sealed_bit(0x10)),
    Kind("control-and-transactional", _sealed_bit(0x30)),
    Kind("codec-1", _sealed_bit(1)),
    Kind("codec-2", _sealed_bit(2)),
    Kind("codec-4", _sealed_bit(4)),
    Kind("codec-7", _sealed_bit(7)),
    Kind("timestamp-type", _sealed_bit(8)),
    Kind("delete-horizon", _sealed_bit(0x40)),
)

# Without damage that only shows on decompression (garbage in a compressed batch under a valid checksum).
KINDS = (
    *SEALED_KINDS,
    Kind("records", diseases.bad_crc),
    Kind("two", _two),
    Kind("length-small", diseases.bad_length_small),
    Kind("length-large", diseases.bad_length_large),
    Kind("length-into-next", _next_to_last(diseases.bad_length_into_next)),
    Kind("length-bit", _field(8, ">i", lambda length: length ^ 4)),
    Kind("length-negative", _field(8, ">i", lambda length: -length)),
    Kind("zeros", diseases.zero_block),
    Kind("zeros-across", _zeros_across),
    Kind("foreign", diseases.foreign_bytes),
    Kind("magic-0", _field(16, ">b", lambda magic: 0)),
    Kind("magic-1", _field(16, ">b", lambda magic: 1)),
    Kind("magic-3", _field(16, ">b", lambda magic: 3)),
    Kind("magic-unknown", diseases.bad_magic),
    Kind("base-1", _field(0, ">q", lambda base: base ^ 1)),
    Kind("base-16", _field(0, ">q", lambda base: base ^ 16)),
    Kind("base-20-bits", _field(0, ">q", lambda base: base ^ 1 << 20)),
    Kind("base-40-bits", _field(0, ">q", lambda base: base ^ 1 << 40)),
    Kind("epoch", diseases.altered_leader_epoch),
    Kind("attributes", _field(21, ">h", lambda attributes: attributes ^ 4)),
    Kind("last-offset", _field(23, ">i", lambda delta: delta ^ 4)),
    Kind("last-offset-sealed", _field(23, ">i", lambda delta: delta ^ 4, sealed=True)),
    Kind("attributes-zeros", lambda log, batch: put(log, batch_spans(log)[batch][0] + 21, b"\0\0")),
    Kind("base-timestamp", _field(27, ">q", lambda timestamp: timestamp ^ 1024)),
    Kind("base-timestamp-sealed", _field(27, ">q", lambda timestamp: timestamp ^ 1024, sealed=True)),
    Kind("max-timestamp-sealed", _field(35, ">q", lambda timestamp: 0, sealed=True)),
    Kind("producer-id", _field(43, ">q", lambda producer: producer ^ 1)),
    Kind("sequence-sealed", _field(53, ">i", lambda sequence: sequence ^ 1, sealed=True)),
    Kind("count", _field(57, ">i", lambda count: count ^ 64)),
    Kind("cut-in-batch", _cut(0.7)),
    Kind("cut-between-batches", _cut(0), takes_away=True),
    Kind("missing-segment", _missing_segment, takes_away=True),
    Kind("missing-batch", diseases.missing_batch, takes_away=True),
    Kind("copied-segment", _copied_segment),
    Kind("swapped", _next_to_last(diseases.swapped_batches)),
    Kind("doubled", diseases.duplicated_batch),
    Kind("moved", _moved_to_the_end),
    Kind("copied", _copied_to_the_end),
    Kind("no-index", _without_index),
    Kind("damaged-without-index", _damaged_without_index),
    Kind("index-position", _index_field(-1, 0x10)),
    Kind("index-position-beyond", _index_field(-3, 0x40)),
    Kind("index-offset", _lower_index_offset),
    Kind("index-offset-later", _index_field(-5, 0x10)),
    Kind("index-offset-far", _index_field(-7, 0x10)),
    Kind("time-index-later", _time_index_later),
)
