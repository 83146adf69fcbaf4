// The values of matrices, eight neighbours at a time, as ggml's to_float gives them. Plain
// C++ for hosts too, so that tests compare them with ggml's.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#include <cuda_fp16.h>
#define FLUX2_BOTH __host__ __device__ inline
#else
#define FLUX2_BOTH inline
#endif

namespace flux2::cuda {

// ---- Bytes of blocks, which lie at even addresses ----

FLUX2_BOTH uint32_t two_bytes(const uint8_t* p) {
    uint16_t bits;
#ifdef __CUDA_ARCH__
    bits = *reinterpret_cast<const uint16_t*>(p);
#else
    std::memcpy(&bits, p, sizeof(bits));
#endif
    return bits;
}

FLUX2_BOTH uint32_t four_bytes(const uint8_t* p) {
    return two_bytes(p) | two_bytes(p + 2) << 16;
}

FLUX2_BOTH float half_at(const uint8_t* p) {
    const uint32_t bits = two_bytes(p);
#ifdef __CUDA_ARCH__
    return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
#else
    // The exponent's bias becomes that of F32 by a multiplication, which keeps denormal numbers.
    const uint32_t magnitude = (bits & 0x7fff) << 13;
    float value;
    std::memcpy(&value, &magnitude, sizeof(value));
    value *= 0x1p112f;
    return bits & 0x8000 ? -value : value;
#endif
}

// Byte i of two words.
struct EightBytes {
    uint32_t word[2];

    FLUX2_BOTH uint32_t operator[](int i) const { return word[i / 4] >> i % 4 * 8 & 0xff; }
};

FLUX2_BOTH EightBytes eight_bytes(const uint8_t* p) {
    return {{four_bytes(p), four_bytes(p + 4)}};
}

// ---- Types: values and bytes of a block; values [first, first + 8) of it, first a multiple of 8
// ----

struct Q8_0 {
    static constexpr int kValues = 32, kBytes = 34;

    FLUX2_BOTH static void eight(const uint8_t* block, int first, float (&y)[8]) {
        const float d = half_at(block);
        const EightBytes q = eight_bytes(block + 2 + first);
        for (int i = 0; i < 8; ++i) {
            y[i] = static_cast<float>(static_cast<int8_t>(q[i])) * d;
        }
    }
};

// The lower half of a byte is one of the first 16 values, the upper one of the last.
struct Q4_0 {
    static constexpr int kValues = 32, kBytes = 18;

    FLUX2_BOTH static void eight(const uint8_t* block, int first, float (&y)[8]) {
        const float d = half_at(block);
        const EightBytes q = eight_bytes(block + 2 + first % 16);
        const int shift = first / 16 * 4;
        for (int i = 0; i < 8; ++i) {
            y[i] = static_cast<float>(static_cast<int>(q[i] >> shift & 15) - 8) * d;
        }
    }
};

struct Q5_0 {
    static constexpr int kValues = 32, kBytes = 22;

    FLUX2_BOTH static void eight(const uint8_t* block, int first, float (&y)[8]) {
        const float d = half_at(block);
        const uint32_t high = four_bytes(block + 2) >> first;
        const EightBytes q = eight_bytes(block + 6 + first % 16);
        const int shift = first / 16 * 4;
        for (int i = 0; i < 8; ++i) {
            const uint32_t value = (q[i] >> shift & 15) | (high >> i & 1) << 4;
            y[i] = static_cast<float>(static_cast<int>(value) - 16) * d;
        }
    }
};

// Scale and minimum of 32 values each, 6 bits of either, in 12 bytes.
struct ScaleAndMin {
    float scale, min;
};

FLUX2_BOTH ScaleAndMin scale_and_min(const uint8_t* block, int group) {
    const uint8_t* s = block + 4;
    const int low = group % 4;
    uint32_t scale = s[low] & 63;
    uint32_t min = s[low + 4] & 63;
    if (group >= 4) {
        scale = (s[low + 8] & 15u) | s[low] >> 6 << 4;
        min = s[low + 8] >> 4 | s[low + 4] >> 6 << 4;
    }
    return {half_at(block) * static_cast<float>(scale),
            half_at(block + 2) * static_cast<float>(min)};
}

// 64 values are the lower, then the upper halves of 32 bytes.
struct Q4_K {
    static constexpr int kValues = 256, kBytes = 144;

    FLUX2_BOTH static void eight(const uint8_t* block, int first, float (&y)[8]) {
        const int group = first / 32;
        const ScaleAndMin s = scale_and_min(block, group);
        const EightBytes q = eight_bytes(block + 16 + group / 2 * 32 + first % 32);
        const int shift = group % 2 * 4;
        for (int i = 0; i < 8; ++i) {
            y[i] = s.scale * static_cast<float>(q[i] >> shift & 15) - s.min;
        }
    }
};

struct Q5_K {
    static constexpr int kValues = 256, kBytes = 176;

    FLUX2_BOTH static void eight(const uint8_t* block, int first, float (&y)[8]) {
        const int group = first / 32;
        const ScaleAndMin s = scale_and_min(block, group);
        const EightBytes high = eight_bytes(block + 16 + first % 32);
        const EightBytes q = eight_bytes(block + 48 + group / 2 * 32 + first % 32);
        const int shift = group % 2 * 4;
        for (int i = 0; i < 8; ++i) {
            const uint32_t value = (q[i] >> shift & 15) | (high[i] >> group & 1) << 4;
            y[i] = s.scale * static_cast<float>(value) - s.min;
        }
    }
};

// 128 values are the lower halves of 64 bytes, then the upper ones; 16 have a scale.
struct Q6_K {
    static constexpr int kValues = 256, kBytes = 210;

    FLUX2_BOTH static void eight(const uint8_t* block, int first, float (&y)[8]) {
        const int part = first / 128;      // half of the block
        const int row = first % 128 / 32;  // 32 of its values
        const int column = first % 32;
        const EightBytes q = eight_bytes(block + part * 64 + row % 2 * 32 + column);
        const EightBytes high = eight_bytes(block + 128 + part * 32 + column);
        const float scale =
            half_at(block + 208) * static_cast<float>(static_cast<int8_t>(block[192 + first / 16]));
        for (int i = 0; i < 8; ++i) {
            const uint32_t value = (q[i] >> row / 2 * 4 & 15) | (high[i] >> row * 2 & 3) << 4;
            y[i] = scale * static_cast<float>(static_cast<int>(value) - 32);
        }
    }
};

// Types without blocks: eight values are one.
struct PlainF16 {
    static constexpr int kValues = 8, kBytes = 16;

    FLUX2_BOTH static void eight(const uint8_t* block, int, float (&y)[8]) {
        for (int i = 0; i < 8; ++i) {
            y[i] = half_at(block + 2 * i);
        }
    }
};

struct PlainF32 {
    static constexpr int kValues = 8, kBytes = 32;

    FLUX2_BOTH static void eight(const uint8_t* block, int, float (&y)[8]) {
#ifdef __CUDA_ARCH__
        for (int i = 0; i < 8; ++i) {
            y[i] = reinterpret_cast<const float*>(block)[i];
        }
#else
        std::memcpy(y, block, sizeof(y));
#endif
    }
};

}  // namespace flux2::cuda
