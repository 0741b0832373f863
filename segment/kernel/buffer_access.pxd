cdef extern from *:
    """
    #define KSEG_DATA(view) ((view).data)
    #define KSEG_COPIED(out, o, text, p, n) memcpy((out) + (o), (text) + (p), (size_t) (n))

    #ifdef __GNUC__
    #define KSEG_WANTED(buf, p) __builtin_prefetch((buf) + (p))
    #else
    #define KSEG_WANTED(buf, p) ((void) 0)
    #endif

    static inline unsigned long long kseg_number(const unsigned char *at) {
        return (unsigned long long) at[0] << 24 | (unsigned long long) at[1] << 16 | (unsigned long long) at[2] << 8 | at[3];
    }
    static inline long long kseg_long_at(const unsigned char *buf, Py_ssize_t p) {
        return (long long) (kseg_number(buf + p) << 32 | kseg_number(buf + p + 4));
    }
    static inline long long kseg_int_at(const unsigned char *buf, Py_ssize_t p) { return (int) kseg_number(buf + p); }
    static inline long long kseg_crc_at(const unsigned char *buf, Py_ssize_t p) { return (long long) kseg_number(buf + p); }
    static inline long long kseg_short_at(const unsigned char *buf, Py_ssize_t p) {
        return (short) (unsigned short) (buf[p] << 8 | buf[p + 1]);
    }
    """
    const unsigned char* bytes_in "(const unsigned char*) KSEG_DATA" (const unsigned char[::1] view) noexcept
    unsigned char* room_in "(unsigned char*) KSEG_DATA" (unsigned char[::1] view) noexcept
    const long long* cells_in "(const long long*) KSEG_DATA" (const long long[::1] view) noexcept
    long long* table_in "(long long*) KSEG_DATA" (long long[::1] view) noexcept
    long long long_at "kseg_long_at" (const unsigned char* buf, Py_ssize_t p) noexcept
    long long int_at "kseg_int_at" (const unsigned char* buf, Py_ssize_t p) noexcept
    long long crc_at "kseg_crc_at" (const unsigned char* buf, Py_ssize_t p) noexcept
    long long short_at "kseg_short_at" (const unsigned char* buf, Py_ssize_t p) noexcept
    void wanted "KSEG_WANTED" (const unsigned char* buf, Py_ssize_t p) noexcept
    void copied "KSEG_COPIED" (unsigned char* out, Py_ssize_t o, const unsigned char* text, Py_ssize_t p, Py_ssize_t n) noexcept

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
    # like Java's, it drops bits above the 32nd
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
    # the zigzag varint at p as 16 × its value + its size; size 0 if it exceeds the body or 5 bytes
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
    for i in range(n):
        out[o + i] = text[i]
    return o + n
