#include "compute/cuda/products.hpp"

#include "compute/cuda/large_products.hpp"
#include "compute/cuda/node_tensors.hpp"
#include "compute/plain/token_nodes.hpp"

namespace flux2::cuda {
namespace {

cudaDataType_t data_type(const ggml_tensor* x) {
    switch (x->type) {
        case GGML_TYPE_BF16:
            return CUDA_R_16BF;
        case GGML_TYPE_F16:
            return CUDA_R_16F;
        default:
            return CUDA_R_32F;
    }
}

bool takes_types(ggml_type a, ggml_type b, ggml_type result) {
    const bool is_half = a == GGML_TYPE_BF16 || a == GGML_TYPE_F16;
    return a == b && (is_half || a == GGML_TYPE_F32) && (result == GGML_TYPE_F32 || result == a);
}

cudaError_t error_of(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_SUCCESS:
            return cudaSuccess;
        case CUBLAS_STATUS_ALLOC_FAILED:
            return cudaErrorMemoryAllocation;
        default:
            return cudaErrorUnknown;
    }
}

// Where a product of matrices goes, and how many values of each row of x are multiplied.
struct Product {
    void* data;
    cudaDataType_t type;
    int64_t stride, n_out, n_in;
    float kept = 0;  // the factor of what is there already
};

// Returns false, and does nothing, unless it is a product of a kind and size for that.
bool multiply_large(const Context& context, const ggml_tensor* w, const ggml_tensor* x,
                    const Product& y, const own::LinearParams& params) {
    const bool is_bf16 =
        w->type == GGML_TYPE_BF16 && x->type == GGML_TYPE_BF16 && y.type == CUDA_R_16BF;
    if (context.large_products == nullptr || !is_bf16 || params.transposed || y.kept != 0) {
        return false;
    }
    const LargeProduct product = {.w = w->data,
                                  .x = x->data,
                                  .y = y.data,
                                  .factor = params.factor,
                                  .shape = {.n = as_int(x->ne[1]),
                                            .n_in = as_int(y.n_in),
                                            .n_out = as_int(y.n_out),
                                            .w_stride = as_int(stride_of(w)),
                                            .x_stride = as_int(stride_of(x)),
                                            .y_stride = as_int(y.stride)}};
    return LargeProducts::suits(product.shape) && context.large_products->multiply(product);
}

// cuBLAS counts columns first, so w [in, out] is transposed to it.
cudaError_t multiply(const Context& context, const ggml_tensor* w, const ggml_tensor* x,
                     const Product& y, const own::LinearParams& params) {
    if (multiply_large(context, w, x, y, params)) {
        return cudaSuccess;
    }
    const cublasStatus_t status = cublasGemmEx(
        context.blas, params.transposed ? CUBLAS_OP_N : CUBLAS_OP_T, CUBLAS_OP_N, as_int(y.n_out),
        as_int(x->ne[1]), as_int(y.n_in), &params.factor, w->data, data_type(w),
        as_int(stride_of(w)), x->data, data_type(x), as_int(stride_of(x)), &y.kept, y.data, y.type,
        as_int(y.stride), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    return error_of(status);
}

// down x to the spare values after each row of x.
cudaError_t run_down(const Context& context, const ggml_tensor* down, const ggml_tensor* x) {
    void* spare = static_cast<char*>(x->data) + ggml_row_size(x->type, x->ne[0]);
    const Product product = {.data = spare,
                             .type = data_type(x),
                             .stride = stride_of(x),
                             .n_out = down->ne[1],
                             .n_in = x->ne[0]};
    return multiply(context, down, x, product, {});
}

Product product_of(const ggml_tensor* y, const ggml_tensor* x) {
    return {.data = y->data,
            .type = data_type(y),
            .stride = stride_of(y),
            .n_out = y->ne[0],
            .n_in = x->ne[0]};
}

}  // namespace

bool takes_linear(const ggml_tensor* y) {
    return takes_types(y->src[0]->type, y->src[1]->type, y->type);
}

cudaError_t run_linear(const Context& context, const ggml_tensor* y) {
    const ggml_tensor* w = y->src[0];
    const ggml_tensor* x = y->src[1];
    const ggml_tensor* down = y->src[2];
    const auto params = params_of<own::LinearParams>(y);
    Product product = product_of(y, x);
    product.n_out = w->ne[params.transposed ? 0 : 1];  // y may have spare values after each row
    if (down != nullptr) {
        const cudaError_t status = run_down(context, down, x);
        if (status != cudaSuccess) {
            return status;
        }
        product.n_in += down->ne[1];
    }
    return multiply(context, w, x, product, params);
}

bool takes_add_linear(const ggml_tensor* y) {
    return takes_types(y->src[1]->type, y->src[2]->type, y->type);
}

cudaError_t run_add_linear(const Context& context, const ggml_tensor* y) {
    const ggml_tensor* x = y->src[2];
    Product product = product_of(y, x);
    product.kept = 1;
    return multiply(context, y->src[1], x, product, params_of<own::LinearParams>(y));
}

bool takes_outer_product(const ggml_tensor* y) {
    return takes_types(y->src[0]->type, y->src[1]->type, y->type);
}

cudaError_t run_outer_product(const Context& context, const ggml_tensor* y) {
    const ggml_tensor *u = y->src[0], *v = y->src[1];
    const float one = 1;
    const float zero = 0;
    const cublasStatus_t status =
        cublasGemmEx(context.blas, CUBLAS_OP_N, CUBLAS_OP_T, as_int(y->ne[0]), as_int(y->ne[1]),
                     as_int(u->ne[1]), &one, u->data, data_type(u), as_int(stride_of(u)), v->data,
                     data_type(v), as_int(stride_of(v)), &zero, y->data, data_type(y),
                     as_int(stride_of(y)), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    return error_of(status);
}

}  // namespace flux2::cuda
