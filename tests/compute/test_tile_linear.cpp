#include "compute/cpu/amx_tiles.hpp"
#include "compute/cpu/code_linear.hpp"
#include "compute/cpu/code_panels.hpp"
#include "compute/cpu/matrix_tiles.hpp"
#include "compute/cpu/repacked.hpp"
#include "compute/cpu/tile_linear.hpp"
#include "compute/plain/token_nodes.hpp"
#include "formats/tensor_type.hpp"
#include "support/needs.hpp"
#include "support/values.hpp"
#include "verify/file_matrix.hpp"

#include <doctest/doctest.h>
#include <ggml.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

using namespace flux2;

namespace {

// Whether this CPU multiplies such matrices as integers.
bool is_coded(TensorType type) {
    return cpu::is_multiplied_as_codes(static_cast<ggml_type>(type)) ||
           cpu::is_multiplied_as_wide_codes(static_cast<ggml_type>(type));
}

// The largest code of a row that it multiplies with them.
float most_code(TensorType type) {
    return cpu::is_multiplied_as_wide_codes(static_cast<ggml_type>(type)) ? 32767 : 127;
}

bool suits_tiles(TensorType type, int64_t in, int64_t out) {
    const ggml_context_ptr context(
        ggml_init({.mem_size = ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    return cpu::suits_tiles(
        ggml_new_tensor_2d(context.get(), static_cast<ggml_type>(type), in, out));
}

// Whether it multiplies in BF16.
bool has_bf16_tiles() {
    return cpu::has_matrix_tiles() || cpu::has_amx();
}

// Whether it multiplies such matrices in F32.
bool has_f32_tiles(TensorType type) {
    return !has_bf16_tiles() && !is_coded(type) && suits_tiles(type, 1280, 80);
}

struct Case {
    TensorType type;
    int64_t in, out, n;
    float size = 1;
};

// The same float with 8 bits of precision, as BF16 has.
double to_8_bits(double x) {
    int exponent = 0;
    const double fraction = std::frexp(x, &exponent);
    return std::ldexp(std::nearbyint(std::ldexp(fraction, 8)), exponent - 8);
}

// What BF16 tiles multiply instead of these values.
std::vector<double> rounded(const std::vector<float>& values, TensorType type) {
    std::vector<double> result;
    for (const float value : values) {
        const auto x = static_cast<double>(value);
        const double first = to_8_bits(x);
        result.push_back(type == TensorType::f16 ? first + to_8_bits(x - first) : first);
    }
    return result;
}

// What 8-bit and 16-bit tiles multiply instead of rows of these values.
std::vector<double> rounded_to_codes(const std::vector<float>& values, float most) {
    std::vector<double> result;
    for (size_t first = 0; first < values.size(); first += 32) {
        float largest = 0;
        for (size_t i = first; i < first + 32; ++i) {
            largest = std::max(largest, std::abs(values[i]));
        }
        for (size_t i = first; i < first + 32; ++i) {
            const float code = std::nearbyint(values[i] * (most / largest));
            result.push_back(static_cast<double>(code) * static_cast<double>(largest) /
                             static_cast<double>(most));
        }
    }
    return result;
}

cli::FileMatrix matrix_of(const Case& c) {
    return cli::make_file_matrix(c.type, c.in, test::normal_values(c.in * c.out, 1));
}

std::vector<float> compute(const Case& c, const cli::FileMatrix& matrix,
                           const std::vector<float>& x, int n_threads) {
    const Backend backend("CPU", n_threads);
    const ggml_context_ptr context(ggml_init(
        {.mem_size = 2 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    ggml_tensor* w = ggml_new_tensor_2d(context.get(), static_cast<ggml_type>(c.type), c.in, c.out);
    REQUIRE(cpu::suits_tiles(w));
    const TensorBuffer buffer = backend.allocate(std::array{w}, backend.cpu_buffer_type(), "w");
    ggml_backend_tensor_set(w, matrix.blocks.data(), 0, matrix.blocks.size());
    Graph g(backend, 16);
    // Rows with gaps between them, as in a joint projection.
    ggml_tensor* wide = g.input_f32("x", {2 * c.in, c.n});
    ggml_tensor* view =
        ggml_view_2d(g, wide, c.in, c.n, wide->nb[1], static_cast<size_t>(c.in) * sizeof(float));
    ggml_tensor* y = cpu::linear_in_tiles(g, w, view);
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

// The error of the product of the values as they are rounded, and of that of the values themselves.
struct Errors {
    double of_rounded, of_exact;
};

Errors errors_of(const Case& c, int n_threads) {
    const cli::FileMatrix matrix = matrix_of(c);
    std::vector<float> x = test::normal_values(c.in * c.n, 2);
    for (float& value : x) {
        value *= c.size;
    }
    const std::vector<float> y = compute(c, matrix, x, n_threads);
    REQUIRE(static_cast<int64_t>(y.size()) == c.out * c.n);
    const bool in_codes = is_coded(c.type);
    const std::vector<double> rounded_x =
        in_codes ? rounded_to_codes(x, most_code(c.type)) : rounded(x, c.type);
    const std::vector<double> rounded_w =
        in_codes ? std::vector<double>(matrix.values.begin(), matrix.values.end())
                 : rounded(matrix.values, c.type);
    double of_rounded = 0, of_exact = 0, size = 0;
    for (int64_t row = 0; row < c.n; ++row) {
        for (int64_t column = 0; column < c.out; ++column) {
            double expected = 0, exact = 0;
            for (int64_t i = 0; i < c.in; ++i) {
                const auto a = static_cast<size_t>(row * c.in + i);
                const auto b = static_cast<size_t>(column * c.in + i);
                expected += rounded_x[a] * rounded_w[b];
                exact += static_cast<double>(x[a]) * static_cast<double>(matrix.values[b]);
            }
            const auto found = static_cast<double>(y[static_cast<size_t>(row * c.out + column)]);
            of_rounded += std::pow(found - expected, 2);
            of_exact += std::pow(found - exact, 2);
            size += exact * exact;
        }
    }
    return {std::sqrt(of_rounded / size), std::sqrt(of_exact / size)};
}

void check_case(const Case& c, int n_threads) {
    CAPTURE(type_name(c.type));
    CAPTURE(c.in);
    CAPTURE(c.out);
    CAPTURE(c.n);
    const Errors errors = errors_of(c, n_threads);
    // Sums are F32, of F16 without the product of the second parts: 2^-16 of a product at most.
    CHECK(errors.of_rounded < 1e-5);
    // Either factor keeps 8 bits, in F16 matrices 16.
    CHECK(errors.of_exact < (c.type == TensorType::f16 ? 1e-5 : 3e-3));
}

}  // namespace

TEST_CASE("a product in BF16 tiles is that of the values rounded to BF16" *
          test::needs(has_bf16_tiles(), "needs AMX or Arm's matrix instructions")) {
    for (const TensorType type : matrix_types()) {
        // With AMX these are repacked (test_amx_linear).
        const bool others =
            cpu::has_amx() && (type == TensorType::q8_0 || type == TensorType::bf16);
        if (type != TensorType::f32 && converts_from_f32(type) && !others) {
            check_case({.type = type, .in = 512, .out = 32, .n = 17}, 2);
            check_case({.type = type, .in = 3328, .out = 96, .n = 40}, 3);
        }
    }
}

TEST_CASE("BF16 tiles of Arm CPUs take other sizes too" *
          test::needs(cpu::has_matrix_tiles(), "needs Arm's matrix instructions")) {
    check_case({.type = TensorType::q4_k, .in = 512, .out = 24, .n = 17}, 2);
    for (const int n_threads : {1, 2, 3}) {
        check_case({.type = TensorType::bf16, .in = 64, .out = 24, .n = 17}, n_threads);
        check_case({.type = TensorType::f16, .in = 40, .out = 200, .n = 8}, n_threads);
    }
    check_case({.type = TensorType::bf16, .in = 8, .out = 8, .n = 1}, 2);
    // More than is multiplied at once.
    for (const TensorType type :
         {TensorType::bf16, TensorType::f16, TensorType::q8_0, TensorType::q4_k}) {
        check_case({.type = type, .in = 3328, .out = 72, .n = 10}, 1);
        check_case({.type = type, .in = 1792, .out = 16, .n = 23}, 2);
        check_case({.type = type, .in = 256, .out = 40, .n = 7, .size = 1e6f}, 2);
    }
}

TEST_CASE("codes are multiplied as integers only where there are no BF16 tiles") {
    CHECK(!(cpu::most_code_bits() > 0 && has_bf16_tiles()));
}

TEST_CASE("a product in F32 tiles is that of the values, as integers that of rounded rows" *
          test::needs(has_f32_tiles(TensorType::f16) || is_coded(TensorType::q4_k),
                      "needs a CPU with AVX2 or dot products and without BF16 tiles")) {
    for (const TensorType type : matrix_types()) {
        if (!is_coded(type) && (!has_f32_tiles(type) || !converts_from_f32(type))) {
            continue;
        }
        for (const int n_threads : {1, 3}) {
            CAPTURE(type_name(type));
            CAPTURE(n_threads);
            // The last part of a row is not as long as the others.
            const Case c = {.type = type, .in = 1280, .out = 80, .n = 11};
            const Errors errors = errors_of(c, n_threads);
            // 7e-3 with 8 bits; steps of 16 bits are as many times smaller as there are more of
            // them.
            const double of_rounding = 7e-3 * 127 / static_cast<double>(most_code(type));
            CHECK(errors.of_exact < (is_coded(type) ? of_rounding : 1e-6));
            CHECK((!is_coded(type) || errors.of_rounded < 1e-6));
        }
    }
    for (const TensorType type : {TensorType::q4_1, TensorType::q8_0}) {
        if (is_coded(type)) {
            // More rows than are multiplied at once, and one.
            for (const int64_t n : {200, 1}) {
                const Case c = {.type = type, .in = 64, .out = 80, .n = n};
                CHECK(errors_of(c, 2).of_rounded < 1e-6);
            }
        }
    }
}

TEST_CASE("rows of zeros give zeros" *
          test::needs(suits_tiles(TensorType::q8_0, 64, 16), "needs tiles for Q8_0")) {
    const Case c = {.type = TensorType::q8_0, .in = 64, .out = 16, .n = 3};
    CHECK(compute(c, matrix_of(c), std::vector<float>(64 * 3), /*n_threads=*/1) ==
          std::vector<float>(16 * 3));
}

TEST_CASE("matrices in F32 and of other sizes are left to ggml; others are marked") {
    CHECK(!suits_tiles(TensorType::f32, 64, 64));
    CHECK(!suits_tiles(TensorType::q8_0, 64, 12));
    // BF16 tiles have steps of 8 values.
    CHECK(suits_tiles(TensorType::f16, 12, 64) == has_f32_tiles(TensorType::f16));
    CHECK(suits_tiles(TensorType::f16, 64, 64) ==
          (has_bf16_tiles() || has_f32_tiles(TensorType::f16)));
    // With AMX Q8_0 is repacked.
    CHECK(
        suits_tiles(TensorType::q8_0, 64, 64) ==
        (cpu::has_matrix_tiles() || has_f32_tiles(TensorType::q8_0) || is_coded(TensorType::q8_0)));
    const ggml_context_ptr context(
        ggml_init({.mem_size = ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    ggml_tensor* w = ggml_new_tensor_2d(context.get(), GGML_TYPE_Q8_0, 64, 64);
    CHECK(!cpu::is_for_tiles(w));
    cpu::mark_for_tiles(w);
    CHECK(cpu::is_for_tiles(w));
    CHECK(!cpu::is_repacked(w));
}
