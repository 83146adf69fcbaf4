// Whether the program holds code of a kernel for the current device.
#pragma once

#include <cuda_runtime_api.h>

namespace flux2::cuda {

// The architecture that this code was compiled for, such as 80; 0 when there is none. Leaves no
// error behind that the next launch would take for its own.
template <typename Kernel>
int image_architecture(Kernel* kernel) {
    cudaFuncAttributes attributes = {};
    if (cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)) == cudaSuccess) {
        return attributes.ptxVersion;
    }
    cudaGetLastError();
    return 0;
}

}  // namespace flux2::cuda
