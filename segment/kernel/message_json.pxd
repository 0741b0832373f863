cimport cython
from kseg.segment.kernel cimport buffer_access, dump_text, json_strings, message_reader, message_values
from kseg.segment.kernel cimport message_fields as M
from kseg.segment.kernel.message_reader cimport MessageReader

cdef inline int put_byte(MessageReader r, unsigned char byte, Py_ssize_t f) noexcept

@cython.locals(kind=cython.longlong, is_text=cython.bint, length=cython.longlong, letters=cython.int)
cdef Py_ssize_t read_bytes(MessageReader r, Py_ssize_t f, Py_ssize_t p, Py_ssize_t end, Py_ssize_t depth, bint flexible, int write, bint element) noexcept

@cython.locals(start=cython.longlong, versions=cython.longlong, version=cython.longlong, s=cython.longlong)
cdef Py_ssize_t read_protocol(MessageReader r, Py_ssize_t f, Py_ssize_t p, Py_ssize_t end, Py_ssize_t depth, int write) noexcept

@cython.locals(kind=cython.longlong, o=cython.Py_ssize_t, is_there=cython.bint, size=cython.int, value=cython.longlong)
cdef Py_ssize_t read_one(MessageReader r, Py_ssize_t f, Py_ssize_t p, Py_ssize_t end, Py_ssize_t depth, bint flexible, int write, bint element) noexcept

@cython.locals(count=cython.longlong, i=cython.longlong)
cdef Py_ssize_t read_value(MessageReader r, Py_ssize_t f, Py_ssize_t p, Py_ssize_t end, Py_ssize_t depth, bint flexible, int write) noexcept

@cython.locals(positions=cython.Py_ssize_t, i=cython.longlong, count=cython.longlong, tag=cython.longlong, size=cython.longlong, f=cython.Py_ssize_t)
cdef Py_ssize_t read_tags(MessageReader r, Py_ssize_t s, Py_ssize_t p, Py_ssize_t end, Py_ssize_t depth) noexcept

@cython.locals(i=cython.Py_ssize_t)
cdef Py_ssize_t equals_text(const unsigned char* buf, Py_ssize_t start, Py_ssize_t end, const unsigned char* text, Py_ssize_t at, Py_ssize_t length) noexcept

@cython.locals(o=cython.Py_ssize_t, length=cython.longlong)
cdef int put_default(MessageReader r, Py_ssize_t f, int first) noexcept

@cython.locals(start=cython.Py_ssize_t, unknown=cython.longlong, value=cython.Py_ssize_t)
cdef Py_ssize_t put_tagged(MessageReader r, Py_ssize_t f, Py_ssize_t p, Py_ssize_t end, Py_ssize_t depth, int first, int write) noexcept

@cython.locals(flexible=cython.bint, after_tags=cython.Py_ssize_t, first=cython.int, f=cython.Py_ssize_t, stop=cython.Py_ssize_t, at=cython.Py_ssize_t, written=cython.int)
cdef Py_ssize_t read_struct(MessageReader r, Py_ssize_t s, Py_ssize_t p, Py_ssize_t end, Py_ssize_t depth, int write) noexcept
