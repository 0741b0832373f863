cimport cython
from kseg.segment.kernel cimport state_fields as S
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport buffer_access, keymap_probe

@cython.locals(total=cython.longlong)
cdef long long touched(const long long* slots, long long slot_count, const long long* rows, Py_ssize_t at, Py_ssize_t stop) noexcept

@cython.locals(records=cython.p_const_longlong, words=cython.p_const_longlong, rows=cython.p_longlong, at=cython.Py_ssize_t, last=cython.longlong, row=cython.Py_ssize_t, offset=cython.longlong)
cpdef Py_ssize_t copy_rows(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count, const long long[::1] hashes, long long from_offset, long long to_offset, long long bound, long long[::1] state, long long[::1] out) except -1

@cython.locals(source=cython.p_const_longlong, table=cython.p_longlong, told=cython.p_longlong, size=cython.longlong, count=cython.Py_ssize_t, row=cython.Py_ssize_t, touched_to=cython.Py_ssize_t, mark=cython.longlong, at=cython.Py_ssize_t, known=cython.longlong)
cpdef Py_ssize_t fold_rows(const long long[::1] rows, Py_ssize_t first, Py_ssize_t stop, long long[::1] slots, long long slot_count, long long limit, long long[::1] state, long long[::1] gone) except -1

@cython.locals(source=cython.p_const_longlong, table=cython.p_longlong, told=cython.p_longlong, found=cython.Py_ssize_t, row=cython.Py_ssize_t, touched_to=cython.Py_ssize_t, at=cython.Py_ssize_t)
cpdef Py_ssize_t ask_rows(const long long[::1] rows, Py_ssize_t count, long long[::1] slots, long long slot_count, long long[::1] state, long long[::1] gone) except -1

@cython.locals(source=cython.p_const_longlong, ends=cython.p_longlong, target=cython.p_longlong, part=cython.Py_ssize_t, row=cython.Py_ssize_t, total=cython.longlong, number=cython.longlong, at=cython.longlong)
cpdef Py_ssize_t scatter_rows(const long long[::1] rows, Py_ssize_t count, Py_ssize_t parts, long long[::1] bounds, long long[::1] out) except -1

@cython.locals(low=cython.Py_ssize_t, high=cython.Py_ssize_t, middle=cython.Py_ssize_t)
cdef inline Py_ssize_t stretch_of(const long long* bases, Py_ssize_t count, long long offset) noexcept

@cython.locals(source=cython.p_const_longlong, begins=cython.p_const_longlong, ends=cython.p_longlong, target=cython.p_longlong, part=cython.Py_ssize_t, row=cython.Py_ssize_t, total=cython.longlong, number=cython.longlong)
cpdef Py_ssize_t scatter_offsets(const long long[::1] offsets, Py_ssize_t count, const long long[::1] bases, Py_ssize_t stretches, long long[::1] bounds, long long[::1] out) except -1

@cython.locals(source=cython.p_const_longlong, marks=cython.p_uchar, room=cython.longlong, row=cython.Py_ssize_t, place=cython.longlong)
cpdef Py_ssize_t mark_offsets(const long long[::1] offsets, Py_ssize_t count, long long base, unsigned char[::1] bits) except -1

@cython.locals(table=cython.p_const_longlong, marks=cython.p_uchar, room=cython.longlong, slot=cython.Py_ssize_t, place=cython.longlong)
cpdef Py_ssize_t spare_latest(const long long[::1] slots, Py_ssize_t slot_count, long long base, unsigned char[::1] bits) except -1

@cython.locals(records=cython.p_const_longlong, marks=cython.p_const_uchar, found=cython.p_longlong, room=cython.longlong, later=cython.longlong, row=cython.Py_ssize_t, length=cython.longlong, start=cython.longlong, place=cython.longlong)
cpdef Py_ssize_t look_up(long long size, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count, long long base, const unsigned char[::1] bits, long long[::1] words) except -1
