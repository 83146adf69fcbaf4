// Both forms of every operation on feature maps must agree, and small cases with numbers worked out
// by hand.
#include "compute/cpu/lanes.hpp"
#include "compute/ops/feature_map_ops.hpp"
#include "compute/plain/feature_map_nodes.hpp"
#include "compute/plain/token_nodes.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <utility>
#include <vector>

namespace flux2 {
namespace {

using Values = std::vector<float>;

// A graph with constants, computed once.
class Workbench {
  public:
    Workbench(Operations operations, int n_threads)
        : backend_("CPU", n_threads), graph_(backend_, 256, {.operations = operations}) {}

    Graph& graph() { return graph_; }

    ggml_tensor* constant(ggml_type type, std::array<int64_t, 4> ne, const Values& values) {
        ggml_tensor* tensor = ggml_new_tensor(graph_, type, 4, ne.data());
        ggml_set_input(tensor);
        ggml_set_output(tensor);
        constants_.emplace_back(tensor, values);
        return tensor;
    }
    FeatureMap feature_map(std::array<int64_t, 4> ne, const Values& values) {
        return from_planes(graph_, constant(GGML_TYPE_F32, ne, values));
    }
    HostTensor compute(const FeatureMap& result) {
        ggml_tensor* output = to_planes(graph_, result);
        graph_.finish(output);
        for (const auto& [tensor, values] : constants_) {
            if (tensor->type == GGML_TYPE_F16) {
                std::vector<ggml_fp16_t> halves(values.size());
                ggml_fp32_to_fp16_row(values.data(), halves.data(),
                                      static_cast<int64_t>(values.size()));
                ggml_backend_tensor_set(tensor, halves.data(), 0, ggml_nbytes(tensor));
            } else {
                ggml_backend_tensor_set(tensor, values.data(), 0, ggml_nbytes(tensor));
            }
        }
        graph_.compute();
        return graph_.read(output);
    }

