cimport cython
from kseg.segment cimport header_tables as C

@cython.locals(records=cython.longlong, declared=cython.longlong)
cpdef Py_ssize_t fitting_run(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t stop, long long most) except -1

cpdef Py_ssize_t packed_stop(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t stop) except -1

cpdef Py_ssize_t plain_stop(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t stop) except -1

@cython.locals(producer=cython.longlong, attributes=cython.longlong)
cpdef Py_ssize_t same_transaction(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t stop, long long next_offset) except -1

@cython.locals(runs=cython.Py_ssize_t, horizon_ms=cython.longlong)
cpdef Py_ssize_t horizon_runs(const long long[::1] batches, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t stop, const long long[::1] tallies, long long new_horizon_ms, long long[::1] pairs) except -1
