"""Java's fixed-width arithmetic, the same in C and in Python.

Kafka computes sequences in 32-bit ints that wrap silently; hostile or damaged files reach these limits. Inlined into the kernels
like `kernel.buffer_access`, and not compiled itself.
"""

from __future__ import annotations


def to_int(value: int) -> int:
    # literals beyond 31 bits would be Python objects in C
    low = value & 0x7FFFFFFF
    if (value >> 31) & 1:
        return low - 0x7FFFFFFF - 1
    return low


def add_sequence(sequence: int, increment: int) -> int:
    # Kafka's DefaultRecordBatch.incrementSequence in 32-bit arithmetic: after 2^31−1 comes 0
    if sequence > to_int(0x7FFFFFFF - increment):
        return to_int(increment - to_int(0x7FFFFFFF - sequence) - 1)
    return to_int(sequence + increment)
