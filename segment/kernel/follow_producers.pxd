cimport cython
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport arithmetic, buffer_access

@cython.locals(low=cython.Py_ssize_t, high=cython.Py_ssize_t, middle=cython.Py_ssize_t)
cdef Py_ssize_t row_of_open(const long long[::1] opened, Py_ssize_t room, Py_ssize_t head, Py_ssize_t tail, long long first, long long producer) except -2

cdef Py_ssize_t next_open(const long long[::1] opened, Py_ssize_t room, Py_ssize_t row, Py_ssize_t tail) except -2

@cython.locals(kept=cython.Py_ssize_t)
cdef Py_ssize_t compacted(long long[::1] opened, Py_ssize_t room, Py_ssize_t head, Py_ssize_t tail) except -1

@cython.locals(p=cython.Py_ssize_t)
cdef bint is_plain_marker(const unsigned char* source, Py_ssize_t size, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t row) except -1

@cython.locals(size=cython.Py_ssize_t, source=cython.p_const_uchar)
cpdef Py_ssize_t next_control(const unsigned char[::1] buf, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t stop) except -1

@cython.locals(size=cython.Py_ssize_t, source=cython.p_const_uchar, known=cython.longlong, slot=cython.Py_ssize_t, head=cython.Py_ssize_t, tail=cython.Py_ssize_t, done=cython.Py_ssize_t, base=cython.longlong, last=cython.longlong, producer=cython.longlong, attributes=cython.longlong, sequence=cython.longlong, former=cython.longlong, epoch=cython.longlong, timestamp=cython.longlong, p=cython.Py_ssize_t, first=cython.longlong, stable=cython.longlong, at=cython.Py_ssize_t, other=cython.Py_ssize_t)
cpdef Py_ssize_t follow(const unsigned char[::1] buf, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t stop, dict slot_of, long long[::1] slots, Py_ssize_t room, long long[::1] opened, Py_ssize_t open_room, long long[::1] markers, Py_ssize_t most, long long replicated, long long[::1] state) except -1
