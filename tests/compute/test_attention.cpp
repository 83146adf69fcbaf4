// Attention on the CPU against the formula in double precision.
#include "compute/cpu/amx_tiles.hpp"
#include "compute/cpu/attention.hpp"
#include "compute/cpu/matrix_tiles.hpp"
#include "compute/graph.hpp"
#include "support/needs.hpp"
#include "support/values.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace flux2 {
namespace {

enum class Kind { exact, arm_tiles, amx };

struct Case {
    int64_t width, n_head, n_head_kv, n, n_kv;
    bool masked = false;
    float size = 1;  // of queries: large ones make one key win
    Kind kind = Kind::exact;
};

// The nearest number of 8 significant bits, of two equally near the even one.
float rounded_to_bf16(float x) {
    int exponent = 0;
    const float mantissa = std::frexp(x, &exponent);
    return std::ldexp(std::nearbyint(std::ldexp(mantissa, 8)), exponent - 8);
}

// Query i sees key 0, and of those up to i all but every third.
std::vector<float> some_mask(const Case& c) {
    std::vector<float> mask;
    for (int64_t i = 0; i < c.n; ++i) {
        for (int64_t j = 0; j < c.n_kv; ++j) {
            const bool seen = j == 0 || (j <= i && j % 3 != 2);
            mask.push_back(seen ? 0.0f : -std::numeric_limits<float>::infinity());
        }
    }
    return mask;
}

struct Data {
    std::vector<float> q, k, v, mask;
};

double value_at(const std::vector<float>& values, const Case& c, int64_t n_head, int64_t head,
                int64_t token, int64_t channel) {
    const auto at = static_cast<size_t>((token * n_head + head) * c.width + channel);
    return static_cast<double>(values[at]);
}

int64_t head_kv_of(const Case& c, int64_t head) {
    return head / (c.n_head / c.n_head_kv);
}

// The weights of all keys for query i in head h; their sum is 1.
std::vector<double> plain_weights(const Case& c, const Data& x, int64_t h, int64_t i) {
    std::vector<double> weights;
    for (int64_t j = 0; j < c.n_kv; ++j) {
        double score = 0;
        for (int64_t e = 0; e < c.width; ++e) {
            score += value_at(x.q, c, c.n_head, h, i, e) *
                     value_at(x.k, c, c.n_head_kv, head_kv_of(c, h), j, e);
        }
        score /= std::sqrt(static_cast<double>(c.width));
        if (c.masked) {
            score += static_cast<double>(x.mask[static_cast<size_t>(i * c.n_kv + j)]);
        }
        weights.push_back(score);
    }
    const double most = *std::max_element(weights.begin(), weights.end());
    double sum = 0;
    for (double& weight : weights) {
        weight = std::exp(weight - most);
        sum += weight;
    }
    for (double& weight : weights) {
        weight /= sum;
    }
    return weights;
}

// One result, channel d in head h, and the same of the values' sizes.
struct Sums {
    double result = 0, sizes = 0;
};

Sums plain_sums(const Case& c, const Data& x, const std::vector<double>& weights, int64_t h,
                int64_t d) {
    Sums sums;
    for (int64_t j = 0; j < c.n_kv; ++j) {
        const double term =
            weights[static_cast<size_t>(j)] * value_at(x.v, c, c.n_head_kv, head_kv_of(c, h), j, d);
        sums.result += term;
        sums.sizes += std::abs(term);
    }
    return sums;
}

Data random_data(const Case& c) {
    Data x{test::normal_values(c.width * c.n_head * c.n, 1),
           test::normal_values(c.width * c.n_head_kv * c.n_kv, 2),
           test::normal_values(c.width * c.n_head_kv * c.n_kv, 3), some_mask(c)};
    for (float& value : x.q) {
        value *= c.size;
    }
    return x;
}

HostTensor compute(const Case& c, const Data& x, int n_threads) {
    const Backend backend("CPU", n_threads);
    Graph g(backend, 64);
    ggml_tensor* q = g.input_f32("q", {c.width, c.n_head, c.n});
    ggml_tensor* k = g.input_f32("k", {c.width, c.n_head_kv, c.n_kv});
    // Values lie with gaps between heads, as in a joint projection.
    ggml_tensor* wide = g.input_f32("v", {2 * c.width, c.n_head_kv, c.n_kv});
    ggml_tensor* v = ggml_view_3d(g, wide, c.width, c.n_head_kv, c.n_kv, wide->nb[1], wide->nb[2],
                                  static_cast<size_t>(c.width) * sizeof(float));
    ggml_tensor* mask = c.masked ? g.input_f32("mask", {c.n_kv, c.n}) : nullptr;
    ggml_tensor* y = c.kind == Kind::amx         ? cpu::attention_amx(g, q, k, v, mask)
                     : c.kind == Kind::arm_tiles ? cpu::attention_16bit(g, q, k, v)
                                                 : cpu::attention(g, q, k, v, mask);
    g.finish(y);
    g.set(q, std::span<const float>(x.q));
    g.set(k, std::span<const float>(x.k));
    std::vector<float> gaps;
    for (int64_t i = 0; i < c.n_head_kv * c.n_kv; ++i) {
        gaps.insert(gaps.end(), static_cast<size_t>(c.width), 1e9f);
        const auto from = x.v.begin() + i * c.width;
        gaps.insert(gaps.end(), from, from + c.width);
    }
    g.set(wide, std::span<const float>(gaps));
    if (c.masked) {
        g.set(mask, std::span<const float>(x.mask));
    }
    g.compute();
    return g.read(y);
}

// Calls f with some results and what the formula says there.
template <typename F>
void for_some(const Case& c, const Data& x, const HostTensor& result, const F& f) {
    REQUIRE(result.ne[0] == c.width * c.n_head);
    REQUIRE(result.ne[1] == c.n);
    for (int64_t i = 0; i < c.n; ++i) {
        for (int64_t h = 0; h < c.n_head; ++h) {
            const std::vector<double> weights = plain_weights(c, x, h, i);
            for (int64_t d = 0; d < c.width; d += 7) {
                const size_t at = static_cast<size_t>((i * c.n_head + h) * c.width + d);
                f(static_cast<double>(result.data[at]), plain_sums(c, x, weights, h, d));
            }
        }
    }
}

void check_case(const Case& c, int n_threads) {
    CAPTURE(c.width);
    CAPTURE(c.n);
    CAPTURE(c.n_kv);
    CAPTURE(n_threads);
    const Data x = random_data(c);
    double worst = 0;
    for_some(c, x, compute(c, x, n_threads), [&](double found, const Sums& expected) {
        worst = std::max(worst, std::abs(found - expected.result));
    });
    CHECK(worst < 2e-5 * static_cast<double>(std::max(c.size, 1.0f)));
}

// With values that BF16 holds exactly, what remains is the rounding of weights, by 2^-9 of
// themselves and so much of the sum of weighted absolute values, and that of scores: queries and
// keys have 15 bits, so scores of a size err by 1e-4 of it, rarely five times as much.
void check_16bit_case(const Case& c, int n_threads) {
    CAPTURE(c.width);
    CAPTURE(c.n);
    CAPTURE(c.n_kv);
    CAPTURE(n_threads);
    Data x = random_data(c);
    std::transform(x.v.begin(), x.v.end(), x.v.begin(), rounded_to_bf16);
    double worst = 0;
    for_some(c, x, compute(c, x, n_threads), [&](double found, const Sums& expected) {
        worst = std::max(worst, std::abs(found - expected.result) / expected.sizes);
    });
    CHECK(worst < 1.0 / 512 + 5e-4 * static_cast<double>(c.size));
}

TEST_CASE("attention on the CPU is the formula") {
    for (const int n_threads : {1, 2, 3}) {
        check_case({.width = 64, .n_head = 2, .n_head_kv = 2, .n = 50, .n_kv = 50}, n_threads);
        check_case({.width = 20, .n_head = 4, .n_head_kv = 2, .n = 7, .n_kv = 600}, n_threads);
    }
    check_case({.width = 128, .n_head = 1, .n_head_kv = 1, .n = 1, .n_kv = 1}, 2);
    check_case({.width = 16, .n_head = 3, .n_head_kv = 1, .n = 41, .n_kv = 513}, 2);
}

TEST_CASE("a mask hides keys from single queries") {
    check_case({.width = 32, .n_head = 4, .n_head_kv = 2, .n = 45, .n_kv = 45, .masked = true}, 2);
    check_case({.width = 16,
                .n_head = 1,
                .n_head_kv = 1,
                .n = 530,
                .n_kv = 530,
                .masked = true,
                .size = 1},
               2);
}

TEST_CASE("large scores neither overflow nor lose the winner") {
    check_case({.width = 64, .n_head = 1, .n_head_kv = 1, .n = 40, .n_kv = 700, .size = 100}, 2);
}

void check_formula(Kind kind) {
    const auto check_sizes = [&](Case c, int n_threads) {
        c.kind = kind;
        check_16bit_case(c, n_threads);
    };
    for (const int n_threads : {1, 2, 3}) {
        check_sizes({.width = 64, .n_head = 2, .n_head_kv = 2, .n = 50, .n_kv = 50}, n_threads);
        check_sizes({.width = 20, .n_head = 4, .n_head_kv = 2, .n = 7, .n_kv = 600}, n_threads);
    }
    check_sizes({.width = 128, .n_head = 1, .n_head_kv = 1, .n = 1, .n_kv = 1}, 2);
    check_sizes({.width = 18, .n_head = 3, .n_head_kv = 1, .n = 41, .n_kv = 1035}, 2);
    check_sizes({.width = 64, .n_head = 1, .n_head_kv = 1, .n = 40, .n_kv = 700, .size = 100}, 2);
}

void check_large_scores(Kind kind) {
    for (const float size : {1.0f, 10.0f, 100.0f}) {
        const Case c{.width = 128,
                     .n_head = 2,
                     .n_head_kv = 2,
                     .n = 60,
                     .n_kv = 300,
                     .size = size,
                     .kind = kind};
        const Data x = random_data(c);
        double square_error = 0;
        double square = 0;
        for_some(c, x, compute(c, x, 2), [&](double found, const Sums& expected) {
            square_error += (found - expected.result) * (found - expected.result);
            square += expected.result * expected.result;
        });
        CHECK(std::sqrt(square_error / square) < 4e-3);
    }
}

// More keys than a block has, and the bad one in the first and in the last.
void check_bad_score(Kind kind) {
    for (const int64_t bad_key : {0, 1000}) {
        const Case c{.width = 64, .n_head = 2, .n_head_kv = 2, .n = 40, .n_kv = 1035, .kind = kind};
        Data x = random_data(c);
        x.k[static_cast<size_t>(bad_key * c.n_head_kv * c.width)] =
            std::numeric_limits<float>::quiet_NaN();  // of head 0
        const HostTensor y = compute(c, x, 2);
        CAPTURE(bad_key);
        CHECK(std::isnan(y.data.front()));
        int64_t n_bad = 0;
        for (const float value : y.data) {
            n_bad += std::isnan(value) ? 1 : 0;
        }
        CHECK(n_bad == c.width * c.n);
    }
}

TEST_CASE("a score that is not a number is not hidden") {
    check_bad_score(Kind::exact);
}

TEST_CASE("a score that is not a number is not hidden in AMX tiles" *
          test::needs(cpu::has_amx(), "needs AMX")) {
    check_bad_score(Kind::amx);
}

TEST_CASE("attention in AMX tiles is the formula, but for the rounding" *
          test::needs(cpu::has_amx(), "needs AMX")) {
    check_formula(Kind::amx);
}

TEST_CASE("attention with Arm's matrix instructions is the formula, but for the rounding" *
          test::needs(cpu::has_matrix_tiles(), "needs Arm's matrix instructions")) {
    check_formula(Kind::arm_tiles);
}

TEST_CASE("a mask hides keys from single queries in AMX tiles too" *
          test::needs(cpu::has_amx(), "needs AMX")) {
    for (const int64_t n : {1, 45, 530}) {
        check_16bit_case({.width = 64,
                          .n_head = 4,
                          .n_head_kv = 2,
                          .n = n,
                          .n_kv = n,
                          .masked = true,
                          .kind = Kind::amx},
                         2);
    }
}

TEST_CASE("attention in AMX tiles errs little, however large the scores" *
          test::needs(cpu::has_amx(), "needs AMX")) {
    check_large_scores(Kind::amx);
}

TEST_CASE("attention with Arm's matrix instructions errs little, however large the scores" *
          test::needs(cpu::has_matrix_tiles(), "needs Arm's matrix instructions")) {
    check_large_scores(Kind::arm_tiles);
}

}  // namespace
}  // namespace flux2
