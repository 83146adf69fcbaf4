// Tensors of nodes as kernels see them.
#pragma once

#include "compute/cuda/token_ops.hpp"

#include <ggml.h>

#include <cstdint>

namespace flux2::cuda {

inline int as_int(int64_t value) {
    return static_cast<int>(value);
}

inline const float* vector_of(const ggml_tensor* x) {
    return x != nullptr ? static_cast<const float*>(x->data) : nullptr;
}

// Values from token to token of x [width, n], or of heads [head_dim, n_head, n] side by side.
inline int64_t stride_of(const ggml_tensor* x, int token_axis = 1) {
    return static_cast<int64_t>(x->nb[token_axis] / ggml_type_size(x->type));
}

inline Matrix matrix_of(const ggml_tensor* x, int token_axis = 1) {
    return {.data = x->data, .bf16 = x->type == GGML_TYPE_BF16, .stride = stride_of(x, token_axis)};
}

inline MutableMatrix result_of(const ggml_tensor* y) {
    return {.data = y->data, .bf16 = y->type == GGML_TYPE_BF16, .stride = stride_of(y)};
}

}  // namespace flux2::cuda
