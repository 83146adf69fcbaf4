#include "compute/cuda/group_norm.hpp"

#include <algorithm>

namespace flux2::cuda {
namespace {

constexpr int kNormThreads = 256;
constexpr int kWarps = kNormThreads / 32;
constexpr int kAtOnce = 4;  // pixels a thread loads at a time

// Mean and sum of squared distances from it.
struct Moments {
    double mean, squares;
};

struct MeanAndScale {
    float mean, scale;
};

// Strips of so many rows are cut into chunks, one for each block; their moments are joined later.
// As long as bands of a map consist of strips, they have the chunks of the whole map, and the same
// sums.
constexpr int64_t kStripRows = 4;
constexpr int64_t kManyChunks = 2048;  // of a whole map that is not large
constexpr int64_t kMostChunks = 32768;
constexpr int64_t kLeastPixels = 32, kMostPixels = 512;  // in a chunk, unless there are too many

struct NormPlan {
    NormMap x;
    int quads;  // of channels in a pixel: what one thread takes
    int rows;   // pixels that a block takes at a time
    int64_t n_pixels;
    int64_t strip, chunk;  // pixels in them
    int64_t in_strip;      // chunks
    int64_t n_chunks;
    Moments* moments;      // [n_chunks][kNormGroups]
    MeanAndScale* joined;  // [kNormGroups]
};

// Pixels [first, end) of a chunk.
struct Range {
    int64_t first, end;
};

__device__ Range range_of(const NormPlan& plan, int64_t chunk) {
    const int64_t strip_first = chunk / plan.in_strip * plan.strip;
    const int64_t first = strip_first + chunk % plan.in_strip * plan.chunk;
    return {first, min(first + plan.chunk, min(strip_first + plan.strip, plan.n_pixels))};
}

// This thread's place in a block: four channels of every rows-th pixel.
struct Place {
    int quad, row;
    bool idle;  // what is left when the channels do not divide the threads
};

__device__ Place place_in(const NormPlan& plan) {
    const int thread = static_cast<int>(threadIdx.x);
    return {thread % plan.quads, thread / plan.quads, thread / plan.quads >= plan.rows};
}

// ---- Values of x ----

__device__ float value_of(const float* x) {
    return *x;
}
__device__ float value_of(const half* x) {
    return __half2float(*x) * kUnscale;
}

__device__ float4 quad_of(const float* x) {
    return *reinterpret_cast<const float4*>(x);
}
__device__ float4 quad_of(const half* x) {
    const uint2 raw = *reinterpret_cast<const uint2*>(x);
    const float2 low = __half22float2(*reinterpret_cast<const half2*>(&raw.x));
    const float2 high = __half22float2(*reinterpret_cast<const half2*>(&raw.y));
    return {low.x * kUnscale, low.y * kUnscale, high.x * kUnscale, high.y * kUnscale};
}

template <typename T>
__device__ const T* values_of(const NormPlan& plan) {
    return static_cast<const T*>(plan.x.data);
}

// ---- Moments of each chunk ----

// Distances from a pivot and their squares, of four channels.
struct QuadSums {
    float4 sum = {}, squares = {};

