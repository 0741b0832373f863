cimport cython
from kseg.segment.kernel cimport state_fields as S
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport buffer_access
from kseg.segment.kernel.record_walk cimport check_tables

@cython.locals(magic=cython.int, wide=cython.Py_ssize_t, length=cython.longlong, q=cython.Py_ssize_t)
cdef inline int read_message(const unsigned char* body, Py_ssize_t p, Py_ssize_t size, Py_ssize_t row, long long offset, long long* cells, Py_ssize_t capacity, Py_ssize_t at) noexcept

@cython.locals(p=cython.Py_ssize_t, end=cython.Py_ssize_t, count=cython.Py_ssize_t, size=cython.longlong, last_offset=cython.longlong, source=cython.p_const_uchar)
cpdef tuple count_messages(const unsigned char[::1] body)

@cython.locals(row=cython.Py_ssize_t, p=cython.Py_ssize_t, end=cython.Py_ssize_t, is_append_time=cython.bint, size=cython.longlong, after=cython.int, source=cython.p_const_uchar)
cpdef int read_message_set(const unsigned char[::1] body, long long base_offset, const long long[::1] batches, Py_ssize_t batch_capacity, long long[::1] cells, Py_ssize_t capacity, long long[::1] state) except -1

@cython.locals(row=cython.Py_ssize_t, p=cython.Py_ssize_t, size=cython.Py_ssize_t, after=cython.int, offset=cython.longlong, source=cython.p_const_uchar)
cpdef int read_messages(const unsigned char[::1] buf, Py_ssize_t last_row, const long long[::1] batches, Py_ssize_t batch_capacity, long long[::1] cells, Py_ssize_t capacity, long long[::1] state) except -1
