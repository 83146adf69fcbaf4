#include "compute/cpu/amx_linear.hpp"

#include "compute/cpu/amx_convert.hpp"
#include "compute/cpu/amx_tiles.hpp"
#include "compute/cpu/instructions.hpp"
#include "compute/cpu/lanes.hpp"
#include "compute/cpu/values.hpp"
#include "compute/plain/token_nodes.hpp"
#include "compute/shared_work.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <memory>

namespace flux2::cpu {
namespace {

constexpr int64_t kPairRows = 2 * kAmxRows;        // of a product
constexpr int64_t kPairColumns = 2 * kAmxColumns;  // of a product
constexpr int64_t kQ8Block = 32 + 2;               // bytes: a scale in F16, then the values

// Where value i of column j lies in a tile on the right.
int64_t place_of(int64_t i, int64_t j) {
    return i / 2 * 2 * kAmxColumns + 2 * j + i % 2;
}

// How many numbers in BF16 a value is the sum of.
int64_t count_parts(const ggml_tensor* w) {
    return w->type == GGML_TYPE_F16 ? 2 : 1;
}

// ---- x -> tiles of BF16 [parts * in, n rounded up to pairs] ----
//
// Of every 16 rows the tiles of all first parts, then those of second ones.

void make_rows(ggml_tensor* dst, int, int nth, void* work) {
    const ggml_tensor* x = dst->src[0];
    const int64_t n_inner = x->ne[0];
    const int64_t stride = static_cast<int64_t>(x->nb[1] / sizeof(float));
    share_items(work, dst->ne[1] / kAmxRows, nth, [&](int64_t tile) {
        const int64_t first = tile * kAmxRows;
        const float* from = values(x) + first * stride;
        uint16_t* to = static_cast<uint16_t*>(dst->data) + first * dst->ne[0];
        const int64_t n_rows = std::clamp<int64_t>(x->ne[1] - first, 0, kAmxRows);
        if (dst->ne[0] == n_inner) {
            make_amx_rows(from, stride, n_rows, n_inner / kAmxInner, to);
            return;
        }
        if (n_rows < kAmxRows) {
            std::fill_n(to, kAmxRows * dst->ne[0], uint16_t{0});
        }
        for (int64_t row = 0; row < n_rows; ++row) {
            split_amx_row(from + row * stride, n_inner, row, to, to + kAmxRows * n_inner);
        }
    });
}

// ---- Matrices that are not repacked ----

// Floats to BF16; what rounding left of them replaces them.
FLUX2_INLINE void round_to_bf16(float* floats, int64_t n, uint16_t* to) {
    for (int64_t i = 0; i < n; ++i) {
        const auto bits = std::bit_cast<uint32_t>(floats[i]);
        const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u;
        to[i] = static_cast<uint16_t>(rounded >> 16);
        floats[i] -= std::bit_cast<float>(rounded);
    }
}

// 32 values of each of 16 rows, `stride` apart, as columns of a tile.
void make_tile(const uint16_t* rows, int64_t stride, uint16_t* tile) {
    for (int64_t i = 0; i < kAmxInner; i += 2) {
        for (int64_t column = 0; column < kAmxColumns; ++column, tile += 2) {
            std::copy_n(rows + column * stride + i, 2, tile);
        }
    }
}

// ---- Rows times columns ----

// Columns that are multiplied with all rows at once, a part of their inner dimension at a time:
// together with 32 rows their tiles fit the second cache.
constexpr int64_t kColumnsAtOnce = 128;
constexpr int64_t kTilesAtOnce = 96;  // along the inner dimension

class Product {
  public:
    enum class Source {
        tiles,  // the matrix was repacked
        rows,
    };

