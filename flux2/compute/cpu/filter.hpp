// What both ways to convolve on a CPU share: reading kernels, and how their nodes look.
#pragma once

#include "compute/graph.hpp"

#include <ggml.h>

#include <array>
#include <cstdint>

namespace flux2::cpu {

// The weights of 16 output channels, one after the other, as F32. kernel [kw, kh, in, out] in F16
// or F32; channels past the last are zeros.
void read_panel(const ggml_tensor* kernel, int64_t panel, float* to);

// kernel [kw, kh, in, out] -> panels [16, kw * kh * in, out / 16], rounded up.
ggml_tensor* pack_kernel(Graph& g, ggml_tensor* kernel);

// The node that convolves x with a kernel in panels and adds bias and skip, which may be null. Its
// function finds these four in dst->src.
ggml_tensor* conv_node(Graph& g, const std::array<int64_t, 4>& ne, ggml_tensor* panels,
                       ggml_tensor* x, ggml_tensor* bias, ggml_tensor* skip,
                       ggml_custom_op_t function);

// The kernel [kw, kh, in, out] behind such a node; null for all others.
const ggml_tensor* kernel_of(const ggml_tensor* node);

}  // namespace flux2::cpu
