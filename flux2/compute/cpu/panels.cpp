#include "compute/cpu/panels.hpp"

#include "compute/cpu/instructions.hpp"
#include "compute/cpu/lanes.hpp"

#include <algorithm>
#include <cstring>

namespace flux2::cpu {
namespace {

// Floats of a row of a panel, in n vectors. Vectors and rows are chains of members, since GCC keeps
// small arrays in memory, not in registers.
template <typename Vector, int n>
struct Part {
    static constexpr int64_t kFloats = sizeof(Vector) / sizeof(float);
    Vector vector = {};
    Part<Vector, n - 1> rest;

    FLUX2_INLINE void read(const float* from) {
        std::memcpy(&vector, from, sizeof(vector));
        rest.read(from + kFloats);
    }
    FLUX2_INLINE void write(float* to) const {
        std::memcpy(to, &vector, sizeof(vector));
        rest.write(to + kFloats);
    }
    FLUX2_INLINE void add(float factor, const Part& x) {
        vector += factor * x.vector;
        rest.add(factor, x.rest);
    }
};

template <typename Vector>
struct Part<Vector, 0> {
    FLUX2_INLINE void read(const float*) {}
    FLUX2_INLINE void write(float*) const {}
    FLUX2_INLINE void add(float, const Part&) {}
};

template <typename Vector>
using Row = Part<Vector, kPanel * sizeof(float) / sizeof(Vector)>;

// The sums of n rows.
template <typename Vector, int n>
struct Rows {
    Row<Vector> row;
    Rows<Vector, n - 1> rest;

    FLUX2_INLINE void read(const float* c, int64_t stride) {
        row.read(c);
        rest.read(c + stride, stride);
    }
    FLUX2_INLINE void write(float* c, int64_t stride) const {
        row.write(c);
        rest.write(c + stride, stride);
    }
    // One value of each row of a times the same row of the panel.
    FLUX2_INLINE void add(const float* a, int64_t stride, const Row<Vector>& b) {
        row.add(*a, b);
        rest.add(a + stride, stride, b);
    }
};

template <typename Vector>
struct Rows<Vector, 0> {
    FLUX2_INLINE void read(const float*, int64_t) {}
    FLUX2_INLINE void write(float*, int64_t) const {}
    FLUX2_INLINE void add(const float*, int64_t, const Row<Vector>&) {}
};

// Part of the inner dimension whose panel (32 KB) stays in the L1 cache for all rows.
constexpr int64_t kInner = 512;

// Some rows of a times one panel.
struct Block {
    const float *a, *b;
    float* c;
    int64_t n_inner;
    bool adds;
};

template <typename Vector, int n>
FLUX2_INLINE void multiply_block(const RowsTimesPanels& m, const Block& block) {
    Rows<Vector, n> sums;
    if (block.adds) {
        sums.read(block.c, m.c_stride);
    }
    const int64_t stride = m.a_stride;
    const float* a = block.a;
    const float* b = block.b;
    for (int64_t i = 0; i < block.n_inner; ++i) {
        Row<Vector> row;
        row.read(b + i * kPanel);
        sums.add(a + i, stride, row);
    }
    sums.write(block.c, m.c_stride);
}

// The last rows, fewer than `most`.
template <typename Vector, int most>
FLUX2_INLINE void multiply_rest(const RowsTimesPanels& m, const Block& block, int64_t n) {
    if constexpr (most > 1) {
        if (n == most - 1) {
            multiply_block<Vector, most - 1>(m, block);
        } else {
            multiply_rest<Vector, most - 1>(m, block, n);
        }
    }
}

// n_rows: as many as have their sums in registers, beside a row of the panel.
template <typename Vector, int n_rows>
FLUX2_INLINE void multiply_all(const RowsTimesPanels& m) {
    for (int64_t first = 0; first < m.n_inner; first += kInner) {
        for (int64_t panel = 0; panel < m.n_panels; ++panel) {
            Block block = {.a = m.a + first,
                           .b = m.b + panel * m.b_stride + first * kPanel,
                           .c = m.c + panel * kPanel,
                           .n_inner = std::min(kInner, m.n_inner - first),
                           .adds = m.adds || first > 0};
            int64_t row = 0;
            for (; row + n_rows <= m.n_rows; row += n_rows) {
                multiply_block<Vector, n_rows>(m, block);
                block.a += n_rows * m.a_stride;
                block.c += n_rows * m.c_stride;
            }
            multiply_rest<Vector, n_rows>(m, block, m.n_rows - row);
        }
    }
}

#if defined(FLUX2_X86)
FLUX2_AVX2 void multiply_avx2(const RowsTimesPanels& m) {
    multiply_all<EightFloats, 5>(m);
}

FLUX2_AVX512 void multiply_avx512(const RowsTimesPanels& m) {
    multiply_all<SixteenFloats, 10>(m);
}
#endif

}  // namespace

void multiply(const RowsTimesPanels& m) {
#if defined(FLUX2_X86)
    if (has_avx512()) {
        multiply_avx512(m);
        return;
    }
    if (has_avx2()) {
        multiply_avx2(m);
        return;
    }
#endif
    multiply_all<Lanes, 5>(m);
}

}  // namespace flux2::cpu
