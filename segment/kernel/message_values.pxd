cimport cython
from kseg.segment.kernel cimport buffer_access, dump_text

@cython.locals(short=cython.int, low=cython.int)
cdef Py_ssize_t put_json_escape(unsigned char* out, Py_ssize_t o, int byte) noexcept

@cython.locals(end=cython.Py_ssize_t, byte=cython.int, n=cython.Py_ssize_t)
cdef Py_ssize_t put_json_string(const unsigned char* buf, Py_ssize_t p, Py_ssize_t length, unsigned char* out, Py_ssize_t o) noexcept

@cython.locals(alphabet=cython.p_const_uchar, end=cython.Py_ssize_t, group=cython.uint)
cdef Py_ssize_t put_json_base64(const unsigned char* buf, Py_ssize_t p, Py_ssize_t length, unsigned char* out, Py_ssize_t o) noexcept

@cython.locals(alphabet=cython.p_const_uchar, end=cython.Py_ssize_t, group=cython.uint)
cdef Py_ssize_t put_uuid(const unsigned char* buf, Py_ssize_t p, unsigned char* out, Py_ssize_t o) noexcept

@cython.locals(text=object)
cdef Py_ssize_t put_double(const unsigned char* buf, Py_ssize_t p, unsigned char* out, Py_ssize_t o) noexcept
