cdef inline Py_ssize_t home_of(long long word, long long slot_count) noexcept:
    cdef long long low
    # the upper 32 bits say where, as a fraction of the map
    low = 0x7FFFFFFF
    low = (low << 1) | 1
    return (((word >> 32) & low) * slot_count) >> 32

cdef inline Py_ssize_t find_slot(const long long* slots, long long slot_count, long long first, long long second) noexcept:
    cdef Py_ssize_t at
    # where the key is, or the empty slot where it would be; one slot at least is always empty
    at = 3 * home_of(first, slot_count)
    while slots[at + 2] != 0:
        if slots[at] == first and slots[at + 1] == second:
            break
        at = at + 3
        if at >= 3 * slot_count:
            at = 0
    return at
