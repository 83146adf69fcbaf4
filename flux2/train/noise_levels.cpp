#include "train/noise_levels.hpp"

#include "base/check.hpp"
#include "train/counted_random.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

namespace flux2 {
namespace {

constexpr std::array<std::pair<const char*, TimestepSampling>, 6> kSamplings = {{
    {"uniform", TimestepSampling::uniform},
    {"sigmoid", TimestepSampling::sigmoid},
    {"shift", TimestepSampling::shift},
    {"flux2_shift", TimestepSampling::flux2_shift},
    {"logsnr", TimestepSampling::logsnr},
    {"sigma", TimestepSampling::sigma},
}};
constexpr std::array<std::pair<const char*, Weighting>, 5> kWeightings = {{
    {"none", Weighting::none},
    {"sigma_sqrt", Weighting::sigma_sqrt},
    {"logit_normal", Weighting::logit_normal},
    {"mode", Weighting::mode},
    {"cosmap", Weighting::cosmap},
}};

template <typename Table>
auto parse_name(const char* option, const std::string& name, const Table& table) {
    std::string known;
    for (const auto& [text, value] : table) {
        if (name == text) {
            return value;
        }
        known += concat(known.empty() ? "" : ", ", text);
    }
    fail(ErrorKind::bad_argument, option, " ", name, " is unknown; use one of ", known);
}

template <typename Table, typename Value>
const char* name_in(const Table& table, Value value) {
    return std::find_if(table.begin(), table.end(),
                        [&](const auto& entry) { return entry.second == value; })
        ->first;
}

double sigmoid(double x) {
    return 1 / (1 + std::exp(-x));
}

// A number in 0..1 with the density of the scheme, as in Stable Diffusion 3's report.
double density_number(const NoiseLevels& levels, double uniform, double normal) {
    switch (levels.weighting) {
        case Weighting::logit_normal:
            return sigmoid(levels.logit_mean + levels.logit_std * normal);
        case Weighting::mode: {
            const double cosine = std::cos(std::numbers::pi * uniform / 2);
            return 1 - uniform - levels.mode_scale * (cosine * cosine - 1 + uniform);
        }
        default:
            return uniform;
    }
}

double unscaled_level(const NoiseLevels& levels, double uniform, double normal,
                      int64_t n_image_tokens) {
    constexpr double kLevels = 1000;
    switch (levels.sampling) {
        case TimestepSampling::uniform:
            return uniform;
        case TimestepSampling::sigmoid:
            return sigmoid(levels.sigmoid_scale * normal);
        case TimestepSampling::shift:
            return shifted(sigmoid(levels.sigmoid_scale * normal), levels.discrete_flow_shift);
        case TimestepSampling::flux2_shift:
            return shifted(sigmoid(levels.sigmoid_scale * normal), flux2_shift(n_image_tokens));
        case TimestepSampling::logsnr:
            return sigmoid(-(levels.logit_mean + levels.logit_std * normal) / 2);
        case TimestepSampling::sigma:
            break;
    }
    const double number = density_number(levels, uniform, normal);
    const double index = std::clamp(std::floor(number * kLevels), 0.0, kLevels - 1);
    return shifted(1 - index / kLevels, levels.discrete_flow_shift);
}

}  // namespace

TimestepSampling parse_timestep_sampling(const std::string& name) {
    return parse_name("timestep_sampling", name, kSamplings);
}

Weighting parse_weighting(const std::string& name) {
    return parse_name("weighting_scheme", name, kWeightings);
}

const char* to_string(TimestepSampling sampling) {
    return name_in(kSamplings, sampling);
}

const char* to_string(Weighting weighting) {
    return name_in(kWeightings, weighting);
}

void check_noise_levels(const NoiseLevels& levels) {
    const auto is_above_0 = [](double value) { return std::isfinite(value) && value > 0; };
    check(is_above_0(levels.sigmoid_scale), ErrorKind::bad_argument, "sigmoid_scale ",
          levels.sigmoid_scale, " cannot work; it must be above 0");
    check(is_above_0(levels.discrete_flow_shift), ErrorKind::bad_argument, "discrete_flow_shift ",
          levels.discrete_flow_shift, " cannot work; it must be above 0, and 1 moves nothing");
    check(is_above_0(levels.logit_std) && std::isfinite(levels.logit_mean), ErrorKind::bad_argument,
          "logit_mean ", levels.logit_mean, " and logit_std ", levels.logit_std,
          " cannot work; the second must be above 0");
    check(levels.min_timestep >= 0 && levels.max_timestep <= 1000 &&
              levels.min_timestep < levels.max_timestep,
          ErrorKind::bad_argument, "min_timestep ", levels.min_timestep, " and max_timestep ",
          levels.max_timestep, " are no range within 0 to 1000");
    const bool is_density =
        levels.weighting == Weighting::logit_normal || levels.weighting == Weighting::mode;
    check(!is_density || levels.sampling == TimestepSampling::sigma, ErrorKind::bad_argument,
          "weighting_scheme ", to_string(levels.weighting),
          " chooses noise levels and goes with timestep_sampling sigma, not ",
          to_string(levels.sampling));
}

double shifted(double t, double s) {
    return s * t / (1 + (s - 1) * t);
}

double flux2_shift(int64_t n_image_tokens) {
    constexpr double kSlope = (1.15 - 0.5) / (4096 - 256);
    return std::exp(0.5 + kSlope * static_cast<double>(n_image_tokens - 256));
}

double draw_noise_level(const NoiseLevels& levels, uint64_t seed, uint64_t a, uint64_t b,
                        int64_t n_image_tokens) {
    constexpr uint64_t kMostDraws = 1000;
    const double from = levels.min_timestep / 1000, until = levels.max_timestep / 1000;
    double t = 0;
    for (uint64_t draw = 0; draw < kMostDraws; ++draw) {
        // Three numbers of a draw: one uniform, two for a normal one.
        const uint64_t number = (b * kMostDraws + draw) * 2;
        const double uniform = random_uniform(seed, RandomUse::noise_level, a, 2 * number);
        const double normal = random_normal(seed, RandomUse::noise_level, a, number + 1);
        t = unscaled_level(levels, uniform, normal, n_image_tokens);
        if (!levels.preserve_distribution_shape) {
            return from + t * (until - from);
        }
        if (t >= from && t <= until) {
            return t;
        }
    }
    return std::clamp(t, from, until);
}

double loss_weight(Weighting weighting, double t) {
    switch (weighting) {
        case Weighting::sigma_sqrt:
            return 1 / (t * t);
        case Weighting::cosmap:
            return 2 / (std::numbers::pi * (1 - 2 * t + 2 * t * t));
        default:
            return 1;
    }
}

}  // namespace flux2
