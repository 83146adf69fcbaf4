// The driver's function that describes tensors to the copy engine; the runtime library has none.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace flux2::cuda {

using EncodeTensorMap = decltype(&cuTensorMapEncodeTiled);

// Null when the driver does not have it.
inline EncodeTensorMap find_encode_tensor_map() {
    constexpr const char* kName = "cuTensorMapEncodeTiled";
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = {};
#if CUDART_VERSION >= 12050
    constexpr unsigned kSince = 12000;
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion(kName, &function, kSince, cudaEnableDefault, &found);
#else
    const cudaError_t status = cudaGetDriverEntryPoint(kName, &function, cudaEnableDefault, &found);
#endif
    return status == cudaSuccess && found == cudaDriverEntryPointSuccess
               ? reinterpret_cast<EncodeTensorMap>(function)
               : nullptr;
}

}  // namespace flux2::cuda
