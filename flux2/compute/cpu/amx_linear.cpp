#include "compute/cpu/amx_linear.hpp"

#include "compute/cpu/amx_convert.hpp"
#include "compute/cpu/amx_tiles.hpp"
#include "compute/cpu/lanes.hpp"
#include "compute/cpu/values.hpp"
#include "compute/plain/token_nodes.hpp"
#include "compute/shared_work.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace flux2::cpu {
namespace {

constexpr int64_t kPairRows = 2 * kAmxRows;        // of a product
constexpr int64_t kPairColumns = 2 * kAmxColumns;  // of a product
constexpr int64_t kQ8Block = 32 + 2;               // bytes: a scale in F16, then the values

// Where value i of column j lies in a tile on the right.
int64_t place_of(int64_t i, int64_t j) {
    return i / 2 * 2 * kAmxColumns + 2 * j + i % 2;
}

// ---- x -> tiles of BF16 [in, n rounded up to pairs] ----

void make_rows(ggml_tensor* dst, int, int nth, void* work) {
    const ggml_tensor* x = dst->src[0];
    const int64_t stride = static_cast<int64_t>(x->nb[1] / sizeof(float));
    share_items(work, dst->ne[1] / kAmxRows, nth, [&](int64_t tile) {
        const int64_t first = tile * kAmxRows;
        make_amx_rows(values(x) + first * stride, stride,
                      std::clamp<int64_t>(x->ne[1] - first, 0, kAmxRows), dst->ne[0] / kAmxInner,
                      static_cast<uint16_t*>(dst->data) + first * dst->ne[0]);
    });
}

// ---- Rows times columns ----

// Columns that are multiplied with all rows at once, a part of their inner dimension at a time:
// together with 32 rows their tiles fit the second cache.
constexpr int64_t kColumnsAtOnce = 128;
constexpr int64_t kTilesAtOnce = 96;  // along the inner dimension

class Product {
  public:
    explicit Product(ggml_tensor* y)
        : y_(y),
          w_(y->src[0]),
          rows_(y->src[1]),
          n_tiles_(rows_->ne[0] / kAmxInner),
          tiles_(aligned_scratch<uint16_t>(w_->type == GGML_TYPE_BF16
                                               ? 0
                                               : kColumnsAtOnce / kAmxColumns * kTilesAtOnce *
                                                     kAmxTileSize)) {}

    void run(int64_t first_column, int64_t n_columns) {
        for (int64_t tile = 0; tile < n_tiles_; tile += kTilesAtOnce) {
            const int64_t n = std::min(kTilesAtOnce, n_tiles_ - tile);
            const Columns columns = read_columns(first_column, n_columns, tile, n);
            for (int64_t row = 0; row < y_->ne[1]; row += kPairRows) {
                for (int64_t column = 0; column < n_columns; column += kPairColumns) {
                    multiply_pair(row, first_column + column, columns.pair_at(column), tile, n);
                }
            }
        }
    }

  private:
    // Tiles of BF16 on the right.
    struct Columns {
        const uint16_t* tiles;
        int64_t distance;  // from those of 16 columns to the next

        Columns pair_at(int64_t column) const {
            return {tiles + column / kAmxColumns * distance, distance};
        }
    };

    // Those of BF16 matrices are where they lie.
    Columns read_columns(int64_t first, int64_t n_columns, int64_t tile, int64_t n) const {
        const int64_t at = first / kAmxColumns * n_tiles_ + tile;
        if (w_->type == GGML_TYPE_BF16) {
            return {static_cast<const uint16_t*>(w_->data) + at * kAmxTileSize,
                    n_tiles_ * kAmxTileSize};
        }
        for (int64_t i = 0; i < n_columns / kAmxColumns; ++i) {
            expand_amx_q8(static_cast<const int8_t*>(w_->data) + (at + i * n_tiles_) * kAmxQ8Bytes,
                          n, tiles_.get() + i * n * kAmxTileSize);
        }
        return {tiles_.get(), n * kAmxTileSize};
    }

