cimport cython
from kseg.segment.kernel cimport buffer_access, dump_text, json_lines, message_values

cdef Py_ssize_t fail(long long* state, int error, long long a, long long b, Py_ssize_t field) noexcept

@cython.locals(value=cython.longlong, shift=cython.int, byte=cython.longlong)
cdef Py_ssize_t long_uvarint(const unsigned char* buf, Py_ssize_t p, Py_ssize_t end, long long* state) noexcept

cdef Py_ssize_t uvarint(const unsigned char* buf, Py_ssize_t p, Py_ssize_t end, long long* state) noexcept

@cython.locals(least=cython.longlong)
cdef Py_ssize_t read_length(const unsigned char* buf, Py_ssize_t p, Py_ssize_t end, long long* state, int width, bint flexible) noexcept

@cython.locals(name=cython.p_const_uchar, i=cython.Py_ssize_t)
cdef Py_ssize_t is_consumer(const unsigned char* buf, Py_ssize_t p, Py_ssize_t length) noexcept

@cython.locals(kind=cython.longlong, is_text=cython.bint, length=cython.longlong)
cdef Py_ssize_t read_bytes(const long long* ops, Py_ssize_t f, const unsigned char* buf, Py_ssize_t p, Py_ssize_t end, const unsigned char* names, unsigned char* out, Py_ssize_t limit, long long* state, Py_ssize_t depth, bint flexible, bint write, bint element) noexcept

@cython.locals(start=cython.longlong, versions=cython.longlong, version=cython.longlong, s=cython.longlong)
cdef Py_ssize_t read_protocol(const long long* ops, Py_ssize_t f, const unsigned char* buf, Py_ssize_t p, Py_ssize_t end, const unsigned char* names, unsigned char* out, Py_ssize_t limit, long long* state, Py_ssize_t depth) noexcept

@cython.locals(kind=cython.longlong, o=cython.Py_ssize_t, is_there=cython.bint, size=cython.int, value=cython.longlong)
cdef Py_ssize_t read_one(const long long* ops, Py_ssize_t f, const unsigned char* buf, Py_ssize_t p, Py_ssize_t end, const unsigned char* names, unsigned char* out, Py_ssize_t limit, long long* state, Py_ssize_t depth, bint flexible, bint write, bint element) noexcept

@cython.locals(count=cython.longlong, i=cython.longlong)
cdef Py_ssize_t read_value(const long long* ops, Py_ssize_t f, const unsigned char* buf, Py_ssize_t p, Py_ssize_t end, const unsigned char* names, unsigned char* out, Py_ssize_t limit, long long* state, Py_ssize_t depth, bint flexible, bint write) noexcept

@cython.locals(f=cython.Py_ssize_t, stop=cython.Py_ssize_t)
cdef Py_ssize_t field_of_tag(const long long* ops, Py_ssize_t s, long long tag) noexcept

@cython.locals(positions=cython.Py_ssize_t, i=cython.longlong, count=cython.longlong, tag=cython.longlong, size=cython.longlong, f=cython.Py_ssize_t)
cdef Py_ssize_t read_tags(const long long* ops, Py_ssize_t s, const unsigned char* buf, Py_ssize_t p, Py_ssize_t end, const unsigned char* names, unsigned char* out, Py_ssize_t limit, long long* state, Py_ssize_t depth) noexcept

@cython.locals(i=cython.Py_ssize_t)
cdef Py_ssize_t equals_text(const unsigned char* out, Py_ssize_t start, Py_ssize_t end, const unsigned char* names, Py_ssize_t at, Py_ssize_t length) noexcept

@cython.locals(start=cython.Py_ssize_t, unknown=cython.longlong, value=cython.Py_ssize_t)
cdef Py_ssize_t put_tagged(const long long* ops, Py_ssize_t f, const unsigned char* buf, Py_ssize_t p, Py_ssize_t end, const unsigned char* names, unsigned char* out, Py_ssize_t limit, long long* state, Py_ssize_t depth, int first) noexcept

@cython.locals(flexible=cython.bint, after_tags=cython.Py_ssize_t, first=cython.int, f=cython.Py_ssize_t, stop=cython.Py_ssize_t, at=cython.Py_ssize_t, written=cython.int)
cdef Py_ssize_t read_struct(const long long* ops, Py_ssize_t s, const unsigned char* buf, Py_ssize_t p, Py_ssize_t end, const unsigned char* names, unsigned char* out, Py_ssize_t limit, long long* state, Py_ssize_t depth, bint write) noexcept
