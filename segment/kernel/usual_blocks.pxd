cimport cython
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport buffer_access

@cython.locals(size=cython.Py_ssize_t, block_end=cython.Py_ssize_t)
cdef Py_ssize_t lz4_end(const unsigned char* body, Py_ssize_t p, Py_ssize_t end) noexcept

cdef Py_ssize_t snappy_end(const unsigned char* body, Py_ssize_t p, Py_ssize_t end) noexcept

@cython.locals(header=cython.long)
cdef Py_ssize_t zstd_end(const unsigned char* body, Py_ssize_t p, Py_ssize_t end) noexcept

cdef Py_ssize_t block_end(const unsigned char* body, Py_ssize_t p, Py_ssize_t end, int codec) noexcept

cpdef Py_ssize_t usual_block_end(const unsigned char[::1] body, int codec) except -1

@cython.locals(source=cython.p_const_uchar, size_of_buf=cython.Py_ssize_t, most=cython.Py_ssize_t, codec=cython.int, begin=cython.Py_ssize_t, start=cython.longlong, end=cython.longlong, size=cython.longlong)
cpdef Py_ssize_t fill_bodies(object view, const unsigned char[::1] buf, Py_ssize_t row, Py_ssize_t stop, const long long[::1] cells, Py_ssize_t capacity, object fill, object unreadable, Py_ssize_t room_bytes, object room, long long[::1] bounds, Py_ssize_t first, Py_ssize_t filled) except -1
