#include "compute/cpu/amx_tiles.hpp"

#include "base/system.hpp"
#include "compute/cpu/instructions.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#if defined(FLUX2_X86)
#include <immintrin.h>
#define FLUX2_AMX __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16,f16c")))
#endif

namespace flux2::cpu {

#if defined(FLUX2_X86)

namespace {

// What ldtilecfg reads.
struct TileShapes {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
};
static_assert(sizeof(TileShapes) == 64);

// The instructions themselves, since the functions of GCC's header do not tell the compiler which
// memory they read. Tiles 0 to 3 are sums, 4 and 5 rows, 6 and 7 columns.
template <int tile>
FLUX2_INLINE void load_tile(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(tile) : "memory");
}

template <int tile>
FLUX2_INLINE void store_tile(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(tile) : "memory");
}

template <int tile>
FLUX2_INLINE void clear_tile() {
    asm volatile("tilezero %%tmm%c0" : : "i"(tile));
}

template <int sum, int rows, int columns>
FLUX2_INLINE void add_product() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(rows), "i"(columns));
}

FLUX2_AMX void store(const __m512bh& x, uint16_t* to) {
    std::memcpy(to, &x, sizeof(x));
}

}  // namespace

bool has_amx() {
    return process_may_use_amx();
}

AmxThread::AmxThread() {
    asm volatile("sttilecfg %0" : "=m"(before_));
    TileShapes shapes;
    std::fill_n(shapes.row_bytes, 8, uint16_t{64});
    std::fill_n(shapes.rows, 8, uint8_t{16});
    asm volatile("ldtilecfg %0" : : "m"(shapes));
}

AmxThread::~AmxThread() {
    asm volatile("ldtilecfg %0" : : "m"(before_));
}

void multiply(const AmxProduct& m) {
    constexpr int64_t kLine = 64;  // bytes of a tile's row
    const int64_t stride = m.stride * static_cast<int64_t>(sizeof(float));
    float* below = m.results + kAmxRows * m.stride;
    if (m.adds) {
        load_tile<0>(m.results, stride);
        load_tile<1>(m.results + kAmxColumns, stride);
        load_tile<2>(below, stride);
        load_tile<3>(below + kAmxColumns, stride);
    } else {
        clear_tile<0>();
        clear_tile<1>();
        clear_tile<2>();
        clear_tile<3>();
    }
    const uint16_t* rows = m.rows;
    const uint16_t* columns = m.columns;
    for (int64_t i = 0; i < m.n_tiles; ++i) {
        load_tile<6>(columns, kLine);
        load_tile<4>(rows, kLine);
        add_product<0, 4, 6>();
        load_tile<7>(columns + m.columns_distance, kLine);
        add_product<1, 4, 7>();
        load_tile<5>(rows + m.rows_distance, kLine);
        add_product<2, 5, 6>();
        add_product<3, 5, 7>();
        rows += kAmxTileSize;
        columns += kAmxTileSize;
    }
    store_tile<0>(m.results, stride);
    store_tile<1>(m.results + kAmxColumns, stride);
    store_tile<2>(below, stride);
    store_tile<3>(below + kAmxColumns, stride);
}

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

#else

bool has_amx() {
    return false;
}

// Never called: has_amx() is false.

AmxThread::AmxThread() : before_() {}

AmxThread::~AmxThread() {}

void multiply(const AmxProduct&) {}

void make_amx_rows(const float*, int64_t, int64_t, int64_t, uint16_t*) {}

void expand_amx_q8(const int8_t*, int64_t, uint16_t*) {}

#endif

}  // namespace flux2::cpu
