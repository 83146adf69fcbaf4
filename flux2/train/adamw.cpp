#include "train/adamw.hpp"

#include "base/check.hpp"
#include "train/chunks.hpp"
#include "train/counted_random.hpp"
#include "train/moment_codes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

namespace flux2 {

namespace {

size_t blocks_of(size_t n_parameters) {
    return (n_parameters + kMomentBlock - 1) / kMomentBlock;
}

AdamW::Moments moments_of(size_t n_parameters, bool eight_bits) {
    AdamW::Moments moments;
    if (eight_bits) {
        moments.codes.resize(n_parameters);
        moments.largest.resize(blocks_of(n_parameters));
    } else {
        moments.values.resize(n_parameters);
    }
    return moments;
}

bool have_same_sizes(const AdamW::Moments& a, const AdamW::Moments& b) {
    return a.values.size() == b.values.size() && a.codes.size() == b.codes.size() &&
           a.largest.size() == b.largest.size();
}

}  // namespace

// What a step multiplies with.
struct AdamW::Rates {
    float kept, share1, beta2, share2, root_factor, eps, rate;

    void update(std::span<float> p, const float* g, float* m, float* v) const {
        for (size_t i = 0; i < p.size(); ++i) {
            m[i] += share1 * (g[i] - m[i]);
            v[i] = beta2 * v[i] + share2 * g[i] * g[i];
            p[i] = kept * p[i] - rate * m[i] / (std::sqrt(v[i]) * root_factor + eps);
        }
    }
};

AdamW::AdamW(size_t n_parameters, const AdamWOptions& options)
    : options_(options), n_parameters_(n_parameters) {
    const auto is_share = [](double beta) { return beta >= 0 && beta < 1; };
    check(is_share(options.beta1) && is_share(options.beta2), ErrorKind::bad_argument,
          "AdamW's betas are ", options.beta1, " and ", options.beta2,
          "; both must be at least 0 and below 1");
    check(options.eps > 0 && options.weight_decay >= 0 && std::isfinite(options.eps) &&
              std::isfinite(options.weight_decay),
          ErrorKind::bad_argument, "AdamW's eps is ", options.eps, " and its weight decay ",
          options.weight_decay, "; eps must be above 0, weight decay at least 0");
    state_.mean = moments_of(n_parameters, options.eight_bits);
    state_.square = moments_of(n_parameters, options.eight_bits);
}

void AdamW::step(std::span<float> parameters, std::span<const float> gradients,
                 double learning_rate, int n_threads) {
    check(parameters.size() == n_parameters_ && gradients.size() == n_parameters_,
          ErrorKind::internal, "the optimiser has ", n_parameters_, " parameters, not ",
          parameters.size());
    const auto n = static_cast<double>(++state_.n_steps);
    const double correction1 = 1 - std::pow(options_.beta1, n);
    const double correction2 = std::sqrt(1 - std::pow(options_.beta2, n));
    const Rates rates = {.kept = static_cast<float>(1 - learning_rate * options_.weight_decay),
                         .share1 = static_cast<float>(1 - options_.beta1),
                         .beta2 = static_cast<float>(options_.beta2),
                         .share2 = static_cast<float>(1 - options_.beta2),
                         .root_factor = static_cast<float>(1 / correction2),
                         .eps = static_cast<float>(options_.eps),
                         .rate = static_cast<float>(learning_rate / correction1)};
    for_chunks(parameters.size(), n_threads, [&](size_t first, size_t count, size_t) {
        const std::span<float> p = parameters.subspan(first, count);
        if (options_.eight_bits) {
            step_in_8_bits(p, gradients.subspan(first, count), rates, first);
        } else {
            rates.update(p, gradients.data() + first, state_.mean.values.data() + first,
                         state_.square.values.data() + first);
        }
    });
}

// Parameters from number `first` on, which begins a block.
void AdamW::step_in_8_bits(std::span<float> parameters, std::span<const float> gradients,
                           const Rates& rates, size_t first) {
    static_assert(kParameterChunk % kMomentBlock == 0);
    std::array<float, kMomentBlock> mean, square, chances1, chances2;
    const RandomSeries random(0, RandomUse::moment_rounding, static_cast<uint64_t>(state_.n_steps));
    for (size_t at = 0; at < parameters.size(); at += kMomentBlock) {
        const size_t n = std::min(kMomentBlock, parameters.size() - at);
        for (size_t i = 0; i < n; ++i) {
            const uint64_t bits = random.bits(first + at + i);
            chances1[i] = static_cast<float>(bits & 0xffffff) * 0x1p-24f;
            chances2[i] = static_cast<float>(bits >> 40) * 0x1p-24f;
        }
        const auto codes = [&](Moments& moments) {
            return std::span(moments.codes).subspan(first + at, n);
        };
        float& largest_mean = state_.mean.largest[(first + at) / kMomentBlock];
        float& largest_square = state_.square.largest[(first + at) / kMomentBlock];
        const std::span<float> m = std::span(mean).first(n), v = std::span(square).first(n);
        unpack_moments(MomentCode::mean, codes(state_.mean), largest_mean, m);
        unpack_moments(MomentCode::square, codes(state_.square), largest_square, v);
        rates.update(parameters.subspan(at, n), gradients.data() + at, m.data(), v.data());
        largest_mean = pack_moments(MomentCode::mean, m, chances1, codes(state_.mean));
        largest_square = pack_moments(MomentCode::square, v, chances2, codes(state_.square));
    }
}

void AdamW::restore(State state) {
    check(have_same_sizes(state.mean, state_.mean) &&
              have_same_sizes(state.square, state_.square) && state.n_steps >= 0,
          ErrorKind::bad_argument, "the optimiser's kept state has ",
          std::max(state.mean.values.size(), state.mean.codes.size()),
          state.mean.codes.empty() ? " values in F32" : " values in 8 bits", ", this one takes ",
          n_parameters_, options_.eight_bits ? " in 8 bits" : " in F32",
          "; go on with the settings it was made with");
    state_ = std::move(state);
}

uint64_t AdamW::state_bytes(size_t n_parameters, bool eight_bits) {
    const uint64_t bytes = eight_bits ? n_parameters + sizeof(float) * blocks_of(n_parameters)
                                      : sizeof(float) * n_parameters;
    return 2 * bytes;
}

double global_norm(std::span<const float> gradients, int n_threads) {
    std::vector<double> sums((gradients.size() + kParameterChunk - 1) / kParameterChunk);
    for_chunks(gradients.size(), n_threads, [&](size_t first, size_t count, size_t chunk) {
        double sum = 0;
        for (const float value : gradients.subspan(first, count)) {
            sum += static_cast<double>(value) * static_cast<double>(value);
        }
        sums[chunk] = sum;
    });
    return std::sqrt(std::accumulate(sums.begin(), sums.end(), 0.0));
}

double clip_gradients(std::span<float> gradients, double largest, int n_threads) {
    const double norm = global_norm(gradients, n_threads);
    // 1e-6 as in PyTorch.
    const double factor = largest / (norm + 1e-6);
    if (std::isfinite(norm) && factor < 1) {
        for_chunks(gradients.size(), n_threads, [&](size_t first, size_t count, size_t) {
            for (float& value : gradients.subspan(first, count)) {
                value *= static_cast<float>(factor);
            }
        });
    }
    return norm;
}

}  // namespace flux2
