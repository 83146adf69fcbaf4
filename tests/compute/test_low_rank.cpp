// Pairs of low rank beside matrices: y = W x + up (down x), in every form that a CPU computes,
// against sums in double.
#include "adapters/adapter_set.hpp"
#include "checkpoints/checkpoint.hpp"
#include "compute/cpu/low_rank.hpp"
#include "compute/graph.hpp"
#include "compute/ops/token_ops.hpp"
#include "compute/plain/token_nodes.hpp"
#include "compute/weights.hpp"
#include "support/support.hpp"
#include "support/values.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace flux2 {
namespace {

std::vector<float> scattered(size_t n, uint32_t seed) {
    return test::even_values(n, seed, 1.0f);
}

// a [n, in] times w [out, in] -> [n, out]
std::vector<double> times(const std::vector<double>& a, const std::vector<float>& w, size_t in) {
    const size_t n = a.size() / in;
    const size_t out = w.size() / in;
    std::vector<double> y(n * out);
    for (size_t t = 0; t < n; ++t) {
        for (size_t o = 0; o < out; ++o) {
            for (size_t i = 0; i < in; ++i) {
                y[t * out + o] += a[t * in + i] * static_cast<double>(w[o * in + i]);
            }
        }
    }
    return y;
}

// Sums of a few hundred products in F32.
constexpr double kRounding = 1e-5;

struct Sizes {
    size_t in, out, rank, n;
};

TEST_CASE("a pair is added to a product by CPUs as by the plain form") {
    const Backend backend("CPU", 2);
    for (const Sizes& s : {Sizes{64, 48, 16, 1}, Sizes{640, 96, 32, 83}, Sizes{48, 16, 16, 40}}) {
        CAPTURE(s.in);
        const auto x = scattered(s.in * s.n, 1);
        const auto y = scattered(s.out * s.n, 2);
        const auto down = scattered(s.rank * s.in, 3);
        const auto up = scattered(s.out * s.rank, 4);
        const std::vector<double> inner = times({x.begin(), x.end()}, down, s.in);
        std::vector<double> expected = times(inner, up, s.rank);
        std::transform(expected.begin(), expected.end(), y.begin(), expected.begin(),
                       [](double a, float b) { return a + static_cast<double>(b); });
        for (const bool in_panels : {false, true}) {
            CAPTURE(in_panels);
            Graph g(backend, 64, {.operations = Operations::cpu});
            const auto i64 = [](size_t v) { return static_cast<int64_t>(v); };
            ggml_tensor* in_y = g.input_f32("y", {i64(s.out), i64(s.n)});
            ggml_tensor* in_x = g.input_f32("x", {i64(s.in), i64(s.n)});
            ggml_tensor* in_down = in_panels
                                       ? g.input_f32("down", {16, i64(s.in), i64(s.rank / 16)})
                                       : g.input_f32("down", {i64(s.in), i64(s.rank)});
            ggml_tensor* in_up = in_panels ? g.input_f32("up", {16, i64(s.rank), i64(s.out / 16)})
                                           : g.input_f32("up", {i64(s.rank), i64(s.out)});
            // A copy, as a product would be: the sum takes its memory.
            ggml_tensor* sum = own::add_pair(g, ggml_scale(g, in_y, 1.0f), in_x, in_down, in_up,
                                             in_panels ? cpu::add_pair : nullptr);
            g.finish(sum);
            g.set(in_y, y);
            g.set(in_x, x);
            g.set(in_down, in_panels ? cpu::pack_panels(down, i64(s.in)) : down);
            g.set(in_up, in_panels ? cpu::pack_panels(up, i64(s.rank)) : up);
            g.compute();
            CHECK(test::distance(g.read(sum).data, expected) < kRounding);
        }
    }
}

constexpr size_t kIn = 64, kOut = 48, kTokens = 5;
const std::vector<ExpectedTensor> kTensors = {
    {"img_in.weight", {static_cast<int64_t>(kIn), static_cast<int64_t>(kOut)}}};

// A matrix of a transformer, and LoRAs of it.
struct Files {
    test::TemporaryFolder folder;
    std::vector<float> w = scattered(kOut * kIn, 1);
    std::vector<float> down = scattered(3 * kIn, 2);
    std::vector<float> up = scattered(kOut * 3, 3);

    Files() {
        test::write_file(
            folder / "model.safetensors",
            test::safetensors_of(
                {test::counting_tensor("double_stream_modulation_img.lin.weight", {64, 4}),
                 {"img_in.weight", {64, 48}, test::bytes_of(w)}}));
        test::write_file(
            folder / "lora.safetensors",
            test::safetensors_of(
                {{"diffusion_model.img_in.lora_A.weight", {64, 3}, test::bytes_of(down)},
                 {"diffusion_model.img_in.lora_B.weight", {3, 48}, test::bytes_of(up)}}));
        test::write_file(folder / "diff.safetensors",
                         test::safetensors_of({{"diffusion_model.img_in.diff",
                                                {64, 48},
                                                test::bytes_of(scattered(kOut * kIn, 9))}}));
    }

