"""Damage of a Kafka 0.7 file as findings.

An offset of 0.7 is a byte position: damage loses as many offsets as it has bytes, while a message has only the offset at which it begins.
"""

from kseg.segment.counted import counted
from kseg.segment.errors import KsegError
from kseg.segment.findings import Finding
from kseg.segment.kafka07.messages07 import Damage07, Entry07


def invalid_bytes07(path: str, base_offset: int, damage: Damage07) -> Finding:
    """A span in which no message can be found. base_offset: the number in the file's name."""
    first = base_offset + damage.position
    text = f"no valid message in the {counted(damage.length, 'byte')} at position {damage.position}"
    return Finding(damage.kind, path, text, damage.position, damage.length, first, first + damage.length - 1)


def bad_crc07(path: str, base_offset: int, entry: Entry07) -> Finding:
    """A message, or a compressed set, that does not match its checksum."""
    text = f"the message of {counted(entry.size_bytes, 'byte')} at position {entry.position} does not match its checksum"
    return _of_entry("bad-crc", path, base_offset, entry, text)


def bad_inner_crc07(path: str, base_offset: int, entry: Entry07) -> Finding:
    """A message inside a compressed set that does not match its own checksum."""
    text = f"a message in the set at position {entry.position} does not match its checksum"
    return _of_entry("bad-crc", path, base_offset, entry, text)


def undecodable07(path: str, base_offset: int, entry: Entry07, error: KsegError) -> Finding:
    """A compressed set that cannot be decoded completely."""
    return _of_entry("undecodable-batch", path, base_offset, entry, undecodable_words07(entry, error))


def undecodable_words07(entry: Entry07, error: KsegError) -> str:
    return f"the message set at position {entry.position} cannot be decoded: {error}"


def _of_entry(kind: str, path: str, base_offset: int, entry: Entry07, text: str) -> Finding:
    offset = base_offset + entry.position
    return Finding(kind, path, text, entry.position, entry.size_bytes, offset, offset)
