cimport cython
from kseg.segment.kernel cimport buffer_access

@cython.locals(alphabet=cython.p_const_uchar, end=cython.Py_ssize_t, group=cython.uint)
cdef Py_ssize_t put_uuid(const unsigned char* buf, Py_ssize_t p, unsigned char* out, Py_ssize_t o) noexcept

@cython.locals(text=object)
cdef Py_ssize_t put_double(const unsigned char* buf, Py_ssize_t p, unsigned char* out, Py_ssize_t o) noexcept
