#include "compute/cpu/q8_tiles.hpp"

// Compiled like compute/cpu/matrix_tiles.cpp for CPUs that have the instructions; what stands there
// holds here.
#if defined(__ARM_FEATURE_MATMUL_INT8)
#define FLUX2_MATRIX_TILES 1
#include <arm_neon.h>
#endif

namespace flux2::cpu {

#if defined(FLUX2_MATRIX_TILES)

namespace {

constexpr int64_t kGroupBytes = kQ8Columns * kQ8Group;
constexpr int64_t kGroups = kQ8Values / kQ8Group;
constexpr int64_t kScales = kQ8Values * kQ8Columns;  // where they begin in a block

// Two rows and four columns, as two blocks of 2x2. Members have names, since GCC keeps small arrays
// in memory, not in registers.
struct Sums {
    int32x4_t left = {}, right = {};

    void add(int8x16_t rows, int8x16_t left_columns, int8x16_t right_columns) {
        left = vmmlaq_s32(left, rows, left_columns);
        right = vmmlaq_s32(right, rows, right_columns);
    }
};

struct Results {
    float32x4_t left = {}, right = {};

    void read(const float* from, int64_t stride) {
        const float32x4_t upper = vld1q_f32(from);
        const float32x4_t lower = vld1q_f32(from + stride);
        left = vcombine_f32(vget_low_f32(upper), vget_low_f32(lower));
        right = vcombine_f32(vget_high_f32(upper), vget_high_f32(lower));
    }
    void write(float* to, int64_t stride) const {
        vst1q_f32(to, vcombine_f32(vget_low_f32(left), vget_low_f32(right)));
        vst1q_f32(to + stride, vcombine_f32(vget_high_f32(left), vget_high_f32(right)));
    }
    void add(const Sums& sums, float32x4_t rows, float32x4_t left_columns,
             float32x4_t right_columns) {
        left = vfmaq_f32(left, vcvtq_f32_s32(sums.left), vmulq_f32(rows, left_columns));
        right = vfmaq_f32(right, vcvtq_f32_s32(sums.right), vmulq_f32(rows, right_columns));
    }
};

// All rows and four columns, the panel's first or last.
void multiply_half(const Q8Tiles& m, int64_t first_column) {
    const int64_t two_rows = 2 * m.stride;
    float* to = m.results + first_column;
    Results r0, r1, r2, r3;
    if (m.adds) {
        r0.read(to, m.stride), r1.read(to + two_rows, m.stride);
        r2.read(to + 2 * two_rows, m.stride), r3.read(to + 3 * two_rows, m.stride);
    }
    const int8_t* a = m.tile;
    const int8_t* b = m.panel;
    for (int64_t i = 0; i < m.n_blocks; ++i, a += kQ8TileBytes, b += kQ8PanelBytes) {
        Sums s0, s1, s2, s3;
        const int8_t* columns = b + first_column * kQ8Group;
#pragma GCC unroll 4
        for (int64_t group = 0; group < kGroups; ++group) {
            const int8_t* rows = a + group * kGroupBytes;
            const int8x16_t left = vld1q_s8(columns + group * kGroupBytes);
            const int8x16_t right = vld1q_s8(columns + group * kGroupBytes + 16);
            s0.add(vld1q_s8(rows), left, right);
            s1.add(vld1q_s8(rows + 16), left, right);
            s2.add(vld1q_s8(rows + 32), left, right);
            s3.add(vld1q_s8(rows + 48), left, right);
        }
        const auto* halves = reinterpret_cast<const float16_t*>(b + kScales) + first_column;
        const float32x4_t scales = vcvt_f32_f16(vld1_f16(halves));
        const float32x4_t left = vcombine_f32(vget_low_f32(scales), vget_low_f32(scales));
        const float32x4_t right = vcombine_f32(vget_high_f32(scales), vget_high_f32(scales));
        const auto* row_scales = reinterpret_cast<const float*>(a + kScales);
        r0.add(s0, vld1q_f32(row_scales), left, right);
        r1.add(s1, vld1q_f32(row_scales + 4), left, right);
        r2.add(s2, vld1q_f32(row_scales + 8), left, right);
        r3.add(s3, vld1q_f32(row_scales + 12), left, right);
    }
    r0.write(to, m.stride), r1.write(to + two_rows, m.stride);
    r2.write(to + 2 * two_rows, m.stride), r3.write(to + 3 * two_rows, m.stride);
}

}  // namespace

void multiply(const Q8Tiles& m) {
    multiply_half(m, 0);
    multiply_half(m, kQ8Columns / 2);
}

#else

void multiply(const Q8Tiles&) {}  // never called

#endif

}  // namespace flux2::cpu
