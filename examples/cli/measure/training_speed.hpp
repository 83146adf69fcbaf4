// How fast LoRAs of a transformer are trained, on random examples.
#pragma once

#include "compute/backend.hpp"
#include "compute/weights.hpp"

#include <cstdint>
#include <filesystem>
#include <string>

namespace flux2::cli {

struct TrainingBench {
    int64_t width = 1024, height = 1024;
    int64_t n_references = 0;  // of the picture's own size
    int64_t rank = 16;
    int n_repeats = 3;
    bool profile = false;
};

// Steps with one example, all matrices of the blocks trained: a table with the time of a step and
// of its parts, and the memory.
std::string measure_training(Backend& backend, const std::filesystem::path& transformer,
                             const WeightOptions& weights, const TrainingBench& options);

}  // namespace flux2::cli