  private:
    Backend backend_;
    Graph graph_;
    std::vector<std::pair<ggml_tensor*, Values>> constants_;
};

Values random_values(int64_t n, unsigned seed, float mean = 0, float deviation = 1) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal(mean, deviation);
    Values values(static_cast<size_t>(n));
    for (float& value : values) {
        value = ggml_fp16_to_fp32(ggml_fp32_to_fp16(normal(generator)));  // fits either type
    }
    return values;
}

// Length of the difference beside the length of b.
double relative_error(const HostTensor& a, const HostTensor& b) {
    REQUIRE(a.ne == b.ne);
    double difference = 0;
    double length = 0;
    for (size_t i = 0; i < a.data.size(); ++i) {
        const double x = static_cast<double>(a.data[i]);
        const double y = static_cast<double>(b.data[i]);
        difference += (x - y) * (x - y);
        length += y * y;
    }
    return std::sqrt(difference / length);
}

struct Case {
    int64_t w, h, in, out;
    int n_threads;
    ggml_type type;
    bool in_bf16 = false;  // filters that BF16 holds exactly
};

// Sizes that are no multiples of a tile's 4 pixels, of a vector's 4 channels or of a panel's 16.
const std::vector<Case> kCases = {
    {1, 1, 3, 3, 1, GGML_TYPE_F32},           {1, 1, 32, 16, 3, GGML_TYPE_F16},
    {5, 3, 7, 40, 2, GGML_TYPE_F32},          {8, 8, 16, 16, 2, GGML_TYPE_F16},
    {17, 6, 40, 3, 3, GGML_TYPE_F16},         {3, 31, 64, 40, 1, GGML_TYPE_F32},
    {33, 30, 33, 17, 3, GGML_TYPE_F32},       {12, 10, 600, 32, 2, GGML_TYPE_F16},
    {52, 45, 40, 200, 3, GGML_TYPE_F16},      {100, 5, 600, 40, 2, GGML_TYPE_F16, true},
    {12, 10, 64, 96, 3, GGML_TYPE_F16, true}, {4, 2, 64, 300, 3, GGML_TYPE_F16, true},
    {60, 20, 600, 33, 1, GGML_TYPE_F16},
};

Values rounded_to_bf16(Values values) {
    for (float& value : values) {
        value = ggml_bf16_to_fp32(ggml_fp32_to_bf16(value));
    }
    return values;
}

using ConvOp = std::function<FeatureMap(Workbench&, const Conv&, const FeatureMap& x)>;

HostTensor run_conv(const Case& c, int64_t size, Operations operations, const ConvOp& op) {
    const bool stock = operations == Operations::stock;
    Workbench bench(operations, stock ? 1 : c.n_threads);
    const auto n = c.in * size * size;
    const Values filter = random_values(n * c.out, 1, 0, 1 / std::sqrt(float(n)));
    // ggml rounds pixels to F16 when a filter is F16; the CPU form does not, so F32 is its measure.
    const Conv w{bench.constant(stock ? GGML_TYPE_F32 : c.type, {size, size, c.in, c.out},
                                c.in_bf16 ? rounded_to_bf16(filter) : filter),
                 bench.constant(GGML_TYPE_F32, {c.out, 1, 1, 1}, random_values(c.out, 2))};
    const FeatureMap x = bench.feature_map({c.w, c.h, c.in, 1}, random_values(c.w * c.h * c.in, 3));
    return bench.compute(op(bench, w, x));
}

void compare_convs(int64_t size, int64_t least, const ConvOp& op,
                   const std::vector<Case>& cases = kCases) {
    for (const Case& c : cases) {
        if (c.w < least || c.h < least) {
            continue;
        }
        CAPTURE(c.w);
        CAPTURE(c.h);
        CAPTURE(c.in);
        CAPTURE(c.out);
        // Winograd's transforms err by 1e-6 and 2e-6 of the result at 64 and 512 channels, values
        // as two numbers in BF16 (AMX) by 2e-6.
        CHECK(relative_error(run_conv(c, size, Operations::cpu, op),
                             run_conv(c, size, Operations::stock, op)) < 4e-6);
    }
}

TEST_CASE("both forms of a convolution agree") {
    const ConvOp op = [](Workbench& b, const Conv& w, const FeatureMap& x) {
        return conv(b.graph(), w, x);
    };
    compare_convs(1, 1, op);
    compare_convs(3, 1, op);
}

// What is added to a convolution of x.
FeatureMap random_skip(Workbench& b, const Conv& w, const FeatureMap& x) {
    const bool stock = b.graph().form().operations == Operations::stock;
    const int64_t width = x.tensor->ne[stock ? 0 : 1];
    const int64_t height = x.tensor->ne[stock ? 1 : 2];
    const int64_t out = w.bias->ne[0];
    return b.feature_map({width, height, out, 1}, random_values(width * height * out, 4));
}

TEST_CASE("both forms of a convolution added to a feature map agree") {
    const ConvOp op = [](Workbench& b, const Conv& w, const FeatureMap& x) {
        return conv_add(b.graph(), w, x, random_skip(b, w, x));
    };
    compare_convs(1, 1, op);
    compare_convs(3, 1, op);
}

TEST_CASE("both forms of a convolution after a group norm agree") {
    for (const bool adds : {false, true}) {
        const ConvOp op = [&](Workbench& b, const Conv& w, const FeatureMap& x) {
            const auto channels = [&](unsigned seed) {
                const int64_t n = w.weight->ne[2];
                return b.constant(GGML_TYPE_F32, {n, 1, 1, 1}, random_values(n, seed));
            };
            return conv_of_norm(b.graph(), w, {channels(5), channels(6)}, x,
                                {.skip = adds ? random_skip(b, w, x) : FeatureMap{}});
        };
        const std::vector<Case> cases = {
            {1, 1, 32, 16, 3, GGML_TYPE_F16},          {33, 30, 64, 40, 3, GGML_TYPE_F32},
            {60, 20, 608, 33, 1, GGML_TYPE_F16},       {100, 5, 608, 40, 2, GGML_TYPE_F16, true},
            {48, 40, 256, 96, 2, GGML_TYPE_F16, true},
        };
        compare_convs(1, 1, op, cases);
        compare_convs(3, 1, op, cases);
    }
}

TEST_CASE("both forms of a halving convolution agree") {
    compare_convs(3, 2, [](Workbench& b, const Conv& w, const FeatureMap& x) {
        return conv_down(b.graph(), w, x);
    });
}

TEST_CASE("both forms of a convolution of the doubled feature map agree") {
    compare_convs(3, 1, [](Workbench& b, const Conv& w, const FeatureMap& x) {
        return conv_up(b.graph(), w, x);
    });
}

TEST_CASE("a convolution of counted pixels gives the sums under the filter") {
    for (const Operations operations : {Operations::stock, Operations::cpu}) {
        Workbench bench(operations, 2);
        // 1 2 3    filter 1 0 0   the pixel up and to the left, plus twice the one to the right,
        // 4 5 6           0 0 2   plus a bias of 0.5
        //                 0 0 0
        const Conv w{
            bench.constant(GGML_TYPE_F32, {3, 3, 1, 1}, {1, 0, 0, 0, 0, 2, 0, 0, 0}),
            bench.constant(GGML_TYPE_F32, {1, 1, 1, 1}, {0.5f}),
        };
        const FeatureMap x = bench.feature_map({3, 2, 1, 1}, {1, 2, 3, 4, 5, 6});
        const HostTensor y = bench.compute(conv(bench.graph(), w, x));
        const Values expected = {4.5f, 6.5f, 0.5f, 10.5f, 13.5f, 2.5f};
        REQUIRE(y.data.size() == expected.size());
        for (size_t i = 0; i < expected.size(); ++i) {
            CHECK(y.data[i] == doctest::Approx(static_cast<double>(expected[i])).epsilon(1e-5));
        }
    }
}

struct NormCase {
    int64_t w, h, channels;
    int n_threads;
    float mean;
};

using NormOp = std::function<FeatureMap(Graph&, const GroupNorm&, const FeatureMap& x)>;

HostTensor run_norm(const NormCase& c, Operations operations, const NormOp& op) {
    Workbench bench(operations, c.n_threads);
    const GroupNorm w{
        bench.constant(GGML_TYPE_F32, {c.channels, 1, 1, 1}, random_values(c.channels, 5)),
        bench.constant(GGML_TYPE_F32, {c.channels, 1, 1, 1}, random_values(c.channels, 6)),
    };
    const FeatureMap x = bench.feature_map({c.w, c.h, c.channels, 1},
                                           random_values(c.w * c.h * c.channels, 7, c.mean));
    return bench.compute(op(bench.graph(), w, x));
}

TEST_CASE("both forms of a group norm agree") {
    const std::vector<NormOp> ops = {
        [](Graph& g, const GroupNorm& w, const FeatureMap& x) { return group_norm(g, w, x); },
        [](Graph& g, const GroupNorm& w, const FeatureMap& x) { return group_norm_silu(g, w, x); },
        [](Graph& g, const GroupNorm& w, const FeatureMap& x) {
            // In place of something the graph may overwrite, unlike its input.
            const FeatureMap copy{ggml_cont(g, x.tensor)};
            return group_norm_silu(g, w, copy, /*in_place=*/true);
        },
    };
    for (const NormOp& op : ops) {
        for (const NormCase& c : {NormCase{1, 1, 64, 1, 0}, NormCase{3, 5, 32, 2, 0},
                                  NormCase{65, 67, 96, 3, 0}, NormCase{40, 30, 128, 2, 100}}) {
            CAPTURE(c.channels);
            // Taking off a mean of 100 loses two digits.
            const double limit = c.mean == 0 ? 1e-6 : 1e-5;
            CHECK(relative_error(run_norm(c, Operations::cpu, op),
                                 run_norm(c, Operations::stock, op)) < limit);
        }
    }
}

HostTensor run_attention(int64_t w, int64_t h, int64_t channels, int n_threads,
                         Operations operations) {
    Workbench bench(operations, n_threads);
    const auto part = [&](unsigned seed) {
        // Scores of some 4 standard deviations: one key in many counts.
        return bench.feature_map({w, h, channels, 1}, random_values(w * h * channels, seed, 0, 2));
    };
    return bench.compute(pixel_attention(bench.graph(), part(8), part(9), part(10)));
}

TEST_CASE("both forms of attention agree") {
    struct {
        int64_t w, h, channels;
    } cases[] = {{1, 1, 16}, {3, 7, 40}, {24, 22, 64}, {41, 29, 32}};
    for (const auto& c : cases) {
        CAPTURE(c.w);
        const HostTensor stock = run_attention(c.w, c.h, c.channels, 2, Operations::stock);
        for (const int n_threads : {1, 3}) {
            CHECK(relative_error(run_attention(c.w, c.h, c.channels, n_threads, Operations::cpu),
                                 stock) < 2e-6);
        }
    }
}

TEST_CASE("exponentials are right to the last bits, and finite") {
    for (float x = -87; x < 88; x += 0.0173f) {
        const double exact = std::exp(static_cast<double>(x));
        CHECK(std::abs(static_cast<double>(cpu::exp_of(x)) / exact - 1) < 2e-7);
    }
    CHECK(cpu::exp_of(0) == 1);
    CHECK(cpu::exp_of(-1e30f) < 1e-37f);
    CHECK(std::isfinite(cpu::exp_of(std::numeric_limits<float>::max())));
}

TEST_CASE("nodes of our own can be told apart in every form, whatever they are called") {
    for (const Operations operations : {Operations::cpu, Operations::cuda}) {
        Workbench bench(operations, 1);
        Graph& g = bench.graph();
        const Conv w{bench.constant(GGML_TYPE_F16, {3, 3, 8, 8}, {}),
                     bench.constant(GGML_TYPE_F32, {8, 1, 1, 1}, {})};
        const FeatureMap y = conv(g, w, bench.feature_map({4, 4, 8, 1}, {}));
        ggml_set_name(y.tensor, "feature map");
        CHECK(operation_of(y.tensor) == &own::kConv);
        CHECK(y.tensor->src[1]->src[0] == w.weight);
        CHECK(has_plain_form(y.tensor) == (operations == Operations::cuda));
        CHECK(operation_name(y.tensor) == (operations == Operations::cuda ? "conv" : "cpu conv"));
        ggml_tensor* sum = ggml_add(g, y.tensor, y.tensor);
        CHECK(operation_of(sum) == nullptr);
        CHECK(!has_plain_form(sum));
        CHECK(operation_name(sum) == "ADD");
    }
    Workbench bench(Operations::cpu, 1);
    const FeatureMap x = bench.feature_map({4, 4, 8, 1}, {});
    const FeatureMap z = pixel_attention(bench.graph(), x, x, x);
    CHECK(operation_of(z.tensor->src[0]) == &own::kAttention);
    CHECK(params_of<own::AttentionParams>(z.tensor->src[0]).n_keys == 4 * 4);
}

}  // namespace
}  // namespace flux2
