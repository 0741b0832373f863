cimport cython
from kseg.segment.kernel cimport state_fields as S
from kseg.segment cimport header_tables as C

cdef int put_int(unsigned char[::1] out, Py_ssize_t at, long long value) except -1

cdef int put_long(unsigned char[::1] out, Py_ssize_t at, long long value) except -1

@cython.locals(new_offsets=cython.Py_ssize_t, new_times=cython.Py_ssize_t, position=cython.longlong, last=cython.longlong, timestamp=cython.longlong, largest=cython.longlong, at_largest=cython.longlong)
cpdef Py_ssize_t index_rows(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t stop, long long base, long long interval, long long most_offsets, long long most_times, unsigned char[::1] offsets, unsigned char[::1] times, long long[::1] state) except -1
