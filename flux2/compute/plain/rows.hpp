// Rows of tensors as floats, for the plain forms of our nodes.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace flux2::own {

using Row = std::vector<float>;

// n values of a tensor from `offset` bytes on; whole blocks of quantised types.
Row read_row(const ggml_tensor* x, size_t offset, int64_t n);
void write_row(ggml_tensor* y, size_t offset, const Row& row);

inline size_t bytes_at(int64_t index, size_t stride) {
    return static_cast<size_t>(index) * stride;
}

// Row i of x [width, n].
inline Row row_of(const ggml_tensor* x, int64_t i) {
    return read_row(x, bytes_at(i, x->nb[1]), x->ne[0]);
}

inline void set_row(ggml_tensor* y, int64_t i, const Row& row) {
    write_row(y, bytes_at(i, y->nb[1]), row);
}

// Thread `ith` of `nth` takes every nth of n.
inline void share(int64_t n, int ith, int nth, const std::function<void(int64_t i)>& work) {
    for (int64_t i = ith; i < n; i += nth) {
        work(i);
    }
}

}  // namespace flux2::own
