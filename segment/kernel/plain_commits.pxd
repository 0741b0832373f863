cimport cython
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport buffer_access

@cython.locals(version=cython.int, tags=cython.Py_ssize_t, expiry=cython.Py_ssize_t)
cdef bint is_commit(const unsigned char* value, Py_ssize_t p, long long size, int key_type) noexcept

@cython.locals(end=cython.Py_ssize_t, topic_at=cython.Py_ssize_t)
cdef bint is_plain_key(const unsigned char* key, Py_ssize_t p, Py_ssize_t size) noexcept

cpdef bint plain_key(const unsigned char[::1] key)

@cython.locals(key=bytes, source=cython.p_const_uchar, size=cython.longlong, entries=cython.longlong, last_batch=cython.longlong, batch=cython.longlong, is_plain=cython.bint, start=cython.longlong, length=cython.longlong, place=cython.longlong, room=cython.longlong, timestamp=cython.longlong, entry=cython.longlong, committed=cython.longlong)
cpdef Py_ssize_t take_commits(const unsigned char[::1] body, const long long[::1] records, Py_ssize_t capacity, Py_ssize_t at, Py_ssize_t count, const long long[::1] batches, Py_ssize_t batch_capacity, dict entry_of, list keys, list values, dict known, long long[::1] table, long long earliest, long long latest, bint keeps_rewinds) except -1

@cython.locals(group=bytes, source=cython.p_const_uchar, size=cython.longlong, start=cython.longlong, length=cython.longlong, place=cython.longlong, room=cython.longlong, name=cython.longlong)
cpdef Py_ssize_t skip_commits(const unsigned char[::1] body, const long long[::1] records, Py_ssize_t capacity, Py_ssize_t at, Py_ssize_t count, set groups) except -1
