cimport cython
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport buffer_access
from kseg.segment.kernel.arrow_gather cimport RecordRows, check_room

@cython.locals(cells=cython.p_const_longlong, capacity=cython.Py_ssize_t, stop=cython.Py_ssize_t, source=cython.p_const_uchar, size=cython.Py_ssize_t, row=cython.Py_ssize_t, p=cython.Py_ssize_t, left=cython.longlong, needed=cython.p_longlong, count=cython.longlong, name_bytes=cython.longlong, value_bytes=cython.longlong)
cpdef Py_ssize_t measure_headers(const unsigned char[::1] body, RecordRows rows, long long most, long long[::1] sums) except -1

@cython.locals(place=cython.longlong)
cdef Py_ssize_t header_at(const unsigned char* source, Py_ssize_t p, Py_ssize_t size, long long* sums) except -1

@cython.locals(packed=cython.longlong, length=cython.longlong)
cdef inline long long field_at(const unsigned char* source, Py_ssize_t p, Py_ssize_t size) noexcept

@cython.locals(cells=cython.p_const_longlong, capacity=cython.Py_ssize_t, stop=cython.Py_ssize_t, source=cython.p_const_uchar, size=cython.Py_ssize_t, row=cython.Py_ssize_t, p=cython.Py_ssize_t, left=cython.longlong, count=cython.Py_ssize_t, name_bytes=cython.Py_ssize_t, value_bytes=cython.Py_ssize_t, place=cython.longlong)
cpdef Py_ssize_t gather_headers(const unsigned char[::1] body, RecordRows rows, int[::1] ends, unsigned char[::1] names, int[::1] name_ends, unsigned char[::1] values, int[::1] value_ends, unsigned char[::1] value_flags) except -1
