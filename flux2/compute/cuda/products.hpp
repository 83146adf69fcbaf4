// Products of matrices by cuBLAS: what starts them for nodes, and whether it can.
#pragma once

#include "compute/cuda/context.hpp"

#include <ggml.h>

namespace flux2::cuda {

bool takes_linear(const ggml_tensor* y);
cudaError_t run_linear(const Context& context, const ggml_tensor* y);

bool takes_add_linear(const ggml_tensor* y);
cudaError_t run_add_linear(const Context& context, const ggml_tensor* y);

bool takes_outer_product(const ggml_tensor* y);
cudaError_t run_outer_product(const Context& context, const ggml_tensor* y);

}  // namespace flux2::cuda
