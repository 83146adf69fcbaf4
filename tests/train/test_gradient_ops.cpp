// Every operation of backward passes, in the plain form and in that for CPUs, against central
// differences of its forward formula, which is written out here once more in double.
#include "compute/graph.hpp"
#include "compute/ops/gradient_ops.hpp"
#include "compute/ops/token_ops.hpp"
#include "support/values.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

namespace flux2 {
namespace {

using Doubles = std::vector<double>;

// Sums of a few hundred products in F32, and e^x to 2e-7.
constexpr double kF32 = 2e-5;

Doubles spread_values(size_t n, uint32_t seed) {
    const std::vector<float> values = test::even_values(n, seed, 1.0f);
    return {values.begin(), values.end()};
}

std::vector<float> as_floats(const Doubles& values) {
    return {values.begin(), values.end()};
}

double dot_of(const Doubles& a, const Doubles& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        sum += a[i] * b[i];
    }
    return sum;
}

// The derivatives of d * f(x), by central differences.
Doubles differences(const std::function<Doubles(const Doubles&)>& f, Doubles x, const Doubles& d) {
    constexpr double kStep = 1e-5;
    Doubles result;
    for (double& value : x) {
        const double before = value;
        value = before + kStep;
        const double above = dot_of(f(x), d);
        value = before - kStep;
        result.push_back((above - dot_of(f(x), d)) / (2 * kStep));
        value = before;
    }
    return result;
}

// Inputs of a graph with their values.
struct GraphInputs {
    Graph& g;
    std::vector<std::pair<ggml_tensor*, std::vector<float>>> values = {};

