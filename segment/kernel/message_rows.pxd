cimport cython
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport buffer_access, dump_text, json_lines, json_strings, message_json, message_reader, record_headers
from kseg.segment.kernel cimport message_fields as M
from kseg.segment.kernel cimport state_fields as S
from kseg.segment.kernel.message_reader cimport MessageReader

cdef Py_ssize_t put_struct(MessageReader r, Py_ssize_t s, Py_ssize_t p, Py_ssize_t end, Py_ssize_t o) noexcept

@cython.locals(kind=cython.longlong, entry=cython.longlong)
cdef Py_ssize_t put_key(MessageReader r, Py_ssize_t p, long long length, Py_ssize_t o) noexcept

@cython.locals(entry=cython.longlong, s=cython.longlong)
cdef Py_ssize_t put_message(MessageReader r, Py_ssize_t p, Py_ssize_t end, long long version, Py_ssize_t o) noexcept

@cython.locals(kind=cython.longlong)
cdef Py_ssize_t put_framed(MessageReader r, Py_ssize_t p, long long length, Py_ssize_t o) noexcept

cdef Py_ssize_t put_value(MessageReader r, Py_ssize_t p, long long length, Py_ssize_t o) noexcept

@cython.locals(row=cython.Py_ssize_t, key_start=cython.Py_ssize_t, key_length=cython.longlong, value_start=cython.Py_ssize_t, value_length=cython.longlong, headers=cython.Py_ssize_t, framed=cython.bint)
cdef Py_ssize_t put_row(MessageReader r, const long long* batches, Py_ssize_t batch_capacity, const long long* cells, Py_ssize_t capacity, Py_ssize_t at, int mode, const unsigned char* file, Py_ssize_t file_length, Py_ssize_t o, Py_ssize_t limit) noexcept

@cython.locals(r=MessageReader, body=cython.p_const_uchar, rows=cython.p_const_longlong, table=cython.p_const_longlong, text=cython.p_uchar, name=cython.p_const_uchar, name_length=cython.Py_ssize_t, limit=cython.Py_ssize_t, o=cython.Py_ssize_t, row=cython.Py_ssize_t, at=cython.Py_ssize_t, end=cython.Py_ssize_t)
cpdef Py_ssize_t format_rows(const long long[::1] ops, const unsigned char[::1] names, const unsigned char[::1] buf, const long long[::1] batches, Py_ssize_t batch_capacity, Py_ssize_t last_row, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count, int mode, const unsigned char[::1] file, unsigned char[::1] out, Py_ssize_t start, long long[::1] state, long long[::1] message_state) except -1
