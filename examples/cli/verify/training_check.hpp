// flux2 selftest --training: recorded training runs of a LoRA, computed again.
#pragma once

#include "common/options.hpp"
#include "verify/recording.hpp"

#include <filesystem>

namespace flux2::cli {

// Starts from the recorded pairs (init.*) and examples (latents, noise, time, prompt_embeds), and
// compares the velocity and the gradients (grad.*) of the first step, the losses of all steps, and
// the pairs after them (final.*). The metadata has the settings rank, alpha, lr, betas, eps,
// weight_decay, steps, height, width; the example of a step is step % n. Names in the dump are the
// recording's own.
//
// The model is the transformer alone. Throws bad_file for a broken recording or a model of other
// widths.
void check_training(const std::filesystem::path& file, const ModelOptions& model, int n_threads,
                    Report& report);

}  // namespace flux2::cli
