// Expected numbers are the reference's own, as its schedule function prints them.
#include "pipeline/sampler.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <array>

namespace flux2 {
namespace {

TEST_CASE("noise levels are the reference's at every size") {
    struct Case {
        int64_t n_tokens;
        double mu;
        std::array<double, 3> sigmas;  // between the first, 1, and the last, 0
    };
    // Six printed digits.
    constexpr double kRounding = 1e-6;
    for (const Case& c : {Case{256, 1.965567, {0.955391, 0.877134, 0.704112}},
                          Case{1024, 2.030690, {0.958085, 0.883982, 0.717497}},
                          Case{2304, 2.139227, {0.962234, 0.894658, 0.738969}},
                          Case{4080, 2.289823, {0.967341, 0.908031, 0.766958}},
                          Case{4096, 2.291180, {0.967384, 0.908144, 0.767200}},
                          Case{4356, 1.194007, {0.908264, 0.767457, 0.523831}},
                          Case{16384, 3.229986, {0.986986, 0.961947, 0.893915}}}) {
        CAPTURE(c.n_tokens);
        CHECK(std::abs(empirical_mu(c.n_tokens, 4) - c.mu) < kRounding);
        const std::vector<float> sigmas = schedule(c.n_tokens, 4);
        REQUIRE(sigmas.size() == 5);
        CHECK(sigmas.front() == 1.0f);
        CHECK(sigmas.back() == 0.0f);
        for (size_t i = 0; i < c.sigmas.size(); ++i) {
            CHECK(std::abs(static_cast<double>(sigmas[i + 1]) - c.sigmas[i]) < kRounding);
        }
    }
    CHECK(std::abs(empirical_mu(4096, 50) - 2.023351) < kRounding);
    CHECK(std::abs(empirical_mu(4096, 20) - 2.198022) < kRounding);
    const std::vector<float> fifty = schedule(4096, 50);
    CHECK(std::abs(static_cast<double>(fifty[24]) - 0.891233) < kRounding);
    CHECK(std::abs(static_cast<double>(fifty[49]) - 0.133719) < kRounding);
}

TEST_CASE("no steps make no schedule") {
    CHECK(test::error_of([] { schedule(256, 0); }).kind == ErrorKind::bad_argument);
}

TEST_CASE("Euler steps follow a constant velocity exactly") {
    HostTensor x({2, 1, 1, 1});
    x.data = {1.0f, -2.0f};
    std::vector<float> seen;
    const HostTensor result =
        sample(x, {1.0f, 0.5f, 0.0f}, [&](const HostTensor&, float sigma, size_t) {
            seen.push_back(sigma);
            HostTensor velocity({2, 1, 1, 1});
            velocity.data = {4.0f, 8.0f};
            return velocity;
        });
    CHECK(seen == std::vector<float>{1.0f, 0.5f});
    CHECK(result.data == std::vector<float>{-3.0f, -10.0f});
}

TEST_CASE("guidance goes from the unconditional velocity through the conditional one") {
    HostTensor cond({1, 1, 1, 1});
    HostTensor uncond({1, 1, 1, 1});
    cond.data = {3.0f};
    uncond.data = {1.0f};
    CHECK(guide(cond, uncond, 4.0f).data.front() == 9.0f);
    CHECK(guide(cond, uncond, 1.0f).data.front() == 3.0f);
}

}  // namespace
}  // namespace flux2
