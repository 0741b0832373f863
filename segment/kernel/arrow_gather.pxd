cimport cython
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport buffer_access

cdef class RecordRows:
    cdef const long long[::1] batches
    cdef const long long[::1] cells
    cdef Py_ssize_t batch_capacity, capacity, first, stop

cpdef int check_room(RecordRows rows, Py_ssize_t room, Py_ssize_t at) except -1
cdef int check_field(Py_ssize_t field, Py_ssize_t count) except -1

@cython.locals(batch=cython.longlong)
cdef inline Py_ssize_t batch_of(const long long* cells, Py_ssize_t row, Py_ssize_t batch_capacity) except -1

@cython.locals(table=cython.p_const_longlong, lowest=cython.longlong, highest=cython.longlong, least_ms=cython.longlong, with_control=cython.bint, is_old=cython.bint)
cpdef Py_ssize_t wanted_until(const long long[::1] batches, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t count, const long long[::1] bounds) except -1

@cython.locals(table=cython.p_longlong, kept=cython.Py_ssize_t, row=cython.Py_ssize_t, field=cython.Py_ssize_t, offset=cython.longlong, time=cython.longlong, keep=cython.bint)
cpdef Py_ssize_t keep_rows(long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count, const long long[::1] bounds) except -1

@cython.locals(capacity=cython.Py_ssize_t, stop=cython.Py_ssize_t, table=cython.p_const_longlong, row=cython.Py_ssize_t, left=cython.longlong)
cpdef Py_ssize_t rows_within(RecordRows rows, bint keys, bint values, long long[::1] room) except -1

@cython.locals(capacity=cython.Py_ssize_t, table=cython.p_const_longlong, source=cython.p_const_uchar, target=cython.p_uchar, size=cython.longlong, room=cython.longlong, row=cython.Py_ssize_t, length=cython.longlong, start=cython.longlong)
cpdef Py_ssize_t gather_bytes(const unsigned char[::1] body, RecordRows rows, Py_ssize_t field, unsigned char[::1] out, Py_ssize_t filled, int[::1] ends, unsigned char[::1] flags, Py_ssize_t at) except -1

@cython.locals(capacity=cython.Py_ssize_t, source=cython.p_const_longlong, target=cython.p_longlong, row=cython.Py_ssize_t)
cpdef Py_ssize_t gather_longs(RecordRows rows, Py_ssize_t field, long long[::1] out, Py_ssize_t at) except -1

@cython.locals(capacity=cython.Py_ssize_t, source=cython.p_const_longlong, row=cython.Py_ssize_t)
cpdef Py_ssize_t gather_ints(RecordRows rows, Py_ssize_t field, int[::1] out, Py_ssize_t at) except -1

@cython.locals(capacity=cython.Py_ssize_t, source=cython.p_const_longlong, target=cython.p_longlong, row=cython.Py_ssize_t, most=cython.longlong, time=cython.longlong)
cpdef Py_ssize_t gather_times(RecordRows rows, long long[::1] out, Py_ssize_t at) except -1

@cython.locals(source=cython.p_const_longlong, cells=cython.p_const_longlong, capacity=cython.Py_ssize_t, target=cython.p_longlong, row=cython.Py_ssize_t)
cpdef Py_ssize_t spread_longs(RecordRows rows, Py_ssize_t field, long long[::1] out, Py_ssize_t at) except -1

@cython.locals(source=cython.p_const_longlong, cells=cython.p_const_longlong, capacity=cython.Py_ssize_t, row=cython.Py_ssize_t)
cpdef Py_ssize_t spread_ints(RecordRows rows, Py_ssize_t field, int[::1] out, Py_ssize_t at) except -1

@cython.locals(source=cython.p_const_longlong, cells=cython.p_const_longlong, capacity=cython.Py_ssize_t, row=cython.Py_ssize_t, batch=cython.Py_ssize_t)
cpdef Py_ssize_t spread_time_types(RecordRows rows, int[::1] out, Py_ssize_t at) except -1

@cython.locals(source=cython.p_const_longlong, cells=cython.p_const_longlong, capacity=cython.Py_ssize_t, row=cython.Py_ssize_t)
cpdef Py_ssize_t spread_codecs(RecordRows rows, unsigned char[::1] out, Py_ssize_t at) except -1

@cython.locals(source=cython.p_const_longlong, cells=cython.p_const_longlong, capacity=cython.Py_ssize_t, row=cython.Py_ssize_t, batch=cython.Py_ssize_t)
cpdef Py_ssize_t spread_flags(RecordRows rows, int bit, unsigned char[::1] flags, Py_ssize_t at) except -1

@cython.locals(source=cython.p_const_longlong, cells=cython.p_const_longlong, capacity=cython.Py_ssize_t, row=cython.Py_ssize_t, batch=cython.Py_ssize_t)
cpdef Py_ssize_t spread_validity(RecordRows rows, unsigned char[::1] flags, Py_ssize_t at) except -1

@cython.locals(source=cython.p_const_longlong, cells=cython.p_const_longlong, capacity=cython.Py_ssize_t, target=cython.p_longlong, row=cython.Py_ssize_t)
cpdef Py_ssize_t spread_checksums(RecordRows rows, long long[::1] out, Py_ssize_t at) except -1