    __device__ void add(const float4& v, const float4& pivot) {
        const float4 d = {v.x - pivot.x, v.y - pivot.y, v.z - pivot.z, v.w - pivot.w};
        sum = {sum.x + d.x, sum.y + d.y, sum.z + d.z, sum.w + d.w};
        squares = {squares.x + d.x * d.x, squares.y + d.y * d.y, squares.z + d.z * d.z,
                   squares.w + d.w * d.w};
    }
};

// A group's channels share one pivot, a value of its own: close enough that squares lose no
// precision.
template <typename T>
__device__ float4 pivot_of(const NormPlan& plan, const T* pixel, int quad) {
    const int size = plan.x.channels / kNormGroups;
    const int channel = quad * 4;
    const auto first_of = [&](int c) { return value_of(pixel + c / size * size); };
    return {first_of(channel), first_of(channel + 1), first_of(channel + 2), first_of(channel + 3)};
}

template <typename T>
__device__ QuadSums sums_of_chunk(const NormPlan& plan, const Place& place, int64_t first,
                                  int64_t end) {
    const int64_t n = plan.x.channels;
    const T* x = values_of<T>(plan) + place.quad * 4;
    const float4 pivot = pivot_of(plan, values_of<T>(plan) + first * n, place.quad);
    QuadSums sums;
    int64_t pixel = first + place.row;
    for (; pixel + (kAtOnce - 1) * plan.rows < end; pixel += kAtOnce * plan.rows) {
        float4 v[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            v[i] = quad_of(x + (pixel + i * plan.rows) * n);
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            sums.add(v[i], pivot);
        }
    }
    for (; pixel < end; pixel += plan.rows) {
        sums.add(quad_of(x + pixel * n), pivot);
    }
    return sums;
}

// Sum over a warp; all lanes get it.
__device__ double warp_sum(double v) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        v += __shfl_xor_sync(0xffffffff, v, step);
    }
    return v;
}

// Joins the threads' sums [2][rows][channels] to the moments of each group; a warp takes a group.
template <typename T>
__device__ void join_threads(const NormPlan& plan, const float* sums, int64_t first, int64_t end) {
    const int n = plan.x.channels;
    const int size = n / kNormGroups;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int group = static_cast<int>(threadIdx.x) / 32; group < kNormGroups; group += kWarps) {
        double sum = 0;
        double squares = 0;
        for (int i = lane; i < size * plan.rows; i += 32) {
            const int at = i / size * n + group * size + i % size;
            sum += static_cast<double>(sums[at]);
            squares += static_cast<double>(sums[plan.rows * n + at]);
        }
        sum = warp_sum(sum);
        squares = warp_sum(squares);
        if (lane == 0) {
            const auto count = static_cast<double>((end - first) * size);
            const auto pivot =
                static_cast<double>(value_of(values_of<T>(plan) + first * n + group * size));
            plan.moments[static_cast<int64_t>(blockIdx.x) * kNormGroups + group] = {
                pivot + sum / count, squares - sum * sum / count};
        }
    }
}

template <typename T>
__global__ void __launch_bounds__(kNormThreads) take_moments(const NormPlan plan) {
    __shared__ float4 sums[2 * kNormThreads];
    const auto [first, end] = range_of(plan, blockIdx.x);
    const Place place = place_in(plan);
    if (!place.idle) {
        const QuadSums mine = sums_of_chunk<T>(plan, place, first, end);
        sums[threadIdx.x] = mine.sum;
        sums[plan.rows * plan.quads + static_cast<int>(threadIdx.x)] = mine.squares;
    }
    __syncthreads();
    join_threads<T>(plan, reinterpret_cast<const float*>(sums), first, end);
}

// ---- Moments of all pixels: one block for each group ----

// Sum over the block; all threads get it.
__device__ double block_sum(double v) {
    __shared__ double warps[kWarps];
    v = warp_sum(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        warps[threadIdx.x / 32] = v;
    }
    __syncthreads();
    double sum = 0;
    for (int i = 0; i < kWarps; ++i) {
        sum += warps[i];
    }
    return sum;
}

// Moments of this block's group over n parts; part(i) gives how many values are in part i and their
// moments. All threads get them.
template <typename F>
__device__ Moments join_parts(int64_t n, double n_values, const F& part) {
    double mean = 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < n; i += kNormThreads) {
        double count = 0;
        const Moments m = part(i, count);
        mean += count * m.mean;
    }
    mean = block_sum(mean) / n_values;
    double squares = 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < n; i += kNormThreads) {
        double count = 0;
        const Moments m = part(i, count);
        squares += m.squares + count * (m.mean - mean) * (m.mean - mean);
    }
    return {mean, block_sum(squares)};
}

__device__ Moments join_chunks(const NormPlan& plan) {
    const auto size = static_cast<double>(plan.x.channels / kNormGroups);
    return join_parts(plan.n_chunks, static_cast<double>(plan.n_pixels) * size,
                      [&](int64_t i, double& count) {
                          const auto [first, end] = range_of(plan, i);
                          count = static_cast<double>(end - first) * size;
                          return plan.moments[i * kNormGroups + blockIdx.x];
                      });
}