    Product(ggml_tensor* y, Source source)
        : y_(y),
          w_(y->src[0]),
          rows_(y->src[1]),
          source_(source),
          n_tiles_(w_->ne[0] / kAmxInner),
          n_parts_(rows_->ne[0] / w_->ne[0]),
          tiles_(aligned_scratch<uint16_t>(reads_in_place()
                                               ? 0
                                               : kColumnsAtOnce / kAmxColumns * kTilesAtOnce *
                                                     n_parts_ * kAmxTileSize)),
          floats_(scratch(source == Source::rows ? kTilesAtOnce * kAmxInner : 0)),
          halves_(aligned_scratch<uint16_t>(
              source == Source::rows ? n_parts_ * kAmxColumns * kTilesAtOnce * kAmxInner : 0)) {}

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

    bool reads_in_place() const { return source_ == Source::tiles && w_->type == GGML_TYPE_BF16; }

    Columns read_columns(int64_t first, int64_t n_columns, int64_t tile, int64_t n) const {
        if (source_ == Source::rows) {
            return read_rows(first, n_columns, tile, n);
        }
        const int64_t at = first / kAmxColumns * n_tiles_ + tile;
        if (reads_in_place()) {
            return {static_cast<const uint16_t*>(w_->data) + at * kAmxTileSize,
                    n_tiles_ * kAmxTileSize};
        }
        for (int64_t i = 0; i < n_columns / kAmxColumns; ++i) {
            expand_amx_q8(static_cast<const int8_t*>(w_->data) + (at + i * n_tiles_) * kAmxQ8Bytes,
                          n, tiles_.get() + i * n * kAmxTileSize);
        }
        return {tiles_.get(), n * kAmxTileSize};
    }

    // Of every 16 columns the tiles of all first parts, then those of second ones.
    Columns read_rows(int64_t first, int64_t n_columns, int64_t tile, int64_t n) const {
        const int64_t part_size = n * kAmxTileSize;
        for (int64_t i = 0; i < n_columns; i += kAmxColumns) {
            for (int64_t column = 0; column < kAmxColumns; ++column) {
                read_row(first + i + column, tile * kAmxInner, n * kAmxInner,
                         halves_.get() + column * n * kAmxInner);
            }
            uint16_t* to = tiles_.get() + i / kAmxColumns * n_parts_ * part_size;
            for (int64_t j = 0; j < n_parts_ * n; ++j) {
                make_tile(halves_.get() + j / n * part_size + j % n * kAmxInner, n * kAmxInner,
                          to + j * kAmxTileSize);
            }
        }
        return {tiles_.get(), n_parts_ * part_size};
    }

    // n values of a row of the matrix; second parts are those of 16 rows further on.
    void read_row(int64_t row, int64_t first, int64_t n, uint16_t* to) const {
        const auto* from = static_cast<const std::byte*>(w_->data) +
                           static_cast<size_t>(row) * w_->nb[1] + ggml_row_size(w_->type, first);
        ggml_get_type_traits(w_->type)->to_float(from, floats_.get(), n);
        for (int64_t part = 0; part < n_parts_; ++part, to += kAmxColumns * n) {
            call_best<round_to_bf16>(floats_.get(), n, to);
        }
    }

    void multiply_pair(int64_t row, int64_t column, const Columns& columns, int64_t tile,
                       int64_t n) {
        float* results = values(y_) + row * y_->ne[0] + column;
        const int64_t n_rows = std::min(kPairRows, y_->ne[1] - row);
        const bool whole = n_rows == kPairRows;
        AmxProduct m = {.rows = static_cast<const uint16_t*>(rows_->data) + row * rows_->ne[0] +
                                tile * kAmxTileSize,
                        .rows_distance = kAmxRows * rows_->ne[0],
                        .columns = columns.tiles,
                        .columns_distance = columns.distance,
                        .n_tiles = n,
                        .results = whole ? results : some_.data(),
                        .stride = whole ? y_->ne[0] : kPairColumns,
                        .adds = whole && tile > 0};
        multiply(m);
        if (n_parts_ == 2) {
            m.adds = true;
            m.columns += n * kAmxTileSize;
            multiply(m);
            m.columns = columns.tiles;
            m.rows += n_tiles_ * kAmxTileSize;
            multiply(m);
        }
        for (int64_t i = 0; !whole && i < n_rows * kPairColumns; ++i) {
            float& to = results[i / kPairColumns * y_->ne[0] + i % kPairColumns];
            to = some_[static_cast<size_t>(i)] + (tile > 0 ? to : 0);
        }
    }

