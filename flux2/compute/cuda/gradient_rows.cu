#include "compute/cuda/gradient_rows.cuh"

namespace flux2::cuda {
namespace {

constexpr int kThreads = 256;

// A warp a query and head. Queries beyond the last one have infinite sums, so that no key has a
// weight for them.
__global__ void __launch_bounds__(kThreads)
    rows_kernel(const __grid_constant__ AttentionGradientArgs args) {
    const int query = static_cast<int>(blockIdx.x * kThreads + threadIdx.x) / 32;
    const int head = blockIdx.y;
    const int column = 4 * (threadIdx.x % 32);
    const int n_padded = padded_rows(args.n);
    if (query >= n_padded) {
        return;
    }
    float2 row = {INFINITY, 0};
    if (query < args.n) {
        if (column < args.head_dim) {
            const int at = head * args.head_dim + column;
            row.y = total(load_four<__nv_bfloat16>(args.out.data, query * args.out.stride + at) *
                          load_four<__nv_bfloat16>(args.d.data, query * args.d.stride + at));
        }
        for (int distance = 16; distance > 0; distance /= 2) {
            row.y += __shfl_xor_sync(~0u, row.y, distance);
        }
        row.x = args.log_sums[query * args.log_sums_stride + head] * kLog2E;
    }
    if (threadIdx.x % 32 == 0) {
        args.rows[int64_t{head} * n_padded + query] = row;
    }
}

}  // namespace

size_t attention_gradient_bytes(int64_t n, int64_t n_head) {
    return static_cast<size_t>(n_head) * static_cast<size_t>(padded_rows(n)) * sizeof(float2);
}

cudaError_t make_gradient_rows(const AttentionGradientArgs& args, cudaStream_t stream) {
    const dim3 grid(static_cast<unsigned>(padded_rows(args.n) * 32 / kThreads),
                    static_cast<unsigned>(args.n_head));
    rows_kernel<<<grid, kThreads, 0, stream>>>(args);
    return cudaGetLastError();
}

}  // namespace flux2::cuda
