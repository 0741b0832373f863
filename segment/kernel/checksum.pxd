cimport cython

@cython.locals(mask=cython.uint, crc=cython.uint, low=cython.uint, p=cython.Py_ssize_t)
cpdef unsigned int crc_of(const unsigned char[::1] buf, Py_ssize_t start, Py_ssize_t end, const unsigned int[::1] tables) noexcept

@cython.locals(left=cython.Py_ssize_t, row=cython.Py_ssize_t, start=cython.longlong, size=cython.longlong, size_of_buf=cython.longlong, crc=cython.uint)
cpdef Py_ssize_t verify_small(const unsigned char[::1] buf, long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count, long long limit_bytes, const unsigned int[::1] castagnoli, const unsigned int[::1] ieee) except -1

@cython.locals(row=cython.Py_ssize_t, start=cython.Py_ssize_t, end=cython.Py_ssize_t, crc=cython.longlong)
cpdef int verify_large(object view, long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count, object castagnoli, object ieee) except -1
