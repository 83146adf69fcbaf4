#include "compute/cuda/block_values.hpp"
#include "compute/cuda/unpack.hpp"

namespace flux2::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kAtOnce = 4;  // times eight values that a thread makes

template <typename T>
__device__ uint4 eight_of_row(const UnpackArgs& a, int64_t row, int column) {
    if (column >= a.n_in) {
        return *reinterpret_cast<const uint4*>(a.after + row * a.n_after + column - a.n_in);
    }
    const int64_t in_row = a.n_in / T::kValues;
    const uint8_t* block =
        static_cast<const uint8_t*>(a.blocks) + (row * in_row + column / T::kValues) * T::kBytes;
    float y[8];
    T::eight(block, column % T::kValues, y);
    __nv_bfloat162 pairs[4];
    for (int i = 0; i < 4; ++i) {
        pairs[i] = __floats2bfloat162_rn(y[2 * i], y[2 * i + 1]);
    }
    return *reinterpret_cast<const uint4*>(pairs);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    unpack_kernel(const __grid_constant__ UnpackArgs a, unsigned eights, unsigned n) {
    const unsigned first = blockIdx.x * kThreads * kAtOnce + threadIdx.x;
    uint4 y[kAtOnce];
    int64_t to[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
        const unsigned at = min(first + i * kThreads, n - 1);
        const int64_t row = at / eights;
        const int column = static_cast<int>(at % eights) * 8;
        to[i] = row * a.y_stride + column;
        y[i] = eight_of_row<T>(a, row, column);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
        if (first + i * kThreads < n) {
            *reinterpret_cast<uint4*>(a.y + to[i]) = y[i];
        }
    }
}

template <typename T>
cudaError_t launch(const UnpackArgs& a, cudaStream_t stream) {
    if (a.n_rows <= 0 || a.n_in <= 0 || a.n_in % T::kValues != 0 || a.n_after % 8 != 0 ||
        a.y_stride % 8 != 0 || a.y_stride < a.n_in + a.n_after) {
        return cudaErrorInvalidValue;
    }
    const int eights = (a.n_in + a.n_after) / 8;
    const int64_t n = static_cast<int64_t>(a.n_rows) * eights;
    constexpr int64_t kEach = kThreads * kAtOnce;
    unpack_kernel<T>
        <<<static_cast<unsigned>((n + kEach - 1) / kEach), kThreads, 0, stream>>>(a, eights, n);
    return cudaGetLastError();
}

}  // namespace

cudaError_t unpack(const UnpackArgs& args, cudaStream_t stream) {
    switch (args.type) {
        case BlockType::f32:
            return launch<PlainF32>(args, stream);
        case BlockType::f16:
            return launch<PlainF16>(args, stream);
        case BlockType::q8_0:
            return launch<Q8_0>(args, stream);
        case BlockType::q4_0:
            return launch<Q4_0>(args, stream);
        case BlockType::q5_0:
            return launch<Q5_0>(args, stream);
        case BlockType::q4_k:
            return launch<Q4_K>(args, stream);
        case BlockType::q5_k:
            return launch<Q5_K>(args, stream);
        case BlockType::q6_k:
            return launch<Q6_K>(args, stream);
    }
    return cudaErrorInvalidValue;
}

}  // namespace flux2::cuda
