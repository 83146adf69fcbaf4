#include "compute/plain/own_node.hpp"

#include <atomic>
#include <new>
#include <vector>

namespace flux2 {
namespace {

constexpr size_t kFunctionOffset = kNodeParamsOffset - sizeof(ggml_custom_op_t);

// What ggml calls for every node of ours. Its frames are no place for exceptions to pass, and its
// other threads wait for this one, so a lack of memory is noted where the graph looks for it; what
// would be computed from missing results is left out.
void run(ggml_tensor* node, int ith, int nth, void* lacks_memory) {
    auto& noted = *static_cast<std::atomic<bool>*>(lacks_memory);
    if (noted) {
        return;
    }
    try {
        function_of(node)(node, ith, nth, nullptr);
    } catch (const std::bad_alloc&) {
        noted = true;
    }
}

ggml_tensor* complete(ggml_tensor* node, const char* name, ggml_custom_op_t function) {
    std::memcpy(reinterpret_cast<std::byte*>(node->op_params) + kFunctionOffset, &function,
                sizeof(function));
    ggml_set_name(node, name);
    return node;
}

}  // namespace

ggml_tensor* own_node(Graph& g, const NodeResult& result,
                      std::initializer_list<ggml_tensor*> sources, ggml_custom_op_t function) {
    std::vector<ggml_tensor*> args(sources);
    std::erase(args, nullptr);
    const auto& ne = result.ne;
    return complete(
        ggml_custom_4d(g, result.type, ne[0], ne[1], ne[2], ne[3], args.data(),
                       static_cast<int>(args.size()), run, GGML_N_TASKS_MAX, &g.lacks_memory()),
        result.name, function);
}

ggml_tensor* own_node_in_place(Graph& g, const char* name, ggml_tensor* x,
                               std::initializer_list<ggml_tensor*> sources,
                               ggml_custom_op_t function) {
    std::vector<ggml_tensor*> args(sources);
    return complete(ggml_custom_inplace(g, x, args.data(), static_cast<int>(args.size()), run,
                                        GGML_N_TASKS_MAX, &g.lacks_memory()),
                    name, function);
}

ggml_custom_op_t function_of(const ggml_tensor* node) {
    ggml_custom_op_t function = nullptr;
    if (node->op == GGML_OP_CUSTOM) {
        std::memcpy(&function,
                    reinterpret_cast<const std::byte*>(node->op_params) + kFunctionOffset,
                    sizeof(function));
    }
    return function;
}

}  // namespace flux2
