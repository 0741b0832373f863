cimport cython

@cython.locals(low=cython.longlong)
cpdef long long to_int(long long value) noexcept
cpdef long long add_sequence(long long sequence, long long increment) noexcept
