// What passes a comparison with a recording, by the type of the weights.
#pragma once

#include "compute/backend.hpp"
#include "formats/tensor_type.hpp"

namespace flux2::cli {

// Largest relative error that passes, for each kind of comparison. Zeros have an error of 1, which
// none of them allows.
struct Limits {
    double stage = 2e-4;        // a few blocks, from recorded inputs
    double autoencoder = 2e-4;  // encoding and decoding; its weights are never quantised
    double text = 2e-4;         // features after 27 layers of the text encoder
    double first_step = 2e-4;   // latents after one step from recorded noise
    double run = 2e-4;          // several steps, each starting from the last one's result
    double psnr = 60;           // of the picture in dB; here the smallest value that passes
    static constexpr double kSigmas = 1e-6;  // computed in double, stored as F32
};

// For matrices of this type. Throws bad_argument for types of less than 3.4 bits a value, with
// which the recorded models' results are as far off as those of another prompt. docs/numerics.md
// has the reasons.
Limits limits_for(const Backend& backend, TensorType type);

}  // namespace flux2::cli
