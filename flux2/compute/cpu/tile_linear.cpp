#include "compute/cpu/tile_linear.hpp"

#include "compute/cpu/amx_linear.hpp"
#include "compute/cpu/bf16_columns.hpp"
#include "compute/cpu/code_linear.hpp"
#include "compute/cpu/instructions.hpp"
#include "compute/cpu/lanes.hpp"
#include "compute/cpu/matrix_tiles.hpp"
#include "compute/cpu/unpacked_linear.hpp"
#include "compute/cpu/values.hpp"
#include "compute/plain/token_nodes.hpp"
#include "compute/shared_work.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>

namespace flux2::cpu {
namespace {

// How many numbers in BF16 a value is the sum of.
int64_t count_parts(const ggml_tensor* w) {
    return w->type == GGML_TYPE_F16 ? 2 : 1;
}

// ---- x -> tiles of BF16 [parts * in, n rounded up]: first parts of a tile, then second ones ----

void make_tiles(ggml_tensor* dst, int, int nth, void* work) {
    const ggml_tensor* x = dst->src[0];
    const int64_t n_inner = x->ne[0];
    const int64_t stride = static_cast<int64_t>(x->nb[1] / sizeof(float));
    const bool has_rest = dst->ne[0] > n_inner;
    share_items(work, dst->ne[1] / kTileRows, nth, [&](int64_t tile) {
        const int64_t first = tile * kTileRows;
        uint16_t* to = static_cast<uint16_t*>(dst->data) + first * dst->ne[0];
        const int64_t n = std::min(kTileRows, x->ne[1] - first);
        if (n < kTileRows) {
            std::fill_n(to, kTileRows * dst->ne[0], uint16_t{0});
        }
        for (int64_t row = 0; row < n; ++row) {
            uint16_t* groups = to + row * kBf16Group;
            round_to_groups(values(x) + (first + row) * stride, n_inner, kTileRows * kBf16Group,
                            groups, has_rest ? groups + kTileRows * n_inner : nullptr);
        }
    });
}

// ---- Tiles times columns ----

// Panels that are made at once, a part of the inner dimension at a time: they stay in the second
// cache beside some tiles. Two of them and a tile stay in the first.
constexpr int64_t kPanelsAtOnce = 24;
constexpr int64_t kInnerAtOnce = 1024;  // whole blocks of every type
constexpr int64_t kRowsAtOnce = 8 * kTileRows;
constexpr int64_t kPanelsInTurn = 2;

class Product {
  public:
    explicit Product(ggml_tensor* y)
        : y_(y),
          w_(y->src[0]),
          tiles_(y->src[1]),
          n_inner_(w_->ne[0]),
          n_parts_(count_parts(w_)),
          expand_(find_expand_column(w_->type)),
          floats_(scratch(expand_ == nullptr ? kInnerAtOnce : 0)),
          panels_(std::make_unique_for_overwrite<uint16_t[]>(
              static_cast<size_t>(kPanelsAtOnce * kTileColumns * kInnerAtOnce * n_parts_))) {}

    // Results of panels [first, first + n).
    void run(int64_t first, int64_t n) {
        for (int64_t inner = 0; inner < n_inner_; inner += kInnerAtOnce) {
            part_ = {first, n, inner, std::min(kInnerAtOnce, n_inner_ - inner)};
            read_columns();
            for (int64_t row = 0; row < y_->ne[1]; row += kRowsAtOnce) {
                for (int64_t i = 0; i < n; i += kPanelsInTurn) {
                    multiply_rows(row, i, std::min(i + kPanelsInTurn, n));
                }
            }
        }
    }

  private:
    // The part of the matrix that is in panels_.
    struct Part {
        int64_t panel, n_panels;
        int64_t inner, n_inner;
    };

    // The first numbers of its columns' values; second ones follow.
    uint16_t* panel(int64_t i) const {
        return panels_.get() + i * kTileColumns * part_.n_inner * n_parts_;
    }

    void read_columns() {
        for (int64_t i = 0; i < part_.n_panels * kTileColumns; ++i) {
            read_column(part_.panel * kTileColumns + i,
                        panel(i / kTileColumns) + i % kTileColumns * kBf16Group);
        }
    }

    void read_column(int64_t row, uint16_t* to) {
        const int64_t n = part_.n_inner;
        const char* from = static_cast<const char*>(w_->data) +
                           static_cast<size_t>(row) * w_->nb[1] +
                           ggml_row_size(w_->type, part_.inner);
        if (expand_ != nullptr) {
            expand_(from, n, to);
            return;
        }
        ggml_get_type_traits(w_->type)->to_float(from, floats_.get(), n);
        round_to_groups(floats_.get(), n, kTileColumns * kBf16Group, to,
                        n_parts_ == 2 ? to + kTileColumns * n : nullptr);
    }

    // Some rows times panels [begin, end) of the part.
    void multiply_rows(int64_t first_row, int64_t begin, int64_t end) {
        const int64_t end_row = std::min(first_row + kRowsAtOnce, y_->ne[1]);
        for (int64_t row = first_row; row < end_row; row += kTileRows) {
            for (int64_t i = begin; i < end; ++i) {
                multiply_tile(row, i);
            }
        }
    }

