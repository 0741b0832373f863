cdef extern from *:
    """
    #define KSEG_DATA(view) ((view).data)
    #define KSEG_COPIED(out, o, text, p, n) memcpy((out) + (o), (text) + (p), (size_t) (n))
    """
    const unsigned char* bytes_in "(const unsigned char*) KSEG_DATA" (const unsigned char[::1] view) noexcept
    unsigned char* room_in "(unsigned char*) KSEG_DATA" (unsigned char[::1] view) noexcept
    const long long* cells_in "(const long long*) KSEG_DATA" (const long long[::1] view) noexcept
    long long* table_in "(long long*) KSEG_DATA" (long long[::1] view) noexcept
    void copied "KSEG_COPIED" (unsigned char* out, Py_ssize_t o, const unsigned char* text, Py_ssize_t p, Py_ssize_t n) noexcept

cdef inline long long long_at(const unsigned char* buf, Py_ssize_t p) noexcept:
    cdef long long value
    value = buf[p]
    if value > 127:
        value = value - 256
    value = (value << 8) | buf[p + 1]
    value = (value << 8) | buf[p + 2]
    value = (value << 8) | buf[p + 3]
    value = (value << 8) | buf[p + 4]
    value = (value << 8) | buf[p + 5]
    value = (value << 8) | buf[p + 6]
    return (value << 8) | buf[p + 7]

cdef inline long long int_at(const unsigned char* buf, Py_ssize_t p) noexcept:
    cdef long long value
    value = buf[p]
    if value > 127:
        value = value - 256
    value = (value << 8) | buf[p + 1]
    value = (value << 8) | buf[p + 2]
    return (value << 8) | buf[p + 3]

cdef inline long long crc_at(const unsigned char* buf, Py_ssize_t p) noexcept:
    cdef long long value
    value = buf[p]
    value = (value << 8) | buf[p + 1]
    value = (value << 8) | buf[p + 2]
    return (value << 8) | buf[p + 3]

cdef inline long long short_at(const unsigned char* buf, Py_ssize_t p) noexcept:
    cdef long long value
    value = buf[p]
    if value > 127:
        value = value - 256
    return (value << 8) | buf[p + 1]

cdef inline bint is_end_marker(const unsigned char* buf, Py_ssize_t p) noexcept:
    # whether the 17 bytes at p are the record of an end-of-transaction marker as brokers write it
    if int_at(buf, p) != 536870912 or buf[p + 4] != 8:
        return 0
    if int_at(buf, p + 5) > 1 or int_at(buf, p + 5) < 0:
        return 0
    if buf[p + 9] != 12 or short_at(buf, p + 10) != 0 or buf[p + 16] != 0:
        return 0
    return 1

cdef inline long long wide_varint(const unsigned char* buf, Py_ssize_t p, Py_ssize_t end) noexcept:
    cdef long long raw, n, byte
    # like Java's, it loses bits above the 32nd
    raw = 0
    n = 0
    while n < 5 and p + n < end:
        byte = buf[p + n]
        if n < 4:
            raw = raw | (byte & 127) << (7 * n)
        else:
            raw = raw | (byte & 15) << 28
        n = n + 1
        if byte < 128:
            return ((raw >> 1) ^ -(raw & 1)) * 16 + n
    return 0

cdef inline long long varint(const unsigned char* buf, Py_ssize_t p, Py_ssize_t end) noexcept:
    cdef long long byte
    # the zigzag varint at p as 16 × its value + its size; size 0 when it leaves the body or exceeds 5 bytes
    if p >= end:
        return 0
    byte = buf[p]
    if byte < 128:
        return ((byte >> 1) ^ -(byte & 1)) * 16 + 1
    return wide_varint(buf, p, end)

cdef inline long long add_long(long long left, long long right) noexcept:
    cdef long long top
    # left + right as a Java long; literals beyond 32 bits would be Python objects
    top = 0x7FFFFFFF
    top = (top << 16) | 0xFFFF
    top = (top << 16) | 0xFFFF
    if right > 0 and left > top - right:
        return left - top - 1 + right - top - 1
    if right < 0 and left < -top - 1 - right:
        return left + top + 1 + right + top + 1
    return left + right

cdef inline Py_ssize_t put(unsigned char* out, Py_ssize_t o, const unsigned char* text, Py_ssize_t n) noexcept:
    cdef Py_ssize_t i
    i = 0
    while i < n:
        out[o + i] = text[i]
        i = i + 1
    return o + n
