// AdamW as PyTorch computes it, with its state on the host in F32 or in 8 bits; clipping of
// gradients. Results are the same for any number of threads.
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
    bool eight_bits = false;  // the state (train/moment_codes)
};

class AdamW {
  public:
    // Throws bad_argument for options out of range.
    AdamW(size_t n_parameters, const AdamWOptions& options = {});

    // One step; both spans have n_parameters values.
    void step(std::span<float> parameters, std::span<const float> gradients, double learning_rate,
              int n_threads);

    // The state, to be kept and restored.
    struct Moments {                 // one per parameter
        std::vector<float> values;   // in F32, or:
        std::vector<uint8_t> codes;  // in 8 bits
        std::vector<float> largest;  // of each block of them
    };
    struct State {
        int64_t n_steps = 0;
        Moments mean, square;  // of gradients, decaying
    };
    const State& state() const { return state_; }
    // Throws bad_argument unless the state has this optimiser's number of parameters and precision
    // (F32 or 8 bits).
    void restore(State state);
    // Of that many parameters' state.
    static uint64_t state_bytes(size_t n_parameters, bool eight_bits);

  private:
    struct Rates;
    void step_in_8_bits(std::span<float> parameters, std::span<const float> gradients,
                        const Rates& rates, size_t first);

    AdamWOptions options_;
    size_t n_parameters_;
    State state_;
};

// sqrt of the sum of squares.
double global_norm(std::span<const float> gradients, int n_threads);
// Scales gradients down to the norm `largest` where it is larger, as PyTorch's clip_grad_norm_
// does; returns the norm before. A norm that is not finite changes nothing.
double clip_gradients(std::span<float> gradients, double largest, int n_threads);

}  // namespace flux2
