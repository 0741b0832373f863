cimport cython
from kseg.segment.kernel cimport state_fields as S
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport buffer_access, keymap_probe

@cython.locals(n=cython.longlong)
cdef inline bint is_same_field(const unsigned char* a, long long p, const unsigned char* b, long long q, long long size) noexcept

cdef inline bint is_inside(long long start, long long length, long long size) noexcept

@cython.locals(fields=cython.longlong, packed=cython.longlong, other=cython.longlong, length=cython.longlong)
cdef bint are_same_headers(const unsigned char* a, Py_ssize_t p, Py_ssize_t a_end, const unsigned char* b, Py_ssize_t q, Py_ssize_t b_end, long long count) noexcept

@cython.locals(a=cython.Py_ssize_t, b=cython.Py_ssize_t, first=cython.longlong, last=cython.longlong, size_a=cython.longlong, size_b=cython.longlong, bytes_a=cython.p_const_uchar, bytes_b=cython.p_const_uchar, cells_a=cython.p_const_longlong, cells_b=cython.p_const_longlong, table_a=cython.p_const_longlong, table_b=cython.p_const_longlong, result=cython.int, offset=cython.longlong, other=cython.longlong, field=cython.Py_ssize_t, length=cython.longlong, p=cython.longlong, q=cython.longlong, count=cython.longlong, row=cython.longlong, at=cython.longlong)
cpdef int compare_rows(const unsigned char[::1] body_a, const long long[::1] batches_a, Py_ssize_t batch_capacity_a, const long long[::1] records_a, Py_ssize_t capacity_a, Py_ssize_t count_a, const unsigned char[::1] body_b, const long long[::1] batches_b, Py_ssize_t batch_capacity_b, const long long[::1] records_b, Py_ssize_t capacity_b, Py_ssize_t count_b, unsigned char[::1] flags_a, unsigned char[::1] flags_b, long long[::1] state) except -1

cpdef int flag_rest(const long long[::1] records, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t count, long long first, long long last, unsigned char[::1] flags) except -1

@cython.locals(offset=cython.longlong)
cpdef Py_ssize_t flagged_range(const long long[::1] records, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t count, const unsigned char[::1] flags, long long[::1] bounds) except -1

@cython.locals(table=cython.p_const_longlong, remaining=cython.Py_ssize_t, row=cython.Py_ssize_t, at=cython.longlong)
cpdef Py_ssize_t unflag_superseded(const long long[::1] records, Py_ssize_t capacity, Py_ssize_t count, const long long[::1] hashes, const long long[::1] slots, long long slot_count, long long by_itself, unsigned char[::1] flags) except -1