    ggml_tensor* add(std::initializer_list<int64_t> shape, const Doubles& x) {
        values.emplace_back(g.input_f32("x" + std::to_string(values.size()), shape), as_floats(x));
        return values.back().first;
    }
};

// What a graph gives, with the plain forms and with those for CPUs.
void check_forms(const std::function<ggml_tensor*(GraphInputs&)>& build, const Doubles& expected) {
    const Backend backend("CPU", 2);
    for (const Operations operations : {Operations::stock, Operations::cpu}) {
        CAPTURE(static_cast<int>(operations));
        Graph g(backend, 128, {.operations = operations});
        GraphInputs inputs{g};
        ggml_tensor* result = g.keep(build(inputs));
        g.finish(result);
        for (const auto& [tensor, values] : inputs.values) {
            g.set(tensor, values);
        }
        g.compute();
        CHECK(test::distance(g.read(result).data, expected) < kF32);
    }
}

TEST_CASE("the gradient of a product is the product with the transposed matrix") {
    struct Sizes {
        size_t in, out, n;
    };
    for (const Sizes& s :
         {Sizes{48, 32, 3}, Sizes{640, 80, 43}, Sizes{96, 1040, 5}, Sizes{7, 9, 4}}) {
        CAPTURE(s.in);
        const auto i64 = [](size_t v) { return static_cast<int64_t>(v); };
        const Doubles w = spread_values(s.in * s.out, 1);
        const Doubles x = spread_values(s.in * s.n, 2);
        const Doubles d = spread_values(s.out * s.n, 3);
        Doubles y(s.out * s.n), dx(s.in * s.n), outer(s.in * s.out);
        for (size_t t = 0; t < s.n; ++t) {
            for (size_t o = 0; o < s.out; ++o) {
                for (size_t i = 0; i < s.in; ++i) {
                    y[t * s.out + o] += w[o * s.in + i] * x[t * s.in + i];
                    dx[t * s.in + i] += w[o * s.in + i] * d[t * s.out + o];
                    outer[o * s.in + i] += x[t * s.in + i] * d[t * s.out + o];
                }
            }
        }
        const auto matrix = [&](GraphInputs& in) { return in.add({i64(s.in), i64(s.out)}, w); };
        const auto given_x = [&](GraphInputs& in) { return in.add({i64(s.in), i64(s.n)}, x); };
        const auto given_d = [&](GraphInputs& in) { return in.add({i64(s.out), i64(s.n)}, d); };
        check_forms([&](GraphInputs& in) { return exact_linear(in.g, matrix(in), given_x(in)); },
                    y);
        check_forms([&](GraphInputs& in) { return linear_gradient(in.g, matrix(in), given_d(in)); },
                    dx);
        check_forms([&](GraphInputs& in) { return outer_product(in.g, given_x(in), given_d(in)); },
                    outer);
        Doubles sum = y;
        for (size_t i = 0; i < sum.size(); ++i) {
            sum[i] += d[i];
        }
        check_forms(
            [&](GraphInputs& in) {
                ggml_tensor* copy = ggml_scale(in.g, given_d(in), 1.0f);
                return add_exact_linear(in.g, copy, matrix(in), given_x(in));
            },
            sum);
        Doubles sum_dx = dx;
        for (size_t i = 0; i < sum_dx.size(); ++i) {
            sum_dx[i] += x[i];
        }
        check_forms(
            [&](GraphInputs& in) {
                ggml_tensor* copy = ggml_scale(in.g, given_x(in), 1.0f);
                return add_linear_gradient(in.g, copy, matrix(in), given_d(in));
            },
            sum_dx);
    }
}

TEST_CASE("the gradient of modulation agrees with differences") {
    constexpr size_t kWidth = 40, kN = 3;
    const Doubles x = spread_values(kWidth * kN, 1), d = spread_values(kWidth * kN, 2);
    const Doubles scale = spread_values(kWidth, 3), before = spread_values(kWidth * kN, 4);
    const auto modulated = [&](const Doubles& in) {
        Doubles y(in.size());
        for (size_t t = 0; t < kN; ++t) {
            double mean = 0, squares = 0;
            for (size_t i = 0; i < kWidth; ++i) {
                mean += in[t * kWidth + i] / kWidth;
            }
            for (size_t i = 0; i < kWidth; ++i) {
                squares += std::pow(in[t * kWidth + i] - mean, 2) / kWidth;
            }
            for (size_t i = 0; i < kWidth; ++i) {
                y[t * kWidth + i] =
                    (in[t * kWidth + i] - mean) / std::sqrt(squares + 1e-6) * (1 + scale[i]);
            }
        }
        return y;
    };
    Doubles expected = differences(modulated, x, d);
    const auto build = [&](GraphInputs& in, bool adds) {
        const Mod mod = {nullptr, in.add({kWidth}, scale), nullptr};
        ggml_tensor* in_x = in.add({kWidth, kN}, x);
        ggml_tensor* in_d = in.add({kWidth, kN}, d);
        ggml_tensor* in_before = adds ? in.add({kWidth, kN}, before) : nullptr;
        return modulate_gradient(in.g, in_x, mod, in_d, in_before);
    };
    check_forms([&](GraphInputs& in) { return build(in, false); }, expected);
    for (size_t i = 0; i < expected.size(); ++i) {
        expected[i] += before[i];
    }
    check_forms([&](GraphInputs& in) { return build(in, true); }, expected);
}

TEST_CASE("the gradient of SwiGLU agrees with differences, alone and inside of wider rows") {
    constexpr size_t kFf = 20, kN = 3, kBefore = 12;
    Doubles h = spread_values(2 * kFf * kN, 1);
    for (double& value : h) {
        value *= 4;
    }
    const Doubles d = spread_values(kFf * kN, 2);
    const auto activated = [&](const Doubles& in) {
        Doubles y;
        for (size_t t = 0; t < kN; ++t) {
            for (size_t i = 0; i < kFf; ++i) {
                const double gate = in[t * 2 * kFf + i];
                y.push_back(gate / (1 + std::exp(-gate)) * in[t * 2 * kFf + kFf + i]);
            }
        }
        return y;
    };
    const Doubles expected = differences(activated, h, d);
    const auto halves = [&](GraphInputs& in) {
        ggml_tensor* both = in.add({2 * kFf, kN}, h);
        return std::array{ggml_view_2d(in.g, both, kFf, kN, both->nb[1], 0),
                          ggml_view_2d(in.g, both, kFf, kN, both->nb[1], kFf * sizeof(float))};
    };
    check_forms(
        [&](GraphInputs& in) {
            const auto [gate, up] = halves(in);
            return swiglu_gradient(in.g, gate, up, in.add({kFf, kN}, d));
        },
        expected);
    const Doubles wide = spread_values((kBefore + 2 * kFf) * kN, 3);
    Doubles replaced = wide;
    for (size_t t = 0; t < kN; ++t) {
        for (size_t i = 0; i < 2 * kFf; ++i) {
            replaced[t * (kBefore + 2 * kFf) + kBefore + i] = expected[t * 2 * kFf + i];
        }
    }
    check_forms(
        [&](GraphInputs& in) {
            const auto [gate, up] = halves(in);
            ggml_tensor* into = ggml_scale(in.g, in.add({kBefore + 2 * kFf, kN}, wide), 1.0f);
            return swiglu_gradient(in.g, gate, up, in.add({kFf, kN}, d), into);
        },
        replaced);
}

// Heads [head_dim, n_head, n].
struct HeadSizes {
    size_t head_dim, n_head, n;

