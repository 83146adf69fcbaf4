// What starts the kernels of training for nodes (compute/plain/gradient_nodes), and whether there
// is one for the types of a node.
#pragma once

#include "compute/cuda/context.hpp"

#include <ggml.h>

namespace flux2::cuda {

bool takes_scale_rows(const ggml_tensor* y);
cudaError_t run_scale_rows(const Context& context, const ggml_tensor* y);

bool takes_modulate_gradient(const ggml_tensor* y);
cudaError_t run_modulate_gradient(const Context& context, const ggml_tensor* y);

bool takes_swiglu_gradient(const ggml_tensor* y);
cudaError_t run_swiglu_gradient(const Context& context, const ggml_tensor* y);

bool takes_heads_gradient(const ggml_tensor* y);
cudaError_t run_heads_gradient(const Context& context, const ggml_tensor* y);

bool takes_attention_gradient(const ggml_tensor* y);
cudaError_t run_query_gradient(const Context& context, const ggml_tensor* y);
cudaError_t run_key_gradient(const Context& context, const ggml_tensor* y);

}  // namespace flux2::cuda
