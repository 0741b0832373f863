"""The partition of a keyed record, as Kafka's producer chooses it if the caller specifies none.

    partition = (murmur2(key) & 0x7fffffff) mod partitions          (BuiltInPartitioner.partitionForKey, Utils.murmur2)

    murmur2   32 bits, seed 0x9747b28c, over little-endian words of 4 bytes; the bytes after the last whole word
              are mixed in from the highest down

For a record without a key the producer chooses any partition, so there is no rule to follow; an empty key is a key.
"""

import struct

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The hash as an unsigned number of 32 bits."""
    length = len(data)
    state = _SEED ^ length
    whole = length & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        word = word * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        state = state * _MULTIPLIER & _MASK ^ word
    if whole != length:
        state = (state ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    state = (state ^ state >> 13) * _MULTIPLIER & _MASK
    return state ^ state >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition in a topic with `partitions` partitions (at least one)."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
