// Graph nodes for operations of our own that ggml does not have. A node names its operation by the
// plain C++ function that computes it on a CPU; other devices have a table of kernels by function
// (compute/cuda). Parameters that are no tensors ride in the node itself.
#pragma once

#include "compute/graph.hpp"

#include <ggml.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <vector>

namespace flux2 {

struct NodeResult {
    const char* name;  // what kind of operation it is, for profiles
    ggml_type type;
    std::array<int64_t, 4> ne;
};

// Behind ggml's own parameters of such nodes: a function, a number and a pointer.
constexpr size_t kNodeParamsOffset = 32;
constexpr size_t kNodeParamsSize = GGML_MAX_OP_PARAMS - kNodeParamsOffset;

template <typename Params>
ggml_tensor* own_node(Graph& g, const NodeResult& result,
                      std::initializer_list<ggml_tensor*> sources, ggml_custom_op_t function,
                      const Params& params) {
    static_assert(std::is_trivially_copyable_v<Params> && sizeof(Params) <= kNodeParamsSize);
    std::vector<ggml_tensor*> args(sources);
    std::erase(args, nullptr);
    const auto& ne = result.ne;
    ggml_tensor* node =
        ggml_custom_4d(g, result.type, ne[0], ne[1], ne[2], ne[3], args.data(),
                       static_cast<int>(args.size()), function, GGML_N_TASKS_MAX, nullptr);
    std::memcpy(reinterpret_cast<std::byte*>(node->op_params) + kNodeParamsOffset, &params,
                sizeof(params));
    ggml_set_name(node, result.name);
    return node;
}

template <typename Params>
Params params_of(const ggml_tensor* node) {
    Params params;
    std::memcpy(&params, reinterpret_cast<const std::byte*>(node->op_params) + kNodeParamsOffset,
                sizeof(params));
    return params;
}

// The function that names a node's operation; null for ggml's operations.
inline ggml_custom_op_t function_of(const ggml_tensor* node) {
    ggml_custom_op_t function = nullptr;
    if (node->op == GGML_OP_CUSTOM) {
        std::memcpy(&function, node->op_params, sizeof(function));
    }
    return function;
}

}  // namespace flux2
