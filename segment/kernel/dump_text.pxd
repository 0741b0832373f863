cimport cython
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport arithmetic, buffer_access, java_utf8, record_headers
from kseg.segment.kernel cimport state_fields as S

@cython.locals(least=cython.longlong, high=cython.longlong, low=cython.uint)
cdef inline Py_ssize_t put_number(unsigned char* out, Py_ssize_t o, long long value) noexcept

cdef inline void put_four(unsigned char* out, Py_ssize_t o, unsigned int value) noexcept

@cython.locals(pairs=cython.p_const_uchar)
cdef inline void put_two(unsigned char* out, Py_ssize_t o, unsigned int value) noexcept

@cython.locals(high=cython.uint)
cdef inline Py_ssize_t put_up_to_eight(unsigned char* out, Py_ssize_t o, unsigned int value) noexcept

@cython.locals(high=cython.uint)
cdef inline Py_ssize_t put_up_to_four(unsigned char* out, Py_ssize_t o, unsigned int value) noexcept

cdef inline Py_ssize_t put_up_to_two(unsigned char* out, Py_ssize_t o, unsigned int value) noexcept

cdef inline Py_ssize_t put_bool(unsigned char* out, Py_ssize_t o, long long value) noexcept
cdef inline Py_ssize_t put_type(unsigned char* out, Py_ssize_t o, long long magic, long long attributes) noexcept
cdef inline Py_ssize_t put_codec(unsigned char* out, Py_ssize_t o, int codec) noexcept

cdef inline long long last_sequence(long long base_sequence, long long base_offset, long long last_offset) noexcept

@cython.locals(magic=cython.longlong, attributes=cython.longlong, base_offset=cython.longlong, last_offset=cython.longlong, sequence=cython.longlong)
cdef inline Py_ssize_t put_batch(unsigned char* out, Py_ssize_t o, const long long* cells, Py_ssize_t capacity, Py_ssize_t row) noexcept

@cython.locals(room=cython.Py_ssize_t)
cdef inline Py_ssize_t record_room(const unsigned char* buf, const long long* cells, Py_ssize_t capacity, Py_ssize_t at, int flags) noexcept

@cython.locals(magic=cython.longlong)
cdef inline Py_ssize_t put_metadata(const unsigned char* buf, const long long* batches, Py_ssize_t batch_capacity, Py_ssize_t row, const long long* cells, Py_ssize_t capacity, Py_ssize_t at, unsigned char* out, Py_ssize_t o, bint escape) noexcept

@cython.locals(escape=cython.bint, skip=cython.int)
cdef inline Py_ssize_t put_record(const unsigned char* buf, const long long* batches, Py_ssize_t batch_capacity, Py_ssize_t row, const long long* cells, Py_ssize_t capacity, Py_ssize_t at, int flags, unsigned char* out, Py_ssize_t o) noexcept

cdef int check_tables(Py_ssize_t batch_cells, Py_ssize_t batch_capacity, Py_ssize_t last_row, Py_ssize_t record_cells, Py_ssize_t capacity, Py_ssize_t count) except -1

@cython.locals(o=cython.Py_ssize_t, limit=cython.Py_ssize_t, row=cython.Py_ssize_t, at=cython.Py_ssize_t, room=cython.Py_ssize_t, body=cython.p_const_uchar, rows=cython.p_const_longlong, table=cython.p_const_longlong, text=cython.p_uchar)
cpdef Py_ssize_t format_lines(const unsigned char[::1] buf, const long long[::1] batches, Py_ssize_t batch_capacity, Py_ssize_t last_row, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count, int flags, unsigned char[::1] out, Py_ssize_t start, long long[::1] state) except -1
