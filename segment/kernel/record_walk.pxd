cimport cython
from kseg.segment.kernel cimport state_fields as S
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport arithmetic, buffer_access

@cython.locals(n=cython.Py_ssize_t)
cdef inline Py_ssize_t varlong_size(const unsigned char* buf, Py_ssize_t p, Py_ssize_t end) noexcept

@cython.locals(n=cython.Py_ssize_t, low=cython.longlong, high=cython.longlong, part=cython.longlong)
cdef inline long long varlong_at(const unsigned char* buf, Py_ssize_t p, Py_ssize_t size) noexcept

@cython.locals(packed=cython.longlong, length=cython.longlong)
cdef Py_ssize_t headers_end(const unsigned char* body, Py_ssize_t p, Py_ssize_t end, long long count) noexcept

@cython.locals(packed=cython.longlong, length=cython.longlong)
cdef inline Py_ssize_t read_field(const unsigned char* body, Py_ssize_t p, Py_ssize_t end, long long* cells, Py_ssize_t start_at, Py_ssize_t length_at) noexcept

@cython.locals(n=cython.Py_ssize_t, packed=cython.longlong, size=cython.longlong, delta=cython.longlong, timestamp=cython.longlong, sequence=cython.longlong, length=cython.longlong)
cdef inline Py_ssize_t read_record(const unsigned char* body, Py_ssize_t p, Py_ssize_t end, Py_ssize_t row, const long long* batches, Py_ssize_t batch_capacity, long long* cells, Py_ssize_t capacity, Py_ssize_t at) noexcept

@cython.locals(row=cython.Py_ssize_t, count=cython.longlong, p=cython.Py_ssize_t, done=cython.longlong, at=cython.Py_ssize_t, result=cython.int, after=cython.Py_ssize_t)
cdef inline int body_records(const unsigned char* body, Py_ssize_t start, Py_ssize_t end, const long long* batches, Py_ssize_t batch_capacity, long long* cells, Py_ssize_t capacity, long long* state) noexcept

cpdef int read_body(const unsigned char[::1] body, Py_ssize_t start, Py_ssize_t end, const long long[::1] batches, Py_ssize_t batch_capacity, long long[::1] cells, Py_ssize_t capacity, long long[::1] state) except -1

cpdef int check_tables(const long long[::1] batches, Py_ssize_t batch_capacity, long long[::1] cells, Py_ssize_t capacity, long long[::1] state) except -1

@cython.locals(row=cython.Py_ssize_t, p=cython.Py_ssize_t, size=cython.Py_ssize_t, after=cython.int, result=cython.int, source=cython.p_const_uchar, table=cython.p_longlong)
cpdef int read_plain(const unsigned char[::1] buf, Py_ssize_t last_row, const long long[::1] batches, Py_ssize_t batch_capacity, long long[::1] cells, Py_ssize_t capacity, long long[::1] state) except -1

@cython.locals(row=cython.Py_ssize_t, start=cython.Py_ssize_t, end=cython.Py_ssize_t, result=cython.int, source=cython.p_const_uchar)
cpdef int read_bodies(const unsigned char[::1] body, const long long[::1] bounds, Py_ssize_t first, Py_ssize_t last_row, const long long[::1] batches, Py_ssize_t batch_capacity, long long[::1] cells, Py_ssize_t capacity, long long[::1] state) except -1

