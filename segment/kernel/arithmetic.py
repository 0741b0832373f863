# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""Java's fixed-width arithmetic, the same in C and in Python.

Kafka computes sequences in 32-bit ints that wrap silently; hostile or damaged files reach those edges.
"""

def to_int(value):
    """value as a Java int (the low 32 bits, signed)."""
    value = value & 0xFFFFFFFF
    if value > 0x7FFFFFFF:
        value = value - 0x100000000
    return value


def add_sequence(sequence, increment):
    """Kafka's DefaultRecordBatch.incrementSequence in 32-bit arithmetic: after 2^31−1 comes 0."""
    if sequence > to_int(0x7FFFFFFF - increment):
        return to_int(increment - to_int(0x7FFFFFFF - sequence) - 1)
    return to_int(sequence + increment)
