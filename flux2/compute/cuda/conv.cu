#include "compute/cuda/conv.hpp"

#include "compute/cuda/conv_results.cuh"
#include "compute/cuda/tensor_core.cuh"

#include <cstddef>
#include <cstdint>

namespace flux2::cuda {
namespace {

// The multiply is [pixels of y] x [taps and channels of x] x [channels of y]. Its inner dimension,
// taps one after another and each with all its channels, is cut into slices of 64 whatever the
// number of channels: so no part of a slice is empty, except at the end.
constexpr int kSlice = 64;
constexpr int kPiece = 8;  // channels in 16 bytes: what one thread copies at a time
constexpr int kPieces = kSlice / kPiece;
constexpr int kRowBytes = kSlice * 2;
constexpr int kSteps = kSlice / 16;  // matrix instructions along a slice

// What the kernel needs beside the arguments.
struct ConvPlan {
    ConvArgs args;
    int y_width, n_pixels;  // of y
    int n_slices;
    int n_across;  // blocks side by side, for the same pixels
    int pad;       // zeros at the left and the top
    int shift;     // scale is 1 << shift
};

// A block computes pixels_ x out_ results, each of its warps 1 / (down * across) of them. `stages`
// slices are in shared memory at a time: one is multiplied while the others arrive.
template <int pixels_, int out_, int down, int across, int stages>
struct Tile {
    static constexpr int kPixels = pixels_;
    static constexpr int kOut = out_;
    static constexpr int kAcross = across;
    static constexpr int kStages = stages;
    static constexpr int kThreads = 32 * down * across;
    static constexpr int kWarpPixels = kPixels / down;
    static constexpr int kWarpOut = kOut / across;
    static constexpr int kPixelBlocks = kWarpPixels / 16;
    static constexpr int kOutBlocks = kWarpOut / 16;
    static constexpr int kRowsAtOnce = kThreads / kPieces;    // rows that all threads copy together
    static constexpr int kPixelRows = kPixels / kRowsAtOnce;  // rows a thread copies
    static constexpr int kOutRows = kOut / kRowsAtOnce;
    static constexpr int kPixelBytes = kPixels * kRowBytes;
    static constexpr int kStageBytes = (kPixels + kOut) * kRowBytes;
    static constexpr int kBytes = kStages * kStageBytes;
    static_assert(kWarpPixels % 16 == 0 && kWarpOut % 16 == 0);
    static_assert(kPixels % kRowsAtOnce == 0 && kOut % kRowsAtOnce == 0 && kRowsAtOnce % 8 == 0);
};

// Where this block's part of y begins. Blocks for the same pixels run side by side: the first of
// them gets the pixels from memory, the others from the cache.
template <typename T>
__device__ int first_out(const ConvPlan& plan) {
    return static_cast<int>(blockIdx.x) % plan.n_across * T::kOut;
}

template <typename T>
__device__ int first_pixel(const ConvPlan& plan) {
    return static_cast<int>(blockIdx.x) / plan.n_across * T::kPixels;
}

// ---- Global to shared memory ----

// In shared memory a slice is rows of 128 bytes, whose pieces are shuffled with the row's number:
// eight rows' pieces of the same channels lie in different banks.
__device__ uint32_t place_of(int row, int piece) {
    return static_cast<uint32_t>(row * kRowBytes + ((piece ^ (row & 7)) * 16));
}

// Copies this thread's share of one slice after another: in each row the same piece.
template <typename T>
class Feeder {
  public:
    __device__ Feeder(const ConvPlan& plan, uint32_t shared)
        : plan_(plan),
          channel_(static_cast<int>(threadIdx.x) % kPieces * kPiece),
          first_row_(static_cast<int>(threadIdx.x) / kPieces),
          to_(shared + place_of(first_row_, static_cast<int>(threadIdx.x) % kPieces)),
          out_left_(plan.args.out - first_out<T>(plan) - first_row_) {
        const int pixel = first_pixel<T>(plan) + first_row_;
#pragma unroll
        for (int i = 0; i < T::kPixelRows; ++i) {
            constexpr int kOutside = -(1 << 15);
            const int at = pixel + i * T::kRowsAtOnce;
            const int y = at / plan.y_width;
            top_[i] = at < plan.n_pixels ? y * plan.args.stride - plan.pad : kOutside;
            left_[i] = (at - y * plan.y_width) * plan.args.stride - plan.pad;
        }
        weight_ = plan.args.weight +
                  static_cast<int64_t>(plan.args.out - out_left_) * plan.args.in + channel_;
        wrap();
    }

