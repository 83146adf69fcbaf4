// Operations on tokens in the form for NVIDIA GPUs, computed by plain nodes on the CPU.
#include "compute/ops/token_ops.hpp"

#include "checkpoints/checkpoint.hpp"
#include "checkpoints/inventory.hpp"
#include "models/transformer_network.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

namespace flux2 {
namespace {

constexpr Form kCudaForm = {
    .operations = Operations::cuda, .activations = GGML_TYPE_BF16, .exact = false};

// Two tokens of four values; x is computed, as the residual stream is.
struct GatedSum {
    explicit GatedSum(const Backend& backend, bool keep_taps = false)
        : g(backend, 32, kCudaForm, keep_taps) {
        x = g.tap("x", ggml_scale(g, in, 2));
        const ModSpans spans = {{2, {.shift = nullptr, .scale = nullptr, .gate = gate}}};
        sum = add_gated_onto(g, x, branch, spans);
        result = ggml_scale(g, sum, 10);
        g.finish(result);
        g.set(in, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
        g.set(branch, std::vector<float>{1, 1, 1, 1, 2, 2, 2, 2});
        g.set(gate, std::vector<float>{1, 0, -1, 0.5f});
        g.compute();
    }

    Graph g;
    ggml_tensor* in = g.input_f32("in", {4, 2});
    ggml_tensor* branch = g.input_f32("branch", {4, 2});
    ggml_tensor* gate = g.input_f32("gate", {4});
    ggml_tensor *x, *sum, *result;
};

const std::vector<float> kExpected = {30, 40, 50, 85, 120, 120, 120, 170};

TEST_CASE("a gated sum takes the memory of what nothing reads later") {
    const Backend backend("CPU", 1);
    GatedSum made(backend);
    CHECK(made.sum->data == made.x->data);
    CHECK(made.g.read(made.result).data == kExpected);
}

TEST_CASE("a gated sum leaves alone what is tapped") {
    const Backend backend("CPU", 1);
    GatedSum made(backend, /*keep_taps=*/true);
    CHECK(made.g.read(made.result).data == kExpected);
    CHECK(made.g.read_taps().at("x").data == std::vector<float>{2, 4, 6, 8, 10, 12, 14, 16});
}

// The velocity that a network predicts for inputs without a pattern, in plain nodes.
std::vector<float> velocity(const Backend& backend, const TransformerNetwork& network,
                            const TransformerSizes& sizes, const TransformerShape& shape,
                            bool keep_taps) {
    Graph g(backend, 4096, kCudaForm, keep_taps);
    const StepInputs in = declare_inputs(g, sizes, shape);
    const PositionInputs pos = declare_positions(g, shape);
    const auto theta = static_cast<float>(sizes.rope_theta);
    const AttentionLayout layout{shape.mode,
                                 shape.n_txt,
                                 shape.n_img,
                                 0,
                                 shape.n_pictures * shape.n_texts,
                                 rope_of_axes(g, pos, sizes.head_dim, theta)};
    const TimeMods time = time_mods(g, network, in);
    Flow flow = begin_network(g, network, in, layout, shape.n_texts);
    run_blocks(g, network, flow, time, layout, {}, 0,
               network.double_blocks.size() + network.single_blocks.size());
    ggml_tensor* result = end_network(g, network, flow, time, layout);
    g.finish(result);
    for (ggml_tensor* input : {in.img, in.txt, in.time}) {
        std::vector<float> values(static_cast<size_t>(ggml_nelements(input)));
        for (size_t i = 0; i < values.size(); ++i) {
            values[i] = std::sin(static_cast<float>(i * i % 1009));
        }
        g.set(input, values);
    }
    for (ggml_tensor* axis : pos) {
        g.set(axis, std::vector<int32_t>(static_cast<size_t>(ggml_nelements(axis)), 3));
    }
    g.compute();
    return g.read(result).data;
}

TEST_CASE("sums in the memory of what they add to change nothing in a network") {
    const Backend backend("CPU", 2);
    const Checkpoint checkpoint = Checkpoint::open(test::fixture("klein/flux2.safetensors"));
    const TransformerSizes sizes = read_transformer_sizes(checkpoint);
    Weights weights(backend, checkpoint, tensor_list(sizes),
                    {.type = TensorType::bf16, .repack = false});
    const TransformerNetwork network =
        load_network([&](size_t) -> Weights& { return weights; }, sizes);
    weights.load();
    for (const int64_t n : {1, 2}) {
        CAPTURE(n);
        TransformerShape shape;
        shape.n_img = 6;
        shape.n_txt = 4;
        shape.n_pictures = n;
        shape.n_texts = n;
        const auto kept = velocity(backend, network, sizes, shape, /*keep_taps=*/true);
        CHECK(kept.front() != 0);
        CHECK(velocity(backend, network, sizes, shape, /*keep_taps=*/false) == kept);
    }
}

TEST_CASE("a gated sum leaves inputs alone") {
    const Backend backend("CPU", 1);
    Graph g(backend, 32, kCudaForm);
    ggml_tensor* x = g.input_f32("x", {4, 2});
    ggml_tensor* gate = g.input_f32("gate", {4});
    const ModSpans spans = {{2, {.shift = nullptr, .scale = nullptr, .gate = gate}}};
    ggml_tensor* sum = add_gated_onto(g, x, x, spans);
    g.finish(sum);
    const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8};
    g.set(x, values);
    g.set(gate, std::vector<float>{1, 0, -1, 0.5f});
    g.compute();
    CHECK(g.read(sum).data == std::vector<float>{2, 2, 0, 6, 10, 6, 0, 12});
    CHECK(g.read(x).data == values);
}

}  // namespace
}  // namespace flux2
