// Graph nodes for operations of our own that ggml does not have: functions of ours that ggml's CPU
// threads run. All threads call a node's function with their index; nothing lets them wait for each
// other, so an operation of two phases is two nodes. Other devices have a table of kernels by
// function (compute/cuda). Parameters that are no tensors ride in the node itself.
//
// A function may throw std::bad_alloc and nothing else: Graph::compute then throws out_of_memory.
#pragma once

#include "compute/graph.hpp"

#include <ggml.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>

namespace flux2 {

struct NodeResult {
    const char* name;  // what kind of operation it is, for profiles
    ggml_type type;
    std::array<int64_t, 4> ne;
};

// A node without parameters. Sources that are null are left out.
ggml_tensor* own_node(Graph& g, const NodeResult& result,
                      std::initializer_list<ggml_tensor*> sources, ggml_custom_op_t function);

// The same in the memory of x, which nobody may read later; x is the node's first source.
ggml_tensor* own_node_in_place(Graph& g, const char* name, ggml_tensor* x,
                               std::initializer_list<ggml_tensor*> sources,
                               ggml_custom_op_t function);

// Behind ggml's own parameters of such nodes, which take 24 bytes, lie our function and then ours.
constexpr size_t kNodeParamsOffset = 32;
constexpr size_t kNodeParamsSize = GGML_MAX_OP_PARAMS - kNodeParamsOffset;

template <typename Params>
ggml_tensor* own_node(Graph& g, const NodeResult& result,
                      std::initializer_list<ggml_tensor*> sources, ggml_custom_op_t function,
                      const Params& params) {
    static_assert(std::is_trivially_copyable_v<Params> && sizeof(Params) <= kNodeParamsSize);
    ggml_tensor* node = own_node(g, result, sources, function);
    std::memcpy(reinterpret_cast<std::byte*>(node->op_params) + kNodeParamsOffset, &params,
                sizeof(params));
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
ggml_custom_op_t function_of(const ggml_tensor* node);

}  // namespace flux2
