#include "pipeline/sampler.hpp"

#include "base/check.hpp"

#include <cmath>
#include <utility>

namespace flux2 {

double empirical_mu(int64_t n_tokens, int64_t n_steps) {
    // compute_empirical_mu of the reference: two lines, fitted at 10 and at 200 steps.
    constexpr double a1 = 8.73809524e-05, b1 = 1.89833333;
    constexpr double a2 = 0.00016927, b2 = 0.45666666;
    const auto l = static_cast<double>(n_tokens);
    const double m200 = a2 * l + b2;
    if (n_tokens > 4300) {
        return m200;
    }
    const double m10 = a1 * l + b1;
    const double a = (m200 - m10) / 190.0;
    const double b = m200 - 200.0 * a;
    return a * static_cast<double>(n_steps) + b;
}

std::vector<float> schedule(int64_t n_tokens, int64_t n_steps) {
    check(n_steps >= 1, ErrorKind::bad_argument, n_steps, " steps make no picture; use 1 or more");
    const double shift = std::exp(empirical_mu(n_tokens, n_steps));
    std::vector<float> sigmas;
    for (int64_t i = 0; i < n_steps; ++i) {
        const double u = 1.0 - static_cast<double>(i) / static_cast<double>(n_steps);
        sigmas.push_back(static_cast<float>(shift / (shift + (1.0 / u - 1.0))));
    }
    sigmas.push_back(0.0f);
    return sigmas;
}

HostTensor sample(HostTensor x, const std::vector<float>& sigmas, const Predict& predict,
                  const OnStep& on_step, const Constrain& constrain) {
    for (size_t step = 0; step + 1 < sigmas.size(); ++step) {
        const HostTensor velocity = predict(x, sigmas[step], step);
        const float dt = sigmas[step + 1] - sigmas[step];
        for (size_t i = 0; i < x.data.size(); ++i) {
            x.data[i] += dt * velocity.data[i];
        }
        if (constrain) {
            constrain(x, sigmas[step + 1]);
        }
        if (on_step) {
            on_step(x, step, velocity);
        }
    }
    return x;
}

StepRange steps_within(float from, float until, size_t n_steps) {
    // Shares are rounded as `from` and `until` were, so that 0.6 is reached by step 3 of 5.
    const auto first_at = [&](float share) {
        size_t step = 0;
        while (step < n_steps && static_cast<float>(step) / static_cast<float>(n_steps) < share) {
            ++step;
        }
        return step;
    };
    return {first_at(from), first_at(until)};
}

HostTensor guide(const HostTensor& cond, const HostTensor& uncond, float scale) {
    HostTensor result = uncond;
    for (size_t i = 0; i < result.data.size(); ++i) {
        result.data[i] += scale * (cond.data[i] - uncond.data[i]);
    }
    return result;
}

}  // namespace flux2
