cimport cython
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport buffer_access

@cython.locals(packed=cython.longlong, length=cython.longlong)
cdef inline Py_ssize_t field_end(const unsigned char* body, Py_ssize_t p, Py_ssize_t end) noexcept

@cython.locals(packed=cython.longlong, length=cython.longlong)
cdef Py_ssize_t headers_end(const unsigned char* body, Py_ssize_t p, Py_ssize_t end, long long count) noexcept

@cython.locals(count=cython.longlong, base=cython.longlong, base_time=cython.longlong, greatest=cython.longlong, limit=cython.longlong, most=cython.longlong, former=cython.longlong, reached=cython.longlong, packed=cython.longlong, size=cython.longlong, delta=cython.longlong, end=cython.Py_ssize_t, raw=cython.longlong, shift=cython.int, byte=cython.int, part=cython.longlong)
cdef int body_is_sound(const unsigned char* body, Py_ssize_t p, Py_ssize_t body_end, const long long* batches, Py_ssize_t capacity, Py_ssize_t row) noexcept

@cython.locals(kind=cython.longlong)
cdef int has_marker_header(const long long* batches, Py_ssize_t capacity, Py_ssize_t row) noexcept

@cython.locals(source=cython.p_const_uchar, table=cython.p_const_longlong, size_of_buf=cython.Py_ssize_t, start=cython.longlong, size=cython.longlong, attributes=cython.longlong)
cpdef Py_ssize_t plain_valid(const unsigned char[::1] buf, Py_ssize_t row, Py_ssize_t stop, const long long[::1] batches, Py_ssize_t capacity) except -1

cdef int frame_codec(const unsigned char* body, Py_ssize_t p, Py_ssize_t size) noexcept

@cython.locals(packed=cython.longlong, length=cython.longlong, end=cython.Py_ssize_t)
cdef Py_ssize_t record_end(const unsigned char* body, Py_ssize_t p, Py_ssize_t body_end, long long delta) noexcept

cdef int begins_with_records(const unsigned char* body, Py_ssize_t p, Py_ssize_t body_end, long long count) noexcept

@cython.locals(found=cython.int, packed=cython.longlong, at=cython.longlong)
cdef int looks_compressed(const unsigned char* body, Py_ssize_t p, Py_ssize_t size, int codec) noexcept

@cython.locals(last=cython.longlong)
cdef int is_dense(const long long* table, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t stop) noexcept

@cython.locals(codec=cython.longlong, is_sound=cython.int, end=cython.Py_ssize_t)
cdef int examined_body(const unsigned char* source, Py_ssize_t start, Py_ssize_t size, const long long* table, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t stop) noexcept

@cython.locals(source=cython.p_const_uchar, table=cython.p_const_longlong, size_of_buf=cython.Py_ssize_t, start=cython.longlong, size=cython.longlong, attributes=cython.longlong, largest=cython.longlong, base=cython.longlong, last=cython.longlong, count=cython.longlong, width=cython.longlong, codec=cython.longlong, known=cython.longlong, is_before_gap=cython.bint)
cpdef Py_ssize_t next_doubtful(const unsigned char[::1] buf, Py_ssize_t row, Py_ssize_t stop, const long long[::1] batches, Py_ssize_t capacity, bint opens_before_gaps) except -1

@cython.locals(source=cython.p_const_uchar, table=cython.p_longlong, size_of_buf=cython.Py_ssize_t, row=cython.Py_ssize_t, start=cython.longlong, size=cython.longlong, attributes=cython.longlong, is_data=cython.bint)
cpdef int examine_bodies(const unsigned char[::1] buf, Py_ssize_t stop, long long[::1] batches, Py_ssize_t capacity) except -1

@cython.locals(source=cython.p_const_uchar, table=cython.p_const_longlong, size_of_body=cython.Py_ssize_t, at=cython.Py_ssize_t, begin=cython.longlong, end=cython.longlong)
cpdef Py_ssize_t compressed_valid(const unsigned char[::1] body, const long long[::1] bounds, Py_ssize_t row, Py_ssize_t stop, const long long[::1] batches, Py_ssize_t capacity) except -1
