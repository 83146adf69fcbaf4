#include "train/adamw.hpp"

#include "base/check.hpp"
#include "train/chunks.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace flux2 {

AdamW::AdamW(size_t n_parameters, const AdamWOptions& options) : options_(options) {
    const auto is_share = [](double beta) { return beta >= 0 && beta < 1; };
    check(is_share(options.beta1) && is_share(options.beta2), ErrorKind::bad_argument,
          "AdamW's betas are ", options.beta1, " and ", options.beta2,
          "; both must be at least 0 and below 1");
    check(options.eps > 0 && options.weight_decay >= 0 && std::isfinite(options.eps) &&
              std::isfinite(options.weight_decay),
          ErrorKind::bad_argument, "AdamW's eps is ", options.eps, " and its weight decay ",
          options.weight_decay, "; eps must be above 0, weight decay at least 0");
    state_.mean.resize(n_parameters);
    state_.square.resize(n_parameters);
}

void AdamW::step(std::span<float> parameters, std::span<const float> gradients,
                 double learning_rate, int n_threads) {
    check(parameters.size() == state_.mean.size() && gradients.size() == state_.mean.size(),
          ErrorKind::internal, "the optimiser has ", state_.mean.size(), " parameters, not ",
          parameters.size());
    const auto n = static_cast<double>(++state_.n_steps);
    const double correction1 = 1 - std::pow(options_.beta1, n);
    const double correction2 = std::sqrt(1 - std::pow(options_.beta2, n));
    const auto kept = static_cast<float>(1 - learning_rate * options_.weight_decay);
    const auto share1 = static_cast<float>(1 - options_.beta1);
    const auto beta2 = static_cast<float>(options_.beta2);
    const auto share2 = static_cast<float>(1 - options_.beta2);
    const auto root_factor = static_cast<float>(1 / correction2);
    const auto eps = static_cast<float>(options_.eps);
    const auto rate = static_cast<float>(learning_rate / correction1);
    for_chunks(parameters.size(), n_threads, [&](size_t first, size_t count, size_t) {
        float* p = parameters.data() + first;
        const float* g = gradients.data() + first;
        float* m = state_.mean.data() + first;
        float* v = state_.square.data() + first;
        for (size_t i = 0; i < count; ++i) {
            m[i] += share1 * (g[i] - m[i]);
            v[i] = beta2 * v[i] + share2 * g[i] * g[i];
            p[i] = kept * p[i] - rate * m[i] / (std::sqrt(v[i]) * root_factor + eps);
        }
    });
}

void AdamW::restore(State state) {
    check(state.mean.size() == state_.mean.size() && state.square.size() == state_.mean.size() &&
              state.n_steps >= 0,
          ErrorKind::bad_argument, "the optimiser's kept state has ", state.mean.size(),
          " parameters, this LoRA has ", state_.mean.size(),
          "; go on with the settings it was made with");
    state_ = std::move(state);
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
