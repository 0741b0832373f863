cimport cython
from kseg.segment.kernel cimport views

@cython.locals(half=cython.ulonglong)
cdef inline long long as_long(unsigned long long word) noexcept

cdef inline unsigned long long as_word(unsigned long long number) noexcept

@cython.locals(high=cython.ulonglong, low=cython.ulonglong)
cdef inline unsigned long long word_at(const unsigned char* buf, Py_ssize_t p) noexcept

@cython.locals(mask=cython.ulonglong, v0=cython.ulonglong, v1=cython.ulonglong, v2=cython.ulonglong, v3=cython.ulonglong, word=cython.ulonglong, length=cython.Py_ssize_t, words=cython.Py_ssize_t, step=cython.Py_ssize_t, n=cython.Py_ssize_t)
cdef int hash_key(const unsigned char* body, Py_ssize_t p, Py_ssize_t end, unsigned long long first, unsigned long long second, long long* hashes, Py_ssize_t at) noexcept

@cython.locals(source=cython.p_const_uchar, size=cython.longlong, row=cython.Py_ssize_t, start=cython.longlong, length=cython.longlong)
cpdef Py_ssize_t hash_rows(const unsigned char[::1] body, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count, unsigned long long first, unsigned long long second, long long[::1] hashes) except -1

@cython.locals(low=cython.longlong)
cdef inline Py_ssize_t home_of(long long word, long long slot_count) noexcept

@cython.locals(at=cython.Py_ssize_t)
cdef inline Py_ssize_t find_slot(const long long* slots, long long slot_count, long long first, long long second) noexcept

@cython.locals(total=cython.longlong)
cdef long long touched(const long long* slots, long long slot_count, const long long* cells, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t stop, const long long* hashes) noexcept

@cython.locals(table=cython.p_longlong, words=cython.p_longlong, touched_to=cython.Py_ssize_t, offset=cython.longlong, at=cython.Py_ssize_t)
cpdef Py_ssize_t put_rows(long long[::1] cells, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t count, long long[::1] hashes, long long start_offset, long long[::1] slots, long long slot_count, long long limit, long long[::1] state) except -1

@cython.locals(total=cython.longlong, at=cython.Py_ssize_t, place=cython.Py_ssize_t)
cdef int put_pending(const long long* pending, Py_ssize_t count, long long* slots, long long slot_count, long long limit, long long* state) noexcept

@cython.locals(source=cython.p_const_uchar, table=cython.p_longlong, waiting=cython.p_longlong, at_work=cython.p_longlong, count=cython.Py_ssize_t, p=cython.Py_ssize_t, end=cython.Py_ssize_t, records=cython.longlong, base=cython.longlong, is_bad=cython.bint, packed=cython.longlong, after=cython.Py_ssize_t, offset=cython.longlong, length=cython.longlong)
cpdef int map_rows(const unsigned char[::1] body, bint is_packed, Py_ssize_t row, Py_ssize_t stop, const long long[::1] batches, Py_ssize_t capacity, long long start_offset, unsigned long long first, unsigned long long second, long long[::1] slots, long long slot_count, long long limit, long long[::1] pending, long long[::1] state) except -1

@cython.locals(table=cython.p_longlong, words=cython.p_longlong, rows=cython.p_longlong, of_batch=cython.p_longlong, row=cython.Py_ssize_t, touched_to=cython.Py_ssize_t, batch=cython.Py_ssize_t, offset=cython.longlong, has_key=cython.bint, has_value=cython.bint, keep=cython.int, at=cython.Py_ssize_t, timestamp=cython.longlong, kept=cython.longlong)
cpdef int judge_rows(long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count, long long[::1] hashes, long long[::1] slots, long long slot_count, long long latest_offset, long long now_ms, int keeps_legacy, const long long[::1] batches, Py_ssize_t batch_capacity, unsigned char[::1] flags, long long[::1] tallies, long long[::1] totals) except -1

@cython.locals(row=cython.Py_ssize_t, batch=cython.Py_ssize_t, weight=cython.longlong, at=cython.Py_ssize_t, is_known=cython.bint)
cpdef int tally_keys(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count, const long long[::1] hashes, const unsigned char[::1] flags, const long long[::1] batches, Py_ssize_t batch_capacity, long long segment, long long[::1] sketch, Py_ssize_t places) except -1
