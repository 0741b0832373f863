cimport cython
from kseg.segment.kernel cimport buffer_access

cdef class MessageReader:
    cdef const long long* ops
    cdef const unsigned char* names
    cdef const unsigned char* buf
    cdef unsigned char* out
    cdef Py_ssize_t limit
    cdef long long* state

@cython.locals(r=MessageReader)
cdef MessageReader reader_of(const long long[::1] ops, const unsigned char[::1] names, const unsigned char[::1] buf, unsigned char[::1] out, long long[::1] state)

@cython.locals(table=cython.longlong, low=cython.longlong, high=cython.longlong, middle=cython.longlong, at=cython.longlong, i=cython.int)
cdef Py_ssize_t topic_of(MessageReader r, Py_ssize_t p) noexcept

@cython.locals(at=cython.longlong, stop=cython.longlong)
cdef Py_ssize_t named_number(MessageReader r, Py_ssize_t f, long long value) noexcept

@cython.locals(o=cython.Py_ssize_t, label=cython.longlong, at=cython.Py_ssize_t, value=cython.longlong, length=cython.longlong)
cdef int put_name(MessageReader r, Py_ssize_t f, Py_ssize_t p) noexcept

@cython.locals(f=cython.Py_ssize_t, stop=cython.Py_ssize_t)
cdef Py_ssize_t field_of_tag(MessageReader r, Py_ssize_t s, long long tag) noexcept
