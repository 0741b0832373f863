cimport cython
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport buffer_access, dump_text, json_strings, record_headers
from kseg.segment.kernel cimport state_fields as S

@cython.locals(i=cython.Py_ssize_t, length=cython.longlong)
cdef Py_ssize_t put_headers(const unsigned char* buf, Py_ssize_t p, Py_ssize_t count, int mode, unsigned char* out, Py_ssize_t o) noexcept

cdef inline Py_ssize_t put_file(unsigned char* out, Py_ssize_t o, const unsigned char* file, Py_ssize_t file_length) noexcept

@cython.locals(magic=cython.longlong, attributes=cython.longlong, flags=cython.longlong, base_offset=cython.longlong, last_offset=cython.longlong, count=cython.longlong, sequence=cython.longlong)
cdef Py_ssize_t put_batch_line(unsigned char* out, Py_ssize_t o, const long long* cells, Py_ssize_t capacity, Py_ssize_t row, const unsigned char* file, Py_ssize_t file_length) noexcept

cdef Py_ssize_t put_record_head(const long long* batches, Py_ssize_t batch_capacity, Py_ssize_t row, const long long* cells, Py_ssize_t capacity, Py_ssize_t at, const unsigned char* file, Py_ssize_t file_length, unsigned char* out, Py_ssize_t o) noexcept

cdef Py_ssize_t put_record_tail(long long magic, const long long* cells, Py_ssize_t capacity, Py_ssize_t at, unsigned char* out, Py_ssize_t o) noexcept

@cython.locals(key_start=cython.Py_ssize_t, key_length=cython.longlong, value_start=cython.Py_ssize_t, value_length=cython.longlong)
cdef Py_ssize_t put_record_line(const unsigned char* buf, const long long* batches, Py_ssize_t batch_capacity, Py_ssize_t row, const long long* cells, Py_ssize_t capacity, Py_ssize_t at, int mode, const unsigned char* file, Py_ssize_t file_length, unsigned char* out, Py_ssize_t o) noexcept

@cython.locals(room=cython.Py_ssize_t)
cdef Py_ssize_t line_room(const unsigned char* buf, const long long* cells, Py_ssize_t capacity, Py_ssize_t at, Py_ssize_t file_length) noexcept

@cython.locals(body=cython.p_const_uchar, rows=cython.p_const_longlong, table=cython.p_const_longlong, room_of=cython.p_uchar, name=cython.p_const_uchar, name_length=cython.Py_ssize_t, o=cython.Py_ssize_t, limit=cython.Py_ssize_t, row=cython.Py_ssize_t, at=cython.Py_ssize_t)
cpdef Py_ssize_t format_json(const unsigned char[::1] buf, const long long[::1] batches, Py_ssize_t batch_capacity, Py_ssize_t last_row, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count, int mode, const unsigned char[::1] file, unsigned char[::1] out, Py_ssize_t start, long long[::1] state) except -1
