cimport cython
from kseg.segment.kernel cimport buffer_access, java_utf8

@cython.locals(short=cython.int, low=cython.int)
cdef Py_ssize_t put_escaped(unsigned char* out, Py_ssize_t o, int byte, int letters) noexcept

@cython.locals(b1=cython.int, b2=cython.int, b3=cython.int)
cdef inline Py_ssize_t put_character(const unsigned char* buf, Py_ssize_t p, Py_ssize_t n, unsigned char* out, Py_ssize_t o, int letters) noexcept

@cython.locals(end=cython.Py_ssize_t, byte=cython.int, n=cython.Py_ssize_t)
cdef Py_ssize_t put_string(const unsigned char* buf, Py_ssize_t p, Py_ssize_t length, unsigned char* out, Py_ssize_t o, int letters) noexcept

@cython.locals(seen=cython.uchar, i=cython.Py_ssize_t, n=cython.Py_ssize_t)
cdef bint is_utf8(const unsigned char* buf, Py_ssize_t p, Py_ssize_t end) noexcept

@cython.locals(alphabet=cython.p_const_uchar, end=cython.Py_ssize_t, group=cython.int)
cdef Py_ssize_t put_base64(const unsigned char* buf, Py_ssize_t p, Py_ssize_t length, unsigned char* out, Py_ssize_t o) noexcept

cdef Py_ssize_t put_bytes(const unsigned char* buf, Py_ssize_t p, long long length, int mode, unsigned char* out, Py_ssize_t o) noexcept
cdef Py_ssize_t put_encoding(const unsigned char* buf, Py_ssize_t p, long long length, int mode, unsigned char* out, Py_ssize_t o) noexcept
