cimport cython
from kseg.segment.kernel cimport state_fields as S
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport buffer_access, keymap_probe

@cython.locals(half=cython.ulonglong)
cdef inline long long as_long(unsigned long long word) noexcept

cdef inline unsigned long long as_word(unsigned long long number) noexcept

@cython.locals(high=cython.ulonglong, low=cython.ulonglong)
cdef inline unsigned long long word_at(const unsigned char* buf, Py_ssize_t p) noexcept

@cython.locals(mask=cython.ulonglong, v0=cython.ulonglong, v1=cython.ulonglong, v2=cython.ulonglong, v3=cython.ulonglong, word=cython.ulonglong, length=cython.Py_ssize_t, words=cython.Py_ssize_t, step=cython.Py_ssize_t, n=cython.Py_ssize_t)
cdef int hash_key(const unsigned char* body, Py_ssize_t p, Py_ssize_t end, unsigned long long first, unsigned long long second, long long* hashes, Py_ssize_t at) noexcept

@cython.locals(source=cython.p_const_uchar, size=cython.longlong, row=cython.Py_ssize_t, start=cython.longlong, length=cython.longlong)
cpdef Py_ssize_t hash_rows(const unsigned char[::1] body, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count, unsigned long long first, unsigned long long second, long long[::1] hashes) except -1

@cython.locals(table=cython.p_longlong, words=cython.p_longlong, touched_to=cython.Py_ssize_t, offset=cython.longlong, at=cython.Py_ssize_t)
cpdef Py_ssize_t put_rows(long long[::1] cells, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t count, long long[::1] hashes, long long start_offset, long long[::1] slots, long long slot_count, long long limit, long long[::1] state) except -1

@cython.locals(old=cython.p_longlong, new=cython.p_longlong, at=cython.Py_ssize_t, place=cython.Py_ssize_t)
cpdef int move_slots(long long[::1] slots, long long slot_count, long long[::1] larger, long long larger_count) except -1

@cython.locals(table=cython.p_const_longlong, packed=cython.p_longlong, room=cython.Py_ssize_t, at=cython.Py_ssize_t, to=cython.Py_ssize_t)
cpdef Py_ssize_t pack_slots(const long long[::1] slots, Py_ssize_t slot_count, long long[::1] out) except -1

@cython.locals(place=cython.Py_ssize_t)
cdef inline int put_one(const long long* pending, Py_ssize_t at, long long* slots, long long slot_count, long long limit, long long* state) noexcept

cdef int put_pending(const long long* pending, Py_ssize_t first, Py_ssize_t count, long long* slots, long long slot_count, long long limit, long long* state) noexcept

@cython.locals(source=cython.p_const_uchar, table=cython.p_longlong, waiting=cython.p_longlong, at_work=cython.p_longlong, count=cython.Py_ssize_t, done=cython.Py_ssize_t, at=cython.Py_ssize_t, p=cython.Py_ssize_t, end=cython.longlong, records=cython.longlong, base=cython.longlong, is_bad=cython.bint, is_packed=cython.bint, start=cython.longlong, packed=cython.longlong, after=cython.Py_ssize_t, offset=cython.longlong, length=cython.longlong)
cpdef int map_rows(const unsigned char[::1] body, const long long[::1] bounds, Py_ssize_t first_row, Py_ssize_t row, Py_ssize_t stop, const long long[::1] batches, Py_ssize_t capacity, long long start_offset, unsigned long long first, unsigned long long second, long long[::1] slots, long long slot_count, long long limit, long long[::1] pending, long long[::1] state) except -1
