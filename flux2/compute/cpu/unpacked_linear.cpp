#include "compute/cpu/unpacked_linear.hpp"

#include "compute/cpu/column_tiles.hpp"
#include "compute/cpu/instructions.hpp"
#include "compute/cpu/panels.hpp"
#include "compute/cpu/values.hpp"
#include "compute/plain/token_nodes.hpp"

#include <algorithm>
#include <cstring>

namespace flux2::cpu {
namespace {

constexpr int64_t kColumns = 64;  // of a tile, where blocks of the type are not larger
constexpr int64_t kInner = 512;   // likewise its rows: whole blocks of every type
constexpr int64_t kTokens = 240;  // whose rows stay in the L2 cache beside a tile

int64_t stride_of(const ggml_tensor* x) {
    return static_cast<int64_t>(x->nb[1] / sizeof(float));
}

// Values [first, first + n) of a row, whole blocks.
void read_values(const ggml_tensor* w, int64_t row, int64_t first, int64_t n, float* to) {
    const char* from = static_cast<const char*>(w->data) + static_cast<size_t>(row) * w->nb[1] +
                       ggml_row_size(w->type, first);
    if (w->type == GGML_TYPE_F32) {
        std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
    } else {
        ggml_get_type_traits(w->type)->to_float(from, to, n);
    }
}

FLUX2_INLINE void interleave(float* panel, const float* rows, int64_t n) {
    constexpr int64_t kBlock = 16;
    for (int64_t first = 0; first < n; first += kBlock) {
        for (int64_t row = 0; row < kPanel; ++row) {
            const float* from = rows + row * kInner + first;
            for (int64_t i = 0; i < std::min(kBlock, n - first); ++i) {
                panel[(first + i) * kPanel + row] = from[i];
            }
        }
    }
}

class Product {
  public:
    Product(ggml_tensor* y, const ggml_tensor* w, const ggml_tensor* x, bool transposed, bool adds)
        : y_(y),
          w_(w),
          x_(x),
          transposed_(transposed),
          adds_(adds),
          most_columns_(transposed ? std::max(kColumns, ggml_blck_size(w->type)) : kColumns),
          panels_(scratch(most_columns_ * kInner)),
          rows_(scratch(std::max(kPanel * kInner, most_columns_))) {}

    void run(int nth, void* work) {
        share_tiles(work, *y_, most_columns_, nth,
                    [&](const ColumnTile& tile) { multiply_tile(tile); });
    }

  private:
    void multiply_tile(const ColumnTile& tile) {
        const int64_t n_inner = x_->ne[0];
        for (int64_t first = 0; first < n_inner; first += kInner) {
            const int64_t n = std::min(kInner, n_inner - first);
            if (transposed_) {
                read_columns(tile, first, n);
            } else {
                read_rows(tile, first, n);
            }
            for (int64_t done = 0; done < tile.n_tokens; done += kTokens) {
                const int64_t token = tile.token + done;
                multiply({.a = values(x_) + token * stride_of(x_) + first,
                          .a_stride = stride_of(x_),
                          .n_rows = std::min(kTokens, tile.n_tokens - done),
                          .n_inner = n,
                          .b = panels_.get(),
                          .b_stride = n * kPanel,
                          .n_panels = tile.n_columns / kPanel,
                          .c = values(y_) + token * stride_of(y_) + tile.column,
                          .c_stride = stride_of(y_),
                          .adds = adds_ || first > 0});
            }
        }
    }

    // Results are rows of the matrix.
    void read_rows(const ColumnTile& tile, int64_t first, int64_t n) {
        for (int64_t column = 0; column < tile.n_columns; column += kPanel) {
            for (int64_t i = 0; i < kPanel; ++i) {
                read_values(w_, tile.column + column + i, first, n, rows_.get() + i * kInner);
            }
            call_best<interleave>(panels_.get() + column * n,
                                  static_cast<const float*>(rows_.get()), n);
        }
    }

    // Results are its columns.
    void read_columns(const ColumnTile& tile, int64_t first, int64_t n) {
        for (int64_t row = 0; row < n; ++row) {
            read_values(w_, first + row, tile.column, tile.n_columns, rows_.get());
            for (int64_t column = 0; column < tile.n_columns; column += kPanel) {
                std::copy_n(rows_.get() + column, kPanel,
                            panels_.get() + column * n + row * kPanel);
            }
        }
    }

    ggml_tensor* y_;
    const ggml_tensor *w_, *x_;
    bool transposed_, adds_;
    int64_t most_columns_;
    std::unique_ptr<float[]> panels_, rows_;
};

}  // namespace

bool suits_unpacked(int64_t n_results) {
    return n_results % kPanel == 0;
}

void unpacked_linear(ggml_tensor* y, int, int nth, void* work) {
    const bool transposed = params_of<own::LinearParams>(y).transposed;
    Product(y, y->src[0], y->src[1], transposed, false).run(nth, work);
}

void add_unpacked_linear(ggml_tensor* y, int, int nth, void* work) {
    const bool transposed = params_of<own::LinearParams>(y).transposed;
    Product(y, y->src[1], y->src[2], transposed, true).run(nth, work);
}

void outer_product(ggml_tensor* y, int ith, int nth, void*) {
    const ggml_tensor *u = y->src[0], *v = y->src[1];
    const int64_t n_panels = y->ne[0] / kPanel;
    const int64_t begin = n_panels * ith / nth;
    const int64_t end = n_panels * (ith + 1) / nth;
    const int64_t n_rows = y->ne[1];
    const auto factors = scratch(n_rows * kInner);  // v transposed
    const auto panel = scratch(kInner * kPanel);
    for (int64_t first = 0; begin < end && first < u->ne[1]; first += kInner) {
        const int64_t n = std::min(kInner, u->ne[1] - first);
        for (int64_t i = 0; i < n; ++i) {
            const float* row = values(v) + (first + i) * stride_of(v);
            for (int64_t j = 0; j < n_rows; ++j) {
                factors[static_cast<size_t>(j * kInner + i)] = row[j];
            }
        }
        for (int64_t column = begin * kPanel; column < end * kPanel; column += kPanel) {
            for (int64_t i = 0; i < n; ++i) {
                std::copy_n(values(u) + (first + i) * stride_of(u) + column, kPanel,
                            panel.get() + i * kPanel);
            }
            multiply({.a = factors.get(),
                      .a_stride = kInner,
                      .n_rows = n_rows,
                      .n_inner = n,
                      .b = panel.get(),
                      .b_stride = n * kPanel,
                      .n_panels = 1,
                      .c = values(y) + column,
                      .c_stride = stride_of(y),
                      .adds = first > 0});
        }
    }
}

}  // namespace flux2::cpu
