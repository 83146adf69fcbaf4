// Gradients of the operations on tokens (compute/plain/gradient_nodes) as CPUs compute them.
#pragma once

#include "compute/graph.hpp"
#include "compute/plain/gradient_nodes.hpp"

#include <ggml.h>

namespace flux2::cpu {

// Functions of nodes.
void modulate_gradient(ggml_tensor* y, int ith, int nth, void* work);
void swiglu_gradient(ggml_tensor* y, int ith, int nth, void* work);
void heads_gradient(ggml_tensor* y, int ith, int nth, void* work);

// own::query_gradient and own::key_gradient, a few queries and keys at a time like the attention.
ggml_tensor* query_gradient(Graph& g, const own::AttentionGradientInput& in);
ggml_tensor* key_gradient(Graph& g, const own::AttentionGradientInput& in);

}  // namespace flux2::cpu
