#include "compute/cpu/q8_linear.hpp"

#include "compute/cpu/lanes.hpp"
#include "compute/cpu/matrix_tiles.hpp"
#include "compute/cpu/q8_tiles.hpp"
#include "compute/cpu/values.hpp"
#include "compute/plain/token_nodes.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace flux2::cpu {
namespace {

constexpr int64_t kBlockBytes = kQ8Values + 2;  // of Q8_0: a scale in F16, then the values

// Where value i of row or column j lies in a block of a tile or panel.
int64_t place_of(int64_t i, int64_t j) {
    return i / kQ8Group * kQ8Rows * kQ8Group + j * kQ8Group + i % kQ8Group;
}

// ---- x -> tiles, I8 [320, in / 32, n / 8], rounded up ----

// As precise as F16, in which ggml keeps such scales, but of any size.
float to_11_bits(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    return std::bit_cast<float>((bits + 0xfff + (bits >> 13 & 1)) & ~uint32_t{0x1fff});
}

void round_block(const float* x, int64_t row, int8_t* block) {
    constexpr float kMost = 127;
    constexpr float kRounds = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
    // Eight independent chains become vector code.
    std::array<float, kQ8Group> chains = {};
    for (int64_t first = 0; first < kQ8Values; first += kQ8Group) {
        for (int64_t i = 0; i < kQ8Group; ++i) {
            float& chain = chains[static_cast<size_t>(i)];
            const float size = std::abs(x[first + i]);
            chain = chain > size ? chain : size;
        }
    }
    const float most = *std::max_element(chains.begin(), chains.end());
    const float steps = most > 0 ? kMost / most : 0.0f;
    for (int64_t first = 0; first < kQ8Values; first += kQ8Group) {
        int8_t* to = block + place_of(first, row);
        for (int64_t i = 0; i < kQ8Group; ++i) {
            to[i] = static_cast<int8_t>(std::bit_cast<uint32_t>(x[first + i] * steps + kRounds));
        }
    }
    const float scale = to_11_bits(most / kMost);
    const std::array<float, 2> scales = {scale, scale};
    std::memcpy(block + kQ8Rows * kQ8Values + row * static_cast<int64_t>(sizeof(scales)),
                scales.data(), sizeof(scales));
}

void make_tiles(ggml_tensor* dst, int ith, int nth, void*) {
    const ggml_tensor* x = dst->src[0];
    const int64_t stride = static_cast<int64_t>(x->nb[1] / sizeof(float));
    for (int64_t tile = ith; tile < dst->ne[2]; tile += nth) {
        int8_t* to = static_cast<int8_t*>(dst->data) + tile * dst->ne[1] * kQ8TileBytes;
        const int64_t n = std::min(kQ8Rows, x->ne[1] - tile * kQ8Rows);
        if (n < kQ8Rows) {
            std::fill_n(to, dst->ne[1] * kQ8TileBytes, int8_t{0});
        }
        for (int64_t row = 0; row < n; ++row) {
            const float* from = values(x) + (tile * kQ8Rows + row) * stride;
            for (int64_t block = 0; block < dst->ne[1]; ++block) {
                round_block(from + block * kQ8Values, row, to + block * kQ8TileBytes);
            }
        }
    }
}

// ---- Tiles times panels ----

// How panels are distributed: enough together to read a tile seldom, few enough to stay in the
// second cache and to give every thread its share.
int64_t panels_at_once(int64_t n_panels, int n_threads) {
    constexpr int64_t kMost = 8;
    return std::clamp<int64_t>(n_panels / (4 * n_threads), 1, kMost);
}

struct Product {
    ggml_tensor* y;
    const int8_t* tiles;
    const int8_t* panels;
    int64_t n_blocks;  // of a row

