cimport cython
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport batch_encode, buffer_access
from kseg.segment.kernel.checksum cimport castagnoli_of

@cython.locals(left=cython.Py_ssize_t, row=cython.Py_ssize_t, start=cython.longlong, size=cython.longlong, crc=cython.longlong)
cpdef Py_ssize_t seal_small(unsigned char[::1] out, long long[::1] table, Py_ssize_t table_capacity, Py_ssize_t count, long long limit_bytes, const unsigned int[::1] castagnoli) except -1

@cython.locals(row=cython.Py_ssize_t, start=cython.Py_ssize_t, size=cython.Py_ssize_t, crc=cython.longlong)
cpdef int seal_large(object view, unsigned char[::1] out, long long[::1] table, Py_ssize_t table_capacity, Py_ssize_t count, object castagnoli) except -1
