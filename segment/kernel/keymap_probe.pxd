from kseg.segment cimport header_tables as C
cdef extern from *:
    """
    #ifdef __GNUC__
    /* a slot of 24 bytes may lie in two lines of the cache */
    #define KSEG_SLOT_WANTED(slots, at) (__builtin_prefetch((slots) + (at)), __builtin_prefetch((slots) + (at) + 2))
    #else
    #define KSEG_SLOT_WANTED(slots, at) ((void) 0)
    #endif
    """
    void wanted "KSEG_SLOT_WANTED" (const long long* slots, Py_ssize_t at) noexcept

cdef inline Py_ssize_t home_of(long long word, long long slot_count) noexcept:
    cdef long long low
    # the upper 32 bits select the slot, as a fraction of the map
    low = 0x7FFFFFFF
    low = (low << 1) | 1
    return (((word >> 32) & low) * slot_count) >> 32

cdef inline Py_ssize_t find_slot(const long long* slots, long long slot_count, long long first, long long second) noexcept:
    cdef Py_ssize_t at
    # the slot with the key, or the empty slot for it; at least one slot is always empty
    at = 3 * home_of(first, slot_count)
    while slots[at + 2] != 0:
        if slots[at] == first and slots[at + 1] == second:
            break
        at = at + 3
        if at >= 3 * slot_count:
            at = 0
    return at

cdef inline long long touched(const long long* slots, long long slot_count, const long long* cells, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t stop, const long long* hashes) noexcept:
    cdef long long total
    # prefetches the slots of several records before they are searched
    total = 0
    while row < stop:
        if cells[C.R_KEY_LENGTH * capacity + row] >= 0:
            total = total ^ slots[3 * home_of(hashes[2 * row], slot_count) + 2]
        row = row + 1
    return total
