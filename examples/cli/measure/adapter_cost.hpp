// What LoRAs cost a transformer: its time without them, with the first, with the first two, ...,
// measured in turns, and the time to change from one set to another.
#pragma once

#include <flux2/flux2.hpp>
#include "compute/backend.hpp"
#include "compute/weights.hpp"
#include "models/transformer.hpp"

#include <string>
#include <vector>

namespace flux2::cli {

// `weights` are without adapters. A transformer is loaded for every number of adapters, so memory
// must suffice for all of them. Throws bad_file for adapters that do not fit.
std::string measure_adapters(const Backend& backend, const std::filesystem::path& transformer,
                             const std::vector<Adapter>& adapters, const WeightOptions& weights,
                             const TransformerInput& input, int n_repeats);

}  // namespace flux2::cli
