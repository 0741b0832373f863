cdef inline long long to_int(long long value) noexcept:
    cdef long long low
    # literals beyond 31 bits would be Python objects in C
    low = value & 0x7FFFFFFF
    if (value >> 31) & 1:
        return low - 0x7FFFFFFF - 1
    return low

cdef inline long long add_sequence(long long sequence, long long increment) noexcept:
    # Kafka's DefaultRecordBatch.incrementSequence in 32-bit arithmetic: after 2^31−1 comes 0
    if sequence > to_int(0x7FFFFFFF - increment):
        return to_int(increment - to_int(0x7FFFFFFF - sequence) - 1)
    return to_int(sequence + increment)
