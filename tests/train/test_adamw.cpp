// AdamW and clipping against cases computed by hand.
#include "support/support.hpp"
#include "train/adamw.hpp"

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
    CHECK(optimiser.state().mean[0] == 1.0f);
    CHECK(optimiser.state().square[0] == 1.0f);
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