    // Rows [first, end) of the pixels a thread copies.
    template <int first, int end>
    __device__ void copy_pixels(int stage) const {
        const ConvArgs& a = plan_.args;
        const half* x = a.x + channel_;
        const uint32_t to = to_ + static_cast<uint32_t>(stage * T::kStageBytes);
#pragma unroll
        for (int i = first; i < end; ++i) {
            const int row = top_[i] + down_;
            const int column = left_[i] + across_;
            const bool inside =
                static_cast<unsigned>(row) < static_cast<unsigned>(a.height << plan_.shift) &&
                static_cast<unsigned>(column) < static_cast<unsigned>(a.width << plan_.shift);
            const int pixel = (row >> plan_.shift) * a.width + (column >> plan_.shift);
            copy_16(to + i * T::kRowsAtOnce * kRowBytes, x + static_cast<int64_t>(pixel) * a.in,
                    inside && down_ < a.size);
        }
    }

    __device__ void copy_weights(int stage) const {
        const uint32_t to = to_ + static_cast<uint32_t>(stage * T::kStageBytes + T::kPixelBytes);
#pragma unroll
        for (int i = 0; i < T::kOutRows; ++i) {
            copy_16(to + i * T::kRowsAtOnce * kRowBytes,
                    weight_ + i * T::kRowsAtOnce * plan_.args.in,
                    i * T::kRowsAtOnce < out_left_ && down_ < plan_.args.size);
        }
    }

    __device__ void copy(int stage) const {
        copy_pixels<0, T::kPixelRows>(stage);
        copy_weights(stage);
    }

    // To the next slice.
    __device__ void advance() {
        channel_ += kSlice;
        weight_ += kSlice;
        wrap();
    }

  private:
    // Past a tap's last channel comes the next tap; past the last tap there are zeros.
    __device__ void wrap() {
        const ConvArgs& a = plan_.args;
        while (channel_ >= a.in) {
            channel_ -= a.in;
            weight_ += static_cast<int64_t>(a.out - 1) * a.in;
            if (++across_ == a.size) {
                across_ = 0;
                ++down_;
            }
        }
    }

    const ConvPlan& plan_;
    int channel_;
    int first_row_;
    uint32_t to_;
    int out_left_;               // output channels from this thread's first row on
    int down_ = 0, across_ = 0;  // the tap
    const half* weight_;
    int top_[T::kPixelRows], left_[T::kPixelRows];  // where the filter's first tap lies
};

// ---- The multiply ----

template <typename T>
struct Sums {
    float v[T::kPixelBlocks][T::kOutBlocks][2][4] = {};
};

// Operands of one step of 16 along the inner dimension.
template <typename T>
struct Operands {
    uint32_t pixels[T::kPixelBlocks][4];
    uint32_t weights[T::kOutBlocks][4];
};

// Where this lane's rows of its warp's part begin in a stage.
struct LanePlaces {
    uint32_t pixels, weights;
};

template <typename T>
__device__ LanePlaces lane_places(uint32_t shared) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int pixel = warp / T::kAcross * T::kWarpPixels + lane % 16;
    const int out = warp % T::kAcross * T::kWarpOut + lane % 8 + lane / 16 * 8;
    return {shared + place_of(pixel, lane / 16),
            shared + T::kPixelBytes + place_of(out, lane / 8 % 2)};
}

// Tiles begin at multiples of 1024 bytes, so that the step's number may be XORed into the piece's.
template <typename T>
__device__ void load(Operands<T>& to, const LanePlaces& places, int stage, int step) {
    const auto offset = static_cast<uint32_t>(stage * T::kStageBytes);
    const auto flip = static_cast<uint32_t>(step * 32);
#pragma unroll
    for (int i = 0; i < T::kPixelBlocks; ++i) {
        load_matrices(to.pixels[i], ((places.pixels + offset) ^ flip) + i * 16 * kRowBytes);
    }
#pragma unroll
    for (int i = 0; i < T::kOutBlocks; ++i) {
        load_matrices(to.weights[i], ((places.weights + offset) ^ flip) + i * 16 * kRowBytes);
    }
}

template <typename T>
__device__ void multiply(Sums<T>& sums, const Operands<T>& operands) {
#pragma unroll
    for (int i = 0; i < T::kPixelBlocks; ++i) {
#pragma unroll
        for (int j = 0; j < T::kOutBlocks; ++j) {
            const auto& w = operands.weights[j];
            multiply_add(sums.v[i][j][0], operands.pixels[i], w[0], w[1]);
            multiply_add(sums.v[i][j][1], operands.pixels[i], w[2], w[3]);
        }
    }
}

template <typename T>
__device__ void send_first_slices(Feeder<T>& feeder) {
#pragma unroll
    for (int i = 0; i < T::kStages - 1; ++i) {
        feeder.copy(i);
        feeder.advance();
        copies_end_group();
    }
}

// While one step is multiplied the next one's operands are loaded, across slices too; and the copy
// of a slice several ahead is started, a part in each step.
template <typename T>
__device__ void multiply_slices(int n_slices, Feeder<T>& feeder, uint32_t shared, Sums<T>& sums) {
    constexpr int kStages = T::kStages;
    const LanePlaces places = lane_places<T>(shared);
    copies_wait<kStages - 2>();
    __syncthreads();
    Operands<T> operands[2];
    load(operands[0], places, 0, 0);
    int stage = 0;
    int to = kStages - 1;
    for (int slice = 0; slice < n_slices; ++slice) {
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
            if (step == kSteps - 1) {
                copies_end_group();
                copies_wait<kStages - 2>();
                __syncthreads();
                to = stage;
                stage = stage + 1 == kStages ? 0 : stage + 1;
            }
            load(operands[(step + 1) % 2], places, stage, (step + 1) % kSteps);
            if (step == 0) {
                feeder.template copy_pixels<0, T::kPixelRows / 2>(to);
            } else if (step == 1) {
                feeder.template copy_pixels<T::kPixelRows / 2, T::kPixelRows>(to);
            } else if (step == 2) {
                feeder.copy_weights(to);
                feeder.advance();
            }
            multiply(sums, operands[step % 2]);
        }
    }
    copies_wait<0>();
}

