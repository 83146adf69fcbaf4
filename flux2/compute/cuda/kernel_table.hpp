// Which kernel computes which of our nodes.
#pragma once

#include "compute/cuda/context.hpp"

#include <ggml.h>

namespace flux2::cuda {

// Starts the node's kernel on the context's stream.
using Launch = cudaError_t (*)(const Context& context, const ggml_tensor* node);

// Null when it is none of our nodes, or one of types that no kernel takes.
Launch find_kernel(const ggml_tensor* node);

// For two nodes that one kernel computes, to be started with the second one: a gate and the norm of
// its result. Null when they are no such.
Launch find_kernel_of_both(const ggml_tensor* node, const ggml_tensor* next);

}  // namespace flux2::cuda
