// What our kernels run with on one GPU.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cstddef>

namespace flux2::cuda {

constexpr size_t kScratchBytes = size_t{20} << 20;

class LargeProducts;

struct Context {
    cudaStream_t stream = nullptr;
    cublasHandle_t blas = nullptr;
    LargeProducts* large_products = nullptr;  // on Hopper
    void* scratch = nullptr;                  // for kernels that have two passes
    bool hopper = false;  // has the kernels of sm_90, whose matrix units work differently
};

}  // namespace flux2::cuda