    void multiply_pair(int64_t row, int64_t column, const Columns& columns, int64_t tile,
                       int64_t n) {
        float* results = values(y_) + row * y_->ne[0] + column;
        AmxProduct m = {.rows = static_cast<const uint16_t*>(rows_->data) + row * rows_->ne[0] +
                                tile * kAmxTileSize,
                        .rows_distance = kAmxRows * rows_->ne[0],
                        .columns = columns.tiles,
                        .columns_distance = columns.distance,
                        .n_tiles = n,
                        .results = results,
                        .stride = y_->ne[0],
                        .adds = tile > 0};
        const int64_t n_rows = std::min(kPairRows, y_->ne[1] - row);
        if (n_rows == kPairRows) {
            multiply(m);
            return;
        }
        m.results = some_.data();
        m.stride = kPairColumns;
        m.adds = false;
        multiply(m);
        for (int64_t i = 0; i < n_rows * kPairColumns; ++i) {
            float& to = results[i / kPairColumns * y_->ne[0] + i % kPairColumns];
            to = some_[static_cast<size_t>(i)] + (tile > 0 ? to : 0);
        }
    }

    ggml_tensor* y_;
    const ggml_tensor *w_, *rows_;
    int64_t n_tiles_;  // along the inner dimension
    AlignedScratch<uint16_t> tiles_;
    alignas(kCacheLine) std::array<float, kPairRows * kPairColumns> some_;  // of the last rows
};

void multiply_tiles(ggml_tensor* dst, int, int nth, void* work) {
    const AmxThread thread;
    Product product(dst);
    share_pieces(work, dst->ne[0] / kPairColumns, nth, {.most = kColumnsAtOnce / kPairColumns},
                 [&](int64_t begin, int64_t end) {
                     product.run(begin * kPairColumns, (end - begin) * kPairColumns);
                 });
}

const OwnOperation kMakeRows = {"cpu amx rows", make_rows};

}  // namespace

bool suits_amx(const ggml_tensor* matrix) {
    return has_amx() && (matrix->type == GGML_TYPE_Q8_0 || matrix->type == GGML_TYPE_BF16) &&
           ggml_is_matrix(matrix) && matrix->ne[0] % kAmxInner == 0 &&
           matrix->ne[1] % kPairColumns == 0;
}

void repack_amx(std::span<const std::byte> rows, ggml_tensor* matrix) {
    const int64_t n_tiles = matrix->ne[0] / kAmxInner;
    const bool is_q8 = matrix->type == GGML_TYPE_Q8_0;
    const int64_t block_bytes = is_q8 ? kQ8Block : kAmxInner * 2;
    const int64_t tile_bytes = kAmxColumns * block_bytes;
    auto* to = static_cast<std::byte*>(matrix->data);
    for (int64_t first = 0; first < matrix->ne[1]; first += kAmxColumns) {
        for (int64_t tile = 0; tile < n_tiles; ++tile, to += tile_bytes) {
            for (int64_t column = 0; column < kAmxColumns; ++column) {
                const std::byte* block =
                    rows.data() + ((first + column) * n_tiles + tile) * block_bytes;
                if (is_q8) {
                    std::copy_n(block, 2, to + kAmxTileSize + 2 * column);
                    for (int64_t i = 0; i < kAmxInner; ++i) {
                        to[place_of(i, column)] = block[2 + i];
                    }
                } else {
                    for (int64_t i = 0; i < kAmxInner; ++i) {
                        std::copy_n(block + 2 * i, 2, to + 2 * place_of(i, column));
                    }
                }
            }
        }
    }
}

ggml_tensor* linear_amx(Graph& g, ggml_tensor* w, ggml_tensor* x) {
    ggml_tensor* rows = own_node(
        g, {kMakeRows, {GGML_TYPE_BF16}, {x->ne[0], round_up(x->ne[1], kPairRows), 1, 1}}, {x});
    return own::linear(g, w, x, {.function = multiply_tiles}, {}, rows);
}

}  // namespace flux2::cpu
