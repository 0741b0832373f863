cimport cython
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport buffer_access, dump_text, message_json, message_reader
from kseg.segment.kernel cimport message_fields as M
from kseg.segment.kernel cimport state_fields as S
from kseg.segment.kernel.message_reader cimport MessageReader

cdef Py_ssize_t stop_at(MessageReader r, int stage) noexcept

cdef Py_ssize_t put_prefix(unsigned char* out, Py_ssize_t o, const unsigned char* text, Py_ssize_t length, long long number) noexcept

@cython.locals(kind=cython.longlong, s=cython.longlong)
cdef Py_ssize_t put_coordinator_key(MessageReader r, Py_ssize_t p, Py_ssize_t length, Py_ssize_t o) noexcept

@cython.locals(entry=cython.longlong, version=cython.longlong, s=cython.longlong, end=cython.Py_ssize_t)
cdef Py_ssize_t put_coordinator_value(MessageReader r, Py_ssize_t p, Py_ssize_t length, Py_ssize_t o) noexcept

@cython.locals(value=cython.longlong)
cdef Py_ssize_t frame_number(MessageReader r, Py_ssize_t p, Py_ssize_t end) noexcept

@cython.locals(end=cython.Py_ssize_t, kind=cython.longlong, version=cython.longlong, entry=cython.longlong, s=cython.longlong)
cdef Py_ssize_t put_framed(MessageReader r, Py_ssize_t p, Py_ssize_t length, Py_ssize_t o) noexcept

@cython.locals(r=MessageReader, o=cython.Py_ssize_t)
cpdef Py_ssize_t format_parts(const long long[::1] ops, const unsigned char[::1] names, const unsigned char[::1] buf, Py_ssize_t key_start, Py_ssize_t key_length, Py_ssize_t value_start, Py_ssize_t value_length, unsigned char[::1] out, long long[::1] state) except? -1

@cython.locals(r=MessageReader, body=cython.p_const_uchar, rows=cython.p_const_longlong, table=cython.p_const_longlong, text=cython.p_uchar, framed=cython.longlong, skip=cython.int, limit=cython.Py_ssize_t, o=cython.Py_ssize_t, row=cython.Py_ssize_t, at=cython.Py_ssize_t, end=cython.Py_ssize_t, room=cython.Py_ssize_t, length=cython.longlong)
cpdef Py_ssize_t format_decoded(const long long[::1] ops, const unsigned char[::1] names, const unsigned char[::1] buf, const long long[::1] batches, Py_ssize_t batch_capacity, Py_ssize_t last_row, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count, int flags, unsigned char[::1] out, Py_ssize_t start, long long[::1] state, long long[::1] message_state) except -1
