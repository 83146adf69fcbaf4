// From noise to latents in a few Euler steps along a schedule. Independent of any model. Follows
// sampling.py of the original authors.
#pragma once

#include "base/host_tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace flux2 {

// The reference's fitted shift of the schedule for n_tokens image tokens and n_steps steps.
double empirical_mu(int64_t n_tokens, int64_t n_steps);

// n_steps + 1 noise levels from 1 down to 0.
std::vector<float> schedule(int64_t n_tokens, int64_t n_steps);

// The velocity of x at a noise level; `step` counts from 0.
using Predict = std::function<HostTensor(const HostTensor& x, float sigma, size_t step)>;
// Changes the result of each step, at the noise level it has reached.
using Constrain = std::function<void(HostTensor& x, float sigma)>;
// Called with the result of each step and the velocity that was used.
using OnStep = std::function<void(const HostTensor& x, size_t step, const HostTensor& velocity)>;

// Integrates x along the schedule: x += (next - current) * velocity.
HostTensor sample(HostTensor x, const std::vector<float>& sigmas, const Predict& predict,
                  const OnStep& on_step = {}, const Constrain& constrain = {});

// Steps from `first` on, before `end`, counted from 0.
struct StepRange {
    size_t first = 0;
    size_t end = std::numeric_limits<size_t>::max();

    bool contains(size_t step) const { return first <= step && step < end; }
    size_t size() const { return end - first; }
};

// The steps i of n_steps with from <= i / n_steps < until; `end` is at most n_steps.
StepRange steps_within(float from, float until, size_t n_steps);

// Classifier-free guidance: uncond + scale * (cond - uncond).
HostTensor guide(const HostTensor& cond, const HostTensor& uncond, float scale);

}  // namespace flux2
