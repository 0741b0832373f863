cimport cython
from kseg.segment.kernel cimport buffer_access

cdef int check_rows(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t first, Py_ssize_t stop, Py_ssize_t room, Py_ssize_t at) except -1
cdef int check_batches(const long long[::1] batches, Py_ssize_t batch_capacity) except -1
cdef int check_spread(const long long[::1] batches, Py_ssize_t batch_capacity, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t first, Py_ssize_t stop, Py_ssize_t room, Py_ssize_t at) except -1

@cython.locals(batch=cython.longlong)
cdef inline Py_ssize_t batch_of(const long long* cells, Py_ssize_t row, Py_ssize_t batch_capacity) except -1

@cython.locals(table=cython.p_const_longlong, lowest=cython.longlong, highest=cython.longlong, least_ms=cython.longlong, with_control=cython.bint, is_old=cython.bint)
cpdef Py_ssize_t wanted_until(const long long[::1] batches, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t count, const long long[::1] bounds) except -1

@cython.locals(table=cython.p_longlong, kept=cython.Py_ssize_t, row=cython.Py_ssize_t, field=cython.Py_ssize_t, offset=cython.longlong, time=cython.longlong, keep=cython.bint)
cpdef Py_ssize_t keep_rows(long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count, const long long[::1] bounds) except -1

@cython.locals(table=cython.p_const_longlong, row=cython.Py_ssize_t, left=cython.longlong)
cpdef Py_ssize_t rows_within(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t first, Py_ssize_t stop, bint keys, bint values, long long[::1] room) except -1

@cython.locals(table=cython.p_const_longlong, source=cython.p_const_uchar, target=cython.p_uchar, size=cython.longlong, room=cython.longlong, row=cython.Py_ssize_t, length=cython.longlong, start=cython.longlong)
cpdef Py_ssize_t gather_bytes(const unsigned char[::1] body, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t first, Py_ssize_t stop, Py_ssize_t field, unsigned char[::1] out, Py_ssize_t filled, int[::1] ends, unsigned char[::1] flags, Py_ssize_t at) except -1

@cython.locals(source=cython.p_const_uchar, size=cython.Py_ssize_t, row=cython.Py_ssize_t, p=cython.Py_ssize_t, left=cython.longlong, needed=cython.p_longlong, count=cython.longlong, name_bytes=cython.longlong, value_bytes=cython.longlong)
cpdef Py_ssize_t measure_headers(const unsigned char[::1] body, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t first, Py_ssize_t stop, long long most, long long[::1] sums) except -1

@cython.locals(place=cython.longlong)
cdef Py_ssize_t header_at(const unsigned char* source, Py_ssize_t p, Py_ssize_t size, long long* sums) except -1

@cython.locals(packed=cython.longlong, length=cython.longlong)
cdef inline long long field_at(const unsigned char* source, Py_ssize_t p, Py_ssize_t size) noexcept

@cython.locals(source=cython.p_const_uchar, size=cython.Py_ssize_t, row=cython.Py_ssize_t, p=cython.Py_ssize_t, left=cython.longlong, count=cython.Py_ssize_t, name_bytes=cython.Py_ssize_t, value_bytes=cython.Py_ssize_t, place=cython.longlong)
cpdef Py_ssize_t gather_headers(const unsigned char[::1] body, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t first, Py_ssize_t stop, int[::1] ends, unsigned char[::1] names, int[::1] name_ends, unsigned char[::1] values, int[::1] value_ends, unsigned char[::1] value_flags) except -1

@cython.locals(source=cython.p_const_longlong, target=cython.p_longlong, row=cython.Py_ssize_t)
cpdef Py_ssize_t gather_longs(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t first, Py_ssize_t stop, Py_ssize_t field, long long[::1] out, Py_ssize_t at) except -1

@cython.locals(source=cython.p_const_longlong, row=cython.Py_ssize_t)
cpdef Py_ssize_t gather_ints(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t first, Py_ssize_t stop, Py_ssize_t field, int[::1] out, Py_ssize_t at) except -1

@cython.locals(source=cython.p_const_longlong, target=cython.p_longlong, row=cython.Py_ssize_t, most=cython.longlong, time=cython.longlong)
cpdef Py_ssize_t gather_times(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t first, Py_ssize_t stop, long long[::1] out, Py_ssize_t at) except -1

@cython.locals(source=cython.p_const_longlong, rows=cython.p_const_longlong, target=cython.p_longlong, row=cython.Py_ssize_t)
cpdef Py_ssize_t spread_longs(const long long[::1] batches, Py_ssize_t batch_capacity, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t first, Py_ssize_t stop, Py_ssize_t field, long long[::1] out, Py_ssize_t at) except -1

@cython.locals(source=cython.p_const_longlong, rows=cython.p_const_longlong, row=cython.Py_ssize_t)
cpdef Py_ssize_t spread_ints(const long long[::1] batches, Py_ssize_t batch_capacity, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t first, Py_ssize_t stop, Py_ssize_t field, int[::1] out, Py_ssize_t at) except -1

@cython.locals(source=cython.p_const_longlong, rows=cython.p_const_longlong, row=cython.Py_ssize_t, batch=cython.Py_ssize_t)
cpdef Py_ssize_t spread_time_types(const long long[::1] batches, Py_ssize_t batch_capacity, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t first, Py_ssize_t stop, int[::1] out, Py_ssize_t at) except -1

@cython.locals(source=cython.p_const_longlong, rows=cython.p_const_longlong, row=cython.Py_ssize_t)
cpdef Py_ssize_t spread_codecs(const long long[::1] batches, Py_ssize_t batch_capacity, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t first, Py_ssize_t stop, unsigned char[::1] out, Py_ssize_t at) except -1

@cython.locals(source=cython.p_const_longlong, rows=cython.p_const_longlong, row=cython.Py_ssize_t, batch=cython.Py_ssize_t)
cpdef Py_ssize_t spread_flags(const long long[::1] batches, Py_ssize_t batch_capacity, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t first, Py_ssize_t stop, int bit, unsigned char[::1] flags, Py_ssize_t at) except -1

@cython.locals(source=cython.p_const_longlong, rows=cython.p_const_longlong, row=cython.Py_ssize_t, batch=cython.Py_ssize_t)
cpdef Py_ssize_t spread_validity(const long long[::1] batches, Py_ssize_t batch_capacity, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t first, Py_ssize_t stop, unsigned char[::1] flags, Py_ssize_t at) except -1

@cython.locals(source=cython.p_const_longlong, rows=cython.p_const_longlong, target=cython.p_longlong, row=cython.Py_ssize_t)
cpdef Py_ssize_t spread_checksums(const long long[::1] batches, Py_ssize_t batch_capacity, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t first, Py_ssize_t stop, long long[::1] out, Py_ssize_t at) except -1
