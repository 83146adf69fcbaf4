#include "compute/cpu/bf16_columns.hpp"

#include "compute/cpu/k_scales.hpp"
#include "compute/cpu/matrix_tiles.hpp"

// Compiled like compute/cpu/matrix_tiles.cpp for CPUs that have the instructions; what stands there
// holds here. Blocks are those of ggml's types, by their offsets in bytes.
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define FLUX2_MATRIX_TILES 1
#include <arm_neon.h>
#endif

namespace flux2::cpu {

#if defined(FLUX2_MATRIX_TILES)

namespace {

constexpr int64_t kStep = kTileColumns * kBf16Group;  // from group to group of a column
constexpr int64_t kSuperBlock = 256;                  // values of types with two levels of scales

uint16x8_t to_bf16(float32x4_t low, float32x4_t high) {
    return vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(low), high));
}

void put(uint16_t* to, int64_t step, uint16x8_t eight) {
    vst1_u16(to, vget_low_u16(eight));
    vst1_u16(to + step, vget_high_u16(eight));
}

float read_f16(const uint8_t* from) {
    return static_cast<float>(*reinterpret_cast<const __fp16*>(from));
}

// scale * code + offset for 16 codes.
void put_codes(uint16_t* to, int8x16_t codes, float scale, float offset) {
    const float32x4_t offsets = vdupq_n_f32(offset);
    const auto eight = [&](int16x8_t c) {
        const float32x4_t low = vcvtq_f32_s32(vmovl_s16(vget_low_s16(c)));
        const float32x4_t high = vcvtq_f32_s32(vmovl_high_s16(c));
        return to_bf16(vfmaq_n_f32(offsets, low, scale), vfmaq_n_f32(offsets, high, scale));
    };
    put(to, kStep, eight(vmovl_s8(vget_low_s8(codes))));
    put(to + 2 * kStep, kStep, eight(vmovl_high_s8(codes)));
}

// What the sixteen codes of four bits stand for, looked up instead of computed for each value.
struct Table {
    uint8x16_t low, high;  // bytes of BF16

    Table(float scale, float offset) {
        constexpr float kCodes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
        const float32x4_t offsets = vdupq_n_f32(offset);
        const auto four = [&](int first) {
            return vfmaq_n_f32(offsets, vld1q_f32(kCodes + first), scale);
        };
        const uint8x16_t lower = vreinterpretq_u8_u16(to_bf16(four(0), four(4)));
        const uint8x16_t upper = vreinterpretq_u8_u16(to_bf16(four(8), four(12)));
        low = vuzp1q_u8(lower, upper);
        high = vuzp2q_u8(lower, upper);
    }

    void put_codes(uint16_t* to, uint8x16_t codes) const {
        const uint8x16_t lows = vqtbl1q_u8(low, codes);
        const uint8x16_t highs = vqtbl1q_u8(high, codes);
        put(to, kStep, vreinterpretq_u16_u8(vzip1q_u8(lows, highs)));
        put(to + 2 * kStep, kStep, vreinterpretq_u16_u8(vzip2q_u8(lows, highs)));
    }
};

uint8x16_t low_halves(uint8x16_t codes) {
    return vandq_u8(codes, vdupq_n_u8(0xf));
}

uint8x16_t high_halves(uint8x16_t codes) {
    return vshrq_n_u8(codes, 4);
}

void expand_bf16(const void* blocks, int64_t n, uint16_t* to) {
    const auto* from = static_cast<const uint16_t*>(blocks);
    for (int64_t i = 0; i < n; i += 8) {
        put(to + i / kBf16Group * kStep, kStep, vld1q_u16(from + i));
    }
}

// A scale in F16, 32 codes.
void expand_q8_0(const void* blocks, int64_t n, uint16_t* to) {
    const auto* block = static_cast<const uint8_t*>(blocks);
    for (int64_t i = 0; i < n; i += 32, block += 34, to += 8 * kStep) {
        const float scale = read_f16(block);
        const auto* codes = reinterpret_cast<const int8_t*>(block + 2);
        put_codes(to, vld1q_s8(codes), scale, 0);
        put_codes(to + 4 * kStep, vld1q_s8(codes + 16), scale, 0);
    }
}

// A scale in F16, 16 bytes with codes i and i + 16, which stand for -8 to 7.
void expand_q4_0(const void* blocks, int64_t n, uint16_t* to) {
    const auto* block = static_cast<const uint8_t*>(blocks);
    for (int64_t i = 0; i < n; i += 32, block += 18, to += 8 * kStep) {
        const float scale = read_f16(block);
        const Table table(scale, -8 * scale);
        const uint8x16_t codes = vld1q_u8(block + 2);
        table.put_codes(to, low_halves(codes));
        table.put_codes(to + 4 * kStep, high_halves(codes));
    }
}

