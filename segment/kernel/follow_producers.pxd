cimport cython
from kseg.segment.kernel.arithmetic cimport add_sequence

@cython.locals(known=cython.longlong, slot=cython.Py_ssize_t, base=cython.longlong, last=cython.longlong, producer=cython.longlong, attributes=cython.longlong, sequence=cython.longlong, former=cython.longlong)
cpdef Py_ssize_t follow(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t stop, dict slot_of, long long[::1] slots, Py_ssize_t room, long long[::1] state) except -1
