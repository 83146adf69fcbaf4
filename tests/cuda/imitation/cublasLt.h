// What compute/cuda/large_products.hpp names of cuBLASLt, for tests without a GPU.
#pragma once

using cublasLtHandle_t = struct cublasLtContext*;
