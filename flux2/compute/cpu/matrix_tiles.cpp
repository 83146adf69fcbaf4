#include "compute/cpu/matrix_tiles.hpp"

#include "base/system.hpp"

// The build compiles this file for CPUs that have the instructions, so nothing here may run on
// others but has_matrix_tiles(), and no inline function of a library may be emitted here: the
// linker might take it for all.
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) && defined(__ARM_FEATURE_MATMUL_INT8)
#define FLUX2_MATRIX_TILES 1
#include <arm_neon.h>
#endif

namespace flux2::cpu {

#if defined(FLUX2_MATRIX_TILES)

namespace {

constexpr int64_t kBlock = 4;  // floats of a 2x2 result
constexpr int64_t kPairs = kTileRows / 2;
constexpr int64_t kPairSize = kTileColumns / 2 * kBlock;
constexpr int kHighCounts = 7;  // bits that a high part stands above a low one

// x[0] x[0] x[1] x[1]: the rows of a block.
float32x4_t twice_each(const float* x) {
    const float32x2_t both = vld1_f32(x);
    return vcombine_f32(vdup_lane_f32(both, 0), vdup_lane_f32(both, 1));
}

// x[0] x[1] x[0] x[1]: its columns.
float32x4_t both_twice(const float* x) {
    const float32x2_t both = vld1_f32(x);
    return vcombine_f32(both, both);
}

bfloat16x8_t read(const uint16_t* from) {
    return vreinterpretq_bf16_u16(vld1q_u16(from));
}

int8x16_t read(const int8_t* from) {
    return vld1q_s8(from);
}

float32x4_t add_product(float32x4_t sum, bfloat16x8_t a, bfloat16x8_t b) {
    return vbfmmlaq_f32(sum, a, b);
}

int32x4_t add_product(int32x4_t sum, int8x16_t a, int8x16_t b) {
    return vmmlaq_s32(sum, a, b);
}

// The sums of two rows and eight columns. Members have names, since GCC keeps small arrays in
// memory, not in registers.
template <typename Sum>
struct Pair {
    Sum c0 = {}, c1 = {}, c2 = {}, c3 = {};

    template <typename Values>
    void add(Values a, Values b0, Values b1, Values b2, Values b3) {
        c0 = add_product(c0, a, b0);
        c1 = add_product(c1, a, b1);
        c2 = add_product(c2, a, b2);
        c3 = add_product(c3, a, b3);
    }
    template <typename F>
    void change(const F& f) {
        f(c0, 0), f(c1, 1), f(c2, 2), f(c3, 3);
    }
};

template <typename Sum>
struct Tile {
    Pair<Sum> p0, p1, p2, p3, p4;

    // Adds the product of n_groups groups of rows and columns.
    template <typename Value>
    void add(const Value* a, const Value* b, int64_t n_groups) {
        constexpr int64_t kTwo = 2 * kGroup / static_cast<int64_t>(sizeof(Value));
        for (int64_t i = 0; i < n_groups; ++i) {
            const auto b0 = read(b);
            const auto b1 = read(b + kTwo);
            const auto b2 = read(b + 2 * kTwo);
            const auto b3 = read(b + 3 * kTwo);
            p0.add(read(a), b0, b1, b2, b3);
            p1.add(read(a + kTwo), b0, b1, b2, b3);
            p2.add(read(a + 2 * kTwo), b0, b1, b2, b3);
            p3.add(read(a + 3 * kTwo), b0, b1, b2, b3);
            p4.add(read(a + 4 * kTwo), b0, b1, b2, b3);
            a += kPairs * kTwo;
            b += kTileColumns / 2 * kTwo;
        }
    }
    // Calls f with each pair and its number.
    template <typename F>
    void change(const F& f) {
        f(p0, 0), f(p1, 1), f(p2, 2), f(p3, 3), f(p4, 4);
    }
};

void score_tile(const ScoreTiles& m, const int8_t* rows, const int8_t* columns, float* to) {
    const int64_t n_groups = m.n_inner / kGroup;
    const int8_t* low_rows = rows + m.n_inner * kTileRows;
    const int8_t* low_columns = columns + m.n_inner * kTileColumns;
    const float* scales = reinterpret_cast<const float*>(low_columns + m.n_inner * kTileColumns);
    Tile<int32x4_t> sums;
    sums.add(rows, columns, n_groups);
    sums.change([](auto& pair, int) {
        pair.change([](int32x4_t& c, int) { c = vshlq_n_s32(c, kHighCounts); });
    });
    sums.add(rows, low_columns, n_groups);
    sums.add(low_rows, columns, n_groups);
    const std::array<float32x4_t, 4> scale = {both_twice(scales), both_twice(scales + 2),
                                              both_twice(scales + 4), both_twice(scales + 6)};
    sums.change([&](auto& pair, int i) {
        pair.change([&](const int32x4_t& c, int j) {
            vst1q_f32(to + i * kPairSize + j * kBlock,
                      vmulq_f32(vcvtq_f32_s32(c), scale[static_cast<size_t>(j)]));
        });
    });
}

void value_tile(const ValueTiles& m, const uint16_t* rows, const uint16_t* columns, float* to,
                const float* factors) {
    Tile<float32x4_t> sums;
    if (factors != nullptr) {
        sums.change([&](auto& pair, int i) {
            const float32x4_t factor = twice_each(factors + 2 * i);
            pair.change([&](float32x4_t& c, int j) {
                c = vmulq_f32(vld1q_f32(to + i * kPairSize + j * kBlock), factor);
            });
        });
    }
    sums.add(rows, columns, m.n_inner / kBf16Group);
    sums.change([&](auto& pair, int i) {
        pair.change(
            [&](const float32x4_t& c, int j) { vst1q_f32(to + i * kPairSize + j * kBlock, c); });
    });
}

// A block of 2x2 as two of one row each.
struct TwoRows {
    float32x4_t upper, lower;

