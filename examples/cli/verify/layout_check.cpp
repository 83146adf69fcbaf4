#include "verify/layout_check.hpp"

#include "compute/cpu/repacked.hpp"
#include "compute/cpu/tile_linear.hpp"
#include "compute/graph.hpp"
#include "compute/ops/token_ops.hpp"
#include "formats/tensor_type.hpp"
#include "verify/file_matrix.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace flux2::cli {
namespace {

constexpr int64_t kIn = 512;
constexpr int64_t kMostOut = 96;
constexpr int64_t kMostTokens = 64;

// A matrix [kIn, kMostOut] of some type, inputs [kIn, kMostTokens], and their product.
struct Operands {
    TensorType type;
    FileMatrix matrix;
    std::vector<float> x;
    std::vector<float> sums;  // [kMostOut, kMostTokens]

    Operands(TensorType type_, RandomValues& random)
        : type(type_),
          matrix(make_file_matrix(type, kIn, random.get(1, kIn * kMostOut, 0.05f))),
          x(random.get(2, kIn * kMostTokens, 1)) {
        for (int64_t token = 0; token < kMostTokens; ++token) {
            for (int64_t row = 0; row < kMostOut; ++row) {
                double sum = 0;
                for (int64_t i = 0; i < kIn; ++i) {
                    sum += double{matrix.values[static_cast<size_t>(row * kIn + i)]} *
                           double{x[static_cast<size_t>(token * kIn + i)]};
                }
                sums.push_back(static_cast<float>(sum));
            }
        }
    }

    // The product of the first rows of both.
    HostTensor plain_sums(int64_t n_out, int64_t n) const {
        HostTensor y({n_out, n, 1, 1});
        for (int64_t token = 0; token < n; ++token) {
            std::copy_n(sums.begin() + token * kMostOut, n_out, y.data.begin() + token * n_out);
        }
        return y;
    }
};

struct Layout {
    std::string name;
    ggml_backend_buffer_type_t memory;
    void (*mark)(ggml_tensor* matrix) = nullptr;  // for a multiply of ours
};

std::vector<Layout> layouts_of(const Backend& backend, const ggml_tensor* matrix) {
    std::vector<Layout> layouts = {{"plain", backend.cpu_buffer_type()}};
    for (const ggml_backend_buffer_type_t memory : backend.device().repack_buffer_types(matrix)) {
        layouts.push_back({ggml_backend_buft_name(memory), memory});
    }
    if (cpu::suits_repacking(matrix)) {
        layouts.push_back({"own layout", backend.cpu_buffer_type(), cpu::mark_repacked});
    }
    if (cpu::suits_tiles(matrix)) {
        layouts.push_back(
            {cpu::tiles_name(matrix), backend.cpu_buffer_type(), cpu::mark_for_tiles});
    }
    return layouts;
}

// A tensor without memory yet, and its context.
struct Matrix {
    ggml_context_ptr context;
    ggml_tensor* tensor;

    Matrix(TensorType type, int64_t n_out)
        : context(ggml_init(
              {.mem_size = ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true})),
          tensor(ggml_new_tensor_2d(context.get(), static_cast<ggml_type>(type), kIn, n_out)) {}
};

HostTensor multiply(const Backend& backend, const Operands& operands, const Layout& layout,
                    int64_t n_out, int64_t n) {
    constexpr size_t kMaxNodes = 16;
    const Matrix w(operands.type, n_out);
    const TensorBuffer buffer = backend.allocate(std::array{w.tensor}, layout.memory, "a matrix");
    buffer.set_usage(GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    const auto blocks = std::span(operands.matrix.blocks).first(ggml_nbytes(w.tensor));
    if (layout.mark != nullptr) {
        layout.mark(w.tensor);
    }
    if (cpu::is_repacked(w.tensor)) {
        cpu::repack(blocks, 0, w.tensor);
    } else {
        ggml_backend_tensor_set(w.tensor, blocks.data(), 0, blocks.size());
    }
    Graph graph(backend, kMaxNodes, {.operations = Operations::cpu});
    ggml_tensor* x = graph.input_f32("x", {kIn, n});
    ggml_tensor* y = linear(graph, w.tensor, x);
    graph.finish(y);
    graph.set(x, std::span(operands.x).first(static_cast<size_t>(kIn * n)));
    graph.compute();
    return graph.read(y);
}

// Inputs are rounded as the kernels of that type take them: to 8 bits with a scale for every 32 or
// 256 of them, to BF16 or to F16.
double limit_for(TensorType type) {
    return type == TensorType::f32 ? 1e-5 : type == TensorType::f16 ? 2e-3 : 1.5e-2;
}

}  // namespace

void check_weight_layouts(const Backend& backend, RandomValues& random, Report& report) {
    for (const TensorType type : matrix_types()) {
        const Operands operands(type, random);
        // The second width is not a multiple of the tile width of most kernels.
        for (const int64_t n_out : {kMostOut, int64_t{36}}) {
            const Matrix matrix(type, n_out);
            for (const Layout& layout : layouts_of(backend, matrix.tensor)) {
                for (const int64_t n : {int64_t{1}, int64_t{7}, kMostTokens}) {
                    report.compare_values(
                        type_name(type) + ", " + layout.name,
                        "linear, " + std::to_string(n_out) + " by " + std::to_string(n),
                        multiply(backend, operands, layout, n_out, n),
                        operands.plain_sums(n_out, n), limit_for(type));
                }
            }
        }
    }
}

}  // namespace flux2::cli
