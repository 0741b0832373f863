cimport cython
from kseg.segment.kernel cimport buffer_access
from kseg.segment.kernel.in_c cimport faults

cpdef int start() except -1

cpdef int watch(const unsigned char[::1] view, int descriptor, int block, long long device, long long inode, long long mtime) except? -1

cpdef int unwatch(int number) except -1

cpdef int note(long long device, long long inode, long long mtime, long long position, long long length, int error) except? -1

cpdef long long count() except? -1

cpdef int area(long long number, long long[::1] out) except -1

@cython.locals(at=cython.Py_ssize_t, total=cython.longlong)
cpdef long long touch(const unsigned char[::1] view) except? -1

cpdef int forget() except -1
