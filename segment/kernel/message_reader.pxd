cimport cython
from kseg.segment.kernel cimport buffer_access
from kseg.segment.kernel cimport message_fields as M

cdef class MessageReader:
    cdef const long long* ops
    cdef const unsigned char* names
    cdef const unsigned char* buf
    cdef unsigned char* out
    cdef Py_ssize_t limit
    cdef long long* state

@cython.locals(r=MessageReader)
cdef MessageReader reader_of(const long long[::1] ops, const unsigned char[::1] names, const unsigned char[::1] buf, unsigned char[::1] out, long long[::1] state)

cdef Py_ssize_t fail(MessageReader r, int error, long long a, long long b, Py_ssize_t field) noexcept

@cython.locals(value=cython.longlong, shift=cython.int, byte=cython.longlong)
cdef Py_ssize_t long_uvarint(MessageReader r, Py_ssize_t p, Py_ssize_t end) noexcept

cdef Py_ssize_t uvarint(MessageReader r, Py_ssize_t p, Py_ssize_t end) noexcept

@cython.locals(least=cython.longlong)
cdef Py_ssize_t read_length(MessageReader r, Py_ssize_t p, Py_ssize_t end, int width, bint flexible) noexcept

@cython.locals(table=cython.longlong, low=cython.longlong, high=cython.longlong, middle=cython.longlong, at=cython.longlong, i=cython.int)
cdef Py_ssize_t topic_of(MessageReader r, Py_ssize_t p) noexcept

@cython.locals(at=cython.longlong, stop=cython.longlong)
cdef Py_ssize_t named_number(MessageReader r, Py_ssize_t f, long long value) noexcept

@cython.locals(o=cython.Py_ssize_t, label=cython.longlong, at=cython.Py_ssize_t, value=cython.longlong, length=cython.longlong)
cdef int put_name(MessageReader r, Py_ssize_t f, Py_ssize_t p) noexcept

@cython.locals(f=cython.Py_ssize_t, stop=cython.Py_ssize_t)
cdef Py_ssize_t field_of_tag(MessageReader r, Py_ssize_t s, long long tag) noexcept
