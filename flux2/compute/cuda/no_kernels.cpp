// In builds without our kernels: ggml's operations alone.
#include "compute/cuda/backend.hpp"

namespace flux2::cuda {

bool runs_on(ggml_backend_dev_t) {
    return false;
}

bool has_hopper_kernels(ggml_backend_dev_t) {
    return false;
}

ggml_backend_ptr extend(ggml_backend_ptr cuda) {
    return cuda;
}

}  // namespace flux2::cuda
