// Operations counted by hand, and what is not counted.
#include "compute/graph_work.hpp"

#include "compute/graph.hpp"

#include <doctest/doctest.h>

namespace flux2 {
namespace {

// A graph that is never computed.
struct Sketch {
    Backend backend{"CPU", 1};
    Graph graph{backend, 64};

    ggml_tensor* tensor(ggml_type type, int64_t a, int64_t b, int64_t c = 1, int64_t d = 1) {
        return ggml_new_tensor_4d(graph, type, a, b, c, d);
    }
    GraphWork work(ggml_tensor* output) {
        graph.expand(output);
        return work_of(graph.nodes());
    }
};

TEST_CASE("a matrix multiply costs a multiplication and an addition per weight and column") {
    Sketch s;
    ggml_tensor* w = s.tensor(GGML_TYPE_BF16, 8, 5);
    const GraphWork work = s.work(ggml_mul_mat(s.graph, w, s.tensor(GGML_TYPE_F32, 8, 3)));
    CHECK(work.flops == 2 * 8 * 5 * 3);
    REQUIRE(work.mat_muls.size() == 1);
    CHECK(work.mat_muls.begin()->first == MatMul{GGML_TYPE_BF16, 8, 5, 3});
    CHECK(work.mat_muls.begin()->second == 1);
}

TEST_CASE("batched multiplies count once per right-hand side") {
    Sketch s;
    // Two key heads serve four query heads.
    ggml_tensor* k = s.tensor(GGML_TYPE_F32, 8, 5, 2);
    const GraphWork work = s.work(ggml_mul_mat(s.graph, k, s.tensor(GGML_TYPE_F32, 8, 3, 4)));
    CHECK(work.flops == 2 * 8 * 5 * 3 * 4);
    CHECK(work.mat_muls.begin()->first == MatMul{GGML_TYPE_F32, 8, 5, 3, 4});
}

TEST_CASE("multiplies of one shape are counted together, element-wise operations not at all") {
    Sketch s;
    ggml_tensor* x = s.tensor(GGML_TYPE_F32, 16, 3);
    for (int i = 0; i < 3; ++i) {
        x = ggml_mul_mat(s.graph, s.tensor(GGML_TYPE_F16, 16, 16), ggml_silu(s.graph, x));
    }
    const GraphWork work = s.work(ggml_rms_norm(s.graph, ggml_add(s.graph, x, x), 1e-6f));
    CHECK(work.flops == 3 * 2 * 16 * 16 * 3);
    REQUIRE(work.mat_muls.size() == 1);
    CHECK(work.mat_muls.begin()->second == 3);
}

TEST_CASE("attention costs scores and sums, and is no plain multiply") {
    Sketch s;
    ggml_tensor* q = s.tensor(GGML_TYPE_F32, 64, 7, 2);    // 7 queries of 2 heads
    ggml_tensor* kv = s.tensor(GGML_TYPE_F32, 64, 11, 2);  // 11 keys
    const GraphWork work =
        s.work(ggml_flash_attn_ext(s.graph, q, kv, kv, nullptr, 1.0f, 0.0f, 0.0f));
    CHECK(work.flops == 4 * 64 * 7 * 11 * 2);
    CHECK(work.mat_muls.empty());
}

// A filter of 3x3 in steps of 2 fits 4 times into 10 columns and 3 times into 8 rows.
constexpr int kConvFlops = 2 * (3 * 3 * 4) * 6 * (4 * 3);

TEST_CASE("a convolution costs what its filter costs at every pixel it makes") {
    Sketch s;
    ggml_tensor* filter = s.tensor(GGML_TYPE_F16, 3, 3, 4, 6);
    ggml_tensor* x = s.tensor(GGML_TYPE_F32, 10, 8, 4);
    const GraphWork work = s.work(ggml_conv_2d_direct(s.graph, filter, x, 2, 2, 0, 0, 1, 1));
    CHECK(work.flops == kConvFlops);
    REQUIRE(work.mat_muls.size() == 1);
    CHECK(work.mat_muls.begin()->first == MatMul{GGML_TYPE_F16, 3 * 3 * 4, 6, 4 * 3});
}

TEST_CASE("a convolution by way of im2col costs the same") {
    Sketch s;
    ggml_tensor* filter = s.tensor(GGML_TYPE_F16, 3, 3, 4, 6);
    ggml_tensor* x = s.tensor(GGML_TYPE_F32, 10, 8, 4);
    CHECK(s.work(ggml_conv_2d(s.graph, filter, x, 2, 2, 0, 0, 1, 1)).flops == kConvFlops);
}

TEST_CASE("work is divided by what limits it: views cost nothing, a table only the rows read") {
    Sketch s;
    ggml_tensor* table = s.tensor(GGML_TYPE_F32, 8, 1000);
    ggml_tensor* x = ggml_get_rows(s.graph, table, s.tensor(GGML_TYPE_I32, 3, 1));  // [8, 3]
    x = ggml_silu(s.graph, ggml_reshape_2d(s.graph, x, 4, 6));
    s.graph.expand(ggml_mul_mat(s.graph, s.tensor(GGML_TYPE_F32, 4, 5), x));
    const WorkAmounts amounts = amounts_of(s.graph.nodes());
    CHECK(amounts[static_cast<size_t>(WorkKind::linear)] == 2 * 4 * 5 * 6);
    CHECK(amounts[static_cast<size_t>(WorkKind::attention)] == 0);
    CHECK(amounts[static_cast<size_t>(WorkKind::convolution)] == 0);
    // Rows and SiLU read and write 24 floats each.
    CHECK(amounts[static_cast<size_t>(WorkKind::memory)] == 2 * 2 * 24 * sizeof(float));
}

TEST_CASE("attention and convolutions are kinds of their own") {
    Sketch s;
    ggml_tensor* q = s.tensor(GGML_TYPE_F32, 64, 7, 2);
    ggml_tensor* kv = s.tensor(GGML_TYPE_F32, 64, 11, 2);
    const NodeWork attention =
        work_of_node(*ggml_flash_attn_ext(s.graph, q, kv, kv, nullptr, 1.0f, 0.0f, 0.0f));
    CHECK(attention.kind == WorkKind::attention);
    CHECK(attention.amount == 4 * 64 * 7 * 11 * 2);
    ggml_tensor* filter = s.tensor(GGML_TYPE_F16, 3, 3, 4, 6);
    ggml_tensor* x = s.tensor(GGML_TYPE_F32, 10, 8, 4);
    const NodeWork conv = work_of_node(*ggml_conv_2d_direct(s.graph, filter, x, 2, 2, 0, 0, 1, 1));
    CHECK(conv.kind == WorkKind::convolution);
    CHECK(conv.amount == kConvFlops);
}

}  // namespace
}  // namespace flux2
