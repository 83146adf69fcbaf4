// How nodes of this folder are made (compute/plain/own_node) and read. Tensors are contiguous F32
// unless said otherwise.
#pragma once

#include "compute/plain/own_node.hpp"

#include <ggml.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>

namespace flux2::cpu {

// `name` tells profiles what kind of operation it is. Sources that are null are left out; only the
// last ones may be.
inline ggml_tensor* node(Graph& g, const char* name, const std::array<int64_t, 4>& ne,
                         std::initializer_list<ggml_tensor*> sources, ggml_custom_op_t function,
                         ggml_type type = GGML_TYPE_F32) {
    return own_node(g, {name, type, ne}, sources, function);
}

inline bool has_name(const ggml_tensor* node, const char* name) {
    return node->op == GGML_OP_CUSTOM && std::strcmp(node->name, name) == 0;
}

inline const float* values(const ggml_tensor* tensor) {
    return static_cast<const float*>(tensor->data);
}

inline float* values(ggml_tensor* tensor) {
    return static_cast<float*>(tensor->data);
}

// Memory of one thread while its function runs; not initialised. Throws std::bad_alloc.
inline std::unique_ptr<float[]> scratch(int64_t n) {
    return std::make_unique_for_overwrite<float[]>(static_cast<size_t>(n));
}

}  // namespace flux2::cpu
