cimport cython
from kseg.segment.kernel cimport state_fields as S
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport batch_encode, buffer_access

@cython.locals(row=cython.Py_ssize_t)
cdef int put_row(long long* table, Py_ssize_t capacity, long long* state, long long size, long long last, long long max_ms, long long count, long long start) noexcept

cdef long long base_time(const long long* batches, Py_ssize_t capacity, Py_ssize_t row, long long horizon_ms, long long first_ms) noexcept

cdef long long horizon_of(const long long* batches, Py_ssize_t capacity, Py_ssize_t row, const long long* tallies, long long new_horizon_ms) noexcept

@cython.locals(kept=cython.longlong)
cdef int stays_whole(const long long* batches, Py_ssize_t capacity, Py_ssize_t row, const long long* tallies) noexcept

@cython.locals(length=cython.longlong)
cdef int flush_span(const unsigned char* view, unsigned char* out, Py_ssize_t room, long long short, long long* state) noexcept

@cython.locals(low=cython.Py_ssize_t, high=cython.Py_ssize_t, middle=cython.Py_ssize_t)
cdef int is_protected(const long long* protected, Py_ssize_t count, long long offset, long long producer) noexcept

@cython.locals(last=cython.longlong, producer=cython.longlong)
cdef int is_needed(const long long* batches, Py_ssize_t capacity, Py_ssize_t row, const long long* params, const long long* protected) noexcept

@cython.locals(start=cython.longlong, size=cython.longlong, due=cython.int, count=cython.longlong, last=cython.longlong)
cdef int take_row(const unsigned char* view, const long long* batches, Py_ssize_t capacity, Py_ssize_t row, unsigned char* out, Py_ssize_t room, long long short, long long* table, Py_ssize_t table_capacity, long long* state) noexcept

@cython.locals(due=cython.int, o=cython.Py_ssize_t, attributes=cython.longlong, base=cython.longlong, last=cython.longlong, max_ms=cython.longlong)
cdef int empty_row(const unsigned char* view, const long long* batches, Py_ssize_t capacity, Py_ssize_t row, const long long* tallies, unsigned char* out, Py_ssize_t room, long long short, long long* table, Py_ssize_t table_capacity, long long* state) noexcept

@cython.locals(attributes=cython.longlong, base=cython.longlong, last=cython.longlong, horizon_ms=cython.longlong, base_ms=cython.longlong, max_ms=cython.longlong, count=cython.longlong, size=cython.longlong)
cdef int finish(Py_ssize_t o, Py_ssize_t end, const long long* batches, Py_ssize_t capacity, Py_ssize_t row, const long long* tallies, long long new_horizon_ms, unsigned char* out, long long* table, Py_ssize_t table_capacity, long long* state) noexcept

@cython.locals(base=cython.longlong, horizon_ms=cython.longlong, base_ms=cython.longlong)
cdef Py_ssize_t body_of(const unsigned char* body, const long long* cells, Py_ssize_t capacity, Py_ssize_t count, Py_ssize_t at, const unsigned char* flags, const long long* batches, Py_ssize_t batch_capacity, Py_ssize_t row, const long long* tallies, long long new_ms, unsigned char* out, Py_ssize_t o, Py_ssize_t room) noexcept
