cimport cython

cdef inline bint is_tail(int byte) noexcept

@cython.locals(b1=cython.int, b2=cython.int, left=cython.Py_ssize_t)
cdef inline Py_ssize_t sequence_length(const unsigned char* buf, Py_ssize_t p, Py_ssize_t end) noexcept

@cython.locals(seen=cython.uchar, i=cython.Py_ssize_t, end=cython.Py_ssize_t, size=cython.Py_ssize_t, n=cython.Py_ssize_t)
cdef inline Py_ssize_t decoded_length(const unsigned char* buf, Py_ssize_t p, Py_ssize_t length) noexcept

@cython.locals(high=cython.int, low=cython.int)
cdef inline Py_ssize_t put_escape(unsigned char* out, Py_ssize_t o, int byte) noexcept

@cython.locals(n=cython.Py_ssize_t)
cdef inline Py_ssize_t put_escaped(const unsigned char* buf, Py_ssize_t p, Py_ssize_t end, unsigned char* out, Py_ssize_t o) noexcept

cdef inline Py_ssize_t put_last(const unsigned char* buf, Py_ssize_t p, Py_ssize_t end, unsigned char* out, Py_ssize_t o) noexcept

@cython.locals(n=cython.Py_ssize_t, last=cython.Py_ssize_t, looked=cython.Py_ssize_t, grown=cython.Py_ssize_t, byte=cython.int, is_replaced=cython.int)
cdef inline Py_ssize_t put_decoded(const unsigned char* buf, Py_ssize_t p, Py_ssize_t end, unsigned char* out, Py_ssize_t o) noexcept

@cython.locals(marks=cython.Py_ssize_t, lengths=cython.Py_ssize_t, n=cython.Py_ssize_t)
cdef Py_ssize_t put_no_text(const unsigned char* buf, Py_ssize_t p, Py_ssize_t end, unsigned char* out, Py_ssize_t o) noexcept

@cython.locals(i=cython.Py_ssize_t, b1=cython.uchar, b2=cython.uchar, has_two=cython.uchar, has_three=cython.uchar, has_four=cython.uchar, is_wrong=cython.uchar, is_cut=cython.uchar)
cdef inline void mark_sequences(const unsigned char* buf, Py_ssize_t p, unsigned char* out, Py_ssize_t marks) noexcept

cdef inline unsigned char is_inside(unsigned char before, unsigned char two_before, unsigned char three_before) noexcept
cdef inline unsigned char is_swallowed(unsigned char before, unsigned char two_before, unsigned char three_before) noexcept

@cython.locals(i=cython.Py_ssize_t, before=cython.uchar, two_before=cython.uchar, three_before=cython.uchar, begins=cython.uchar, is_alone=cython.uchar, is_replaced=cython.uchar)
cdef inline void mark_lengths(const unsigned char* buf, Py_ssize_t p, unsigned char* out, Py_ssize_t marks, Py_ssize_t lengths) noexcept

@cython.locals(i=cython.Py_ssize_t, length=cython.uint, mask=cython.uint)
cdef inline Py_ssize_t put_marked(const unsigned char* buf, Py_ssize_t p, unsigned char* out, Py_ssize_t lengths, Py_ssize_t o) noexcept

@cython.locals(seen=cython.uchar, byte=cython.uchar, i=cython.Py_ssize_t)
cdef Py_ssize_t put_text(const unsigned char* buf, Py_ssize_t p, Py_ssize_t length, unsigned char* out, Py_ssize_t o, bint escape) noexcept
