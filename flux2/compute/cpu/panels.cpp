#include "compute/cpu/panels.hpp"

#include "compute/cpu/lanes.hpp"

#include <algorithm>
#include <cstring>

// On x86 the library is built for any CPU, but this file's loop once more for those with AVX2.
#if defined(__GNUC__) && defined(__x86_64__)
#define FLUX2_AVX2_TOO 1
#endif
#if defined(__GNUC__)
#define FLUX2_INLINE inline __attribute__((always_inline))
#else
#define FLUX2_INLINE inline
#endif

namespace flux2::cpu {
namespace {

// One row of a panel. Members have names, since GCC keeps small arrays in memory, not in registers.
#if defined(FLUX2_AVX2_TOO)
using Wide = float __attribute__((vector_size(32)));

struct Row {
    Wide a = {}, b = {};

    FLUX2_INLINE void read(const float* from) {
        std::memcpy(&a, from, sizeof(a));
        std::memcpy(&b, from + 8, sizeof(b));
    }
    FLUX2_INLINE void write(float* to) const {
        std::memcpy(to, &a, sizeof(a));
        std::memcpy(to + 8, &b, sizeof(b));
    }
    FLUX2_INLINE void add(float factor, const Row& x) {
        a += factor * x.a;
        b += factor * x.b;
    }
};
#else
struct Row {
    Lanes a = {}, b = {}, c = {}, d = {};

    FLUX2_INLINE void read(const float* from) {
        a = load(from);
        b = load(from + 4);
        c = load(from + 8);
        d = load(from + 12);
    }
    FLUX2_INLINE void write(float* to) const {
        store(to, a);
        store(to + 4, b);
        store(to + 8, c);
        store(to + 12, d);
    }
    FLUX2_INLINE void add(float factor, const Row& x) {
        a += factor * x.a;
        b += factor * x.b;
        c += factor * x.c;
        d += factor * x.d;
    }
};
#endif

// As many rows as have their sums in registers, beside a row of the panel: 5 * 16 floats.
constexpr int kRows = 5;
// Stretch of the inner dimension whose panel (32 KB) stays in the first cache for all rows.
constexpr int64_t kInner = 512;

// The sums of n rows, as a chain of members for the same reason.
template <int n>
struct Rows {
    Row row;
    Rows<n - 1> rest;

    FLUX2_INLINE void read(const float* c, int64_t stride) {
        row.read(c);
        rest.read(c + stride, stride);
    }
    FLUX2_INLINE void write(float* c, int64_t stride) const {
        row.write(c);
        rest.write(c + stride, stride);
    }
    // One value of each row of a times the same row of the panel.
    FLUX2_INLINE void add(const float* a, int64_t stride, const Row& b) {
        row.add(*a, b);
        rest.add(a + stride, stride, b);
    }
};

template <>
struct Rows<0> {
    FLUX2_INLINE void read(const float*, int64_t) {}
    FLUX2_INLINE void write(float*, int64_t) const {}
    FLUX2_INLINE void add(const float*, int64_t, const Row&) {}
};

// n rows of a times one panel.
template <int n>
FLUX2_INLINE void multiply_block(const RowsTimesPanels& m, const float* a, const float* b,
                                 int64_t n_inner, float* c, bool adds) {
    Rows<n> sums;
    if (adds) {
        sums.read(c, m.c_stride);
    }
    const int64_t stride = m.a_stride;
    for (int64_t i = 0; i < n_inner; ++i) {
        Row row;
        row.read(b + i * kPanel);
        sums.add(a + i, stride, row);
    }
    sums.write(c, m.c_stride);
}

// All rows of a times one panel, from inner index `first` on.
FLUX2_INLINE void multiply_panel(const RowsTimesPanels& m, int64_t panel, int64_t first) {
    const int64_t n_inner = std::min(kInner, m.n_inner - first);
    const bool adds = m.adds || first > 0;
    const float* b = m.b + panel * m.b_stride + first * kPanel;
    for (int64_t row = 0; row < m.n_rows; row += kRows) {
        const float* a = m.a + row * m.a_stride + first;
        float* c = m.c + row * m.c_stride + panel * kPanel;
        switch (std::min<int64_t>(kRows, m.n_rows - row)) {
            case 1:
                multiply_block<1>(m, a, b, n_inner, c, adds);
                break;
            case 2:
                multiply_block<2>(m, a, b, n_inner, c, adds);
                break;
            case 3:
                multiply_block<3>(m, a, b, n_inner, c, adds);
                break;
            case 4:
                multiply_block<4>(m, a, b, n_inner, c, adds);
                break;
            default:
                multiply_block<kRows>(m, a, b, n_inner, c, adds);
        }
    }
}

FLUX2_INLINE void multiply_all(const RowsTimesPanels& m) {
    for (int64_t first = 0; first < m.n_inner; first += kInner) {
        for (int64_t panel = 0; panel < m.n_panels; ++panel) {
            multiply_panel(m, panel, first);
        }
    }
}

#if defined(FLUX2_AVX2_TOO)
__attribute__((target("avx2,fma"))) void multiply_all_avx2(const RowsTimesPanels& m) {
    multiply_all(m);
}
#endif

}  // namespace

void multiply(const RowsTimesPanels& m) {
#if defined(FLUX2_AVX2_TOO)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        multiply_all_avx2(m);
        return;
    }
#endif
    multiply_all(m);
}

}  // namespace flux2::cpu
