#include "compute/cpu/code_linear.hpp"

#include "compute/cpu/code_panels.hpp"
#include "compute/cpu/code_panels_forms.hpp"
#include "compute/cpu/column_codes.hpp"
#include "compute/cpu/column_tiles.hpp"
#include "compute/cpu/values.hpp"
#include "compute/plain/token_nodes.hpp"
#include "compute/shared_work.hpp"

#include <algorithm>
#include <cstddef>

namespace flux2::cpu {
namespace {

constexpr int64_t kRowBytes = sizeof(RowCodes);

// ---- x -> codes [48 * in / 32, n] ----

void make_rows(ggml_tensor* dst, int, int nth, void* work) {
    const ggml_tensor* x = dst->src[0];
    const int64_t stride = static_cast<int64_t>(x->nb[1] / sizeof(float));
    share_items(work, dst->ne[1], nth, [&](int64_t row) {
        round_to_codes(
            values(x) + row * stride, x->ne[0],
            reinterpret_cast<RowCodes*>(static_cast<std::byte*>(dst->data) + row * dst->ne[0]));
    });
}

// ---- Rows times columns ----

constexpr int64_t kColumns = 4 * kCodeColumns;  // of a tile
constexpr int64_t kInner = 512;                 // likewise its rows: whole blocks of every type
constexpr int64_t kTokens = 192;                // whose rows stay in the L2 cache beside a tile

class Product {
  public:
    explicit Product(ggml_tensor* y)
        : y_(y),
          w_(y->src[0]),
          rows_(static_cast<const RowCodes*>(y->src[1]->data)),
          row_stride_(y->src[1]->ne[0] / kRowBytes),
          panels_(aligned_scratch<PanelCodes>(kColumns / kCodeColumns * kInner / kCodeBlock)) {}

    void run(int nth, void* work) {
        share_tiles(work, *y_, kColumns, nth, [&](const ColumnTile& tile) { multiply_tile(tile); });
    }

  private:
    void multiply_tile(const ColumnTile& tile) {
        for (int64_t first = 0; first < w_->ne[0]; first += kInner) {
            const int64_t n_blocks = std::min(kInner, w_->ne[0] - first) / kCodeBlock;
            read_columns(tile, first, n_blocks);
            for (int64_t done = 0; done < tile.n_tokens; done += kTokens) {
                const int64_t token = tile.token + done;
                multiply({.rows = rows_ + token * row_stride_ + first / kCodeBlock,
                          .row_stride = row_stride_,
                          .n_rows = std::min(kTokens, tile.n_tokens - done),
                          .n_blocks = n_blocks,
                          .panels = panels_.get(),
                          .n_panels = tile.n_columns / kCodeColumns,
                          .bits = code_bits(w_->type),
                          .in_halves = has_half_scales(w_->type),
                          .results = values(y_) + token * y_->ne[0] + tile.column,
                          .result_stride = y_->ne[0],
                          .adds = first > 0});
            }
        }
    }

    void read_columns(const ColumnTile& tile, int64_t first, int64_t n_blocks) {
        const char* from = static_cast<const char*>(w_->data) + ggml_row_size(w_->type, first);
        for (int64_t i = 0; i < tile.n_columns; ++i) {
            read_codes(w_->type, from + static_cast<size_t>(tile.column + i) * w_->nb[1],
                       n_blocks * kCodeBlock, panels_.get() + i / kCodeColumns * n_blocks,
                       i % kCodeColumns);
        }
    }

    ggml_tensor* y_;
    const ggml_tensor* w_;
    const RowCodes* rows_;
    int64_t row_stride_;  // blocks
    AlignedScratch<PanelCodes> panels_;
};

void multiply_codes(ggml_tensor* y, int, int nth, void* work) {
    Product(y).run(nth, work);
}

const OwnOperation kMakeRows = {"cpu codes", make_rows};

}  // namespace

bool is_multiplied_as_codes(ggml_type type) {
    // ggml repacks Q4_0 for dot products, which is a third faster.
    const bool is_repacked = type == GGML_TYPE_Q4_0 && has_arm_dot();
    const int bits = code_bits(type);
    return bits > 0 && bits <= most_code_bits() && !is_repacked;
}

bool suits_codes(const ggml_tensor* matrix) {
    return is_multiplied_as_codes(matrix->type) && ggml_is_matrix(matrix) &&
           matrix->ne[1] % kCodeColumns == 0;
}

ggml_tensor* linear_in_codes(Graph& g, ggml_tensor* w, ggml_tensor* x) {
    ggml_tensor* rows = own_node(
        g, {kMakeRows, {GGML_TYPE_I8}, {x->ne[0] / kCodeBlock * kRowBytes, x->ne[1], 1, 1}}, {x});
    return own::linear(g, w, x, {.function = multiply_codes}, {}, rows);
}

}  // namespace flux2::cpu
