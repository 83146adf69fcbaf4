#include "compute/cpu/amx_linear.hpp"
#include "compute/cpu/amx_tiles.hpp"
#include "compute/cpu/matrix_tiles.hpp"
#include "compute/cpu/repacked.hpp"
#include "compute/plain/token_nodes.hpp"
#include "support/needs.hpp"
#include "support/values.hpp"

#include <doctest/doctest.h>
#include <ggml.h>

#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

using namespace flux2;

namespace {

struct AmxCase {
    ggml_type type;
    int64_t in, out, n;
};

double to_bf16_and_back(float x) {
    const uint32_t bits = uint32_t{cpu::to_bf16(x)} << 16;
    return static_cast<double>(std::bit_cast<float>(bits));
}

// The rows of a file, and what their values are worth.
struct FileMatrix {
    std::vector<std::byte> rows;
    std::vector<float> values;

    FileMatrix(const AmxCase& c, ggml_tensor* w) : rows(ggml_nbytes(w)) {
        values = test::normal_values(c.in * c.out, 1);
        ggml_quantize_chunk(c.type, values.data(), rows.data(), 0, c.out, c.in, nullptr);
        ggml_get_type_traits(c.type)->to_float(rows.data(), values.data(), c.in * c.out);
    }
};

void check_amx(const AmxCase& c, int n_threads) {
    CAPTURE(ggml_type_name(c.type));
    CAPTURE(c.in);
    CAPTURE(c.n);
    const Backend backend("CPU", n_threads);
    const ggml_context_ptr context(ggml_init(
        {.mem_size = 2 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    ggml_tensor* w = ggml_new_tensor_2d(context.get(), c.type, c.in, c.out);
    REQUIRE(cpu::suits_amx(w));
    const TensorBuffer buffer = backend.allocate(std::array{w}, backend.cpu_buffer_type(), "w");
    const FileMatrix matrix(c, w);
    // A few rows first, then the others.
    const size_t part = static_cast<size_t>(cpu::amx_rows_together()) * w->nb[1];
    const std::span<const std::byte> rows = matrix.rows;
    cpu::repack_amx(rows.subspan(part), cpu::amx_rows_together(), w);
    cpu::repack_amx(rows.first(part), 0, w);
    Graph g(backend, 16);
    // Rows with gaps between them, as in a joint projection.
    ggml_tensor* wide = g.input_f32("x", {2 * c.in, c.n});
    ggml_tensor* x =
        ggml_view_2d(g, wide, c.in, c.n, wide->nb[1], static_cast<size_t>(c.in) * sizeof(float));
    ggml_tensor* y = cpu::linear_amx(g, w, x);
    CHECK(operation_of(y) == &own::kLinear);
    g.finish(y);
    const std::vector<float> values = test::normal_values(2 * c.in * c.n, 2);
    g.set(wide, std::span<const float>(values));
    g.compute();
    const std::vector<float> found = g.read(y).data;
    REQUIRE(static_cast<int64_t>(found.size()) == c.out * c.n);
    double error = 0;
    double size = 0;
    for (int64_t row = 0; row < c.n; ++row) {
        const float* a = values.data() + (2 * row + 1) * c.in;
        for (int64_t column = 0; column < c.out; ++column) {
            const float* b = matrix.values.data() + column * c.in;
            double expected = 0;
            for (int64_t i = 0; i < c.in; ++i) {
                expected += to_bf16_and_back(a[i]) * to_bf16_and_back(b[i]);
            }
            const double difference =
                static_cast<double>(found[static_cast<size_t>(row * c.out + column)]) - expected;
            error += difference * difference;
            size += expected * expected;
        }
    }
    CHECK(std::sqrt(error / size) < 1e-5);  // sums are F32
}

}  // namespace

TEST_CASE("a matrix suits AMX tiles where there are any") {
    const ggml_context_ptr context(
        ggml_init({.mem_size = ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    CHECK(cpu::suits_amx(ggml_new_tensor_2d(context.get(), GGML_TYPE_Q8_0, 64, 64)) ==
          cpu::has_amx());
}

TEST_CASE("a product in AMX tiles is that of values rounded to BF16" *
          test::needs(cpu::has_amx(), "needs AMX")) {
    for (const ggml_type type : {GGML_TYPE_Q8_0, GGML_TYPE_BF16}) {
        for (const int n_threads : {1, 2, 3}) {
            check_amx({type, 64, 96, 17}, n_threads);
            check_amx({type, 32, 224, 32}, n_threads);
        }
        check_amx({type, 32, 32, 1}, 2);
        check_amx({type, 3232, 32, 39}, 2);  // more tiles than are multiplied at once
        check_amx({type, 128, 1120, 65}, 2);
    }
}

TEST_CASE("matrices that do not divide into AMX tiles are left to others") {
    const ggml_context_ptr context(ggml_init(
        {.mem_size = 4 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    CHECK(!cpu::suits_amx(ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, 64, 64)));
    CHECK(!cpu::suits_amx(ggml_new_tensor_2d(context.get(), GGML_TYPE_BF16, 48, 64)));
    ggml_tensor* odd = ggml_new_tensor_2d(context.get(), GGML_TYPE_Q8_0, 64, 40);
    CHECK(!cpu::suits_amx(odd));
    CHECK(!cpu::is_repacked(odd));
    int of_others = 0;
    odd->extra = &of_others;  // as ggml's own repacking sets it
    CHECK(!cpu::is_repacked(odd));
}

TEST_CASE("a marked matrix is known as repacked, and in which layout") {
    const ggml_context_ptr context(ggml_init(
        {.mem_size = 2 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    ggml_tensor* w = ggml_new_tensor_2d(context.get(), GGML_TYPE_Q8_0, 64, 64);
    CHECK(cpu::suits_repacking(w) == cpu::has_amx());
    CHECK(!cpu::is_repacked(w));
    if (cpu::suits_repacking(w)) {
        cpu::mark_repacked(w);
        CHECK(cpu::is_repacked(w));
        CHECK(std::string(cpu::layout_name(w)) == "AMX tiles");
    }
}