    // Blocks [first, first + n) of a tile and a panel.
    void add(int64_t tile, int64_t panel, int64_t first, int64_t n) const {
        Q8Tiles m = {.tile = tiles + (tile * n_blocks + first) * kQ8TileBytes,
                     .panel = panels + (panel * n_blocks + first) * kQ8PanelBytes,
                     .n_blocks = n,
                     .results = values(y) + tile * kQ8Rows * y->ne[0] + panel * kQ8Columns,
                     .stride = y->ne[0],
                     .adds = first > 0};
        const int64_t n_rows = std::min(kQ8Rows, y->ne[1] - tile * kQ8Rows);
        if (n_rows == kQ8Rows) {
            multiply(m);
            return;
        }
        std::array<float, kQ8Rows * kQ8Columns> some;
        float* results = m.results;
        m.results = some.data();
        m.stride = kQ8Columns;
        m.adds = false;
        multiply(m);
        for (int64_t i = 0; i < n_rows * kQ8Columns; ++i) {
            float& to = results[i / kQ8Columns * y->ne[0] + i % kQ8Columns];
            to = some[static_cast<size_t>(i)] + (first > 0 ? to : 0);
        }
    }
};

void multiply_tiles(ggml_tensor* dst, int ith, int nth, void*) {
    constexpr int64_t kBlocksAtOnce = 96;  // a tile and a panel of these fit the first cache
    const ggml_tensor *w = dst->src[0], *tiles = dst->src[1];
    const Product product = {dst, static_cast<const int8_t*>(tiles->data),
                             static_cast<const int8_t*>(w->data), tiles->ne[1]};
    const int64_t n_panels = w->ne[1] / kQ8Columns;
    const int64_t together = panels_at_once(n_panels, nth);
    for (int64_t group = ith * together; group < n_panels; group += nth * together) {
        const int64_t end = std::min(group + together, n_panels);
        for (int64_t first = 0; first < product.n_blocks; first += kBlocksAtOnce) {
            const int64_t n = std::min(kBlocksAtOnce, product.n_blocks - first);
            for (int64_t tile = 0; tile < tiles->ne[2]; ++tile) {
                for (int64_t panel = group; panel < end; ++panel) {
                    product.add(tile, panel, first, n);
                }
            }
        }
    }
}

const OwnOperation kMakeTiles = {"cpu tiles", make_tiles};

}  // namespace

bool suits_q8_tiles(const ggml_tensor* matrix) {
    return has_matrix_tiles() && matrix->type == GGML_TYPE_Q8_0 && ggml_is_matrix(matrix) &&
           matrix->ne[1] % kQ8Columns == 0;
}

void repack_q8(std::span<const std::byte> blocks, ggml_tensor* matrix) {
    const int64_t n_blocks = matrix->ne[0] / kQ8Values;
    const auto* from = reinterpret_cast<const int8_t*>(blocks.data());
    auto* to = static_cast<int8_t*>(matrix->data);
    for (int64_t panel = 0; panel < matrix->ne[1] / kQ8Columns; ++panel) {
        for (int64_t block = 0; block < n_blocks; ++block, to += kQ8PanelBytes) {
            for (int64_t column = 0; column < kQ8Columns; ++column) {
                const int8_t* source =
                    from + ((panel * kQ8Columns + column) * n_blocks + block) * kBlockBytes;
                std::copy_n(source, 2, to + kQ8Columns * kQ8Values + 2 * column);
                for (int64_t i = 0; i < kQ8Values; i += kQ8Group) {
                    std::copy_n(source + 2 + i, kQ8Group, to + place_of(i, column));
                }
            }
        }
    }
}

ggml_tensor* linear_q8(Graph& g, ggml_tensor* w, ggml_tensor* x) {
    const int64_t n_tiles = round_up(x->ne[1], kQ8Rows) / kQ8Rows;
    ggml_tensor* tiles = own_node(
        g, {kMakeTiles, {GGML_TYPE_I8}, {kQ8TileBytes, x->ne[0] / kQ8Values, n_tiles, 1}}, {x});
    return own::linear(g, w, x, {.function = multiply_tiles}, {}, tiles);
}

}  // namespace flux2::cpu
