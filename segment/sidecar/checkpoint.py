"""Text checkpoints: offsets of partitions, and the leader epochs of one partition (fact sheet §1.3).

    line 1     format version, 0
    line 2     number of entries
    others     one entry a line, fields separated by white space:
                   topic partition offset      recovery-point-, replication-, log-start-, cleaner-offset-checkpoint
                   epoch start-offset          leader-epoch-checkpoint
UTF-8, `\\n`. A file without a first or second line is an empty checkpoint. Any other deviation is an error
in Kafka (CheckpointFile, OffsetCheckpointFile, LeaderEpochCheckpointFile), after which a broker continues with offset 0
for *all* partitions. So the reader accepts exactly what Kafka accepts, and otherwise names the line.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from kseg.segment.counted import counted
from kseg.segment.errors import FormatError
from kseg.segment.java.java_text import INT_BITS, LONG_BITS, parse_integer, read_lines, split_fields
from kseg.segment.sidecar.leader_epochs import EpochEntry

VERSION = 0
E = TypeVar("E")


class CheckpointEntry(NamedTuple):
    """One line of an offset checkpoint."""

    topic: str
    partition: int
    offset: int


def decode_offset_checkpoint(data: bytes) -> tuple[CheckpointEntry, ...]:
    """The entries in file order. If a partition occurs twice, Kafka uses the last entry (see `offsets_by_partition`).

    Raises FormatError with the line on which Kafka would fail.
    """
    return _decode(data, _offset_entry)


def decode_leader_epochs(data: bytes) -> tuple[EpochEntry, ...]:
    """The entries in file order; their order is not checked here. Raises FormatError with the line."""
    return _decode(data, _epoch_entry)


def offsets_by_partition(entries: Iterable[CheckpointEntry]) -> dict[tuple[str, int], int]:
    """(topic, partition) → offset; for a duplicate partition the last entry wins, as in Kafka."""
    return {(entry.topic, entry.partition): entry.offset for entry in entries}


def with_offsets(
    entries: Iterable[CheckpointEntry], changes: Mapping[tuple[str, int], int | None]
) -> tuple[CheckpointEntry, ...]:
    """The entries with the offsets of some partitions replaced (None removes the entry), in the same order, new ones
    at the end (in Kafka the order is that of a hash map)."""
    offsets = offsets_by_partition(entries)
    for key, offset in changes.items():
        if offset is None:
            offsets.pop(key, None)
        else:
            offsets[key] = offset
    return tuple(CheckpointEntry(topic, partition, offset) for (topic, partition), offset in offsets.items())


def encode_offset_checkpoint(entries: Iterable[CheckpointEntry]) -> bytes:
    """The file that Kafka writes for `entries`, in this order; raises FormatError for a topic that could not be read back."""
    return _encode([_offset_line(entry) for entry in entries])


def encode_leader_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """The leader-epoch-checkpoint for `entries`, in this order."""
    return _encode([f"{entry.epoch} {entry.start_offset}" for entry in entries])


def _decode(data: bytes, parse: Callable[[list[str]], E | None]) -> tuple[E, ...]:
    lines = read_lines(bytes(data))
    if not lines:
        return ()
    version = parse_integer(lines[0], INT_BITS)
    if version is None:
        raise FormatError(f"line 1 is not a version number: {_shown(lines[0])}")
    if version != VERSION:
        raise FormatError(f"line 1 has version {version}; only version {VERSION} is supported")
    if len(lines) == 1:
        return ()
    announced = parse_integer(lines[1], INT_BITS)
    if announced is None or announced < 0:
        raise FormatError(f"line 2 is not a number of entries: {_shown(lines[1])}")
    entries = []
    for number, line in enumerate(lines[2:], start=3):
        entry = parse(split_fields(line))
        if entry is None:
            raise FormatError(f"line {number} is not an entry: {_shown(line)}")
        entries.append(entry)
    if len(entries) != announced:
        raise FormatError(f"line 2 declares {counted(announced, 'entry')}, but {len(entries):,} follow")
    return tuple(entries)


def _offset_entry(fields: list[str]) -> CheckpointEntry | None:
    if len(fields) != 3:
        return None
    partition, offset = parse_integer(fields[1], INT_BITS), parse_integer(fields[2], LONG_BITS)
    return None if partition is None or offset is None else CheckpointEntry(fields[0], partition, offset)


def _epoch_entry(fields: list[str]) -> EpochEntry | None:
    if len(fields) != 2:
        return None
    epoch, start_offset = parse_integer(fields[0], INT_BITS), parse_integer(fields[1], LONG_BITS)
    return None if epoch is None or start_offset is None else EpochEntry(epoch, start_offset)


def _offset_line(entry: CheckpointEntry) -> str:
    line = f"{entry.topic} {entry.partition} {entry.offset}"
    # a lone surrogate cannot be written as UTF-8
    is_text = not any("\ud800" <= char <= "\udfff" for char in entry.topic)
    if not entry.topic or not is_text or split_fields(line) != line.split(" ") or line.count(" ") != 2:
        raise FormatError(f"topic {entry.topic!r} cannot be written to a checkpoint")
    return line


def _encode(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in (str(VERSION), str(len(lines)), *lines)).encode()


def _shown(line: str) -> str:
    return repr(line if len(line) <= 80 else line[:80] + "…")
