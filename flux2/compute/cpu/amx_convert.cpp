#include "compute/cpu/amx_convert.hpp"

#include "compute/cpu/instructions.hpp"

#include <algorithm>
#include <cstring>
#include <numbers>

#if defined(FLUX2_X86)
#include "compute/cpu/x86_intrinsics.hpp"
#define FLUX2_AMX __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,f16c")))
#endif

namespace flux2::cpu {

#if defined(FLUX2_X86)

namespace {

constexpr int64_t kVector = 16;  // floats

FLUX2_AMX void store(const __m512bh& x, uint16_t* to) {
    std::memcpy(to, &x, sizeof(x));
}

}  // namespace

FLUX2_AMX void make_amx_rows(const float* from, int64_t stride, int64_t n_rows, int64_t n_tiles,
                             uint16_t* tiles) {
    for (int64_t i = 0; i < n_tiles; ++i) {
        for (int64_t row = 0; row < kAmxRows; ++row, tiles += kAmxInner) {
            if (row >= n_rows) {
                std::fill_n(tiles, kAmxInner, uint16_t{0});
                continue;
            }
            const float* x = from + row * stride + i * kAmxInner;
            store(_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + kAmxInner / 2), _mm512_loadu_ps(x)),
                  tiles);
        }
    }
}

FLUX2_AMX void expand_amx_q8(const int8_t* packed, int64_t n_tiles, uint16_t* tiles) {
    constexpr int64_t kHalf = 16;  // values of a vector
    const __m512i twice_low = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    const __m512i twice_high = _mm512_add_epi32(twice_low, _mm512_set1_epi32(8));
    for (int64_t i = 0; i < n_tiles; ++i, packed += kAmxQ8Bytes) {
        const __m512 scales = _mm512_cvtph_ps(
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(packed + kAmxTileSize)));
        const __m512 low = _mm512_permutexvar_ps(twice_low, scales);
        const __m512 high = _mm512_permutexvar_ps(twice_high, scales);
        const auto floats = [&](const int8_t* from) FLUX2_AMX {
            return _mm512_cvtepi32_ps(
                _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
        };
        for (int64_t at = 0; at < kAmxTileSize; at += 2 * kHalf, tiles += 2 * kHalf) {
            const __m512 first = _mm512_mul_ps(floats(packed + at), low);
            const __m512 second = _mm512_mul_ps(floats(packed + at + kHalf), high);
            store(_mm512_cvtne2ps_pbh(second, first), tiles);
        }
    }
}

namespace {

// The first n floats, at most 16, then zeros.
FLUX2_AMX FLUX2_INLINE __m512 load_some(const float* from, int64_t n) {
    const auto all = n >= kVector ? __mmask16{0xffff}
                                  : static_cast<__mmask16>((1u << std::max<int64_t>(n, 0)) - 1);
    return _mm512_maskz_loadu_ps(all, from);
}

// 32 floats in BF16, the first 16 in the lower half.
struct Split32 {
    __m512i rounded, rest;
};

FLUX2_AMX FLUX2_INLINE __m512i as_bits(const __m512bh& x) {
    __m512i bits;
    std::memcpy(&bits, &x, sizeof(bits));
    return bits;
}

FLUX2_AMX FLUX2_INLINE __m512 from_bf16(__m256i x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

FLUX2_AMX FLUX2_INLINE Split32 split_32(const float* from, int64_t n) {
    const __m512 low = load_some(from, n);
    const __m512 high = load_some(from + kVector, n - kVector);
    const __m512i rounded = as_bits(_mm512_cvtne2ps_pbh(high, low));
    const __m512 low_rest = _mm512_sub_ps(low, from_bf16(_mm512_castsi512_si256(rounded)));
    const __m512 high_rest = _mm512_sub_ps(high, from_bf16(_mm512_extracti64x4_epi64(rounded, 1)));
    return {rounded, as_bits(_mm512_cvtne2ps_pbh(high_rest, low_rest))};
}

}  // namespace

FLUX2_AMX void split_amx_row(const float* from, int64_t width, int64_t row, uint16_t* tiles,
                             uint16_t* rest) {
    for (int64_t i = 0; i < width; i += kAmxInner) {
        const Split32 parts = split_32(from + i, width - i);
        const int64_t at = i * kAmxRows + row * kAmxInner;
        _mm512_storeu_si512(tiles + at, parts.rounded);
        _mm512_storeu_si512(rest + at, parts.rest);
    }
}

FLUX2_AMX void split_amx_column(const float* from, int64_t width, int64_t column, uint16_t* tiles,
                                uint16_t* rest) {
    // Two values, 4 bytes, of each row of a tile.
    const __m512i places = _mm512_slli_epi32(
        _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), 4);
    for (int64_t i = 0; i < width; i += kAmxInner) {
        const Split32 parts = split_32(from + i, width - i);
        const int64_t at = i * kAmxColumns + 2 * column;
        _mm512_i32scatter_epi32(tiles + at, places, parts.rounded, 4);
        _mm512_i32scatter_epi32(rest + at, places, parts.rest, 4);
    }
}