    size_t width() const { return head_dim * n_head; }
};

// softmax(q k^T / sqrt(head_dim)) v; q, k, v one after the other in x.
Doubles attended(const Doubles& x, const HeadSizes& s) {
    const size_t part = s.width() * s.n;
    const auto at = [&](size_t which, size_t token, size_t head) {
        return x.data() + which * part + token * s.width() + head * s.head_dim;
    };
    Doubles y(part);
    for (size_t head = 0; head < s.n_head; ++head) {
        for (size_t query = 0; query < s.n; ++query) {
            Doubles weights;
            double total = 0;
            for (size_t key = 0; key < s.n; ++key) {
                double score = 0;
                for (size_t i = 0; i < s.head_dim; ++i) {
                    score += at(0, query, head)[i] * at(1, key, head)[i];
                }
                weights.push_back(std::exp(score / std::sqrt(static_cast<double>(s.head_dim))));
                total += weights.back();
            }
            for (size_t key = 0; key < s.n; ++key) {
                for (size_t i = 0; i < s.head_dim; ++i) {
                    y[query * s.width() + head * s.head_dim + i] +=
                        weights[key] / total * at(2, key, head)[i];
                }
            }
        }
    }
    return y;
}

TEST_CASE("the gradient of attention agrees with differences") {
    const HeadSizes s = {8, 2, 19};
    const size_t part = s.width() * s.n;
    Doubles x = spread_values(3 * part, 1);
    for (double& value : x) {
        value *= 2;
    }
    const Doubles d = spread_values(part, 2);
    const Doubles all = differences([&](const Doubles& in) { return attended(in, s); }, x, d);
    const auto i64 = [](size_t v) { return static_cast<int64_t>(v); };
    const auto build = [&](GraphInputs& in) {
        const auto heads = [&](size_t i) {
            const auto first = x.begin() + static_cast<std::ptrdiff_t>(i * part);
            return in.add({i64(s.head_dim), i64(s.n_head), i64(s.n)},
                          Doubles(first, first + static_cast<std::ptrdiff_t>(part)));
        };
        ggml_tensor* q = heads(0);
        ggml_tensor* k = heads(1);
        const KeptAttention attention = keep_attention(in.g, q, k, heads(2));
        return attention_gradient(in.g, attention, in.add({i64(s.width()), i64(s.n)}, d));
    };
    check_forms([&](GraphInputs& in) { return build(in).dq; },
                Doubles(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(part)));
    Doubles keys_and_values;  // of each token
    for (size_t token = 0; token < s.n; ++token) {
        for (const size_t which : {size_t{1}, size_t{2}}) {
            const auto first =
                all.begin() + static_cast<std::ptrdiff_t>(which * part + token * s.width());
            keys_and_values.insert(keys_and_values.end(), first,
                                   first + static_cast<std::ptrdiff_t>(s.width()));
        }
    }
    check_forms([&](GraphInputs& in) { return build(in).dkv; }, keys_and_values);
}

TEST_CASE("gradients of attention over many tokens are the same in both forms") {
    // More than the 512 that CPUs take at a time, and no multiple of anything.
    const HeadSizes s = {16, 2, 531};
    const size_t part = s.width() * s.n;
    const auto i64 = [](size_t v) { return static_cast<int64_t>(v); };
    const auto computed = [&](Operations operations, int n_threads) {
        const Backend backend("CPU", n_threads);
        Graph g(backend, 128, {.operations = operations});
        GraphInputs in{g};
        std::array<ggml_tensor*, 3> qkv;
        for (size_t i = 0; i < qkv.size(); ++i) {
            qkv[i] = in.add({i64(s.head_dim), i64(s.n_head), i64(s.n)},
                            spread_values(part, static_cast<uint32_t>(i) + 1));
        }
        const AttentionGradient gradient =
            attention_gradient(g, keep_attention(g, qkv[0], qkv[1], qkv[2]),
                               in.add({i64(s.width()), i64(s.n)}, spread_values(part, 9)));
        ggml_tensor* dq = g.keep(gradient.dq);
        ggml_tensor* dkv = g.keep(gradient.dkv);
        g.finish(dkv);
        for (const auto& [tensor, values] : in.values) {
            g.set(tensor, values);
        }
        g.compute();
        std::vector<float> both = g.read(dq).data;
        const std::vector<float> second = g.read(dkv).data;
        both.insert(both.end(), second.begin(), second.end());
        return both;
    };
    const std::vector<float> plain = computed(Operations::stock, 2);
    const std::vector<float> ours = computed(Operations::cpu, 2);
    CHECK(test::distance(ours, {plain.begin(), plain.end()}) < 1e-4);  // plain sums of 531 values
    CHECK(ours == computed(Operations::cpu, 3));
}

TEST_CASE("the gradient of normalised and rotated heads agrees with differences") {
    // The second of two parts: its tokens are the last ones. After the values come others.
    const HeadSizes s = {8, 2, 3};
    constexpr size_t kFirst = 2, kMore = 4;
    const size_t n_all = kFirst + s.n;
    const size_t row = 3 * s.width() + kMore;
    const Doubles x = spread_values(row * s.n, 1);
    const Doubles norms = spread_values(2 * s.head_dim, 2);
    const Doubles table = [&] {
        Doubles pairs;
        for (const double angle : spread_values(n_all * s.head_dim / 2, 3)) {
            pairs.push_back(std::cos(3 * angle));
            pairs.push_back(std::sin(3 * angle));
        }
        return pairs;
    }();
    const Doubles dq = spread_values(s.width() * n_all, 4);
    const Doubles dkv = spread_values(2 * s.width() * n_all, 5);
    Doubles d;  // of queries, keys and values of each token
    for (size_t i = kFirst; i < n_all; ++i) {
        for (size_t j = 0; j < s.width(); ++j) {
            d.push_back(dq[i * s.width() + j]);
        }
        for (size_t j = 0; j < 2 * s.width(); ++j) {
            d.push_back(dkv[i * 2 * s.width() + j]);
        }
    }
    const auto made = [&](const Doubles& in) {
        Doubles y;
        for (size_t t = 0; t < s.n; ++t) {
            for (size_t head = 0; head < 3 * s.n_head; ++head) {
                const double* from = in.data() + t * row + head * s.head_dim;
                Doubles values(from, from + s.head_dim);
                if (head < 2 * s.n_head) {
                    const double size =
                        std::sqrt(dot_of(values, values) / static_cast<double>(s.head_dim) + 1e-6);
                    const double* norm = norms.data() + head / s.n_head * s.head_dim;
                    for (size_t i = 0; i < s.head_dim; ++i) {
                        values[i] = values[i] / size * norm[i];
                    }
                    for (size_t i = 0; i < s.head_dim; i += 2) {
                        const double* pair = table.data() + (kFirst + t) * s.head_dim + i;
                        const double a = values[i], b = values[i + 1];
                        values[i] = a * pair[0] - b * pair[1];
                        values[i + 1] = a * pair[1] + b * pair[0];
                    }
                }
                y.insert(y.end(), values.begin(), values.end());
            }
        }
        return y;
    };
    const Doubles all = differences(made, x, d);
    Doubles expected;  // without the values after the heads
    for (size_t t = 0; t < s.n; ++t) {
        const auto first = all.begin() + static_cast<std::ptrdiff_t>(t * row);
        expected.insert(expected.end(), first, first + static_cast<std::ptrdiff_t>(3 * s.width()));
    }
    const auto i64 = [](size_t v) { return static_cast<int64_t>(v); };
    check_forms(
        [&](GraphInputs& in) {
            ggml_tensor* projection = in.add({i64(row), i64(s.n)}, x);
            const auto half = static_cast<std::ptrdiff_t>(s.head_dim);
            ggml_tensor* q_norm =
                in.add({i64(s.head_dim)}, Doubles(norms.begin(), norms.begin() + half));
            ggml_tensor* k_norm =
                in.add({i64(s.head_dim)}, Doubles(norms.begin() + half, norms.end()));
            Rope rope;
            rope.table = in.add({i64(s.head_dim), i64(n_all)}, table);
            ggml_tensor* in_dq = in.add({i64(s.width()), i64(n_all)}, dq);
            ggml_tensor* in_dkv = in.add({i64(2 * s.width()), i64(n_all)}, dkv);
            ggml_tensor* whole = heads_gradient(in.g, {projection, q_norm, k_norm, i64(kFirst)},
                                                {in_dq, in_dkv}, rope);
            return ggml_view_2d(in.g, whole, i64(3 * s.width()), i64(s.n), whole->nb[1], 0);
        },
        expected);
}

TEST_CASE("products take matrices of every type as the values that they stand for") {
    constexpr int64_t kIn = 512, kOut = 96, kN = 5;
    const Backend backend("CPU", 2);
    const Doubles w = spread_values(kIn * kOut, 1);
    const Doubles x = spread_values(kIn * kN, 2), d = spread_values(kOut * kN, 3);
    for (const ggml_type type : {GGML_TYPE_BF16, GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0,
                                 GGML_TYPE_Q4_K, GGML_TYPE_Q6_K}) {
        CAPTURE(ggml_type_name(type));
        std::vector<std::byte> encoded(ggml_row_size(type, kIn) * kOut);
        ggml_quantize_chunk(type, as_floats(w).data(), encoded.data(), 0, kOut, kIn, nullptr);
        std::vector<float> meant(kIn * kOut);
        ggml_get_type_traits(type)->to_float(encoded.data(), meant.data(), kIn * kOut);
        Graph g(backend, 32, {.operations = Operations::cpu});
        ggml_tensor* matrix = g.input_f32("w", {kIn, kOut});
        // An input of another type: its sizes follow from the type.
        matrix->type = type;
        matrix->nb[0] = ggml_type_size(type);
        matrix->nb[1] = ggml_row_size(type, kIn);
        matrix->nb[2] = matrix->nb[3] = matrix->nb[1] * kOut;
        ggml_tensor* in_x = g.input_f32("x", {kIn, kN});
        ggml_tensor* in_d = g.input_f32("d", {kOut, kN});
        ggml_tensor* y = g.keep(exact_linear(g, matrix, in_x));
        ggml_tensor* dx = g.keep(linear_gradient(g, matrix, in_d));
        g.finish(dx);
        ggml_backend_tensor_set(matrix, encoded.data(), 0, encoded.size());
        g.set(in_x, as_floats(x));
        g.set(in_d, as_floats(d));
        g.compute();
        Doubles expected_y(kOut * kN), expected_dx(kIn * kN);
        for (size_t t = 0; t < kN; ++t) {
            for (size_t o = 0; o < kOut; ++o) {
                for (size_t i = 0; i < kIn; ++i) {
                    const auto weight = static_cast<double>(meant[o * kIn + i]);
                    expected_y[t * kOut + o] += weight * x[t * kIn + i];
                    expected_dx[t * kIn + i] += weight * d[t * kOut + o];
                }
            }
        }
        CHECK(test::distance(g.read(y).data, expected_y) < kF32);
        CHECK(test::distance(g.read(dx).data, expected_dx) < kF32);
    }
}

}  // namespace
}  // namespace flux2
