cimport cython
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport buffer_access, java_utf8, record_headers

cdef int put_int(unsigned char* out, Py_ssize_t at, long long value) noexcept

cdef inline int put_long(unsigned char* out, Py_ssize_t at, long long value) noexcept

cdef inline int put_short(unsigned char* out, Py_ssize_t at, long long value) noexcept

@cython.locals(size=cython.Py_ssize_t)
cdef inline Py_ssize_t varint_size(long long number) noexcept

@cython.locals(last=cython.longlong, low=cython.longlong)
cdef inline Py_ssize_t put_varint(unsigned char* out, Py_ssize_t o, long long number) noexcept

cdef int put_batch_header(unsigned char* out, Py_ssize_t o, long long size, long long base, long long last, long long attributes, long long base_ms, long long max_ms, long long count, const long long* batches, Py_ssize_t capacity, Py_ssize_t row) noexcept

@cython.locals(size=cython.Py_ssize_t, length=cython.longlong, decoded=cython.Py_ssize_t)
cdef Py_ssize_t headers_size(const unsigned char* buf, Py_ssize_t p, Py_ssize_t count) noexcept

@cython.locals(length=cython.longlong)
cdef Py_ssize_t put_headers(const unsigned char* buf, Py_ssize_t p, Py_ssize_t count, unsigned char* out, Py_ssize_t o) noexcept

@cython.locals(key_length=cython.longlong, value_length=cython.longlong, headers_start=cython.longlong, header_count=cython.longlong, headers_length=cython.longlong, spare=cython.longlong, time_delta=cython.longlong, offset_delta=cython.longlong, size=cython.longlong)
cdef Py_ssize_t put_records(const unsigned char* body, const long long* cells, Py_ssize_t capacity, Py_ssize_t count, Py_ssize_t row, Py_ssize_t at, const unsigned char* flags, long long base, long long base_ms, unsigned char* out, Py_ssize_t o, Py_ssize_t room) noexcept
