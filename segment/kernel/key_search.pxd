cimport cython
from kseg.segment.kernel cimport state_fields as S
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport buffer_access, validate

@cython.locals(n=cython.Py_ssize_t)
cdef inline bint is_key_at(const unsigned char* body, Py_ssize_t p, const unsigned char* key, Py_ssize_t size) noexcept

@cython.locals(packed=cython.longlong, size=cython.longlong, end=cython.Py_ssize_t)
cdef bint needs_decoding(const unsigned char* body, Py_ssize_t p, Py_ssize_t body_end, long long count, const unsigned char* key, Py_ssize_t key_size) noexcept

cdef inline bint is_outside(const long long* batches, Py_ssize_t capacity, Py_ssize_t row, long long lowest, long long above, long long earliest) noexcept

cdef int check_rows(const long long[::1] batches, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t stop, const long long[::1] limits) except -1

@cython.locals(table=cython.p_const_longlong, wanted=cython.p_const_uchar, key_size=cython.Py_ssize_t, size=cython.Py_ssize_t, lowest=cython.longlong, above=cython.longlong, earliest=cython.longlong, start=cython.longlong, end=cython.longlong, count=cython.longlong, attributes=cython.longlong)
cpdef Py_ssize_t next_candidate(const unsigned char[::1] buf, const unsigned char[::1] body, const long long[::1] bounds, Py_ssize_t first, Py_ssize_t row, Py_ssize_t stop, const long long[::1] batches, Py_ssize_t capacity, const long long[::1] limits, const unsigned char[::1] key) except -1

@cython.locals(table=cython.p_const_longlong, attributes=cython.longlong)
cpdef Py_ssize_t run_end(Py_ssize_t row, Py_ssize_t stop, const long long[::1] batches, Py_ssize_t capacity, const long long[::1] limits) except -1

@cython.locals(key_size=cython.Py_ssize_t, start=cython.longlong)
cpdef Py_ssize_t next_of_key(const unsigned char[::1] body, const long long[::1] records, Py_ssize_t capacity, Py_ssize_t at, Py_ssize_t count, const unsigned char[::1] key) except -1