FLUX2_AMX void make_amx_values(const float* const* rows, int64_t n_columns, uint16_t* tile) {
    const auto read = [&](const float* row) FLUX2_AMX {
        return row != nullptr ? load_some(row, n_columns) : _mm512_setzero_ps();
    };
    // Of cvtne2ps' result, 16 values of the first row, then of the second, to pairs of both.
    alignas(64) static constexpr uint16_t kPairs[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                        21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                        11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i pairs = _mm512_load_si512(kPairs);
    for (int64_t i = 0; i < kAmxInner; i += 2, tile += 2 * kAmxColumns) {
        const __m512bh both = _mm512_cvtne2ps_pbh(read(rows[i + 1]), read(rows[i]));
        _mm512_storeu_si512(tile, _mm512_permutexvar_epi16(pairs, as_bits(both)));
    }
}

namespace {

// 2^x for x <= 0 to 1e-5 of itself, a hundredth of what rounding to BF16 may change.
FLUX2_AMX FLUX2_INLINE __m512 exp2_of(__m512 x) {
    const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 r = _mm512_sub_ps(x, whole);
    __m512 sum = _mm512_fmadd_ps(_mm512_set1_ps(9.6181291e-3f), r, _mm512_set1_ps(5.5504109e-2f));
    sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(0.240226507f));
    sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(0.693147181f));
    sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(sum, whole);
}

}  // namespace

FLUX2_AMX float AmxSoftmax::add(float* scores, int64_t n, int64_t n_seen, float scale,
                                const float* mask, int64_t row, uint16_t* weights) {
    constexpr float kLowest = -1e30f;
    const __m512 factor = _mm512_set1_ps(scale);
    const __m512 log2e = _mm512_set1_ps(std::numbers::log2e_v<float>);
    __m512 most = _mm512_set1_ps(highest);
    for (int64_t i = 0; i < n_seen; i += kVector) {
        __m512 x = _mm512_mul_ps(_mm512_loadu_ps(scores + i), factor);
        if (mask != nullptr) {
            x = _mm512_fmadd_ps(load_some(mask + i, n_seen - i), log2e, x);
        }
        const __m512 lowest = _mm512_set1_ps(kLowest);
        const auto seen =
            static_cast<__mmask16>(n_seen - i >= kVector ? 0xffff : (1u << (n_seen - i)) - 1);
        // In this order a score that is not a number stays one.
        x = _mm512_mask_max_ps(lowest, seen, lowest, x);
        _mm512_storeu_ps(scores + i, x);
        most = _mm512_max_ps(most, x);
    }
    for (int64_t i = (n_seen + kVector - 1) / kVector * kVector; i < n; i += kVector) {
        _mm512_storeu_ps(scores + i, _mm512_set1_ps(kLowest));
    }
    const float before = highest;
    highest = _mm512_reduce_max_ps(most);
    const __m512 shift = _mm512_set1_ps(highest);
    __m512 sums = _mm512_setzero_ps();
    uint16_t* to = weights + row * kAmxInner;
    for (int64_t i = 0; i < n; i += 2 * kVector, to += kAmxTileSize) {
        const __m512 low = exp2_of(_mm512_sub_ps(_mm512_loadu_ps(scores + i), shift));
        const __m512 high = exp2_of(_mm512_sub_ps(_mm512_loadu_ps(scores + i + kVector), shift));
        sums = _mm512_add_ps(sums, _mm512_add_ps(low, high));
        store(_mm512_cvtne2ps_pbh(high, low), to);
    }
    const float rescale = _mm512_cvtss_f32(exp2_of(_mm512_set1_ps(before - highest)));
    sum = sum * rescale + _mm512_reduce_add_ps(sums);
    return rescale;
}

#else

// Never called: has_amx() is false.

void make_amx_rows(const float*, int64_t, int64_t, int64_t, uint16_t*) {}

void expand_amx_q8(const int8_t*, int64_t, uint16_t*) {}

void split_amx_row(const float*, int64_t, int64_t, uint16_t*, uint16_t*) {}

void split_amx_column(const float*, int64_t, int64_t, uint16_t*, uint16_t*) {}

void make_amx_values(const float* const*, int64_t, uint16_t*) {}

float AmxSoftmax::add(float*, int64_t, int64_t, float, const float*, int64_t, uint16_t*) {
    return 1;
}

#endif

}  // namespace flux2::cpu
