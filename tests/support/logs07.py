"""Helpers for Kafka 0.7: the messages of the fact sheet, and a walk that accounts for every byte."""

from __future__ import annotations

from kseg.segment.kafka07 import messages07 as A

HELLO_0 = bytes.fromhex("0000000a 00 3610a686 68656c6c6f")  # fact sheet §12
HELLO_1 = bytes.fromhex("0000000b 01 00 3610a686 68656c6c6f")


def walk_all(data: bytes) -> list[A.Entry07 | A.Damage07]:
    """Walk a log and check that the walk accounts for every byte."""
    found = list(A.walk(data))
    position = 0
    for item in found:
        assert item.position == position
        position += item.size_bytes if isinstance(item, A.Entry07) else item.length
    assert position == len(data)
    return found


def payloads(data: bytes) -> list[bytes]:
    view = memoryview(data)
    return [
        bytes(message.payload)
        for entry in walk_all(data)
        if isinstance(entry, A.Entry07) and entry.crc_valid
        for message in A.messages(view, entry)
    ]
