// What compute/cuda/backend.cpp calls of cuBLAS, for tests without a GPU.
#pragma once

#include "cuda_runtime_api.h"

using cublasHandle_t = struct cublasContext*;

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_ALLOC_FAILED = 3 };

cublasStatus_t cublasCreate(cublasHandle_t* handle);
cublasStatus_t cublasDestroy(cublasHandle_t handle);
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream);
