cdef extern from *:
    """
    #if defined(__x86_64__) && (__GNUC__ >= 9 || __clang_major__ >= 9)
    #include <immintrin.h>
    #include <string.h>

    #define KSEG_BY_LANES __attribute__((target("sse4.2,pclmul")))
    #define KSEG_BY_WIDE_LANES __attribute__((target("sse4.2,pclmul,avx512f,avx512vl,vpclmulqdq")))

    /* x^(n + 32) and x^(n - 32) modulo the polynomial, bits reversed and shifted by one: what moves a lane n bits on */
    #define KSEG_BY_128 0x14cd00bd6, 0xf20c0dfe
    #define KSEG_BY_256 0x0ba4fc28e, 0x1384aa63a
    #define KSEG_BY_384 0x1d82c63da, 0x01c291d04
    #define KSEG_BY_512 0x09e4addf8, 0x0740eef02
    #define KSEG_BY_2048 0x0b9e02b86, 0x0dcb17aa4

    KSEG_BY_LANES static inline unsigned int kseg_crc_words(unsigned int crc, const unsigned char *at, long long n) {
        unsigned long long sum = crc, word;
        while (n >= 8) {
            memcpy(&word, at, 8);
            sum = _mm_crc32_u64(sum, word);
            at += 8;
            n -= 8;
        }
        crc = (unsigned int) sum;
        while (n > 0) {
            crc = _mm_crc32_u8(crc, *at);
            at += 1;
            n -= 1;
        }
        return crc;
    }

    KSEG_BY_LANES static inline unsigned int kseg_crc_lane(__m128i lane) {
        unsigned long long sum = _mm_crc32_u64(0, (unsigned long long) _mm_cvtsi128_si64(lane));
        return (unsigned int) _mm_crc32_u64(sum, (unsigned long long) _mm_extract_epi64(lane, 1));
    }

    KSEG_BY_LANES static inline __m128i kseg_moved(__m128i lane, __m128i by) {
        return _mm_xor_si128(_mm_clmulepi64_si128(lane, by, 0x00), _mm_clmulepi64_si128(lane, by, 0x11));
    }

    KSEG_BY_LANES static unsigned int kseg_crc_lanes(unsigned int crc, const unsigned char *at, long long n) {
        const __m128i by = _mm_set_epi64x(KSEG_BY_512);
        __m128i a = _mm_xor_si128(_mm_loadu_si128((const __m128i *) at), _mm_cvtsi32_si128((int) crc));
        __m128i b = _mm_loadu_si128((const __m128i *) (at + 16));
        __m128i c = _mm_loadu_si128((const __m128i *) (at + 32));
        __m128i d = _mm_loadu_si128((const __m128i *) (at + 48));
        at += 64;
        n -= 64;
        while (n >= 64) {
            a = _mm_xor_si128(kseg_moved(a, by), _mm_loadu_si128((const __m128i *) at));
            b = _mm_xor_si128(kseg_moved(b, by), _mm_loadu_si128((const __m128i *) (at + 16)));
            c = _mm_xor_si128(kseg_moved(c, by), _mm_loadu_si128((const __m128i *) (at + 32)));
            d = _mm_xor_si128(kseg_moved(d, by), _mm_loadu_si128((const __m128i *) (at + 48)));
            at += 64;
            n -= 64;
        }
        a = _mm_xor_si128(kseg_moved(a, _mm_set_epi64x(KSEG_BY_384)), kseg_moved(b, _mm_set_epi64x(KSEG_BY_256)));
        a = _mm_xor_si128(a, _mm_xor_si128(kseg_moved(c, _mm_set_epi64x(KSEG_BY_128)), d));
        return kseg_crc_words(kseg_crc_lane(a), at, n);
    }

    KSEG_BY_WIDE_LANES static inline __m512i kseg_moved_wide(__m512i lanes, __m512i by, __m512i more) {
        __m512i low = _mm512_clmulepi64_epi128(lanes, by, 0x00), high = _mm512_clmulepi64_epi128(lanes, by, 0x11);
        return _mm512_ternarylogic_epi64(low, high, more, 0x96);  /* xor of all three */
    }

    KSEG_BY_WIDE_LANES static unsigned int kseg_crc_wide_lanes(unsigned int crc, const unsigned char *at, long long n) {
        const __m512i by_512 = _mm512_broadcast_i32x4(_mm_set_epi64x(KSEG_BY_512));
        const __m512i by_2048 = _mm512_broadcast_i32x4(_mm_set_epi64x(KSEG_BY_2048));
        const __m512i to_the_last = _mm512_set_epi64(0, 0, KSEG_BY_128, KSEG_BY_256, KSEG_BY_384);
        __m512i start = _mm512_zextsi128_si512(_mm_cvtsi32_si128((int) crc));
        __m512i a = _mm512_xor_si512(_mm512_loadu_si512(at), start), b = _mm512_loadu_si512(at + 64);
        __m512i c = _mm512_loadu_si512(at + 128), d = _mm512_loadu_si512(at + 192);
        __m256i half;
        at += 256;
        n -= 256;
        while (n >= 256) {
            a = kseg_moved_wide(a, by_2048, _mm512_loadu_si512(at));
            b = kseg_moved_wide(b, by_2048, _mm512_loadu_si512(at + 64));
            c = kseg_moved_wide(c, by_2048, _mm512_loadu_si512(at + 128));
            d = kseg_moved_wide(d, by_2048, _mm512_loadu_si512(at + 192));
            at += 256;
            n -= 256;
        }
        d = kseg_moved_wide(kseg_moved_wide(kseg_moved_wide(a, by_512, b), by_512, c), by_512, d);
        while (n >= 64) {
            d = kseg_moved_wide(d, by_512, _mm512_loadu_si512(at));
            at += 64;
            n -= 64;
        }
        a = kseg_moved_wide(d, to_the_last, _mm512_maskz_mov_epi64(0xC0, d));
        half = _mm256_xor_si256(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
        crc = kseg_crc_lane(_mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
        return kseg_crc_words(crc, at, n);
    }

    static int kseg_crc_way(void) {
        static int way = -1;
        if (way < 0) {
            __builtin_cpu_init();
            way = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
            if (way && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")
                && __builtin_cpu_supports("vpclmulqdq")) way = 2;
        }
        return way;
    }

    static unsigned int kseg_crc_of(int way, const unsigned char *data, Py_ssize_t start, Py_ssize_t end) {
        const unsigned char *at = data + start;
        long long n = end - start;
        if (way == 2 && n >= 256) return ~kseg_crc_wide_lanes(~0u, at, n);
        return ~(n >= 256 ? kseg_crc_lanes(~0u, at, n) : kseg_crc_words(~0u, at, n));
    }
    #else
    static int kseg_crc_way(void) { return 0; }
    static unsigned int kseg_crc_of(int way, const unsigned char *data, Py_ssize_t start, Py_ssize_t end) { return 0; }
    #endif
    """
    int way "kseg_crc_way" () noexcept
    unsigned int crc_of "kseg_crc_of" (int way, const unsigned char* data, Py_ssize_t start, Py_ssize_t end) noexcept
