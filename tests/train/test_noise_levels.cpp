// Noise levels: formulas at points computed by hand, distributions by their quantiles.
#include "support/support.hpp"
#include "train/noise_levels.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace flux2 {
namespace {

constexpr size_t kDraws = 20000;
// Four standard errors of a share of 20,000 draws: 4 sqrt(0.25 / 20000).
constexpr double kShareError = 0.0142;

std::vector<double> drawn(const NoiseLevels& levels, int64_t n_tokens = 1024) {
    std::vector<double> values;
    for (size_t i = 0; i < kDraws; ++i) {
        values.push_back(draw_noise_level(levels, 7, i, 0, n_tokens));
    }
    return values;
}

double share_below(const std::vector<double>& values, double limit) {
    const auto n = std::count_if(values.begin(), values.end(), [&](double v) { return v < limit; });
    return static_cast<double>(n) / static_cast<double>(values.size());
}

// The distribution function of standard normal numbers.
double normal_share(double x) {
    return 0.5 * std::erfc(-x / std::sqrt(2.0));
}

double logit(double t) {
    return std::log(t / (1 - t));
}

void check_share(const std::vector<double>& values, double limit, double expected) {
    CAPTURE(limit);
    CHECK(std::abs(share_below(values, limit) - expected) < kShareError);
}

TEST_CASE("shifts are those of the formulas") {
    CHECK(shifted(0.5, 1) == doctest::Approx(0.5));
    CHECK(shifted(0.5, 3) == doctest::Approx(0.75));
    CHECK(shifted(0.25, 3) == doctest::Approx(0.5));
    CHECK(shifted(1, 4) == doctest::Approx(1));
    // 512x512 has 1024 tokens: mu = 0.63; 1024x1024 has 4096: mu = 1.15.
    CHECK(std::log(flux2_shift(256)) == doctest::Approx(0.5));
    CHECK(std::log(flux2_shift(1024)) == doctest::Approx(0.63));
    CHECK(flux2_shift(4096) == doctest::Approx(3.1582).epsilon(1e-4));
}

TEST_CASE("uniform levels fill the range evenly, and a seed repeats them") {
    const NoiseLevels levels = {.sampling = TimestepSampling::uniform};
    const std::vector<double> values = drawn(levels);
    for (const double limit : {0.1, 0.25, 0.5, 0.9}) {
        check_share(values, limit, limit);
    }
    CHECK(drawn(levels) == values);
    CHECK(draw_noise_level(levels, 8, 0, 0, 1024) != values[0]);
    CHECK(draw_noise_level(levels, 7, 0, 1, 1024) != values[0]);
}

TEST_CASE("sigmoid, shift and flux2_shift are a normal number behind their formulas") {
    for (const double limit : {0.2, 0.5, 0.7, 0.9}) {
        check_share(drawn({.sampling = TimestepSampling::sigmoid}), limit,
                    normal_share(logit(limit)));
        check_share(drawn({.sampling = TimestepSampling::sigmoid, .sigmoid_scale = 2}), limit,
                    normal_share(logit(limit) / 2));
        // s t / (1 + (s - 1) t) adds log(s) to the logit.
        check_share(drawn({.sampling = TimestepSampling::shift, .discrete_flow_shift = 3}), limit,
                    normal_share(logit(limit) - std::log(3.0)));
        check_share(drawn({.sampling = TimestepSampling::flux2_shift}), limit,
                    normal_share(logit(limit) - 0.63));
        check_share(drawn({.sampling = TimestepSampling::flux2_shift}, 4096), limit,
                    normal_share(logit(limit) - 1.15));
    }
}

TEST_CASE("the logarithm of signal to noise is normal") {
    // t = sigmoid(-x / 2), so t < limit when x > -2 logit(limit).
    const NoiseLevels levels = {
        .sampling = TimestepSampling::logsnr, .logit_mean = -1, .logit_std = 2};
    for (const double limit : {0.3, 0.6, 0.9}) {
        check_share(drawn(levels), limit, 1 - normal_share((-2 * logit(limit) + 1) / 2));
    }
}

TEST_CASE("sigma draws one of 1000 levels with the density of the scheme") {
    NoiseLevels levels = {.sampling = TimestepSampling::sigma, .discrete_flow_shift = 4};
    std::vector<double> values = drawn(levels);
    // Uniform before the shift: t < limit when u < limit / (4 - 3 limit).
    for (const double limit : {0.3, 0.6, 0.9}) {
        check_share(values, limit, limit / (4 - 3 * limit));
    }
    const double unshifted = values[0] / (4 - 3 * values[0]);
    CHECK(std::abs(unshifted * 1000 - std::round(unshifted * 1000)) < 1e-6);
    levels.discrete_flow_shift = 1;
    levels.weighting = Weighting::logit_normal;
    values = drawn(levels);
    for (const double limit : {0.3, 0.5, 0.9}) {  // symmetric about one half
        check_share(values, limit, normal_share(logit(limit)));
    }
    levels.weighting = Weighting::mode;  // its levels in the middle are more frequent
    values = drawn(levels);
    check_share(values, 0.5, 0.5);
    CHECK(share_below(values, 0.6) - share_below(values, 0.4) > 0.2 + kShareError);
}

TEST_CASE("limits scale the levels, or cut them off") {
    NoiseLevels levels = {
        .sampling = TimestepSampling::sigmoid, .min_timestep = 200, .max_timestep = 600};
    std::vector<double> values = drawn(levels);
    CHECK(*std::min_element(values.begin(), values.end()) >= 0.2);
    CHECK(*std::max_element(values.begin(), values.end()) <= 0.6);
    check_share(values, 0.2 + 0.4 * 0.7, normal_share(logit(0.7)));
    levels.preserve_distribution_shape = true;
    values = drawn(levels);
    CHECK(*std::min_element(values.begin(), values.end()) >= 0.2);
    CHECK(*std::max_element(values.begin(), values.end()) <= 0.6);
    const double low = normal_share(logit(0.2)), high = normal_share(logit(0.6));
    check_share(values, 0.5, (0.5 - low) / (high - low));
}

TEST_CASE("weights of the loss are those of the formulas") {
    CHECK(loss_weight(Weighting::none, 0.3) == 1);
    CHECK(loss_weight(Weighting::mode, 0.3) == 1);
    CHECK(loss_weight(Weighting::sigma_sqrt, 0.5) == doctest::Approx(4));
    CHECK(loss_weight(Weighting::cosmap, 0.5) == doctest::Approx(4 / 3.14159265));
    CHECK(loss_weight(Weighting::cosmap, 1) == doctest::Approx(2 / 3.14159265));
}

TEST_CASE("settings that cannot work are refused by name") {
    const auto refused = [](const NoiseLevels& levels, std::string_view words) {
        const auto error = test::error_of([&] { check_noise_levels(levels); });
        CHECK(error.kind == ErrorKind::bad_argument);
        CHECK(error.mentions(words));
    };
    refused({.discrete_flow_shift = 0}, "discrete_flow_shift 0");
    refused({.sigmoid_scale = -1}, "sigmoid_scale -1");
    refused({.min_timestep = 500, .max_timestep = 400}, "min_timestep 500");
    refused({.max_timestep = 1001}, "max_timestep 1001");
    refused({.weighting = Weighting::mode}, "timestep_sampling sigma");
    CHECK_NOTHROW(check_noise_levels({}));
    CHECK(test::error_of([] { parse_timestep_sampling("flux_shift"); }).mentions("flux2_shift"));
    CHECK(test::error_of([] { parse_weighting("x"); }).mentions("cosmap"));
    CHECK(parse_timestep_sampling(to_string(TimestepSampling::logsnr)) == TimestepSampling::logsnr);
    CHECK(parse_weighting(to_string(Weighting::cosmap)) == Weighting::cosmap);
}

}  // namespace
}  // namespace flux2