    ggml_tensor* y_;
    const ggml_tensor *w_, *rows_;
    Source source_;
    int64_t n_tiles_;  // along the inner dimension
    int64_t n_parts_;  // numbers that each value is the sum of
    AlignedScratch<uint16_t> tiles_;
    std::unique_ptr<float[]> floats_;  // of a row of the matrix
    AlignedScratch<uint16_t> halves_;  // of 16 rows
    alignas(kCacheLine) std::array<float, kPairRows * kPairColumns> some_;  // of the last rows
};

template <Product::Source source>
void multiply_tiles(ggml_tensor* dst, int, int nth, void* work) {
    const AmxThread thread;
    Product product(dst, source);
    share_pieces(work, dst->ne[0] / kPairColumns, nth, {.most = kColumnsAtOnce / kPairColumns},
                 [&](int64_t begin, int64_t end) {
                     product.run(begin * kPairColumns, (end - begin) * kPairColumns);
                 });
}

const OwnOperation kMakeRows = {"cpu amx rows", make_rows};

template <Product::Source source>
ggml_tensor* linear(Graph& g, ggml_tensor* w, ggml_tensor* x) {
    const int64_t n_parts = source == Product::Source::rows ? count_parts(w) : 1;
    ggml_tensor* rows = own_node(
        g, {kMakeRows, {GGML_TYPE_BF16}, {n_parts * x->ne[0], round_up(x->ne[1], kPairRows), 1, 1}},
        {x});
    return own::linear(g, w, x, {.function = multiply_tiles<source>}, {}, rows);
}

bool has_right_size(const ggml_tensor* matrix) {
    return has_amx() && ggml_is_matrix(matrix) && matrix->ne[0] % kAmxInner == 0 &&
           matrix->ne[1] % kPairColumns == 0;
}

}  // namespace

bool suits_amx(const ggml_tensor* matrix) {
    return has_right_size(matrix) &&
           (matrix->type == GGML_TYPE_Q8_0 || matrix->type == GGML_TYPE_BF16);
}

bool suits_amx_in_place(const ggml_tensor* matrix) {
    return has_right_size(matrix) && !suits_amx(matrix) && matrix->type != GGML_TYPE_F32 &&
           ggml_get_type_traits(matrix->type)->to_float != nullptr;
}

int64_t amx_rows_together() {
    return kAmxColumns;
}

void repack_amx(std::span<const std::byte> rows, int64_t first_row, ggml_tensor* matrix) {
    const int64_t n_tiles = matrix->ne[0] / kAmxInner;
    const bool is_q8 = matrix->type == GGML_TYPE_Q8_0;
    const int64_t block_bytes = is_q8 ? kQ8Block : kAmxInner * 2;
    const int64_t tile_bytes = kAmxColumns * block_bytes;
    const int64_t row_bytes = n_tiles * block_bytes;
    const int64_t n_rows = static_cast<int64_t>(rows.size()) / row_bytes;
    auto* to = static_cast<std::byte*>(matrix->data) + first_row * row_bytes;
    for (int64_t first = 0; first < n_rows; first += kAmxColumns) {
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
    return linear<Product::Source::tiles>(g, w, x);
}

ggml_tensor* linear_amx_in_place(Graph& g, ggml_tensor* w, ggml_tensor* x) {
    return linear<Product::Source::rows>(g, w, x);
}

}  // namespace flux2::cpu