    void multiply_tile(int64_t row, int64_t i) {
        float* results = values(y_) + row * y_->ne[0] + (part_.panel + i) * kTileColumns;
        const bool adds = part_.inner > 0;
        const int64_t n_rows = std::min(kTileRows, y_->ne[1] - row);
        const bool whole = n_rows == kTileRows;
        LinearTile m = {.rows = static_cast<const uint16_t*>(tiles_->data) + row * tiles_->ne[0] +
                                part_.inner * kTileRows,
                        .columns = panel(i),
                        .n_inner = part_.n_inner,
                        .results = whole ? results : some_.data(),
                        .stride = whole ? y_->ne[0] : kTileColumns,
                        .adds = adds && whole};
        multiply(m);
        if (n_parts_ == 2) {
            m.adds = true;
            m.columns += kTileColumns * part_.n_inner;
            multiply(m);
            m.columns = panel(i);
            m.rows += kTileRows * n_inner_;
            multiply(m);
        }
        for (int64_t j = 0; !whole && j < n_rows * kTileColumns; ++j) {
            float& to = results[j / kTileColumns * y_->ne[0] + j % kTileColumns];
            to = some_[static_cast<size_t>(j)] + (adds ? to : 0);
        }
    }

    ggml_tensor* y_;
    const ggml_tensor *w_, *tiles_;
    int64_t n_inner_, n_parts_;  // all values of a row, and numbers that each is the sum of
    ExpandColumn expand_;
    std::unique_ptr<float[]> floats_;  // of a row, where types have no code of their own
    std::unique_ptr<uint16_t[]> panels_;
    Part part_ = {};
    std::array<float, kTileSize> some_;  // of the last rows
};

void multiply_tiles(ggml_tensor* dst, int, int nth, void* work) {
    Product product(dst);
    share_pieces(work, dst->ne[0] / kTileColumns, nth,
                 {.least = kPanelsInTurn, .most = kPanelsAtOnce},
                 [&](int64_t begin, int64_t end) { product.run(begin, end - begin); });
}

const OwnOperation kMakeTiles = {"cpu tiles", make_tiles};

// Whether this CPU multiplies matrices of the type in F32 unless they suit codes. With AVX2 and
// nothing newer all of them; Arm CPUs without instructions for small matrices Q2_K and Q3_K, which
// ggml multiplies half as fast, and F16, whose products it adds up in F16. Other builds none.
bool has_f32_tiles(ggml_type type) {
#if defined(FLUX2_X86)
    static_cast<void>(type);
    return has_avx2() && !has_avx512();
#elif defined(__aarch64__)
    return !has_matrix_tiles() &&
           (type == GGML_TYPE_F16 || type == GGML_TYPE_Q2_K || type == GGML_TYPE_Q3_K);
#else
    static_cast<void>(type);
    return false;
#endif
}

// `extra` of a marked matrix points to it.
constexpr char kMark = 0;

}  // namespace

bool suits_tiles(const ggml_tensor* matrix) {
    constexpr int64_t kStep = 8;  // values that are rounded at once
    if (matrix->type == GGML_TYPE_F32 || !ggml_is_matrix(matrix) ||
        ggml_get_type_traits(matrix->type)->to_float == nullptr) {
        return false;
    }
    if (suits_codes(matrix) || suits_amx_in_place(matrix)) {
        return true;
    }
    if (has_f32_tiles(matrix->type)) {
        return suits_unpacked(matrix->ne[1]);
    }
    return has_matrix_tiles() && matrix->ne[0] % kStep == 0 && matrix->ne[1] % kTileColumns == 0;
}

const char* tiles_name(const ggml_tensor* matrix) {
    if (suits_codes(matrix)) {
        return is_multiplied_as_wide_codes(matrix->type) ? "16-bit tiles" : "8-bit tiles";
    }
    return has_f32_tiles(matrix->type) ? "F32 tiles" : "BF16 tiles";
}

void mark_for_tiles(ggml_tensor* matrix) {
    matrix->extra = const_cast<char*>(&kMark);  // only compared
}

bool is_for_tiles(const ggml_tensor* matrix) {
    return matrix->extra == &kMark;
}

ggml_tensor* linear_in_tiles(Graph& g, ggml_tensor* w, ggml_tensor* x) {
    if (suits_codes(w)) {
        return linear_in_codes(g, w, x);
    }
    if (suits_amx_in_place(w)) {
        return linear_amx_in_place(g, w, x);
    }
    if (has_f32_tiles(w->type)) {
        return own::linear(g, w, x, {.function = unpacked_linear});
    }
    ggml_tensor* tiles =
        own_node(g,
                 {kMakeTiles,
                  {GGML_TYPE_BF16},
                  {count_parts(w) * x->ne[0], round_up(x->ne[1], kTileRows), 1, 1}},
                 {x});
    return own::linear(g, w, x, {.function = multiply_tiles}, {}, tiles);
}

}  // namespace flux2::cpu
