// Dropout between the matrices of pairs: what is drawn, what it does to a velocity.
#include "train/network_dropout.hpp"
#include "train/small_training.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace flux2 {
namespace {

using test::small_example;
using test::trained_sizes;

TEST_CASE("a quarter of the values is left out, the others grow by a third") {
    constexpr size_t kMany = 40000;
    std::vector<float> factors(kMany);
    draw_dropout(0.25, 1, 2, 8, 8, factors);
    const auto n_zero = std::count(factors.begin(), factors.end(), 0.0f);
    const auto n_kept = std::count(factors.begin(), factors.end(), static_cast<float>(4.0 / 3));
    CHECK(n_zero + n_kept == kMany);
    CHECK(std::abs(static_cast<double>(n_zero) / kMany - 0.25) < 0.01);  // some 5 deviations
    // Of any seed and module others; the same where rows are filled up.
    for (const auto& [seed, module] : {std::pair<uint64_t, size_t>{2, 2}, {1, 3}}) {
        std::vector<float> others(kMany);
        draw_dropout(0.25, seed, module, 8, 8, others);
        CHECK(others != factors);
    }
    std::vector<float> wide(16 * 5);
    draw_dropout(0.25, 1, 2, 8, 16, wide);
    for (size_t i = 0; i < wide.size(); ++i) {
        REQUIRE(wide[i] == (i % 16 < 8 ? factors[i / 16 * 8 + i % 16] : 0.0f));
    }
    std::vector<float> all(100);
    draw_dropout(0, 1, 2, 4, 4, all);
    CHECK(all == std::vector<float>(100, 1.0f));
}

TEST_CASE("each value between A and B counts as its factor says") {
    // In the last matrix the velocity is linear in each of the values: with rank 3 it is the one
    // without pair plus the sum, over the rank, of what each row of A and column of B give alone.
    const TransformerSizes sizes = trained_sizes(false);
    const test::OpenedModel model(sizes);
    constexpr size_t kRank = 3;
    TrainedAdapter adapter(
        sizes, {.rank = kRank, .alpha = 4.5, .include = {"final_layer"}, .dropout = 0.4});
    test::fill_pairs(adapter);
    TrainingExample example = small_example(sizes, true);
    example.dropout_seed = 77;
    const Backend backend("CPU", 2);
    TrainingPass pass(backend, model.checkpoint, adapter);
    const std::vector<float> values(adapter.parameters().begin(), adapter.parameters().end());
    const size_t first_b = adapter.modules()[0].b.first;
    // Without dropout, with only row `part` of the rank; kRank: none.
    const auto velocity_of = [&](size_t part) {
        for (size_t i = first_b; i < values.size(); ++i) {
            adapter.parameters()[i] = (i - first_b) % kRank == part ? values[i] : 0.0f;
        }
        pass.loss(example);
        std::copy(values.begin(), values.end(), adapter.parameters().begin());
        return pass.velocity().data;
    };
    const std::vector<float> none = velocity_of(kRank);
    std::vector<std::vector<float>> parts;
    for (size_t part = 0; part < kRank; ++part) {
        parts.push_back(velocity_of(part));
    }
    const auto n_tokens = static_cast<size_t>(example.picture.tokens.ne[1]);
    std::vector<float> factors(kRank * n_tokens);
    draw_dropout(0.4, 77, 0, kRank, kRank, factors);
    CHECK(std::count(factors.begin(), factors.end(), 0.0f) > 2);
    std::vector<float> gradients(values.size());
    pass.add_gradients(example, 1, gradients);
    const std::vector<float> velocity = pass.velocity().data;
    for (size_t i = 0; i < velocity.size(); ++i) {
        const size_t token = i / static_cast<size_t>(sizes.channels);
        float expected = none[i];
        for (size_t part = 0; part < kRank; ++part) {
            expected += factors[token * kRank + part] * (parts[part][i] - none[i]);
        }
        REQUIRE(velocity[i] == doctest::Approx(expected).epsilon(1e-4));
    }
    // The loss of validation has none of it.
    const double loss = pass.loss(example);
    example.dropout_seed = 78;
    CHECK(pass.loss(example) == loss);
    CHECK(pass.add_gradients(example, 1, gradients) != loss);
}

}  // namespace
}  // namespace flux2
