cdef extern from *:
    """
    #define KSEG_DATA(view) ((view).data)
    """
    const unsigned char* bytes_in "(const unsigned char*) KSEG_DATA" (const unsigned char[::1] view) noexcept
    unsigned char* room_in "(unsigned char*) KSEG_DATA" (unsigned char[::1] view) noexcept
    const long long* cells_in "(const long long*) KSEG_DATA" (const long long[::1] view) noexcept
    long long* table_in "(long long*) KSEG_DATA" (long long[::1] view) noexcept
