#include "compute/cpu/column_codes.hpp"

#include "compute/cpu/instructions.hpp"
#include "compute/cpu/k_scales.hpp"

#include <cstddef>
#include <cstring>

// Blocks are those of ggml's types, by their offsets in bytes.
namespace flux2::cpu {
namespace {

constexpr int64_t kSuperBlock = 256;  // values of types with two levels of scales

float read_f16(const uint8_t* from) {
    ggml_fp16_t bits;
    std::memcpy(&bits, from, sizeof(bits));
    return ggml_fp16_to_fp32(bits);
}

// A column of a panel, block after block.
class Column {
  public:
    FLUX2_INLINE Column(PanelCodes* panel, int64_t column) : panel_(panel), column_(column) {}

    FLUX2_INLINE void put(const uint8_t* codes, float scale, float offset) {
        put_scale(0, scale, offset);
        put_codes(codes);
    }
    // Code `middle` stands for 0.
    FLUX2_INLINE void put_signed(const uint8_t* codes, float scale, int middle) {
        put(codes, scale, -static_cast<float>(middle) * scale);
    }
    // With a scale of each half.
    FLUX2_INLINE void put_halves(const uint8_t* codes, float first, float second, int middle) {
        put_scale(0, first, -static_cast<float>(middle) * first);
        put_scale(1, second, -static_cast<float>(middle) * second);
        put_codes(codes);
    }

  private:
    FLUX2_INLINE void put_scale(size_t half, float scale, float offset) {
        panel_->scales[half][static_cast<size_t>(column_)] = scale;
        panel_->offsets[half][static_cast<size_t>(column_)] = offset;
    }
    FLUX2_INLINE void put_codes(const uint8_t* codes) {
        uint8_t* to = panel_->codes.data() + column_ * kCodeGroup;
        for (int64_t i = 0; i < kCodeBlock; i += kCodeGroup) {
            std::memcpy(to + i * kCodeColumns, codes + i, kCodeGroup);
        }
        ++panel_;
    }

    PanelCodes* panel_;
    int64_t column_;
};

// The same of a panel of 16 bits.
class WideColumn {
  public:
    FLUX2_INLINE WideColumn(WidePanelCodes* panel, int64_t column)
        : panel_(panel), column_(column) {}

    FLUX2_INLINE void put_signed(const uint8_t* codes, float scale, int middle) {
        put_halves(codes, scale, scale, middle);
    }
    FLUX2_INLINE void put_halves(const uint8_t* codes, float first, float second, int middle) {
        constexpr int64_t kGroup = kCodeGroup / 2;  // codes
        panel_->scales[0][static_cast<size_t>(column_)] = first;
        panel_->scales[1][static_cast<size_t>(column_)] = second;
        int16_t wide[kCodeBlock];
        for (int64_t i = 0; i < kCodeBlock; ++i) {
            wide[i] = static_cast<int16_t>(codes[i] - middle);
        }
        int16_t* to = panel_->codes.data() + column_ * kGroup;
        for (int64_t i = 0; i < kCodeBlock; i += kGroup) {
            std::memcpy(to + i * kCodeColumns, wide + i, kCodeGroup);
        }
        ++panel_;
    }

