#include "measure/raw_speed.hpp"

#include "base/check.hpp"
#include "common/random_values.hpp"
#include "compute/cpu/repacked.hpp"
#include "compute/cpu/tile_linear.hpp"
#include "compute/graph.hpp"
#include "compute/ops/layout_multiply.hpp"
#include "formats/tensor_type.hpp"
#include "measure/stopwatch.hpp"

#include <ggml-cpp.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace flux2::cli {
namespace {

constexpr double kLeastShare = 0.01;     // of all multiplies; shapes below are not timed
constexpr double kSecondsEach = 0.3;     // a shape is repeated until this time is over
constexpr double kSecondsOfARow = 0.01;  // long compared with the start of a graph
constexpr int kMostRuns = 10;
constexpr double kMostCopies = 64;

// The tensors of a multiply in device memory; the weight is in the same kind of buffer as in the
// networks.
struct Operands {
    ggml_context_ptr context;
    ggml_tensor *w, *x, *y;
    TensorBuffer weight, others;
};

// Random values, repeated every few rows. With zeros a GPU needs less power and is faster than with
// real weights; they are used only for types that from_f32 cannot write.
void fill(ggml_tensor* tensor) {
    constexpr int64_t kValues = 1 << 18;
    const auto type = static_cast<TensorType>(tensor->type);
    if (!converts_from_f32(type)) {
        return;
    }
    const int64_t width = tensor->ne[0];
    const int64_t n_rows = ggml_nrows(tensor);
    const int64_t n_drawn = std::clamp<int64_t>(kValues / width, 1, n_rows);
    const int64_t n = n_drawn * width;
    const std::vector<float> values = random_values(1, n);
    std::vector<std::byte> encoded(data_bytes(type, n));
    from_f32(type, values, width, encoded);
    // In one call: buffers that repack matrices accept only whole tensors.
    std::vector<std::byte> all;
    for (int64_t row = 0; row < n_rows; row += n_drawn) {
        const auto taken = data_bytes(type, std::min(n_drawn, n_rows - row) * width);
        all.insert(all.end(), encoded.begin(),
                   encoded.begin() + static_cast<std::ptrdiff_t>(taken));
    }
    if (cpu::is_repacked(tensor)) {
        cpu::repack(all, 0, tensor);
    } else {
        ggml_backend_tensor_set(tensor, all.data(), 0, all.size());
    }
}

bool runs_on(const Backend& backend, const ggml_tensor* op) {
    return backend.is_cpu() ||
           ggml_backend_dev_supports_op(ggml_backend_buft_get_device(backend.buffer_type()), op);
}

std::optional<Operands> make_operands(const Backend& backend, const MatMul& shape, bool repacks) {
    constexpr size_t kTensors = 3;
    Operands o;
    o.context.reset(ggml_init(
        {.mem_size = kTensors * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    o.w = ggml_new_tensor_3d(o.context.get(), shape.type, shape.k, shape.m, shape.n_batch);
    o.x = ggml_new_tensor_3d(o.context.get(), GGML_TYPE_F32, shape.k, shape.n, shape.n_batch);
    o.y = ggml_mul_mat(o.context.get(), o.w, o.x);
    ggml_prec_set_acc(o.y, GGML_PREC_F32);  // as the networks need it
    if (!runs_on(backend, o.y)) {
        return std::nullopt;
    }
    const bool own = backend.operations() == Operations::cpu;
    const bool in_tiles = own && cpu::suits_tiles(o.w);
    const bool ours = own && repacks && !in_tiles && cpu::suits_repacking(o.w);
    if (in_tiles) {
        cpu::mark_for_tiles(o.w);
    } else if (ours) {
        cpu::mark_repacked(o.w);
    }
    const auto repack = repacks && !in_tiles && !ours ? backend.repack_buffer_type(o.w) : nullptr;
    try {
        o.weight = backend.allocate(std::array{o.w},
                                    repack != nullptr ? repack : backend.buffer_type(), "a matrix");
        o.others = backend.allocate(std::array{o.x, o.y}, backend.buffer_type(), "a multiply");
    } catch (const Error&) {
        return std::nullopt;  // too large
    }
    if (repack == nullptr) {
        ggml_backend_buffer_clear(o.w->buffer, 0);
    }
    fill(o.w);
    fill(o.x);
    return o;
}

// Best time of a graph with n multiplies, which all write to the same result.
double seconds_of_row(const Backend& backend, const Operands& o, int n) {
    const size_t max_nodes = 2 * static_cast<size_t>(n) + 8;
    Graph graph(backend, max_nodes);
    ggml_tensor* last = nullptr;
    for (int i = 0; i < n; ++i) {
        last = multiply_in_layout(graph, o.w, o.x);
        ggml_backend_tensor_alloc(o.y->buffer, last, o.y->data);
        graph.expand(last);
    }
    graph.finish(last);
    double best = seconds_of([&] { graph.compute(); });
    double total = best;
    // Twice at least: the first run may still load kernels.
    for (int run = 1; run < 2 || (run < kMostRuns && total < kSecondsEach); ++run) {
        const double seconds = seconds_of([&] { graph.compute(); });
        best = std::min(best, seconds);
        total += seconds;
    }
    return best;
}

// Limits the columns so that operands stay below half a gigabyte. Wider multiplies have the same
// speed.
int64_t timed_columns(const MatMul& shape) {
    constexpr int64_t kMostValues = 128'000'000;
    constexpr int64_t kStep = 256;
    const int64_t most = kMostValues / ((shape.k + shape.m) * shape.n_batch) / kStep * kStep;
    return std::min(shape.n, std::max(most, kStep));
}

std::optional<double> seconds_of_multiply(const Backend& backend, const MatMul& shape,
                                          bool repacks) {
    MatMul timed = shape;
    timed.n = timed_columns(shape);
    const std::optional<Operands> operands = make_operands(backend, timed, repacks);
    if (!operands) {
        return std::nullopt;
    }
    double seconds = seconds_of_row(backend, *operands, 1);
    const auto n = static_cast<int>(std::clamp(kSecondsOfARow / seconds, 1.0, kMostCopies));
    if (n > 1) {
        seconds = seconds_of_row(backend, *operands, n) / n;
    }
    return seconds * shape.flops() / timed.flops();
}

}  // namespace

std::optional<double> raw_seconds(const Backend& backend, const GraphWork& work, bool repacks) {
    double flops = 0;
    for (const auto& [shape, count] : work.mat_muls) {
        flops += shape.flops() * static_cast<double>(count);
    }
    double timed_flops = 0;
    double seconds = 0;
    for (const auto& [shape, count] : work.mat_muls) {
        const double flops_of_shape = shape.flops() * static_cast<double>(count);
        if (flops_of_shape < kLeastShare * flops) {
            continue;
        }
        if (const auto each = seconds_of_multiply(backend, shape, repacks)) {
            seconds += *each * static_cast<double>(count);
            timed_flops += flops_of_shape;
        }
    }
    return timed_flops > 0 ? std::optional(seconds * flops / timed_flops) : std::nullopt;
}

}  // namespace flux2::cli
