#include "compute/plain/own_node.hpp"

#if __has_include(<ggml-impl.h>)
#include <ggml-impl.h>
#endif

#include <new>
#include <utility>
#include <vector>

namespace flux2 {
namespace {

// What a node of ours holds beside its parameters.
struct Identity {
    const OwnOperation* operation;
    ggml_custom_op_t function;
};

constexpr size_t kIdentityOffset = kNodeParamsOffset - sizeof(Identity);

#if __has_include(<ggml-impl.h>)
static_assert(sizeof(ggml_custom_op_params) <= kIdentityOffset,
              "ggml's parameters of custom operations reach into ours: raise kNodeParamsOffset");
#endif

Identity identity_of(const ggml_tensor* node) {
    Identity identity = {};
    std::memcpy(&identity, reinterpret_cast<const std::byte*>(node->op_params) + kIdentityOffset,
                sizeof(identity));
    return identity;
}

// What ggml calls for every node of ours. No exception may pass through its frames, and its
// other threads wait for this one, so a lack of memory is noted where the graph looks for it; what
// would be computed from missing results is left out.
void run(ggml_tensor* node, int ith, int nth, void* shared_work) {
    auto& work = *static_cast<SharedWork*>(shared_work);
    if (!work.lacks_memory) {
        try {
            identity_of(node).function(node, ith, nth, &work);
        } catch (const std::bad_alloc&) {
            work.lacks_memory = true;
        }
    }
    work.leave(nth);
}

ggml_tensor* make_result(Graph& g, const OwnNode& node, std::vector<ggml_tensor*> sources) {
    SharedWork* work = &g.shared_work();
    if (node.form.in_place) {
        ggml_tensor* first = sources.front();
        return ggml_custom_inplace(g, first, sources.data() + 1,
                                   static_cast<int>(sources.size()) - 1, run, GGML_N_TASKS_MAX,
                                   work);
    }
    const auto& ne = node.ne;
    return ggml_custom_4d(g, node.form.type, ne[0] + node.form.spare_columns, ne[1], ne[2], ne[3],
                          sources.data(), static_cast<int>(sources.size()), run, GGML_N_TASKS_MAX,
                          work);
}

}  // namespace

ggml_tensor* without_spare(Graph& g, const OwnNode& node, ggml_tensor* made) {
    return node.form.spare_columns == 0
               ? made
               : ggml_view_2d(g, made, node.ne[0], made->ne[1], made->nb[1], 0);
}

ggml_tensor* make_node(Graph& g, const OwnNode& node, std::initializer_list<ggml_tensor*> sources) {
    std::vector<ggml_tensor*> present(sources);
    std::erase(present, nullptr);
    ggml_tensor* result = make_result(g, node, std::move(present));
    const ggml_custom_op_t function =
        node.form.function != nullptr ? node.form.function : node.operation.plain;
    const Identity identity = {&node.operation, function};
    std::memcpy(reinterpret_cast<std::byte*>(result->op_params) + kIdentityOffset, &identity,
                sizeof(identity));
    ggml_set_name(result, operation_name(result).c_str());
    return result;
}

const OwnOperation* operation_of(const ggml_tensor* node) {
    return node->op == GGML_OP_CUSTOM ? identity_of(node).operation : nullptr;
}

bool has_plain_form(const ggml_tensor* node) {
    const OwnOperation* operation = operation_of(node);
    return operation != nullptr && identity_of(node).function == operation->plain;
}

std::string operation_name(const ggml_tensor* node) {
    const OwnOperation* operation = operation_of(node);
    if (operation == nullptr) {
        return ggml_op_desc(node);
    }
    return has_plain_form(node) ? operation->name : std::string("cpu ") + operation->name;
}

}  // namespace flux2
