#include "compute/cuda/conv_hopper.hpp"

#include "compute/cuda/conv_results.cuh"
#include "compute/cuda/hopper.cuh"
#include "compute/cuda/tensor_core.cuh"
#include "compute/cuda/tensor_map.hpp"

#include <algorithm>
#include <cstdint>

// Built for anything but sm_90a the kernel is empty, and much of this file unused.
#pragma nv_diag_suppress 177

namespace flux2::cuda {
namespace hopper {
namespace {

// The multiply is [pixels of y] x [taps and channels of x] x [channels of y], its inner dimension
// in slices: 64 channels under one tap.
constexpr int kSlice = 64;
constexpr int kRowBytes = kSlice * 2;
constexpr int kSteps = kSlice / 16;
constexpr int kStages = 4;   // slices in shared memory
constexpr int kWide = 16;    // pixels in a row of a tile
constexpr int kGroup = 128;  // threads that multiply together
constexpr int kThreads = 3 * kGroup;
constexpr int kWorkerWarps = 8;

// pixels_ x out_ results at a time; each of the two groups of workers takes half of the pixels.
template <int pixels_, int out_>
struct Tile {
    static constexpr int kPixels = pixels_;
    static constexpr int kOut = out_;
    static constexpr int kHigh = kPixels / kWide;
    static constexpr int kBlocks = kPixels / 2 / 64;  // matrices of 64 rows a group takes
    static constexpr int kPixelBytes = kPixels * kRowBytes;
    static constexpr int kStageBytes = (kPixels + kOut) * kRowBytes;
    static constexpr int kBytes = kStages * kStageBytes + kStages * 16 + kSwizzleBytes;
};

// With scale 2 the results fall into four phases, even and odd rows and columns: within one, each
// tap reads pixels side by side. So tiles lie on a grid of x's size then, else of y's.
struct Plan {
    CUtensorMap x, weight;
    CUtensorMap skip;  // only if fetches_skip
    bool fetches_skip;
    ConvArgs args;
    int y_width;
    int grid_width, grid_height;
    int n_across, n_out, n_phases;  // tiles
    int n_tiles;
    int pad;
};

// A tile's place on the grid.
struct Spot {
    int out, left, top, phase_x, phase_y;
};

// Tiles of the same pixels follow each other: the first gets them from memory, the others from the
// cache.
template <typename T>
__device__ Spot spot_of(const Plan& plan, int tile) {
    Spot spot;
    spot.out = tile % plan.n_out * T::kOut;
    tile /= plan.n_out;
    const int phase = tile % plan.n_phases;
    spot.phase_x = phase % 2;
    spot.phase_y = phase / 2;
    tile /= plan.n_phases;
    spot.left = tile % plan.n_across * kWide;
    spot.top = tile / plan.n_across * T::kHigh;
    return spot;
}

// ---- Shared memory ----

struct Shared {
    uint32_t stages;       // each pixels, then weights
    uint32_t full, empty;  // a barrier for each stage

