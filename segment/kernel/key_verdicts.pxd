cimport cython
from kseg.segment.kernel cimport state_fields as S
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport buffer_access, keymap_probe

@cython.locals(table=cython.p_longlong, words=cython.p_longlong, rows=cython.p_longlong, of_batch=cython.p_longlong, row=cython.Py_ssize_t, touched_to=cython.Py_ssize_t, batch=cython.Py_ssize_t, offset=cython.longlong, has_key=cython.bint, has_value=cython.bint, keep=cython.int, at=cython.Py_ssize_t, timestamp=cython.longlong, kept=cython.longlong)
cpdef int judge_rows(long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count, long long[::1] hashes, long long[::1] slots, long long slot_count, long long latest_offset, long long now_ms, int keeps_legacy, const long long[::1] batches, Py_ssize_t batch_capacity, unsigned char[::1] flags, long long[::1] tallies, long long[::1] totals) except -1

@cython.locals(row=cython.Py_ssize_t, batch=cython.Py_ssize_t, weight=cython.longlong, at=cython.Py_ssize_t, is_known=cython.bint)
cpdef int tally_keys(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t count, const long long[::1] hashes, const unsigned char[::1] flags, const long long[::1] batches, Py_ssize_t batch_capacity, long long segment, long long[::1] sketch, long long[::1] used, Py_ssize_t places) except -1
