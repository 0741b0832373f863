cimport cython

@cython.locals(magnitude=cython.ulonglong)
cpdef unsigned long long zigzag(long long number) except? 0

@cython.locals(rest=cython.ulonglong, size=cython.Py_ssize_t)
cpdef Py_ssize_t varint_size(long long number) except -1

@cython.locals(rest=cython.ulonglong)
cpdef int put_varint(bytearray out, long long number) except -1

@cython.locals(length=cython.Py_ssize_t)
cpdef Py_ssize_t field_size(bytes field) except -1

cpdef int put_field(bytearray out, bytes field) except -1

@cython.locals(size=cython.Py_ssize_t)
cpdef Py_ssize_t headers_size(tuple headers) except -1

cpdef int put_headers(bytearray out, tuple headers) except -1

@cython.locals(before=cython.Py_ssize_t, row=cython.Py_ssize_t, size=cython.Py_ssize_t, timestamp_delta=cython.longlong, offset_delta=cython.longlong, key=bytes, value=bytes)
cpdef Py_ssize_t encode_records(const long long[::1] offsets, const long long[::1] timestamps, long long base_offset, long long base_timestamp, list keys, list values, list headers, bytearray out) except -1
