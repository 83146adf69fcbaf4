#include "base/random.hpp"
#include "compute/cpu/matrix_tiles.hpp"
#include "compute/cpu/q8_linear.hpp"
#include "compute/cpu/repacked.hpp"
#include "compute/plain/token_nodes.hpp"

#include <doctest/doctest.h>
#include <ggml.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

using namespace flux2;

namespace {

struct Case {
    int64_t in, out, n;
    float size = 1;
};

std::vector<float> random_values(int64_t n, uint64_t seed) {
    std::vector<float> values =
        draw_normal(Generator::cpu_f32, seed, static_cast<size_t>((n + 15) / 16 * 16));
    values.resize(static_cast<size_t>(n));
    return values;
}

// A row rounded to Q8_0: each block of 32 values in 127 steps of its largest value, the step in
// F16.
std::vector<double> rounded(const float* row, int64_t n) {
    std::vector<double> values;
    for (int64_t first = 0; first < n; first += 32) {
        float most = 0;
        for (int64_t i = first; i < first + 32; ++i) {
            most = std::max(most, std::abs(row[i]));
        }
        const float step = most / 127;
        const float stored = ggml_fp16_to_fp32(ggml_fp32_to_fp16(step));
        for (int64_t i = first; i < first + 32; ++i) {
            const double steps = most > 0 ? std::round(static_cast<double>(row[i] / step)) : 0;
            values.push_back(steps * static_cast<double>(stored));
        }
    }
    return values;
}

std::vector<float> compute(const Case& c, const std::vector<float>& weights,
                           const std::vector<float>& x, int n_threads) {
    const Backend backend("CPU", n_threads);
    const ggml_context_ptr context(ggml_init(
        {.mem_size = 2 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    ggml_tensor* w = ggml_new_tensor_2d(context.get(), GGML_TYPE_Q8_0, c.in, c.out);
    REQUIRE(cpu::suits_q8_tiles(w));
    const TensorBuffer buffer = backend.allocate(std::array{w}, backend.cpu_buffer_type(), "w");
    std::vector<std::byte> blocks(ggml_nbytes(w));
    ggml_quantize_chunk(GGML_TYPE_Q8_0, weights.data(), blocks.data(), 0, c.out, c.in, nullptr);
    cpu::repack_q8(blocks, w);
    Graph g(backend, 16);
    // Rows with gaps between them, as in a joint projection.
    ggml_tensor* wide = g.input_f32("x", {2 * c.in, c.n});
    ggml_tensor* view =
        ggml_view_2d(g, wide, c.in, c.n, wide->nb[1], static_cast<size_t>(c.in) * sizeof(float));
    ggml_tensor* y = cpu::linear_q8(g, w, view);
    CHECK(operation_of(y) == &own::kLinear);
    CHECK(y->src[0] == w);
    g.finish(y);
    std::vector<float> gaps;
    for (int64_t i = 0; i < c.n; ++i) {
        gaps.insert(gaps.end(), static_cast<size_t>(c.in), 1e9f);
        gaps.insert(gaps.end(), x.begin() + i * c.in, x.begin() + (i + 1) * c.in);
    }
    g.set(wide, std::span<const float>(gaps));
    g.compute();
    return g.read(y).data;
}

void check_case(const Case& c, int n_threads) {
    CAPTURE(c.in);
    CAPTURE(c.out);
    CAPTURE(c.n);
    const std::vector<float> weights = random_values(c.in * c.out, 1);
    std::vector<float> x = random_values(c.in * c.n, 2);
    for (float& value : x) {
        value *= c.size;
    }
    const std::vector<float> y = compute(c, weights, x, n_threads);
    REQUIRE(static_cast<int64_t>(y.size()) == c.out * c.n);
    double error = 0;
    double size = 0;
    for (int64_t row = 0; row < c.n; ++row) {
        const auto a = rounded(x.data() + row * c.in, c.in);
        for (int64_t column = 0; column < c.out; ++column) {
            const auto b = rounded(weights.data() + column * c.in, c.in);
            double expected = 0;
            for (size_t i = 0; i < a.size(); ++i) {
                expected += a[i] * b[i];
            }
            const auto found = static_cast<double>(y[static_cast<size_t>(row * c.out + column)]);
            error += (found - expected) * (found - expected);
            size += expected * expected;
        }
    }
    // A value midway between two steps may be rounded to either; sums are F32.
    CHECK(std::sqrt(error / size) < 1e-3);
}

}  // namespace

TEST_CASE("a product with a Q8_0 matrix in tiles is that of the rounded values") {
    if (!cpu::has_matrix_tiles()) {
        return;
    }
    for (const int n_threads : {1, 2, 3}) {
        check_case({.in = 64, .out = 24, .n = 17}, n_threads);
        check_case({.in = 32, .out = 200, .n = 8}, n_threads);
    }
    check_case({.in = 32, .out = 8, .n = 1}, 2);
    check_case({.in = 3200, .out = 16, .n = 9}, 2);  // more blocks than are multiplied at once
    check_case({.in = 3072, .out = 64, .n = 24}, 2);
    check_case({.in = 96, .out = 40, .n = 7, .size = 1e6f}, 2);
}

TEST_CASE("rows of zeros give zeros") {
    if (!cpu::has_matrix_tiles()) {
        return;
    }
    const Case c = {.in = 64, .out = 8, .n = 3};
    const std::vector<float> y =
        compute(c, random_values(64 * 8, 1), std::vector<float>(64 * 3), /*n_threads=*/1);
    CHECK(y == std::vector<float>(8 * 3));
}

TEST_CASE("other types and sizes are left to ggml") {
    const ggml_context_ptr context(ggml_init(
        {.mem_size = 4 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    CHECK(!cpu::suits_q8_tiles(ggml_new_tensor_2d(context.get(), GGML_TYPE_Q4_0, 64, 64)));
    ggml_tensor* odd = ggml_new_tensor_2d(context.get(), GGML_TYPE_Q8_0, 64, 12);
    CHECK(!cpu::suits_q8_tiles(odd));
    CHECK(!cpu::is_repacked(odd));
}
