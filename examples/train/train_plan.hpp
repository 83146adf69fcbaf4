// What a training run takes: memory from its real graphs, time from a few examples.
#pragma once

#include "pipeline/model.hpp"
#include "train/dataset.hpp"
#include "train/train_options.hpp"
#include "train/training_pass.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace flux2::cli {

struct TrainPlan {
    std::string device;
    ExampleShape largest;  // of all examples
    WeightMemory weights;  // of the transformer
    bool streams = false;  // its blocks stay in RAM and are copied to the device in turn
    MemoryUse compute;     // of one example
    uint64_t adapter = 0;  // parameters, gradients and the optimiser's state, in RAM
    uint64_t dataset = 0;  // encoded, in RAM
    double seconds_of_example = 0;
    double seconds = 0;      // of the whole run, without encoding, samples and validation
    int64_t n_examples = 0;  // of the run

    uint64_t device_bytes() const { return weights.own.device + compute.device; }
    uint64_t host_bytes() const {
        return weights.own.host + std::max(weights.loading, compute.host) + adapter + dataset;
    }
};

// The number of tokens of the largest example.
ExampleShape largest_shape(const Model& model, const std::vector<DatasetSource>& sources,
                           const std::vector<DatasetPicture>& pictures);
// Without the times. Allocates nothing.
TrainPlan plan_memory(const TrainOptions& options, const Model& model,
                      const std::vector<DatasetSource>& sources,
                      const std::vector<DatasetPicture>& pictures, const TrainedAdapter& adapter,
                      const WeightOptions& weights);
// How references take part in the model.
ReferenceMode reference_mode(const Model& model);
// Loads the transformer and times examples of the largest shape.
void add_times(TrainPlan& plan, TrainingPass& pass, size_t n_parameters);

std::string plan_text(const TrainPlan& plan, int64_t n_steps);

}  // namespace flux2::cli