__device__ void write_scale(const NormPlan& plan, const Moments& moments, int64_t n_pixels) {
    const auto size = static_cast<double>(plan.x.channels / kNormGroups);
    const double variance = moments.squares / (static_cast<double>(n_pixels) * size);
    if (threadIdx.x == 0) {
        plan.joined[blockIdx.x] = {
            static_cast<float>(moments.mean),
            static_cast<float>(1 / sqrt(variance + static_cast<double>(kNormEps)))};
    }
}

__global__ void __launch_bounds__(kNormThreads) scale_of_chunks(const NormPlan plan) {
    write_scale(plan, join_chunks(plan), plan.n_pixels);
}

__global__ void __launch_bounds__(kNormThreads) moments_of_chunks(const NormPlan plan, double* to) {
    const Moments moments = join_chunks(plan);
    if (threadIdx.x == 0) {
        to[blockIdx.x] = moments.mean;
        to[kNormGroups + blockIdx.x] = moments.squares;
    }
}

__global__ void __launch_bounds__(kNormThreads)
    scale_of_bands(const NormPlan plan, const GroupNormArgs args) {
    const auto size = static_cast<double>(plan.x.channels / kNormGroups);
    const Moments moments = join_parts(
        args.n_bands, static_cast<double>(args.all_pixels) * size, [&](int64_t i, double& count) {
            const int64_t left = args.all_pixels - i * args.band_pixels;
            count = static_cast<double>(min(args.band_pixels, left)) * size;
            const double* band = args.moments + i * 2 * kNormGroups + blockIdx.x;
            return Moments{band[0], band[kNormGroups]};
        });
    write_scale(plan, moments, args.all_pixels);
}

// ---- Result ----

struct Affine {
    float mean, scale, bias;

    template <bool silu>
    __device__ float of(float v) const {
        const float y = (v - mean) * scale + bias;
        return (silu ? __fdividef(y, 1 + __expf(-y)) : y) * kScale;
    }
};

__device__ Affine affine_of(const NormPlan& plan, const GroupNormArgs& args, int channel) {
    const MeanAndScale group = plan.joined[channel / (plan.x.channels / kNormGroups)];
    return {group.mean, group.scale * args.weight[channel], args.bias[channel]};
}

template <bool silu>
__device__ void apply_to_quad(const Affine (&affine)[4], const float4& v, half* to) {
    const half2 y[2] = {
        __floats2half2_rn(affine[0].of<silu>(v.x), affine[1].of<silu>(v.y)),
        __floats2half2_rn(affine[2].of<silu>(v.z), affine[3].of<silu>(v.w)),
    };
    *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(y);
}

constexpr int kApplyRounds = 4;

template <bool silu, typename T>
__global__ void __launch_bounds__(kNormThreads)
    apply_norm(const NormPlan plan, const GroupNormArgs args) {
    const Place place = place_in(plan);
    if (place.idle) {
        return;
    }
    const int64_t n = plan.x.channels;
    const T* x = values_of<T>(plan) + place.quad * 4;
    half* y = args.y + place.quad * 4;
    Affine affine[4];
    for (int i = 0; i < 4; ++i) {
        affine[i] = affine_of(plan, args, place.quad * 4 + i);
    }
    // From the end on: there lies what the pass before has left in the cache.
    const int64_t block = static_cast<int64_t>(gridDim.x) - 1 - blockIdx.x;
    int64_t pixel = block * plan.rows * kAtOnce * kApplyRounds + place.row;
    for (int round = 0; round < kApplyRounds; ++round, pixel += kAtOnce * plan.rows) {
        float4 v[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            const int64_t at = min(pixel + i * plan.rows, plan.n_pixels - 1);
            v[i] = quad_of(x + at * n);
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            const int64_t at = pixel + i * plan.rows;
            if (at < plan.n_pixels) {
                apply_to_quad<silu>(affine, v[i], y + at * n);
            }
        }
    }
}

