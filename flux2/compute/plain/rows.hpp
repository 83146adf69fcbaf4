// Rows of tensors as floats, for the plain forms of our nodes.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace flux2::own {

using Row = std::vector<float>;
using RowView = std::span<const float>;

// n values of a tensor from `offset` bytes on; whole blocks of quantised types.
Row read_row(const ggml_tensor* x, size_t offset, int64_t n);
void write_row(ggml_tensor* y, size_t offset, const Row& row);

inline size_t bytes_at(int64_t index, size_t stride) {
    return static_cast<size_t>(index) * stride;
}

// Where row (i, j) of x [width, n, m] begins: a token's row, a token's head, a pixel.
inline size_t row_offset(const ggml_tensor* x, int64_t i, int64_t j = 0) {
    return bytes_at(i, x->nb[1]) + bytes_at(j, x->nb[2]);
}

inline Row row_of(const ggml_tensor* x, int64_t i, int64_t j = 0) {
    return read_row(x, row_offset(x, i, j), x->ne[0]);
}

// For loops over many rows: shows values of F32 where they are, and others in memory of its own,
// until the next call.
class RowReader {
  public:
    RowView read(const ggml_tensor* x, size_t offset, int64_t n);

    RowView row(const ggml_tensor* x, int64_t i, int64_t j = 0) {
        return read(x, row_offset(x, i, j), x->ne[0]);
    }

  private:
    Row converted_;
};

float dot(RowView a, RowView b);

inline void set_row(ggml_tensor* y, int64_t i, const Row& row) {
    write_row(y, row_offset(y, i), row);
}

// Thread `ith` of `nth` takes every nth of n.
inline void share(int64_t n, int ith, int nth, const std::function<void(int64_t i)>& work) {
    for (int64_t i = ith; i < n; i += nth) {
        work(i);
    }
}

}  // namespace flux2::own
