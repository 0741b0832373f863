cimport cython
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport arithmetic, buffer_access

@cython.locals(known=cython.longlong, slot=cython.Py_ssize_t, base=cython.longlong, last=cython.longlong, producer=cython.longlong, attributes=cython.longlong, sequence=cython.longlong, epoch=cython.longlong, timestamp=cython.longlong, p=cython.Py_ssize_t, size=cython.Py_ssize_t, done=cython.Py_ssize_t, source=cython.p_const_uchar)
cpdef Py_ssize_t follow_transactions(const unsigned char[::1] buf, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t stop, dict slot_of, long long[::1] slots, Py_ssize_t room, long long[::1] ended, Py_ssize_t most, long long[::1] state) except -1
