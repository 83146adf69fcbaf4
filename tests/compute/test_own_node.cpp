// Our own nodes when there is no memory for their work space.
#include "compute/plain/own_node.hpp"

#include "compute/cpu/winograd.hpp"
#include "compute/plain/token_nodes.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <vector>

namespace flux2 {
namespace {

constexpr size_t kMaxNodes = 16;

void fail_in_first_thread(ggml_tensor*, int ith, int, void*) {
    if (ith == 0) {
        throw std::bad_alloc();
    }
}

void fail_in_last_thread(ggml_tensor*, int ith, int nth, void*) {
    if (ith == nth - 1) {
        throw std::bad_alloc();
    }
}

std::atomic<int> n_later_calls;

void count_call(ggml_tensor*, int, int, void*) {
    ++n_later_calls;
}

// Sets every input of the graph to ones.
void fill_inputs(Graph& graph, std::initializer_list<ggml_tensor*> inputs) {
    for (ggml_tensor* input : inputs) {
        graph.set(input, std::vector<float>(static_cast<size_t>(ggml_nelements(input)), 1.0f));
    }
}

void check_lacks_memory(Graph& graph) {
    const test::CaughtError error = test::error_of([&] { graph.compute(); });
    CHECK(error.kind == ErrorKind::out_of_memory);
    CHECK(error.mentions("no more RAM"));
}

TEST_CASE("a lack of memory in any thread of a node reaches whoever computes, and ends the work") {
    const Backend backend("CPU", 3);
    for (const ggml_custom_op_t function : {fail_in_first_thread, fail_in_last_thread}) {
        Graph graph(backend, kMaxNodes);
        ggml_tensor* x = graph.input_f32("x", {8});
        const std::array<int64_t, 4> ne = {8, 1, 1, 1};
        const OwnOperation fails = {"fails", function};
        const OwnOperation later = {"later", count_call};
        ggml_tensor* y = own_node(graph, {fails, {}, ne}, {x});
        graph.finish(own_node(graph, {later, {}, ne}, {y}));
        fill_inputs(graph, {x});
        n_later_calls = 0;
        check_lacks_memory(graph);
        CHECK(n_later_calls == 0);
    }
}

TEST_CASE("a convolution without room for its tiles fails, and succeeds once there is some") {
    const Backend backend("CPU", 2);
    Graph graph(backend, kMaxNodes);
    ggml_tensor* filter = graph.input_f32("filter", {3, 3, 64, 64});
    ggml_tensor* bias = graph.input_f32("bias", {64});
    ggml_tensor* x = graph.input_f32("x", {64, 32, 32});
    ggml_tensor* y = cpu::winograd_conv(graph, filter, bias, x, nullptr, 1);
    graph.finish(y);
    fill_inputs(graph, {filter, bias, x});
    {
        constexpr size_t kLessThanTiles = 64 << 10;
        const test::AllocationLimit limit(kLessThanTiles);
        check_lacks_memory(graph);
    }
    graph.compute();
    // Ones everywhere: 9 * 64 products and the bias, but for the border.
    CHECK(graph.read(y).data[64 * (32 * 16 + 16)] == doctest::Approx(9 * 64 + 1));
}

TEST_CASE("a plain form without room for a row fails likewise") {
    const Backend backend("CPU", 2);
    Graph graph(backend, kMaxNodes);
    constexpr int64_t kWidth = 32768;
    ggml_tensor* w = graph.input_f32("w", {kWidth, 8});
    ggml_tensor* x = graph.input_f32("x", {kWidth, 4});
    ggml_tensor* y = own::linear(graph, w, x, {GGML_TYPE_F32});
    graph.finish(y);
    fill_inputs(graph, {w, x});
    {
        const test::AllocationLimit limit(64 << 10);
        check_lacks_memory(graph);
    }
    graph.compute();
    CHECK(graph.read(y).data[0] == doctest::Approx(kWidth));
}

TEST_CASE("what is thrown where operations are told reaches whoever computes") {
    Backend backend("CPU", 2);
    Graph graph(backend, kMaxNodes);
    ggml_tensor* x = graph.input_f32("x", {8});
    graph.finish(ggml_scale(graph, x, 2));
    fill_inputs(graph, {x});
    backend.set_on_operation(
        [](const ggml_tensor&, double) { throw Error(ErrorKind::internal, "told"); });
    CHECK(test::error_of([&] { graph.compute(); }).message == "told");
}

}  // namespace
}  // namespace flux2
