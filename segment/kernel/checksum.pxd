cimport cython
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport buffer_access
from kseg.segment.kernel.in_c cimport castagnoli as in_c

@cython.locals(mask=cython.uint, crc=cython.uint, low=cython.uint, p=cython.Py_ssize_t)
cpdef unsigned int crc_of(const unsigned char[::1] buf, Py_ssize_t start, Py_ssize_t end, const unsigned int[::1] tables) noexcept

@cython.locals(way=cython.int)
cpdef unsigned int castagnoli_of(const unsigned char[::1] buf, Py_ssize_t start, Py_ssize_t end, const unsigned int[::1] tables) noexcept

cpdef int fastest_way() noexcept

cpdef long long castagnoli_by(int way, const unsigned char[::1] buf, Py_ssize_t start, Py_ssize_t end) except -1

@cython.locals(left=cython.Py_ssize_t, row=cython.Py_ssize_t, start=cython.longlong, size=cython.longlong, size_of_buf=cython.longlong, crc=cython.uint)
cpdef Py_ssize_t verify_small(const unsigned char[::1] buf, long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count, long long limit_bytes, const unsigned int[::1] castagnoli, const unsigned int[::1] ieee) except -1

@cython.locals(row=cython.Py_ssize_t, start=cython.Py_ssize_t, end=cython.Py_ssize_t, size_of_buf=cython.Py_ssize_t, crc=cython.longlong, way=cython.int)
cpdef int verify_large(object view, const unsigned char[::1] buf, long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count, object castagnoli, object ieee) except -1

@cython.locals(one=cython.uint, bit=cython.uint, product=cython.uint)
cpdef unsigned int multiplied(unsigned int left, unsigned int right, unsigned int polynomial) noexcept
