// What the networks do with tokens between their matrix multiplies, on a CPU: each in one pass over
// its rows, where ggml takes several. Tensors are F32, and their rows may lie apart.
#pragma once

#include "compute/ops/token_ops.hpp"

#include <ggml.h>

#include <span>

namespace flux2::cpu {

// (1 + scale) * LayerNorm(x) + shift. x [width, n]
ggml_tensor* modulate(Graph& g, ggml_tensor* x, std::span<const ModSpan> spans);
// x / rms(x) * scale. x [width, n]
ggml_tensor* rms_norm(Graph& g, ggml_tensor* x, ggml_tensor* scale, float eps);
// x + gate * branch. x, branch [width, n]
ggml_tensor* add_gated(Graph& g, ggml_tensor* x, ggml_tensor* branch,
                       std::span<const ModSpan> spans);
// silu(gate) * up, behind the values of `before` when there is one. gate, up [n_ff, n]
ggml_tensor* swiglu(Graph& g, ggml_tensor* gate, ggml_tensor* up, ggml_tensor* before);
// As in compute/ops/token_ops; the rope has a table.
ggml_tensor* join_heads(Graph& g, std::span<const HeadsPart> parts, const Rope* rope, float eps);

}  // namespace flux2::cpu