  private:
    WidePanelCodes* panel_;
    int64_t column_;
};

// Lower and upper halves of n bytes.
FLUX2_INLINE void split_halves(const uint8_t* from, int64_t n, uint8_t* low, uint8_t* high) {
    for (int64_t i = 0; i < n; ++i) {
        low[i] = from[i] & 15;
        high[i] = from[i] >> 4;
    }
}

// A scale in F16; of Q4_1 and Q5_1 an offset in F16, else the middle of the codes stands for 0; of
// Q5_0 and Q5_1 the fifth bits of all codes; 16 bytes with codes i and i + 16.
template <int bits, bool has_offset>
FLUX2_INLINE void read_small_blocks(const uint8_t* block, int64_t n, Column column) {
    constexpr int64_t kHead = has_offset ? 4 : 2;
    constexpr int64_t kFifthBits = bits == 5 ? 4 : 0;
    for (int64_t i = 0; i < n; i += kCodeBlock, block += kHead + kFifthBits + kCodeHalf) {
        uint8_t codes[kCodeBlock];
        split_halves(block + kHead + kFifthBits, kCodeHalf, codes, codes + kCodeHalf);
        if constexpr (bits == 5) {
            for (int64_t j = 0; j < kCodeBlock; ++j) {
                const int bit = block[kHead + j / 8] >> j % 8 & 1;
                codes[j] = static_cast<uint8_t>(codes[j] | bit << 4);
            }
        }
        const float scale = read_f16(block);
        if constexpr (has_offset) {
            column.put(codes, scale, read_f16(block + 2));
        } else {
            column.put_signed(codes, scale, 1 << (bits - 1));
        }
    }
}

// A scale in F16 and 32 codes with a sign.
template <typename Column>
FLUX2_INLINE void read_q8_0(const uint8_t* block, int64_t n, Column column) {
    constexpr uint8_t kMiddle = 128;
    for (int64_t i = 0; i < n; i += kCodeBlock, block += 2 + kCodeBlock) {
        uint8_t codes[kCodeBlock];
        for (int64_t j = 0; j < kCodeBlock; ++j) {
            codes[j] = block[2 + j] ^ kMiddle;
        }
        column.put_signed(codes, read_f16(block), kMiddle);
    }
}

// Scales of 16 bytes; of Q5_K 32 bytes with a fifth bit for each part; 32 bytes for two parts each.
template <int bits>
FLUX2_INLINE void read_super_blocks(const uint8_t* block, int64_t n, Column column) {
    constexpr int64_t kHead = 16;
    constexpr int64_t kFifthBits = bits == 5 ? kCodeBlock : 0;
    constexpr int64_t kSize = kHead + kFifthBits + kSuperBlock / 2;
    for (int64_t i = 0; i < n; i += kSuperBlock, block += kSize) {
        const PartScales parts = read_part_scales(block);
        for (int part = 0; part < 8; part += 2) {
            uint8_t codes[2 * kCodeBlock];
            split_halves(block + kHead + kFifthBits + part * kCodeHalf, kCodeBlock, codes,
                         codes + kCodeBlock);
            for (int64_t j = 0; bits == 5 && j < kCodeBlock; ++j) {
                const int fifth = block[kHead + j] >> part;
                codes[j] = static_cast<uint8_t>(codes[j] | (fifth & 1) << 4);
                codes[kCodeBlock + j] =
                    static_cast<uint8_t>(codes[kCodeBlock + j] | (fifth >> 1 & 1) << 4);
            }
            column.put(codes, parts.scales[part], parts.offsets[part]);
            column.put(codes + kCodeBlock, parts.scales[part + 1], parts.offsets[part + 1]);
        }
    }
}

// Lower four bits of the codes, upper two, sixteen scales in I8, their scale in F16. A half of the
// block is four times 32 values: their lower bits in 64 bytes, the upper ones in 32.
template <typename Column>
FLUX2_INLINE void read_q6_k(const uint8_t* block, int64_t n, Column column) {
    constexpr int kMiddle = 32;
    for (int64_t i = 0; i < n; i += kSuperBlock, block += 210) {
        const float scale = read_f16(block + 208);
        for (int part = 0; part < 8; ++part) {
            const int quarter = part % 4;
            const uint8_t* low = block + part / 4 * 64 + quarter % 2 * kCodeBlock;
            const uint8_t* high = block + 128 + part / 4 * 32;
            uint8_t codes[kCodeBlock];
            for (int64_t j = 0; j < kCodeBlock; ++j) {
                const int lower = low[j] >> quarter / 2 * 4 & 15;
                codes[j] = static_cast<uint8_t>(lower | (high[j] >> 2 * quarter & 3) << 4);
            }
            const auto factor = [&](int half) {
                return scale *
                       static_cast<float>(static_cast<int8_t>(block[192 + 2 * part + half]));
            };
            column.put_halves(codes, factor(0), factor(1), kMiddle);
        }
    }
}

FLUX2_INLINE void read_blocks(ggml_type type, const uint8_t* blocks, int64_t n, PanelCodes* panel,
                              int64_t column) {
    const Column to(panel, column);
    switch (type) {
        case GGML_TYPE_Q4_0:
            return read_small_blocks<4, false>(blocks, n, to);
        case GGML_TYPE_Q4_1:
            return read_small_blocks<4, true>(blocks, n, to);
        case GGML_TYPE_Q5_0:
            return read_small_blocks<5, false>(blocks, n, to);
        case GGML_TYPE_Q5_1:
            return read_small_blocks<5, true>(blocks, n, to);
        case GGML_TYPE_Q4_K:
            return read_super_blocks<4>(blocks, n, to);
        case GGML_TYPE_Q5_K:
            return read_super_blocks<5>(blocks, n, to);
        case GGML_TYPE_Q6_K:
            return read_q6_k(blocks, n, to);
        case GGML_TYPE_Q8_0:
            return read_q8_0(blocks, n, to);
        default:
            return;
    }
}

FLUX2_INLINE void read_wide_blocks(ggml_type type, const uint8_t* blocks, int64_t n,
                                   WidePanelCodes* panel, int64_t column) {
    const WideColumn to(panel, column);
    if (type == GGML_TYPE_Q6_K) {
        read_q6_k(blocks, n, to);
    } else {
        read_q8_0(blocks, n, to);
    }
}

}  // namespace

int code_bits(ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q4_0:
        case GGML_TYPE_Q4_1:
        case GGML_TYPE_Q4_K:
            return 4;
        case GGML_TYPE_Q5_0:
        case GGML_TYPE_Q5_1:
        case GGML_TYPE_Q5_K:
            return 5;
        case GGML_TYPE_Q6_K:
            return 6;
        case GGML_TYPE_Q8_0:
            return 8;
        default:
            return 0;
    }
}

bool has_half_scales(ggml_type type) {
    return type == GGML_TYPE_Q6_K;
}

void read_codes(ggml_type type, const void* blocks, int64_t n, PanelCodes* panel, int64_t column) {
    call_best<read_blocks>(type, static_cast<const uint8_t*>(blocks), n, panel, column);
}

bool has_wide_codes(ggml_type type) {
    return type == GGML_TYPE_Q6_K || type == GGML_TYPE_Q8_0;
}

void read_codes(ggml_type type, const void* blocks, int64_t n, WidePanelCodes* panel,
                int64_t column) {
    call_best<read_wide_blocks>(type, static_cast<const uint8_t*>(blocks), n, panel, column);
}

}  // namespace flux2::cpu
