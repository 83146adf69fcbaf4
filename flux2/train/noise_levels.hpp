// Which noise levels t a training run draws, and how much each counts. 0 is the picture, 1 noise.
// Names and formulas are those of kohya-ss/musubi-tuner.
#pragma once

#include <cstdint>
#include <string>

namespace flux2 {

enum class TimestepSampling {
    uniform,
    sigmoid,      // of a normal number
    shift,        // the same, moved towards noise by `discrete_flow_shift`
    flux2_shift,  // the same, moved by an amount that grows with the picture
    logsnr,       // the logarithm of signal to noise is normal
    sigma,        // one of 1000 levels, moved by `discrete_flow_shift`
};

enum class Weighting { none, sigma_sqrt, logit_normal, mode, cosmap };

// Throw bad_argument, naming the option and what it takes.
TimestepSampling parse_timestep_sampling(const std::string& name);
Weighting parse_weighting(const std::string& name);
const char* to_string(TimestepSampling sampling);
const char* to_string(Weighting weighting);

struct NoiseLevels {
    TimestepSampling sampling = TimestepSampling::flux2_shift;
    Weighting weighting = Weighting::none;
    double sigmoid_scale = 1;
    double discrete_flow_shift = 1;
    double logit_mean = 0, logit_std = 1;
    double mode_scale = 1.29;
    double min_timestep = 0, max_timestep = 1000;
    // Levels outside these two are drawn again; else all are scaled into the range.
    bool preserve_distribution_shape = false;
};

// Throws bad_argument for values that cannot work.
void check_noise_levels(const NoiseLevels& levels);

// Moves a level: s t / (1 + (s - 1) t).
double shifted(double t, double s);
// exp(mu) with mu linear in the number of image tokens: 0.5 at 256, 1.15 at 4096.
double flux2_shift(int64_t n_image_tokens);

// The level of example `b` of batch `a`. Only flux2_shift looks at the number of tokens.
double draw_noise_level(const NoiseLevels& levels, uint64_t seed, uint64_t a, uint64_t b,
                        int64_t n_image_tokens);
// What the loss at this level is multiplied by.
double loss_weight(Weighting weighting, double t);

}  // namespace flux2