    TwoRows(float32x4_t left, float32x4_t right)
        : upper(vcombine_f32(vget_low_f32(left), vget_low_f32(right))),
          lower(vcombine_f32(vget_high_f32(left), vget_high_f32(right))) {}

    void store(float* to, int64_t stride, bool adds) const {
        vst1q_f32(to, adds ? vaddq_f32(upper, vld1q_f32(to)) : upper);
        vst1q_f32(to + stride, adds ? vaddq_f32(lower, vld1q_f32(to + stride)) : lower);
    }
};

// 2^x for x <= 0 to 1e-4 of itself, a twentieth of what rounding to BF16 may change; 2^-126 for
// all below -126.
float32x4_t exp2_of(float32x4_t x) {
    const float32x4_t rounds = vdupq_n_f32(12582912.0f);  // 1.5 * 2^23
    x = vmaxq_f32(x, vdupq_n_f32(-126));
    const float32x4_t shifted = vaddq_f32(x, rounds);
    const float32x4_t r = vsubq_f32(x, vsubq_f32(shifted, rounds));
    float32x4_t sum = vfmaq_f32(vdupq_n_f32(0.242211037f), vdupq_n_f32(0.0550089416f), r);
    sum = vfmaq_f32(vdupq_n_f32(0.693282935f), sum, r);
    sum = vfmaq_f32(vdupq_n_f32(1.0f), sum, r);
    // The whole part stands in the lowest bits of `shifted`; it goes to the exponent.
    const int32x4_t exponent = vshlq_n_s32(vreinterpretq_s32_f32(shifted), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(sum), exponent));
}

// Blocks of keys 0 1 and 2 3 -> two rows of four BF16 in the order 0 2 1 3. Positive values only.
uint16x8_t round_blocks(float32x4_t keys01, float32x4_t keys23) {
    const uint32x4_t half = vdupq_n_u32(0x8000);
    const uint32x4_t low = vaddq_u32(vreinterpretq_u32_f32(keys01), half);
    const uint32x4_t high = vaddq_u32(vreinterpretq_u32_f32(keys23), half);
    return vreinterpretq_u16_u32(vsriq_n_u32(high, low, 16));
}

// A block for each pair of rows.
using BlockOfPairs = std::array<float32x4_t, kPairs>;

// The rows of a block whose columns are equal.
void write_rows(float32x4_t block, float* to) {
    to[0] = vgetq_lane_f32(block, 0);
    to[1] = vgetq_lane_f32(block, 2);
}

void find_highest(const float* scores, int64_t n_panels, BlockOfPairs& most) {
    for (const float* end = scores + n_panels * kTileSize; scores != end;) {
        for (float32x4_t& highest : most) {
            const float32x4_t first = vmaxq_f32(vld1q_f32(scores), vld1q_f32(scores + kBlock));
            const float32x4_t second =
                vmaxq_f32(vld1q_f32(scores + 2 * kBlock), vld1q_f32(scores + 3 * kBlock));
            highest = vmaxq_f32(highest, vmaxq_f32(first, second));
            scores += kPairSize;
        }
    }
    for (float32x4_t& highest : most) {
        highest = vmaxq_f32(highest, vrev64q_f32(highest));  // of both columns
    }
}

// Weights are 2^(score * scale + shift).
void weigh(const float* scores, int64_t n_panels, const BlockOfPairs& scales,
           const BlockOfPairs& shifts, BlockOfPairs& sums, uint16_t* weights) {
    constexpr int64_t kRowsOfPair = 2 * kBf16Group;
    for (int64_t panel = 0; panel < n_panels; ++panel, weights += 2 * kTileRows * kBf16Group) {
        uint16_t* to = weights;
        for (size_t i = 0; i < sums.size(); ++i, scores += kPairSize, to += kRowsOfPair) {
            const auto weight = [&](int64_t block) {
                const float32x4_t score = vld1q_f32(scores + block * kBlock);
                return exp2_of(vfmaq_f32(shifts[i], score, scales[i]));
            };
            const float32x4_t w0 = weight(0), w1 = weight(1), w2 = weight(2), w3 = weight(3);
            sums[i] = vaddq_f32(sums[i], vaddq_f32(vaddq_f32(w0, w1), vaddq_f32(w2, w3)));
            vst1q_u16(to, round_blocks(w0, w1));
            vst1q_u16(to + kTileRows * kBf16Group, round_blocks(w2, w3));
        }
    }
}

}  // namespace