// ---- Launch ----

// Those of the last strip may be fewer.
int64_t chunks_of(const NormPlan& plan) {
    const int64_t left = plan.n_pixels % plan.strip;
    return plan.n_pixels / plan.strip * plan.in_strip + (left + plan.chunk - 1) / plan.chunk;
}

NormPlan plan_of(const NormMap& x, void* workspace) {
    NormPlan plan = {};
    plan.x = x;
    plan.quads = x.channels / 4;
    plan.rows = kNormThreads / plan.quads;
    plan.n_pixels = x.width * x.rows;
    plan.strip = kStripRows * x.width;
    const int64_t all_pixels = x.width * x.height;
    const int64_t wanted = std::max(std::clamp(all_pixels / kManyChunks, kLeastPixels, kMostPixels),
                                    all_pixels / kMostChunks);
    plan.in_strip = std::max(int64_t{1}, plan.strip / wanted);
    plan.chunk = (plan.strip + plan.in_strip - 1) / plan.in_strip;
    plan.n_chunks = chunks_of(plan);
    plan.moments = static_cast<Moments*>(workspace);
    plan.joined = reinterpret_cast<MeanAndScale*>(plan.moments + plan.n_chunks * kNormGroups);
    return plan;
}

bool is_valid(const NormMap& x) {
    return x.width > 0 && x.rows > 0 && x.rows <= x.height && x.channels > 0 &&
           x.channels % kNormGroups == 0 && x.channels <= 4 * kNormThreads;
}

void launch_moments(const NormPlan& plan, cudaStream_t stream) {
    const auto blocks = static_cast<unsigned>(plan.n_chunks);
    if (plan.x.is_half) {
        take_moments<half><<<blocks, kNormThreads, 0, stream>>>(plan);
    } else {
        take_moments<float><<<blocks, kNormThreads, 0, stream>>>(plan);
    }
}

template <typename T>
void launch_norm(const NormPlan& plan, const GroupNormArgs& args, cudaStream_t stream) {
    const int64_t pixels = static_cast<int64_t>(plan.rows) * kAtOnce * kApplyRounds;
    const auto blocks = static_cast<unsigned>((plan.n_pixels + pixels - 1) / pixels);
    if (args.silu) {
        apply_norm<true, T><<<blocks, kNormThreads, 0, stream>>>(plan, args);
    } else {
        apply_norm<false, T><<<blocks, kNormThreads, 0, stream>>>(plan, args);
    }
}

}  // namespace

size_t group_norm_workspace_bytes(const NormMap& x) {
    if (!is_valid(x)) {
        return 0;
    }
    const auto n_chunks = static_cast<size_t>(plan_of(x, nullptr).n_chunks);
    return kNormGroups * (n_chunks * sizeof(Moments) + sizeof(MeanAndScale));
}

cudaError_t group_moments(const MomentsArgs& args, cudaStream_t stream) {
    if (!is_valid(args.x)) {
        return cudaErrorInvalidValue;
    }
    const NormPlan plan = plan_of(args.x, args.workspace);
    launch_moments(plan, stream);
    moments_of_chunks<<<kNormGroups, kNormThreads, 0, stream>>>(plan, args.moments);
    return cudaGetLastError();
}

cudaError_t group_norm(const GroupNormArgs& args, cudaStream_t stream) {
    if (!is_valid(args.x)) {
        return cudaErrorInvalidValue;
    }
    const NormPlan plan = plan_of(args.x, args.workspace);
    if (args.moments != nullptr) {
        scale_of_bands<<<kNormGroups, kNormThreads, 0, stream>>>(plan, args);
    } else {
        launch_moments(plan, stream);
        scale_of_chunks<<<kNormGroups, kNormThreads, 0, stream>>>(plan);
    }
    if (args.x.is_half) {
        launch_norm<half>(plan, args, stream);
    } else {
        launch_norm<float>(plan, args, stream);
    }
    return cudaGetLastError();
}

}  // namespace flux2::cuda
