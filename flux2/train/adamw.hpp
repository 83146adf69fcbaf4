// AdamW as PyTorch computes it, with its state in F32 on the host; clipping of gradients. Results
// are the same for any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace flux2 {

struct AdamWOptions {
    double beta1 = 0.9, beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0.01;
};

class AdamW {
  public:
    // Throws bad_argument for options out of range.
    AdamW(size_t n_parameters, const AdamWOptions& options = {});

    // One step; both spans have n_parameters values.
    void step(std::span<float> parameters, std::span<const float> gradients, double learning_rate,
              int n_threads);

    // The state, to be kept and restored.
    struct State {
        int64_t n_steps = 0;
        std::vector<float> mean, square;  // of gradients, decaying
    };
    const State& state() const { return state_; }
    // Throws bad_argument when it has another number of parameters.
    void restore(State state);

  private:
    AdamWOptions options_;
    State state_;
};

// sqrt of the sum of squares.
double global_norm(std::span<const float> gradients, int n_threads);
// Scales gradients down to the norm `largest` where it is larger, as PyTorch's clip_grad_norm_
// does; returns the norm before. A norm that is not finite changes nothing.
double clip_gradients(std::span<float> gradients, double largest, int n_threads);

}  // namespace flux2
