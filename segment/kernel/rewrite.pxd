cimport cython
from kseg.segment.kernel cimport recode, views
from kseg.segment.kernel.checksum cimport crc_of

@cython.locals(row=cython.Py_ssize_t)
cdef inline int put_row(long long* table, Py_ssize_t capacity, long long* state, long long size, long long last, long long max_ms, long long count, long long start) noexcept

cdef inline long long base_time(const long long* batches, Py_ssize_t capacity, Py_ssize_t row, long long horizon_ms, long long first_ms) noexcept
cdef inline long long horizon_of(const long long* batches, Py_ssize_t capacity, Py_ssize_t row, const long long* tallies, long long new_horizon_ms) noexcept

@cython.locals(length=cython.longlong)
cdef int flush_span(const unsigned char* view, unsigned char* out, Py_ssize_t room, long long short, long long* state) noexcept

@cython.locals(low=cython.Py_ssize_t, high=cython.Py_ssize_t, middle=cython.Py_ssize_t)
cdef int is_protected(const long long* protected, Py_ssize_t count, long long offset, long long producer) noexcept

@cython.locals(last=cython.longlong, producer=cython.longlong)
cdef int is_needed(const long long* batches, Py_ssize_t capacity, Py_ssize_t row, const long long* params, const long long* protected) noexcept

@cython.locals(start=cython.longlong, size=cython.longlong, due=cython.int, count=cython.longlong, last=cython.longlong)
cdef int take_row(const unsigned char* view, const long long* batches, Py_ssize_t capacity, Py_ssize_t row, unsigned char* out, Py_ssize_t room, long long short, long long* table, Py_ssize_t table_capacity, long long* state) noexcept

@cython.locals(due=cython.int, o=cython.Py_ssize_t, attributes=cython.longlong, base=cython.longlong, last=cython.longlong, max_ms=cython.longlong)
cdef int empty_row(const unsigned char* view, const long long* batches, Py_ssize_t capacity, Py_ssize_t row, const long long* tallies, unsigned char* out, Py_ssize_t room, long long short, long long* table, Py_ssize_t table_capacity, long long* state) noexcept

@cython.locals(attributes=cython.longlong, base=cython.longlong, last=cython.longlong, horizon_ms=cython.longlong, base_ms=cython.longlong, max_ms=cython.longlong, count=cython.longlong, size=cython.longlong)
cdef int finish(Py_ssize_t o, Py_ssize_t end, const long long* batches, Py_ssize_t capacity, Py_ssize_t row, const long long* tallies, long long new_horizon_ms, unsigned char* out, long long* table, Py_ssize_t table_capacity, long long* state) noexcept

@cython.locals(kept=cython.longlong)
cdef inline int stays_whole(const long long* batches, Py_ssize_t capacity, Py_ssize_t row, const long long* tallies) noexcept

@cython.locals(base=cython.longlong, horizon_ms=cython.longlong, base_ms=cython.longlong)
cdef Py_ssize_t body_of(const unsigned char* body, Py_ssize_t end, const long long* cells, Py_ssize_t capacity, Py_ssize_t count, Py_ssize_t at, const unsigned char* flags, const long long* batches, Py_ssize_t batch_capacity, Py_ssize_t row, const long long* tallies, long long new_ms, unsigned char* out, Py_ssize_t o, Py_ssize_t room) noexcept

cpdef int clear_tallies(long long[::1] tallies, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t stop) except -1

cdef int check_sizes(const unsigned char[::1] view, const long long[::1] batches, Py_ssize_t capacity, Py_ssize_t stop, const long long[::1] tallies, const long long[::1] params, const long long[::1] protected, long long[::1] table, Py_ssize_t table_capacity, long long[::1] state) except -1

@cython.locals(old=cython.p_const_uchar, source=cython.p_const_uchar, records=cython.p_const_longlong, rows=cython.p_const_longlong, sums=cython.p_const_longlong, new=cython.p_uchar, written=cython.p_longlong, at_work=cython.p_longlong, room=cython.Py_ssize_t, short=cython.longlong, row=cython.Py_ssize_t, due=cython.int, o=cython.Py_ssize_t, end=cython.Py_ssize_t)
cpdef int emit_rows(const unsigned char[::1] view, const unsigned char[::1] body, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count, const unsigned char[::1] flags, const long long[::1] batches, Py_ssize_t batch_capacity, Py_ssize_t stop, const long long[::1] tallies, const long long[::1] params, const long long[::1] protected, unsigned char[::1] out, long long[::1] table, Py_ssize_t table_capacity, long long[::1] state) except -1

@cython.locals(row=cython.Py_ssize_t)
cpdef int finish_packed(Py_ssize_t end, const long long[::1] batches, Py_ssize_t batch_capacity, const long long[::1] tallies, const long long[::1] params, unsigned char[::1] out, long long[::1] table, Py_ssize_t table_capacity, long long[::1] state) except -1

cpdef Py_ssize_t encode_rows(const unsigned char[::1] body, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count, const unsigned char[::1] flags, const long long[::1] batches, Py_ssize_t batch_capacity, Py_ssize_t row, const long long[::1] tallies, long long new_ms, unsigned char[::1] out, Py_ssize_t o) except -2

@cython.locals(old=cython.p_const_uchar, rows=cython.p_const_longlong, sums=cython.p_const_longlong, new=cython.p_uchar, written=cython.p_longlong, at_work=cython.p_longlong, room=cython.Py_ssize_t, short=cython.longlong, row=cython.Py_ssize_t, due=cython.int)
cpdef int move_rows(const unsigned char[::1] view, const long long[::1] batches, Py_ssize_t batch_capacity, Py_ssize_t stop, int empties, const long long[::1] tallies, const long long[::1] params, const long long[::1] protected, unsigned char[::1] out, long long[::1] table, Py_ssize_t table_capacity, long long[::1] state) except -1

@cython.locals(left=cython.Py_ssize_t, row=cython.Py_ssize_t, start=cython.longlong, size=cython.longlong)
cpdef Py_ssize_t seal_small(unsigned char[::1] out, long long[::1] table, Py_ssize_t table_capacity, Py_ssize_t count, long long limit_bytes, const unsigned int[::1] castagnoli) except -1

@cython.locals(row=cython.Py_ssize_t, start=cython.Py_ssize_t, size=cython.Py_ssize_t, crc=cython.longlong)
cpdef int seal_large(object view, unsigned char[::1] out, long long[::1] table, Py_ssize_t table_capacity, Py_ssize_t count, object castagnoli) except -1
