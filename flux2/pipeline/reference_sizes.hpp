// How large reference pictures are for the model, and what they cost.
#pragma once

#include <flux2/flux2.hpp>
#include "image/image.hpp"
#include "networks/sizes.hpp"
#include "pipeline/request.hpp"

#include <cstdint>
#include <string>

namespace flux2 {

// A reference of the request scaled down to its limits, and the size of that without touching
// pixels. Throw bad_argument as fit_reference does, and for a limit below 0.
Image fit_reference(const Image& reference, const Request& request);
ImageSize fitted_size(const Image& reference, const Request& request);

struct TokenCounts {
    int64_t txt = 0, img = 0, ref = 0;
};

// How many times longer a step takes with the references than without, by the multiplications of
// the transformer; for the KV variant the first step.
double reference_cost(const TransformerSizes& sizes, const TokenCounts& tokens, bool kv_references);

// A line for the user when references make a step take at least twice as long; else empty.
std::string reference_cost_line(const Job& job, const Model& model);

}  // namespace flux2
