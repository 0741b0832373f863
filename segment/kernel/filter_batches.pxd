cimport cython
from kseg.segment.kernel cimport state_fields as S
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport buffer_access, filter_batch

cpdef int clear_tallies(long long[::1] tallies, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t stop) except -1

cdef int check_sizes(const unsigned char[::1] view, const long long[::1] batches, Py_ssize_t capacity, Py_ssize_t stop, const long long[::1] tallies, const long long[::1] params, const long long[::1] protected, long long[::1] table, Py_ssize_t table_capacity, long long[::1] state) except -1

cdef int fate(int known, const long long* batches, Py_ssize_t capacity, Py_ssize_t row, const long long* tallies, const long long* params, const long long* protected) noexcept

@cython.locals(old=cython.p_const_uchar, rows=cython.p_const_longlong, sums=cython.p_const_longlong, rules=cython.p_const_longlong, new=cython.p_uchar, written=cython.p_longlong, at_work=cython.p_longlong, room=cython.Py_ssize_t, row=cython.Py_ssize_t, waiting=cython.Py_ssize_t, codec=cython.longlong, becomes=cython.int, due=cython.int, o=cython.Py_ssize_t, end=cython.Py_ssize_t)
cpdef int rewrite_rows(const unsigned char[::1] view, int known, const unsigned char[::1] body, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count, const unsigned char[::1] flags, const long long[::1] batches, Py_ssize_t batch_capacity, Py_ssize_t stop, const long long[::1] tallies, const long long[::1] params, const long long[::1] protected, long long[::1] packs, unsigned char[::1] out, long long[::1] table, Py_ssize_t table_capacity, long long[::1] state) except -1

@cython.locals(at=cython.Py_ssize_t, row=cython.Py_ssize_t)
cpdef int finish_packed(const long long[::1] ends, Py_ssize_t count, const long long[::1] packs, const long long[::1] batches, Py_ssize_t batch_capacity, const long long[::1] tallies, const long long[::1] params, unsigned char[::1] out, long long[::1] table, Py_ssize_t table_capacity, long long[::1] state) except -1

cpdef Py_ssize_t encode_rows(const unsigned char[::1] body, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count, const unsigned char[::1] flags, const long long[::1] batches, Py_ssize_t batch_capacity, Py_ssize_t row, const long long[::1] tallies, long long new_ms, unsigned char[::1] out, Py_ssize_t o) except -2

@cython.locals(at=cython.Py_ssize_t, row=cython.Py_ssize_t)
cpdef Py_ssize_t place_rows(const long long[::1] rows, Py_ssize_t first, Py_ssize_t count, long long base, long long[::1] table, Py_ssize_t capacity) except -1

@cython.locals(at=cython.Py_ssize_t)
cpdef Py_ssize_t note_rows(const long long[::1] table, Py_ssize_t capacity, Py_ssize_t first, Py_ssize_t stop, long long[::1] rows) except -1
