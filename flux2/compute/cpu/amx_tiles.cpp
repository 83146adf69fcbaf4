#include "compute/cpu/amx_tiles.hpp"

#include "base/system.hpp"
#include "compute/cpu/instructions.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

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

constexpr int64_t kLine = 64;  // bytes of a tile's row

// Adds the products of two tiles of rows and two of columns to the sums. The columns' tiles stay.
FLUX2_INLINE void add_products(const uint16_t* rows, int64_t rows_distance, const uint16_t* columns,
                               int64_t columns_distance) {
    load_tile<6>(columns, kLine);
    load_tile<4>(rows, kLine);
    add_product<0, 4, 6>();
    load_tile<7>(columns + columns_distance, kLine);
    add_product<1, 4, 7>();
    load_tile<5>(rows + rows_distance, kLine);
    add_product<2, 5, 6>();
    add_product<3, 5, 7>();
}

// The same with the columns of the call before.
FLUX2_INLINE void add_products(const uint16_t* rows, int64_t rows_distance) {
    load_tile<4>(rows, kLine);
    add_product<0, 4, 6>();
    add_product<1, 4, 7>();
    load_tile<5>(rows + rows_distance, kLine);
    add_product<2, 5, 6>();
    add_product<3, 5, 7>();
}

FLUX2_INLINE void clear_sums() {
    clear_tile<0>();
    clear_tile<1>();
    clear_tile<2>();
    clear_tile<3>();
}

FLUX2_INLINE void load_sums(const AmxProduct& m) {
    const int64_t stride = m.stride * static_cast<int64_t>(sizeof(float));
    const float* below = m.results + kAmxRows * m.stride;
    load_tile<0>(m.results, stride);
    load_tile<1>(m.results + kAmxColumns, stride);
    load_tile<2>(below, stride);
    load_tile<3>(below + kAmxColumns, stride);
}

FLUX2_INLINE void store_sums(float* results, int64_t values_of_row) {
    const int64_t stride = values_of_row * static_cast<int64_t>(sizeof(float));
    float* below = results + kAmxRows * values_of_row;
    store_tile<0>(results, stride);
    store_tile<1>(results + kAmxColumns, stride);
    store_tile<2>(below, stride);
    store_tile<3>(below + kAmxColumns, stride);
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
    if (m.adds) {
        load_sums(m);
    } else {
        clear_sums();
    }
    for (int64_t tile = 0; tile < m.n_tiles * kAmxTileSize; tile += kAmxTileSize) {
        add_products(m.rows + tile, m.rows_distance, m.columns + tile, m.columns_distance);
    }
    store_sums(m.results, m.stride);
}

// Every tile is read once.
void multiply_split(const AmxProduct& m) {
    const int64_t rest = m.n_tiles * kAmxTileSize;
    clear_sums();
    for (int64_t tile = 0; tile < rest; tile += kAmxTileSize) {
        const uint16_t* rows = m.rows + tile;
        const uint16_t* columns = m.columns + tile;
        add_products(rows, m.rows_distance, columns + rest, m.columns_distance);
        load_tile<6>(columns, kLine);
        add_product<0, 4, 6>();
        load_tile<7>(columns + m.columns_distance, kLine);
        add_product<1, 4, 7>();
        add_product<2, 5, 6>();
        add_product<3, 5, 7>();
        add_products(rows + rest, m.rows_distance);
    }
    store_sums(m.results, m.stride);
}

void convolve(const AmxConvolution& m) {
    clear_sums();
    int64_t tile = 0;
    const auto* next = reinterpret_cast<const std::byte*>(m.next_columns);
    for (int64_t i = 0; i < m.n_planes; ++i) {
        const uint16_t* plane = m.pixels + i * 2 * m.plane;
        for (int64_t y = 0; y < m.size; ++y) {
            for (int64_t x = 0; x < m.size; ++x, tile += kAmxTileSize) {
                const uint16_t* pixels = plane + y * m.row + x * kAmxInner;
                if (m.columns_rest != nullptr) {
                    add_products(pixels, m.pixels_distance, m.columns_rest + tile,
                                 m.columns_distance);
                }
                add_products(pixels, m.pixels_distance, m.columns + tile, m.columns_distance);
                add_products(pixels + m.plane, m.pixels_distance);
                for (int64_t line = 0; line < m.n_cache_lines; ++line, next += kLine) {
                    __builtin_prefetch(next, /*rw=*/0, /*locality=*/2);
                }
            }
        }
    }
    store_sums(m.results, 2 * kAmxColumns);
}

#else

bool has_amx() {
    return false;
}

// Never called: has_amx() is false.

AmxThread::AmxThread() : before_() {}

AmxThread::~AmxThread() {}

void multiply(const AmxProduct&) {}

void multiply_split(const AmxProduct&) {}

void convolve(const AmxConvolution&) {}

#endif

}  // namespace flux2::cpu