// ---- Sums from bias and skip, and to y ----

// Calls f(place in y, channel, the two sums from there on) for all that this thread holds. `whole`:
// all of the block's results exist, so nothing is checked and the memory accesses run together.
template <typename T, bool whole, typename F>
__device__ void for_pairs(const ConvPlan& plan, Sums<T>& sums, const F& f) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int pixel = first_pixel<T>(plan) + warp / T::kAcross * T::kWarpPixels + lane / 4;
    const int channel = first_out<T>(plan) + warp % T::kAcross * T::kWarpOut + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < T::kOutBlocks * 2; ++j) {
#pragma unroll
        for (int i = 0; i < T::kPixelBlocks * 2; ++i) {
            if (whole || (pixel + i * 8 < plan.n_pixels && channel + j * 8 < plan.args.out)) {
                f(static_cast<int64_t>(pixel + i * 8) * plan.args.out + channel + j * 8,
                  channel + j * 8, sums.v[i / 2][j / 2][j % 2] + i % 2 * 2);
            }
        }
    }
}

template <typename T, bool whole>
__device__ void begin(const ConvPlan& plan, Sums<T>& sums) {
    begin_sums<whole>(plan.args, [&](const auto& f) { for_pairs<T, whole>(plan, sums, f); });
}

template <typename T, bool whole>
__device__ void finish(const ConvPlan& plan, Sums<T>& sums) {
    write_sums<whole>(plan.args, [&](const auto& f) { for_pairs<T, whole>(plan, sums, f); });
}

template <typename T>
__global__ void __launch_bounds__(T::kThreads) conv_kernel(const __grid_constant__ ConvPlan plan) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const bool whole = plan.args.out % 2 == 0 && first_out<T>(plan) + T::kOut <= plan.args.out &&
                       first_pixel<T>(plan) + T::kPixels <= plan.n_pixels;
    Feeder<T> feeder(plan, shared_address(shared));
    send_first_slices(feeder);
    Sums<T> sums;
    if (whole) {
        begin<T, true>(plan, sums);
    } else {
        begin<T, false>(plan, sums);
    }
    multiply_slices<T>(plan.n_slices, feeder, shared_address(shared), sums);
    if (whole) {
        finish<T, true>(plan, sums);
    } else {
        finish<T, false>(plan, sums);
    }
}

// ---- Launch ----

int divide_up(int n, int by) {
    return (n + by - 1) / by;
}

ConvPlan plan_of(const ConvArgs& a) {
    return {.args = a,
            .y_width = conv_y_width(a),
            .n_pixels = conv_y_width(a) * conv_y_height(a),
            .n_slices = divide_up(a.size * a.size * a.in, kSlice),
            .n_across = 1,
            .pad = a.size == 3 && a.stride == 1 ? 1 : 0,
            .shift = a.scale == 2 ? 1 : 0};
}

template <typename T>
int n_blocks(const ConvPlan& plan) {
    return divide_up(plan.args.out, T::kOut) * divide_up(plan.n_pixels, T::kPixels);
}

template <typename T>
cudaError_t launch(ConvPlan plan, cudaStream_t stream) {
    const cudaError_t status = cudaFuncSetAttribute(
        conv_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, T::kBytes);
    if (status != cudaSuccess) {
        return status;
    }
    plan.n_across = divide_up(plan.args.out, T::kOut);
    conv_kernel<T>
        <<<static_cast<unsigned>(n_blocks<T>(plan)), T::kThreads, T::kBytes, stream>>>(plan);
    return cudaGetLastError();
}

