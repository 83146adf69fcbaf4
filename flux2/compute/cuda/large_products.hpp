// Large products of matrices by cuBLAS, each shape by the fastest of several algorithms. cuBLAS's
// own choice is up to a tenth slower, so the first products of a shape run by one algorithm after
// the other while events time them; no product is computed twice. The algorithms differ in their
// tiles and not in the order of sums, so results are the same bits whichever runs.
#pragma once

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>

namespace flux2::cuda {

// y [n][n_out] = factor * x [n][n_in] times w [n_out][n_in], all in BF16; strides are values from
// row to row.
struct LargeProduct {
    const void* w = nullptr;
    const void* x = nullptr;
    void* y = nullptr;
    float factor = 1;
    struct Shape {
        int n = 0, n_in = 0, n_out = 0;
        int w_stride = 0, x_stride = 0, y_stride = 0;
        uint32_t alignment = 0;  // of all three in memory; multiply() finds it out

        auto operator<=>(const Shape&) const = default;
    } shape;
};

class LargeProducts {
  public:
    // Borrows the handle, whose stream is used.
    explicit LargeProducts(cublasHandle_t blas, cudaStream_t stream);
    ~LargeProducts();

    // Whether a choice is worth it.
    static bool suits(const LargeProduct::Shape& shape);
    // Returns false, and does nothing, where no algorithm takes the shape.
    bool multiply(const LargeProduct& product);

  private:
    class Choice;

    cublasLtHandle_t blas_;
    cudaStream_t stream_;
    std::map<LargeProduct::Shape, std::unique_ptr<Choice>> choices_;
};

}  // namespace flux2::cuda
