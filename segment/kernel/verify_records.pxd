cimport cython
from kseg.segment.kernel cimport state_fields as S
from kseg.segment cimport header_tables as C
from kseg.segment.kernel cimport buffer_access

@cython.locals(magic=cython.longlong, attributes=cython.longlong, reasons=cython.int, base=cython.longlong, last=cython.longlong, count=cython.longlong)
cdef int header_reasons(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t row) except -1

@cython.locals(last=cython.longlong, epoch=cython.longlong, found=cython.longlong, reasons=cython.int)
cpdef Py_ssize_t next_suspect(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t count, long long[::1] state) except -1

@cython.locals(magic=cython.longlong, base=cython.longlong, records=cython.longlong, timestamp=cython.longlong, largest=cython.longlong)
cpdef int tally(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t count, long long now, long long[::1] state) except -1

cpdef Py_ssize_t next_epoch(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t row, Py_ssize_t count, long long epoch) except -1

cdef inline bint offset_entries_ordered(const unsigned char* entries, Py_ssize_t left, Py_ssize_t right) noexcept

cdef inline bint time_entries_ordered(const unsigned char* entries, Py_ssize_t left, Py_ssize_t right) noexcept

cdef inline bint ordered(const unsigned char* entries, int width, Py_ssize_t left, Py_ssize_t right) noexcept

@cython.locals(slot_size=cython.Py_ssize_t)
cdef int check_slots(Py_ssize_t size, int width, long long former, long long slot, Py_ssize_t slots) except -1

cdef bint breaks_order(const unsigned char* entries, int width, Py_ssize_t former, Py_ssize_t slot, Py_ssize_t slots) noexcept

cdef bint starts_above(const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t row, long long former_last, long long offset) except -1

@cython.locals(entries=cython.p_const_uchar, slot=cython.Py_ssize_t, offset=cython.longlong, position=cython.longlong, row=cython.Py_ssize_t, last=cython.longlong, too_high=cython.bint)
cpdef int next_offset_entry(const unsigned char[::1] index, Py_ssize_t slots, long long base, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t stop, long long[::1] state) except -1

@cython.locals(entries=cython.p_const_uchar, slot=cython.Py_ssize_t, offset=cython.longlong, timestamp=cython.longlong, row=cython.Py_ssize_t)
cpdef int next_time_entry(const unsigned char[::1] index, Py_ssize_t slots, long long base, const long long[::1] cells, Py_ssize_t capacity, Py_ssize_t stop, long long[::1] state) except -1

@cython.locals(row=cython.Py_ssize_t, offset=cython.longlong, former=cython.Py_ssize_t, missed=cython.bint)
cpdef Py_ssize_t next_record(const long long[::1] records, Py_ssize_t capacity, Py_ssize_t at, Py_ssize_t count, const long long[::1] batches, Py_ssize_t batch_capacity, long long[::1] state) except -1

@cython.locals(declared=cython.longlong)
cpdef int max_reached(const long long[::1] batches, Py_ssize_t capacity, Py_ssize_t row, long long greatest) except -1
