// The multiply that belongs to the layout a matrix has in memory.
#pragma once

#include "compute/graph.hpp"

#include <ggml.h>

namespace flux2 {

// One of ours for CPUs, else ggml's. w [in, out], x [in, n] in F32 -> [out, n] in F32. Networks
// call linear() of token_ops, which adds kernels and adapters to it.
ggml_tensor* multiply_in_layout(Graph& g, ggml_tensor* w, ggml_tensor* x);

}  // namespace flux2
