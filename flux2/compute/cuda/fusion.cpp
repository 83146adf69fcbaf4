#include "compute/cuda/fusion.hpp"

#include "compute/plain/token_nodes.hpp"

namespace flux2::cuda {
namespace {

bool is_norm(const ggml_tensor* node) {
    const OwnOperation* operation = operation_of(node);
    return operation == &own::kModulate || operation == &own::kRmsNorm;
}

// x may be null.
bool apart(const ggml_tensor* x, const ggml_tensor* y) {
    const auto begin = [](const ggml_tensor* t) { return static_cast<const char*>(t->data); };
    return x == nullptr || begin(x) + ggml_nbytes(x) <= begin(y) ||
           begin(y) + ggml_nbytes(y) <= begin(x);
}

// A block of the kernel reads a row of x before it writes that row of y.
bool apart_or_by_rows(const ggml_tensor* x, const ggml_tensor* y) {
    return apart(x, y) || (x->data == y->data && x->nb[1] == y->nb[1]);
}

}  // namespace

bool fuses_gate_and_norm(const ggml_tensor* node, const ggml_tensor* next) {
    if (operation_of(node) != &own::kAddGated || !is_norm(next) || next->src[0] != node) {
        return false;
    }
    const ggml_tensor *x = node->src[0], *branch = node->src[1];
    const ggml_tensor *gate = node->src[2], *second_gate = node->src[3];  // read for every row
    return apart_or_by_rows(x, next) && apart_or_by_rows(branch, next) && apart(gate, next) &&
           apart(second_gate, next);
}

}  // namespace flux2::cuda
