// ggml's CUDA backend with our kernels beside it: a backend that shares the other's buffers, runs
// our own nodes (compute/plain/own_node) on a stream of its own and lets ggml compute the ranges
// of nodes between them.
#pragma once

#include <ggml-cpp.h>

namespace flux2::cuda {

// Whether our kernels run on the device: an NVIDIA GPU from sm_80 on.
bool runs_on(ggml_backend_dev_t device);
// Whether those for Hopper do too: where BF16 GEMMs are faster than ggml's on quantised weights.
// Not with the environment variable FLUX2_NO_HOPPER.
bool has_hopper_kernels(ggml_backend_dev_t device);

// Takes over a backend of such a device. Throws backend.
ggml_backend_ptr extend(ggml_backend_ptr cuda);

}  // namespace flux2::cuda