struct Device {
    int shared_bytes = 0;  // most that a block may have
    int multiprocessors = 0;
};

cudaError_t current_device(Device& device) {
    int id = 0;
    cudaError_t status = cudaGetDevice(&id);
    if (status == cudaSuccess) {
        status = cudaDeviceGetAttribute(&device.shared_bytes,
                                        cudaDevAttrMaxSharedMemoryPerBlockOptin, id);
    }
    if (status == cudaSuccess) {
        status =
            cudaDeviceGetAttribute(&device.multiprocessors, cudaDevAttrMultiProcessorCount, id);
    }
    return status;
}

// The largest of the tiles that fits, unless that leaves multiprocessors without work.
template <typename Large, typename Medium, typename Small>
cudaError_t launch_best(const ConvPlan& plan, const Device& device, cudaStream_t stream) {
    if (Large::kBytes <= device.shared_bytes && n_blocks<Large>(plan) >= device.multiprocessors) {
        return launch<Large>(plan, stream);
    }
    return Medium::kBytes <= device.shared_bytes ? launch<Medium>(plan, stream)
                                                 : launch<Small>(plan, stream);
}

using Large128 = Tile<256, 128, 4, 2, 4>;   // 192 KiB: Hopper, the large Blackwell
using Large96 = Tile<256, 96, 4, 2, 4>;     // 176 KiB
using Medium128 = Tile<128, 128, 2, 2, 3>;  // 96 KiB: all others
using Medium96 = Tile<128, 96, 2, 2, 3>;    // 84 KiB
using Small128 = Tile<128, 128, 2, 2, 2>;   // 64 KiB: Turing
using Small96 = Tile<128, 96, 2, 2, 2>;     // 56 KiB
using Narrow = Tile<128, 32, 4, 1, 3>;      // 60 KiB

// ---- Packing ----

__global__ void pack_filter_kernel(PackFilterArgs args, int padded, int64_t n) {
    const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= n) {
        return;
    }
    const int in = static_cast<int>(at % padded);
    const int out = static_cast<int>(at / padded % args.out);
    const int tap = static_cast<int>(at / padded / args.out);
    half value = __float2half(0.0f);
    if (in < args.in) {
        const int64_t from =
            (static_cast<int64_t>(out) * args.in + in) * args.size * args.size + tap;
        value = args.weight_is_half ? static_cast<const half*>(args.weight)[from]
                                    : __float2half(static_cast<const float*>(args.weight)[from]);
    }
    args.packed[at] = value;
}

}  // namespace

int conv_y_width(const ConvArgs& args) {
    return args.width * args.scale / args.stride;
}

int conv_y_height(const ConvArgs& args) {
    return args.height * args.scale / args.stride;
}

bool conv_takes(const ConvArgs& a) {
    const bool plain = a.stride == 1 && a.scale == 1;
    const bool size_1 = a.size == 1 && plain;
    const bool size_3 = a.size == 3 && (plain || (a.stride == 2 && a.scale == 1) ||
                                        (a.stride == 1 && a.scale == 2));
    return (size_1 || size_3) && a.in > 0 && a.in % kPiece == 0 && a.out > 0 &&
           conv_y_width(a) > 0 && conv_y_height(a) > 0 && a.width < 1 << 15 && a.height < 1 << 15;
}

cudaError_t conv(const ConvArgs& args, cudaStream_t stream) {
    if (!conv_takes(args)) {
        return cudaErrorInvalidValue;
    }
    Device device;
    const cudaError_t status = current_device(device);
    if (status != cudaSuccess) {
        return status;
    }
    const ConvPlan plan = plan_of(args);
    if (args.out <= Narrow::kOut) {
        return launch<Narrow>(plan, stream);
    }
    if (args.out % 96 == 0 && args.out % 128 != 0) {
        return launch_best<Large96, Medium96, Small96>(plan, device, stream);
    }
    return launch_best<Large128, Medium128, Small128>(plan, device, stream);
}

cudaError_t pack_filter(const PackFilterArgs& args, cudaStream_t stream) {
    if (args.in <= 0 || args.out <= 0 || (args.size != 1 && args.size != 3)) {
        return cudaErrorInvalidValue;
    }
    constexpr int kThreads = 256;
    const int padded = padded_channels(args.in);
    const int64_t n = static_cast<int64_t>(args.size) * args.size * args.out * padded;
    const auto blocks = static_cast<unsigned>((n + kThreads - 1) / kThreads);
    pack_filter_kernel<<<blocks, kThreads, 0, stream>>>(args, padded, n);
    return cudaGetLastError();
}

}  // namespace flux2::cuda