bool has_matrix_tiles() {
    return process_may_use_arm_matrices();
}

void multiply(const ScoreTiles& m) {
    for (int64_t panel = 0; panel < m.n_panels; ++panel) {
        for (int64_t tile = 0; tile < m.n_tiles; ++tile) {
            score_tile(m, m.rows + tile * 2 * m.n_inner * kTileRows,
                       m.columns + panel * m.panel_bytes,
                       m.results + (tile * m.n_panels + panel) * kTileSize);
        }
    }
}

void multiply(const ValueTiles& m) {
    for (int64_t panel = 0; panel < m.n_panels; ++panel) {
        for (int64_t tile = 0; tile < m.n_tiles; ++tile) {
            value_tile(m, m.rows + tile * m.n_inner * kTileRows, m.columns + panel * m.panel_size,
                       m.results + (tile * m.n_panels + panel) * kTileSize,
                       m.factors == nullptr ? nullptr : m.factors + tile * kTileRows);
        }
    }
}

void multiply(const LinearTile& m) {
    Tile<float32x4_t> sums;
    sums.add(m.rows, m.columns, m.n_inner / kBf16Group);
    sums.change([&](const auto& pair, int i) {
        float* to = m.results + 2 * i * m.stride;
        TwoRows(pair.c0, pair.c1).store(to, m.stride, m.adds);
        TwoRows(pair.c2, pair.c3).store(to + 4, m.stride, m.adds);
    });
}

void SoftmaxTile::add(const float* scores, int64_t n_panels, uint16_t* weights, float* factors) {
    BlockOfPairs most;
    for (size_t i = 0; i < most.size(); ++i) {
        most[i] = twice_each(highest.data() + 2 * i);
    }
    find_highest(scores, n_panels, most);
    BlockOfPairs scales, shifts, sums;
    for (size_t i = 0; i < most.size(); ++i) {
        scales[i] = twice_each(scale.data() + 2 * i);
        shifts[i] = vmulq_f32(vnegq_f32(most[i]), scales[i]);
        sums[i] = vdupq_n_f32(0);
        const float32x4_t before = twice_each(highest.data() + 2 * i);
        write_rows(exp2_of(vfmaq_f32(shifts[i], before, scales[i])), factors + 2 * i);
        write_rows(most[i], highest.data() + 2 * i);
    }
    weigh(scores, n_panels, scales, shifts, sums, weights);
    for (size_t i = 0; i < most.size(); ++i) {
        const float32x4_t all = vaddq_f32(sums[i], vrev64q_f32(sums[i]));  // both columns
        sum[2 * i] = sum[2 * i] * factors[2 * i] + vgetq_lane_f32(all, 0);
        sum[2 * i + 1] = sum[2 * i + 1] * factors[2 * i + 1] + vgetq_lane_f32(all, 2);
    }
}

#else

bool has_matrix_tiles() {
    return false;
}

// Never called: has_matrix_tiles() is false.

void multiply(const ScoreTiles&) {}

void multiply(const ValueTiles&) {}

void multiply(const LinearTile&) {}

void SoftmaxTile::add(const float*, int64_t, uint16_t*, float*) {}

#endif

}  // namespace flux2::cpu
