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

constexpr int64_t kInner = 512;  // values that are multiplied at once: whole blocks of every type

// ---- x -> codes [bytes of Row * in / 32, n]: parts of 512 values, each of all rows ----

template <typename Row>
void make_rows(ggml_tensor* dst, int, int nth, void* work) {
    const ggml_tensor* x = dst->src[0];
    const int64_t stride = static_cast<int64_t>(x->nb[1] / sizeof(float));
    const int64_t n_rows = dst->ne[1];
    share_items(work, n_rows, nth, [&](int64_t row) {
        for (int64_t first = 0; first < x->ne[0]; first += kInner) {
            const int64_t n = std::min(kInner, x->ne[0] - first);
            round_to_codes(values(x) + row * stride + first, n,
                           static_cast<Row*>(dst->data) + (first * n_rows + row * n) / kCodeBlock);
        }
    });
}

// ---- Rows times columns ----

constexpr int64_t kColumns = 4 * kCodeColumns;  // of a tile

template <typename Row, typename Panel>
class Product {
  public:
    explicit Product(ggml_tensor* y)
        : y_(y),
          w_(y->src[0]),
          rows_(static_cast<const Row*>(y->src[1]->data)),
          panels_(aligned_scratch<Panel>(kColumns / kCodeColumns * kInner / kCodeBlock)) {}

    void run(int nth, void* work) {
        share_tiles(work, *y_, kColumns, nth, [&](const ColumnTile& tile) { multiply_tile(tile); });
    }

  private:
    // At a time: their rows, 144 or 136 KB, stay in the L2 cache beside a tile.
    static constexpr int64_t kTokens = sizeof(typename Row::Code) == 1 ? 192 : 128;

    void multiply_tile(const ColumnTile& tile) {
        for (int64_t first = 0; first < w_->ne[0]; first += kInner) {
            const int64_t n_blocks = std::min(kInner, w_->ne[0] - first) / kCodeBlock;
            read_columns(tile, first, n_blocks);
            for (int64_t done = 0; done < tile.n_tokens; done += kTokens) {
                const int64_t token = tile.token + done;
                multiply(CodeProduct<Row, Panel>{
                    .rows = rows_ + first / kCodeBlock * y_->ne[1] + token * n_blocks,
                    .row_stride = n_blocks,
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
    const Row* rows_;
    AlignedScratch<Panel> panels_;
};

template <typename Row, typename Panel>
void multiply_codes(ggml_tensor* y, int, int nth, void* work) {
    Product<Row, Panel>(y).run(nth, work);
}

template <typename Row>
const OwnOperation kMakeRows = {"cpu codes", make_rows<Row>};

template <typename Row, typename Panel>
ggml_tensor* linear_of(Graph& g, ggml_tensor* w, ggml_tensor* x) {
    constexpr auto kRowBytes = static_cast<int64_t>(sizeof(Row));
    ggml_tensor* rows = own_node(
        g, {kMakeRows<Row>, {GGML_TYPE_I8}, {x->ne[0] / kCodeBlock * kRowBytes, x->ne[1], 1, 1}},
        {x});
    return own::linear(g, w, x, {.function = multiply_codes<Row, Panel>}, {}, rows);
}

}  // namespace

bool is_multiplied_as_codes(ggml_type type) {
    // ggml repacks Q4_0 for dot products, which is a third faster.
    const bool is_repacked = type == GGML_TYPE_Q4_0 && has_arm_dot();
    const int bits = code_bits(type);
    return bits > 0 && bits <= most_code_bits() && !is_repacked;
}

bool is_multiplied_as_wide_codes(ggml_type type) {
    return multiplies_wide_codes() && has_wide_codes(type);
}

bool suits_codes(const ggml_tensor* matrix) {
    return (is_multiplied_as_codes(matrix->type) || is_multiplied_as_wide_codes(matrix->type)) &&
           ggml_is_matrix(matrix) && matrix->ne[1] % kCodeColumns == 0;
}

ggml_tensor* linear_in_codes(Graph& g, ggml_tensor* w, ggml_tensor* x) {
    return is_multiplied_as_wide_codes(w->type) ? linear_of<WideRowCodes, WidePanelCodes>(g, w, x)
                                                : linear_of<RowCodes, PanelCodes>(g, w, x);
}

}  // namespace flux2::cpu
