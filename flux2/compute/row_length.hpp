// Tensors that get other rows before they get memory.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>

namespace flux2 {

// Gives a tensor without memory this many values per row.
inline void set_row_length(ggml_tensor* tensor, int64_t n) {
    tensor->ne[0] = n;
    tensor->nb[1] = ggml_row_size(tensor->type, n);
    tensor->nb[2] = tensor->nb[1] * static_cast<size_t>(tensor->ne[1]);
    tensor->nb[3] = tensor->nb[2] * static_cast<size_t>(tensor->ne[2]);
}

}  // namespace flux2