// 32 bytes hold the codes of two parts.
void expand_q4_k(const void* blocks, int64_t n, uint16_t* to) {
    const auto* block = static_cast<const uint8_t*>(blocks);
    for (int64_t i = 0; i < n; i += kSuperBlock, block += 144) {
        const PartScales parts = read_part_scales(block);
        const uint8_t* codes = block + 16;
        for (int part = 0; part < 8; part += 2, codes += 32, to += 16 * kStep) {
            const uint8x16_t first = vld1q_u8(codes);
            const uint8x16_t second = vld1q_u8(codes + 16);
            const Table low(parts.scales[part], parts.offsets[part]);
            low.put_codes(to, low_halves(first));
            low.put_codes(to + 4 * kStep, low_halves(second));
            const Table high(parts.scales[part + 1], parts.offsets[part + 1]);
            high.put_codes(to + 8 * kStep, high_halves(first));
            high.put_codes(to + 12 * kStep, high_halves(second));
        }
    }
}

// As Q4_K; before these codes come 32 bytes with a fifth bit for each part.
void expand_q5_k(const void* blocks, int64_t n, uint16_t* to) {
    const auto* block = static_cast<const uint8_t*>(blocks);
    const uint8x16_t fifth = vdupq_n_u8(16);
    for (int64_t i = 0; i < n; i += kSuperBlock, block += 176) {
        const PartScales parts = read_part_scales(block);
        uint8x16_t bits[2] = {vld1q_u8(block + 16), vld1q_u8(block + 32)};
        const uint8_t* codes = block + 48;
        for (int part = 0; part < 8; part += 2, codes += 32, to += 16 * kStep) {
            for (int half = 0; half < 2; ++half) {
                const uint8x16_t both = vld1q_u8(codes + 16 * half);
                const uint8x16_t low = vandq_u8(vshlq_n_u8(bits[half], 4), fifth);
                const uint8x16_t high = vandq_u8(vshlq_n_u8(bits[half], 3), fifth);
                bits[half] = vshrq_n_u8(bits[half], 2);
                put_codes(to + 4 * half * kStep,
                          vreinterpretq_s8_u8(vorrq_u8(low_halves(both), low)), parts.scales[part],
                          parts.offsets[part]);
                put_codes(to + (8 + 4 * half) * kStep,
                          vreinterpretq_s8_u8(vorrq_u8(high_halves(both), high)),
                          parts.scales[part + 1], parts.offsets[part + 1]);
            }
        }
    }
}

// Lower four bits of the codes, upper two, sixteen scales in I8, their scale in F16. Codes stand
// for -32 to 31. A half of the block, 128 values, is four times 32: those of the lower bits in 64
// bytes, of the upper ones in 32.
void expand_q6_k(const void* blocks, int64_t n, uint16_t* to) {
    const auto* block = static_cast<const uint8_t*>(blocks);
    const uint8x16_t upper = vdupq_n_u8(0x30);
    for (int64_t i = 0; i < n; i += kSuperBlock, block += 210) {
        const float scale = read_f16(block + 208);
        for (int part = 0; part < 16; ++part, to += 4 * kStep) {
            const int half = part / 8, quarter = part / 2 % 4, side = part % 2;
            const uint8x16_t both = vld1q_u8(block + 64 * half + 32 * (quarter % 2) + 16 * side);
            const uint8x16_t low = quarter < 2 ? low_halves(both) : high_halves(both);
            const uint8x16_t bits = vld1q_u8(block + 128 + 32 * half + 16 * side);
            const uint8x16_t high =
                vandq_u8(vshlq_u8(bits, vdupq_n_s8(static_cast<int8_t>(4 - 2 * quarter))), upper);
            const int8x16_t codes =
                vsubq_s8(vreinterpretq_s8_u8(vorrq_u8(low, high)), vdupq_n_s8(32));
            const auto factor = static_cast<int8_t>(block[192 + part]);
            put_codes(to, codes, scale * static_cast<float>(factor), 0);
        }
    }
}

}  // namespace

void round_to_groups(const float* from, int64_t n, int64_t step, uint16_t* to, uint16_t* rest) {
    const auto wide = [](uint16x4_t x) { return vreinterpretq_f32_u32(vshll_n_u16(x, 16)); };
    for (int64_t i = 0; i < n; i += 8) {
        const int64_t at = i / kBf16Group * step;
        const float32x4_t low = vld1q_f32(from + i);
        const float32x4_t high = vld1q_f32(from + i + 4);
        const uint16x8_t rounded = to_bf16(low, high);
        put(to + at, step, rounded);
        if (rest != nullptr) {
            put(rest + at, step,
                to_bf16(vsubq_f32(low, wide(vget_low_u16(rounded))),
                        vsubq_f32(high, wide(vget_high_u16(rounded)))));
        }
    }
}

ExpandColumn find_expand_column(ggml_type type) {
    switch (type) {
        case GGML_TYPE_BF16:
            return expand_bf16;
        case GGML_TYPE_Q8_0:
            return expand_q8_0;
        case GGML_TYPE_Q4_0:
            return expand_q4_0;
        case GGML_TYPE_Q4_K:
            return expand_q4_k;
        case GGML_TYPE_Q5_K:
            return expand_q5_k;
        case GGML_TYPE_Q6_K:
            return expand_q6_k;
        default:
            return nullptr;
    }
}

#else

// Never called: has_matrix_tiles() is false.

void round_to_groups(const float*, int64_t, int64_t, uint16_t*, uint16_t*) {}

ExpandColumn find_expand_column(ggml_type) {
    return nullptr;
}

#endif

}  // namespace flux2::cpu
