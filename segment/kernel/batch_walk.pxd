cimport cython
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport buffer_access
from kseg.segment.kernel cimport state_fields as S

@cython.locals(base_offset=cython.longlong, magic=cython.longlong)
cdef inline int put_batch(const unsigned char* buf, Py_ssize_t p, long long* cells, Py_ssize_t capacity, Py_ssize_t row) noexcept

@cython.locals(offset=cython.longlong, magic=cython.longlong, attributes=cython.longlong, timestamp=cython.longlong)
cdef inline int put_legacy(const unsigned char* buf, Py_ssize_t p, long long* cells, Py_ssize_t capacity, Py_ssize_t row) noexcept

@cython.locals(fetched=cython.Py_ssize_t, position=cython.Py_ssize_t, file_end=cython.Py_ssize_t, row=cython.Py_ssize_t, reason=cython.int, size=cython.longlong, magic=cython.int, source=cython.p_const_uchar, table=cython.p_longlong)
cpdef int walk(const unsigned char[::1] buf, Py_ssize_t end, long long[::1] cells, Py_ssize_t capacity, long long[::1] state, Py_ssize_t until=*) except -1

@cython.locals(size=cython.longlong, offset=cython.longlong, delta=cython.longlong, count=cython.longlong)
cdef inline int plausible_batch(const unsigned char* buf, Py_ssize_t p, Py_ssize_t end, long long lowest_offset, long long highest_offset) noexcept

@cython.locals(size=cython.longlong, magic=cython.longlong, fixed=cython.longlong, offset=cython.longlong, attributes=cython.longlong, key_length=cython.longlong, value_length=cython.longlong)
cdef inline int plausible_legacy(const unsigned char* buf, Py_ssize_t p, Py_ssize_t end, long long lowest_offset, long long highest_offset) noexcept

@cython.locals(p=cython.Py_ssize_t, last=cython.Py_ssize_t, magic=cython.int, source=cython.p_const_uchar)
cpdef Py_ssize_t first_candidate(const unsigned char[::1] buf, Py_ssize_t position, Py_ssize_t end, long long lowest_offset, long long highest_offset, Py_ssize_t until=*) except -2

@cython.locals(p=cython.Py_ssize_t)
cpdef Py_ssize_t zero_run(const unsigned char[::1] buf, Py_ssize_t position, Py_ssize_t end) except -1

@cython.locals(row=cython.Py_ssize_t)
cpdef Py_ssize_t first_invalid(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count) except -1

@cython.locals(value=cython.longlong)
cpdef Py_ssize_t equal_run(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t column, Py_ssize_t row, Py_ssize_t stop) except -1

cpdef Py_ssize_t next_equal(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t column, Py_ssize_t row, Py_ssize_t stop, long long value) except -1

@cython.locals(total=cython.longlong, declared=cython.longlong, offsets=cython.longlong)
cpdef long long declared_records(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t stop) except -1

@cython.locals(row=cython.Py_ssize_t)
cpdef Py_ssize_t first_uncounted(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count) except -1

@cython.locals(row=cython.Py_ssize_t, highest=cython.longlong)
cpdef long long highest_offset(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count) except? -1000000007

@cython.locals(count=cython.Py_ssize_t, field=cython.Py_ssize_t, at=cython.Py_ssize_t, read=cython.p_const_longlong, written=cython.p_longlong)
cpdef int copy_rows(const long long[::1] source, Py_ssize_t width, Py_ssize_t first, Py_ssize_t stop, long long[::1] cells, Py_ssize_t capacity, Py_ssize_t row) except -1

@cython.locals(attributes=cython.longlong, is_legacy=cython.bint)
cpdef Py_ssize_t plain_run(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t count) except -1

cpdef Py_ssize_t next_remarkable(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t count) except -1

@cython.locals(attributes=cython.longlong, records=cython.longlong, declared=cython.longlong)
cpdef Py_ssize_t compressed_run(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t count, long long most_records) except -1