    __device__ uint32_t full_at(int stage) const { return full + static_cast<uint32_t>(stage) * 8; }
    __device__ uint32_t empty_at(int stage) const {
        return empty + static_cast<uint32_t>(stage) * 8;
    }
};

template <typename T>
__device__ Shared shared_of(const unsigned char* memory) {
    const uint32_t stages =
        (shared_address(memory) + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes;
    const uint32_t barriers = stages + kStages * T::kStageBytes;
    return {stages, barriers, barriers + kStages * 8};
}

// Goes around the stages; the parity says how often.
struct Turn {
    int stage = 0;
    uint32_t parity = 0;

    __device__ void advance() {
        if (++stage == kStages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// ---- The warp that copies ----

// Where on x, along one axis, the pixels under a tap begin.
__device__ int under_tap(const ConvArgs& a, int pad, int at, int phase, int tap) {
    return a.scale == 2 ? at + ((phase + tap - 1) >> 1) : at * a.stride - pad + tap;
}

// Brings skip for a tile to the cache, before the workers ask for it.
template <typename T>
__device__ void fetch_skip(const Plan& plan, int tile) {
    if (plan.fetches_skip && tile < plan.n_tiles) {
        const Spot spot = spot_of<T>(plan, tile);
        prefetch_box(plan.skip, spot.out, spot.left, spot.top);
    }
}

template <typename T>
__device__ void copy_tiles(const Plan& plan, const Shared& shared) {
    const ConvArgs& a = plan.args;
    Turn turn;
    for (int tile = static_cast<int>(blockIdx.x); tile < plan.n_tiles; tile += gridDim.x) {
        const Spot spot = spot_of<T>(plan, tile);
        fetch_skip<T>(plan, tile + static_cast<int>(gridDim.x));
        for (int tap = 0; tap < a.size * a.size; ++tap) {
            const int x = under_tap(a, plan.pad, spot.left, spot.phase_x, tap % a.size);
            const int y = under_tap(a, plan.pad, spot.top, spot.phase_y, tap / a.size);
            for (int channel = 0; channel < a.in; channel += kSlice) {
                const uint32_t to =
                    shared.stages + static_cast<uint32_t>(turn.stage * T::kStageBytes);
                const uint32_t full = shared.full_at(turn.stage);
                barrier_wait(shared.empty_at(turn.stage), turn.parity ^ 1);
                barrier_expect(full, T::kStageBytes);
                copy_box(to, plan.x, channel, x, y, full);
                copy_box(to + T::kPixelBytes, plan.weight, channel, spot.out, tap, full);
                turn.advance();
            }
        }
    }
}

// ---- The warps that multiply ----

// [block of 64 pixels][8 channels at a time * 4 + ...]: of a pixel two channels, then of the pixel
// 8 rows below.
template <typename T>
struct Sums {
    float v[T::kBlocks][T::kOut / 2];
};

// Calls f(place in y, channel, two sums) for all that this thread holds. `whole`: all of the tile's
// results exist, so nothing is checked and the memory accesses run together.
template <typename T, bool whole, typename F>
__device__ void for_pairs(const Plan& plan, const Spot& spot, Sums<T>& sums, const F& f) {
    const ConvArgs& a = plan.args;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32 - 4;  // of the workers
    const int channel = spot.out + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < T::kBlocks * 2; ++i) {
        // 16 rows of a matrix are a row of pixels.
        const int row = spot.top + warp / 4 * (T::kHigh / 2) + i / 2 * 4 + warp % 4;
        const int column = spot.left + lane / 4 + i % 2 * 8;
        const int64_t y = row * plan.args.scale + spot.phase_y;
        const int64_t at =
            (y * plan.y_width + column * plan.args.scale + spot.phase_x) * a.out + channel;
        if (!whole && (row >= plan.grid_height || column >= plan.grid_width)) {
            continue;
        }
#pragma unroll
        for (int j = 0; j < T::kOut / 8; ++j) {
            if (whole || channel + j * 8 < a.out) {
                f(at + j * 8, channel + j * 8, sums.v[i / 2] + j * 4 + i % 2 * 2);
            }
        }
    }
}

template <typename T, bool whole>
__device__ void begin(const Plan& plan, const Spot& spot, Sums<T>& sums) {
    begin_sums<whole>(plan.args, [&](const auto& f) { for_pairs<T, whole>(plan, spot, sums, f); });
}

template <typename T, bool whole>
__device__ void finish(const Plan& plan, const Spot& spot, Sums<T>& sums) {
    write_sums<whole>(plan.args, [&](const auto& f) { for_pairs<T, whole>(plan, spot, sums, f); });
}

template <typename T>
__device__ void multiply_slice(const Shared& shared, const Turn& turn, Sums<T>& sums) {
    const uint32_t group = threadIdx.x / kGroup - 1;
    const uint32_t from = shared.stages + static_cast<uint32_t>(turn.stage * T::kStageBytes);
    const uint32_t pixels = from + group * (T::kPixels / 2 * kRowBytes);
    barrier_wait(shared.full_at(turn.stage), turn.parity);
    multiplies_begin();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
        const uint64_t weights = matrix_at(from + T::kPixelBytes + step * 32);
#pragma unroll
        for (int i = 0; i < T::kBlocks; ++i) {
            multiply_add_64(sums.v[i], matrix_at(pixels + i * 64 * kRowBytes + step * 32), weights);
        }
    }
    multiplies_end_group();
}

// One slice's multiplies still run while the next one's begin; a stage is released when its own
// are done. The first slice comes before the loop because the compiler wants nothing but multiplies
// to touch the sums within it.
template <typename T>
__device__ void multiply_slices(int n_slices, const Shared& shared, Turn& turn, Sums<T>& sums) {
    const bool speaks = threadIdx.x % 32 == 0;
    multiply_slice<T>(shared, turn, sums);
    int previous = turn.stage;
    turn.advance();
    for (int slice = 1; slice < n_slices; ++slice) {
        multiply_slice<T>(shared, turn, sums);
        multiplies_wait<1>();
        if (speaks) {
            barrier_arrive(shared.empty_at(previous));
        }
        previous = turn.stage;
        turn.advance();
    }
    multiplies_wait<0>();
    if (speaks) {
        barrier_arrive(shared.empty_at(previous));
    }
}

template <typename T>
__device__ void multiply_tiles(const Plan& plan, const Shared& shared) {
    const ConvArgs& a = plan.args;
    const int n_slices = a.size * a.size * ((a.in + kSlice - 1) / kSlice);
    Turn turn;
    for (int tile = static_cast<int>(blockIdx.x); tile < plan.n_tiles; tile += gridDim.x) {
        const Spot spot = spot_of<T>(plan, tile);
        const bool whole = a.out % 2 == 0 && spot.out + T::kOut <= a.out &&
                           spot.left + kWide <= plan.grid_width &&
                           spot.top + T::kHigh <= plan.grid_height;
        Sums<T> sums = {};
        if (whole) {
            begin<T, true>(plan, spot, sums);
        } else {
            begin<T, false>(plan, spot, sums);
        }
        multiply_slices<T>(n_slices, shared, turn, sums);
        if (whole) {
            finish<T, true>(plan, spot, sums);
        } else {
            finish<T, false>(plan, spot, sums);
        }
    }
}

// As many blocks as multiprocessors, each doing tile after tile: the next tile's slices arrive
// while the last one is written.
template <typename T>
__global__ void __launch_bounds__(kThreads, 1) conv_kernel(const __grid_constant__ Plan plan) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ unsigned char memory[];
    const Shared shared = shared_of<T>(memory);
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; ++i) {
            barrier_init(shared.full_at(i), 1);
            barrier_init(shared.empty_at(i), kWorkerWarps);
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x < kGroup) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            copy_tiles<T>(plan, shared);
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        multiply_tiles<T>(plan, shared);
    }
#else
    __trap();
#endif
}

// ---- Launch ----

int divide_up(int n, int by) {
    return (n + by - 1) / by;
}

// A tensor [z][y][x] and the box of it, every step-th along y and z, that is copied at once.
struct BoxShape {
    const void* data = nullptr;
    int x = 0, y = 0, z = 0;
    int box_x = kSlice, box_y = 0, box_z = 0;
    int step = 1;
    bool is_half = true;  // else F32
};

cudaError_t describe(EncodeTensorMap encode, const BoxShape& s, CUtensorMap& map) {
    const auto x = static_cast<cuuint64_t>(s.x);
    const auto y = static_cast<cuuint64_t>(s.y);
    const cuuint64_t value_bytes = s.is_half ? 2 : 4;
    const cuuint64_t size[3] = {x, y, static_cast<cuuint64_t>(s.z)};
    const cuuint64_t stride[2] = {x * value_bytes, x * y * value_bytes};
    const auto step = static_cast<cuuint32_t>(s.step);
    const cuuint32_t box[3] = {static_cast<cuuint32_t>(s.box_x),
                               static_cast<cuuint32_t>(s.box_y) * step,
                               static_cast<cuuint32_t>(s.box_z) * step};
    const cuuint32_t steps[3] = {1, step, step};
    const CUresult result = encode(
        &map, s.is_half ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 3,
        const_cast<void*>(s.data), size, stride, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        s.is_half ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

template <typename T>
cudaError_t describe_all(Plan& plan) {
    const ConvArgs& a = plan.args;
    static const EncodeTensorMap encode = find_encode_tensor_map();
    cudaError_t status = encode != nullptr ? cudaSuccess : cudaErrorNotSupported;
    if (status == cudaSuccess) {
        status = describe(encode,
                          {.data = a.x,
                           .x = a.in,
                           .y = a.width,
                           .z = a.height,
                           .box_y = kWide,
                           .box_z = T::kHigh,
                           .step = a.stride},
                          plan.x);
    }
    if (status == cudaSuccess) {
        status = describe(encode,
                          {.data = a.weight,
                           .x = a.in,
                           .y = a.out,
                           .z = a.size * a.size,
                           .box_y = T::kOut,
                           .box_z = 1},
                          plan.weight);
    }
    if (status == cudaSuccess && plan.fetches_skip) {
        status = describe(encode,
                          {.data = a.skip,
                           .x = a.out,
                           .y = plan.grid_width,
                           .z = plan.grid_height,
                           .box_x = T::kOut,
                           .box_y = kWide,
                           .box_z = T::kHigh,
                           .is_half = false},
                          plan.skip);
    }
    return status;
}

template <typename T>
Plan plan_of(const ConvArgs& a) {
    Plan plan = {};
    plan.args = a;
    plan.fetches_skip = a.skip != nullptr && !a.skip_is_half && a.scale == 1 && a.out % 4 == 0;
    plan.y_width = conv_y_width(a);
    plan.grid_width = a.scale == 2 ? a.width : conv_y_width(a);
    plan.grid_height = a.scale == 2 ? a.height : conv_y_height(a);
    plan.n_across = divide_up(plan.grid_width, kWide);
    plan.n_out = divide_up(a.out, T::kOut);
    plan.n_phases = a.scale * a.scale;
    plan.n_tiles =
        plan.n_across * divide_up(plan.grid_height, T::kHigh) * plan.n_out * plan.n_phases;
    plan.pad = a.size == 3 && a.stride == 1 ? 1 : 0;
    return plan;
}

cudaError_t multiprocessors(int& n) {
    int id = 0;
    const cudaError_t status = cudaGetDevice(&id);
    return status == cudaSuccess ? cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, id)
                                 : status;
}

template <typename T>
cudaError_t launch(Plan plan, cudaStream_t stream) {
    int n_blocks = 0;
    cudaError_t status = describe_all<T>(plan);
    if (status == cudaSuccess) {
        status = multiprocessors(n_blocks);
    }
    if (status == cudaSuccess) {
        status = cudaFuncSetAttribute(conv_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      T::kBytes);
    }
    if (status != cudaSuccess) {
        return status;
    }
    const auto blocks = static_cast<unsigned>(std::min(plan.n_tiles, n_blocks));
    conv_kernel<T><<<blocks, kThreads, T::kBytes, stream>>>(plan);
    return cudaGetLastError();
}

template <typename T>
cudaError_t run(const ConvArgs& args, cudaStream_t stream) {
    return launch<T>(plan_of<T>(args), stream);
}

}  // namespace
}  // namespace hopper

bool conv_hopper_suits(const ConvArgs& args) {
    return args.in >= hopper::kSlice && args.out >= 64;
}

cudaError_t conv_hopper(const ConvArgs& args, cudaStream_t stream) {
    if (!conv_takes(args)) {
        return cudaErrorInvalidValue;
    }
    if (args.out % 256 == 0) {
        return hopper::run<hopper::Tile<128, 256>>(args, stream);
    }
    if (args.out % 128 != 0 && args.out % 192 == 0) {
        return hopper::run<hopper::Tile<128, 192>>(args, stream);
    }
    if (args.out % 128 != 0 && args.out % 96 == 0) {
        return hopper::run<hopper::Tile<256, 96>>(args, stream);
    }
    return hopper::run<hopper::Tile<256, 128>>(args, stream);
}

}  // namespace flux2::cuda