    std::shared_ptr<const AdapterSet> set(const char* name, float strength) const {
        const auto file = std::make_shared<const AdapterFile>(AdapterFile::open(folder / name));
        Adapter use;
        use.file = folder / name;
        use.strength = strength;
        return std::make_shared<const AdapterSet>(std::vector<UsedAdapter>{{file, use}},
                                                  Part::transformer, kTensors, "a small model");
    }
};

std::vector<float> multiplied(const Backend& backend, const Weights& weights, ggml_tensor* w,
                              Operations operations) {
    Graph g(backend, 64, {.operations = operations});
    g.set_low_rank(&weights.low_rank());
    ggml_tensor* x = g.input_f32("x", {64, static_cast<int64_t>(kTokens)});
    ggml_tensor* y = linear(g, w, x);
    g.finish(y);
    g.set(x, scattered(kIn * kTokens, 5));
    g.compute();
    return g.read(y).data;
}

// (W + strength * B A) x
std::vector<double> expected_of(const Files& files, double strength) {
    const std::vector<float> x = scattered(kIn * kTokens, 5);
    const std::vector<double> wide(x.begin(), x.end());
    std::vector<double> y = times(wide, files.w, kIn);
    const std::vector<double> change = times(times(wide, files.down, kIn), files.up, 3);
    for (size_t i = 0; i < y.size(); ++i) {
        y[i] += strength * change[i];
    }
    return y;
}

TEST_CASE("a LoRA runs beside its matrix, and another one takes its place") {
    const Files files;
    const Checkpoint checkpoint = Checkpoint::open(files.folder / "model.safetensors");
    for (const Operations operations : {Operations::cpu, Operations::stock}) {
        CAPTURE(static_cast<int>(operations));
        Backend backend("CPU", 2);
        if (operations == Operations::stock) {
            backend.use_stock_operations();
        }
        WeightOptions options;
        options.adapters = files.set("lora.safetensors", 0.5f);
        Weights weights(backend, checkpoint, kTensors, options);
        ggml_tensor* w = weights.matrix("img_in.weight");
        weights.load();
        CHECK(test::distance(multiplied(backend, weights, w, operations), expected_of(files, 0.5)) <
              kRounding);
        const uint64_t with_one = weights.memory().own.host;
        REQUIRE(weights.try_set_adapters(files.set("lora.safetensors", -2.0f)));
        CHECK(test::distance(multiplied(backend, weights, w, operations), expected_of(files, -2)) <
              kRounding);
        CHECK(weights.memory().own.host == with_one);
        REQUIRE(weights.try_set_adapters(nullptr));
        CHECK(test::distance(multiplied(backend, weights, w, operations), expected_of(files, 0)) <
              kRounding);
        CHECK(weights.memory().own.host < with_one);
        CHECK_FALSE(weights.try_set_adapters(files.set("diff.safetensors", 1.0f)));
        CHECK(test::distance(multiplied(backend, weights, w, operations), expected_of(files, 0)) <
              kRounding);
    }
}

TEST_CASE("a change of LoRAs that fails or is cancelled at any point leaves none") {
    const Files files;
    const Checkpoint checkpoint = Checkpoint::open(files.folder / "model.safetensors");
    Backend backend("CPU", 1);
    std::atomic<bool> cancel = false;
    backend.set_cancel(&cancel);
    Weights weights(backend, checkpoint, kTensors, {});
    ggml_tensor* w = weights.matrix("img_in.weight");
    weights.load();
    const uint64_t without = weights.memory().own.host;
    const auto first = files.set("lora.safetensors", 0.5f);
    const auto second = files.set("lora.safetensors", -2.0f);
    for (const bool fails : {true, false}) {
        CAPTURE(fails);
        size_t n_ended = 0;
        bool stopped = true;
        for (size_t n = 0; stopped; ++n) {
            CAPTURE(n);
            REQUIRE(weights.try_set_adapters(first));
            stopped = false;
            bool ended = true;
            bool done = true;
            {
                const test::AllocationHook hook(0, SIZE_MAX, [&](size_t i) {
                    stopped = stopped || i == n;
                    if (i == n && fails) {
                        throw std::bad_alloc();
                    }
                    cancel = stopped && !fails;
                });
                try {
                    done = weights.try_set_adapters(second);
                    ended = false;
                } catch (const std::bad_alloc&) {
                    CHECK(fails);
                } catch (const Error& error) {
                    CHECK(error.kind() ==
                          (fails ? ErrorKind::out_of_memory : ErrorKind::cancelled));
                }
            }
            cancel = false;
            CHECK(done);
            n_ended += ended ? 1 : 0;
            CHECK((stopped || !ended));
            CHECK((weights.adapters() == nullptr) == ended);
            CHECK(weights.low_rank().empty() == ended);
            CHECK((weights.memory().own.host == without) == ended);
            CHECK(test::distance(multiplied(backend, weights, w, Operations::cpu),
                                 expected_of(files, ended ? 0 : -2)) < kRounding);
        }
        CHECK(n_ended > 5);
    }
}

TEST_CASE("a matrix that an adapter changes as a whole is held unquantised") {
    const Files files;
    const Checkpoint checkpoint = Checkpoint::open(files.folder / "model.safetensors");
    const Backend backend("CPU", 2);
    WeightOptions options;
    options.type = TensorType::q8_0;
    options.adapters = files.set("diff.safetensors", 2.0f);
    Weights weights(backend, checkpoint, kTensors, options);
    ggml_tensor* w = weights.matrix("img_in.weight");
    weights.load();
    CHECK((w->type == GGML_TYPE_BF16 || w->type == GGML_TYPE_F16));
    CHECK(weights.memory().loading >= kOut * kIn * sizeof(float));
    std::vector<float> changed = files.w;
    const std::vector<float> difference = scattered(kOut * kIn, 9);
    for (size_t i = 0; i < changed.size(); ++i) {
        changed[i] += 2 * difference[i];
    }
    const std::vector<float> x = scattered(kIn * kTokens, 5);
    const std::vector<double> expected = times({x.begin(), x.end()}, changed, kIn);
    // Weights and inputs are rounded to eight or more bits.
    CHECK(test::distance(multiplied(backend, weights, w, Operations::cpu), expected) < 5e-3);
}

}  // namespace
}  // namespace flux2
