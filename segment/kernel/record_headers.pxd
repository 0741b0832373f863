cimport cython
from kseg.segment.kernel cimport java_utf8

cdef inline Py_ssize_t skip_varint(const unsigned char* buf, Py_ssize_t p) noexcept

@cython.locals(raw=cython.longlong, shift=cython.int)
cdef inline long long small_varint(const unsigned char* buf, Py_ssize_t p) noexcept

@cython.locals(i=cython.Py_ssize_t, length=cython.longlong)
cdef inline Py_ssize_t put_header_names(const unsigned char* buf, Py_ssize_t p, Py_ssize_t count, unsigned char* out, Py_ssize_t o, bint escape) noexcept

@cython.locals(start=cython.Py_ssize_t, length=cython.longlong)
cdef inline Py_ssize_t headers_length(const unsigned char* buf, Py_ssize_t p, Py_ssize_t count) noexcept
