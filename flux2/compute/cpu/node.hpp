// Graph nodes whose work is a function of ours, run by ggml's CPU threads. All threads call it with
// their index; nothing lets them wait for each other, so an operation of two phases is two nodes.
// Tensors are contiguous F32 unless said otherwise. Such a function must not throw.
#pragma once

#include "compute/graph.hpp"

#include <ggml.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <vector>

namespace flux2::cpu {

// `name` tells profiles what kind of operation it is. Sources that are null are left out; only the
// last ones may be.
inline ggml_tensor* node(Graph& g, const char* name, const std::array<int64_t, 4>& ne,
                         std::initializer_list<ggml_tensor*> sources, ggml_custom_op_t function,
                         ggml_type type = GGML_TYPE_F32) {
    std::vector<ggml_tensor*> args(sources);
    std::erase(args, nullptr);
    ggml_tensor* result =
        ggml_custom_4d(g, type, ne[0], ne[1], ne[2], ne[3], args.data(),
                       static_cast<int>(args.size()), function, GGML_N_TASKS_MAX, nullptr);
    ggml_set_name(result, name);
    return result;
}

// The same in the memory of x, which nobody may read later; x is the node's first source.
inline ggml_tensor* node_in_place(Graph& g, const char* name, ggml_tensor* x,
                                  std::initializer_list<ggml_tensor*> sources,
                                  ggml_custom_op_t function) {
    std::vector<ggml_tensor*> args(sources);
    ggml_tensor* result = ggml_custom_inplace(g, x, args.data(), static_cast<int>(args.size()),
                                              function, GGML_N_TASKS_MAX, nullptr);
    ggml_set_name(result, name);
    return result;
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

// Memory of one thread while its function runs; not initialised.
inline std::unique_ptr<float[]> scratch(int64_t n) {
    return std::make_unique_for_overwrite<float[]>(static_cast<size_t>(n));
}

}  // namespace flux2::cpu
