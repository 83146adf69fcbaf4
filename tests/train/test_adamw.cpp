// AdamW and clipping against cases computed by hand.
#include "support/support.hpp"
#include "train/adamw.hpp"
#include "train/small_training.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace flux2 {
namespace {

TEST_CASE("two steps of AdamW are those computed by hand") {
    // lr 0.1, betas 0.5 and 0.75, eps 1, weight decay 0.2; p = 1, gradients 2 and 1.
    // Step 1: p = 0.98; m = 1, v = 1; m / (1 - 0.5) = 2; sqrt(v / (1 - 0.75)) = 2;
    //         p = 0.98 - 0.1 * 2 / (2 + 1).
    // Step 2: p *= 0.98; m = 1, v = 0.75 + 0.25 = 1; m / 0.75 = 4/3; sqrt(1 / 0.4375);
    //         p -= 0.1 * 4/3 / (sqrt(1 / 0.4375) + 1).
    AdamW optimiser(1, {.beta1 = 0.5, .beta2 = 0.75, .eps = 1, .weight_decay = 0.2});
    std::vector<float> p = {1.0f};
    optimiser.step(p, std::vector<float>{2.0f}, 0.1, 1);
    const double first = 0.98 - 0.2 / 3;
    CHECK(static_cast<double>(p[0]) == doctest::Approx(first).epsilon(1e-6));
    CHECK(optimiser.state().mean.values[0] == 1.0f);
    CHECK(optimiser.state().square.values[0] == 1.0f);
    optimiser.step(p, std::vector<float>{1.0f}, 0.1, 1);
    const double second = first * 0.98 - 0.4 / 3 / (std::sqrt(1 / 0.4375) + 1);
    CHECK(static_cast<double>(p[0]) == doctest::Approx(second).epsilon(1e-6));
    CHECK(optimiser.state().n_steps == 2);
}

TEST_CASE("a restored optimiser goes on as one that was never stopped") {
    const std::vector<float> gradients = {0.5f, -2.0f};
    std::vector<float> p = {1.0f, 2.0f};
    AdamW whole(2);
    whole.step(p, gradients, 0.01, 1);
    std::vector<float> q = p;
    AdamW resumed(2);
    resumed.restore(whole.state());
    whole.step(p, gradients, 0.01, 1);
    resumed.step(q, gradients, 0.01, 1);
    CHECK(p == q);
    const test::CaughtError error = test::error_of([&] { AdamW(3).restore(whole.state()); });
    CHECK(error.kind == ErrorKind::bad_argument);
}

TEST_CASE("a state in 8 bits goes on as one that was never stopped, and takes no other") {
    const std::vector<float> gradients = test::even_values(700, 1, 1);  // some blocks, one of 188
    std::vector<float> p = test::even_values(700, 2, 1);
    const AdamWOptions options = {.eight_bits = true};
    AdamW whole(700, options);
    for (int i = 0; i < 3; ++i) {
        whole.step(p, gradients, 0.01, 1);
    }
    CHECK(whole.state().mean.codes.size() == 700);
    CHECK(whole.state().mean.largest.size() == 3);
    CHECK(whole.state().mean.values.empty());
    CHECK(AdamW::state_bytes(700, true) == 2 * (700 + 3 * 4));
    CHECK(AdamW::state_bytes(700, false) == 2 * 700 * 4);
    std::vector<float> q = p;
    AdamW resumed(700, options);
    resumed.restore(whole.state());
    whole.step(p, gradients, 0.01, 1);
    resumed.step(q, gradients, 0.01, 2);
    CHECK(p == q);
    CHECK(test::error_of([&] { AdamW(700).restore(whole.state()); }).mentions("8 bits"));
}

TEST_CASE("with states in 8 bits weights end near those with states in F32") {
    // Squares of distances with factors from 0.01 to 1 and noise of half that size in the
    // gradients, as training has it; the rate falls to zero.
    constexpr size_t kMany = 1024;
    constexpr int kSteps = 400;
    const std::vector<float> factors = test::even_values(kMany, 1, 1);
    const std::vector<float> goals = test::even_values(kMany, 2, 1);
    const auto train = [&](bool eight_bits) {
        AdamW optimiser(kMany, {.weight_decay = 0, .eight_bits = eight_bits});
        std::vector<float> p(kMany), gradients(kMany);
        for (int step = 0; step < kSteps; ++step) {
            const std::vector<float> noise =
                test::even_values(kMany, static_cast<uint32_t>(3 + step), 0.5f);
            for (size_t i = 0; i < kMany; ++i) {
                const float factor = 0.01f + std::abs(factors[i]);
                gradients[i] = factor * (p[i] - goals[i] + noise[i]);
            }
            optimiser.step(p, gradients, 0.01 * (1 - static_cast<double>(step) / kSteps), 1);
        }
        return p;
    };
    const std::vector<float> exact = train(false), rounded = train(true);
    double difference = 0, moved = 0;
    for (size_t i = 0; i < kMany; ++i) {
        const auto square = [](float value) { return std::pow(static_cast<double>(value), 2); };
        difference += square(rounded[i] - exact[i]);
        moved += square(exact[i]);
    }
    // One per cent of the way; it is half of that.
    CHECK(std::sqrt(difference / moved) < 0.01);
    CHECK(std::sqrt(difference / moved) > 1e-4);
}

TEST_CASE("any number of threads gives the same steps and norms") {
    constexpr size_t kMany = 300000;  // several chunks
    std::vector<float> gradients(kMany);
    for (size_t i = 0; i < kMany; ++i) {
        gradients[i] = static_cast<float>(i % 1013) / 500 - 1;
    }
    std::vector<float> one(kMany, 0.5f);
    std::vector<float> four = one;
    AdamW a(kMany), b(kMany);
    a.step(one, gradients, 0.01, 1);
    b.step(four, gradients, 0.01, 4);
    CHECK(one == four);
    CHECK(global_norm(gradients, 1) == global_norm(gradients, 4));
}

TEST_CASE("gradients are scaled down to a norm, not up") {
    std::vector<float> gradients = {3.0f, -4.0f};
    CHECK(clip_gradients(gradients, 10, 2) == doctest::Approx(5));
    CHECK(gradients == std::vector<float>{3.0f, -4.0f});
    CHECK(clip_gradients(gradients, 1, 2) == doctest::Approx(5));
    CHECK(static_cast<double>(gradients[0]) == doctest::Approx(0.6).epsilon(1e-5));
    CHECK(static_cast<double>(gradients[1]) == doctest::Approx(-0.8).epsilon(1e-5));
    gradients[0] = std::numeric_limits<float>::infinity();
    CHECK(std::isinf(clip_gradients(gradients, 1, 1)));
    CHECK(static_cast<double>(gradients[1]) == doctest::Approx(-0.8).epsilon(1e-5));
}

TEST_CASE("options of AdamW that make no sense are refused") {
    CHECK(test::error_of([] { AdamW(1, {.beta1 = 1}); }).kind == ErrorKind::bad_argument);
    CHECK(test::error_of([] { AdamW(1, {.eps = 0}); }).kind == ErrorKind::bad_argument);
    CHECK(test::error_of([] { AdamW(1, {.weight_decay = -1}); }).kind == ErrorKind::bad_argument);
}

}  // namespace
}  // namespace flux2
