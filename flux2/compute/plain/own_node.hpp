// Graph nodes for operations of our own that ggml does not have. A node holds which operation it
// is, the function that ggml's CPU threads run for it, and parameters that are no tensors. Other
// devices have a table of kernels by operation (compute/cuda/kernel_table).
//
// All threads call a node's function with their index and the graph's SharedWork, from which they
// take their parts; nothing lets them wait for each other, so an operation of two phases is two
// nodes. A function may throw std::bad_alloc and nothing else: Graph::compute then throws
// out_of_memory.
#pragma once

#include "compute/graph.hpp"

#include <ggml.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <type_traits>

namespace flux2 {

// An operation of our own; there is one object of each, whose address is its identity.
struct OwnOperation {
    const char* name;        // for profiles
    ggml_custom_op_t plain;  // plain C++ in the order of the formula: what other forms agree with
};

// How a node is computed.
struct NodeForm {
    ggml_type type = GGML_TYPE_F32;       // of the result
    ggml_custom_op_t function = nullptr;  // for CPUs (compute/cpu); null: the plain form
    bool in_place = false;  // in the memory of the first source, which nobody may read later
    // Values after each row of the result that the node leaves alone (Form::spare_columns). What
    // own_node() returns is then a view of the node, without them.
    int64_t spare_columns = 0;
};

struct OwnNode {
    const OwnOperation& operation;  // must outlive the graph
    NodeForm form;
    std::array<int64_t, 4> ne;  // of the result, without spare columns
};

// The node itself, without parameters. Sources that are null are left out.
ggml_tensor* make_node(Graph& g, const OwnNode& node, std::initializer_list<ggml_tensor*> sources);
// What others read of it.
ggml_tensor* without_spare(Graph& g, const OwnNode& node, ggml_tensor* made);

inline ggml_tensor* own_node(Graph& g, const OwnNode& node,
                             std::initializer_list<ggml_tensor*> sources) {
    return without_spare(g, node, make_node(g, node, sources));
}

// After ggml's own parameters of such nodes, which take 24 bytes, come the operation and the
// function, then our parameters.
constexpr size_t kNodeParamsOffset = 40;
constexpr size_t kNodeParamsSize = GGML_MAX_OP_PARAMS - kNodeParamsOffset;

template <typename Params>
ggml_tensor* own_node(Graph& g, const OwnNode& node, std::initializer_list<ggml_tensor*> sources,
                      const Params& params) {
    static_assert(std::is_trivially_copyable_v<Params> && sizeof(Params) <= kNodeParamsSize);
    ggml_tensor* made = make_node(g, node, sources);
    std::memcpy(reinterpret_cast<std::byte*>(made->op_params) + kNodeParamsOffset, &params,
                sizeof(params));
    return without_spare(g, node, made);
}

template <typename Params>
Params params_of(const ggml_tensor* node) {
    Params params;
    std::memcpy(&params, reinterpret_cast<const std::byte*>(node->op_params) + kNodeParamsOffset,
                sizeof(params));
    return params;
}

// Null for ggml's operations.
const OwnOperation* operation_of(const ggml_tensor* node);
// Whether a node of ours has the plain form, whose sources and types kernels of devices take.
bool has_plain_form(const ggml_tensor* node);
// What to call any node in a profile: "conv", or "cpu conv" in a form of compute/cpu.
std::string operation_name(const ggml_tensor* node);

}  // namespace flux2
