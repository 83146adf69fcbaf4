#include "measure/training_speed.hpp"

#include "base/check.hpp"
#include "base/image_limits.hpp"
#include "checkpoints/checkpoint.hpp"
#include "checkpoints/inventory.hpp"
#include "common/random_values.hpp"
#include "measure/profile.hpp"
#include "measure/stopwatch.hpp"
#include "train/adamw.hpp"
#include "train/trained_adapter.hpp"
#include "train/training_pass.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

namespace flux2::cli {
namespace {

HostTensor random_tokens(uint64_t seed, int64_t width, int64_t n) {
    HostTensor tensor({width, n, 1, 1});
    tensor.data = random_values(seed, tensor.elements());
    return tensor;
}

TrainingExample random_example(const TransformerSizes& sizes, const TrainingBench& options) {
    constexpr int64_t kTextLength = 512;
    const int64_t w = options.width / kImageGrid;
    const int64_t h = options.height / kImageGrid;
    TrainingExample example = {.picture = {random_tokens(1, sizes.channels, w * h), h, w},
                               .noise = random_tokens(2, sizes.channels, w * h),
                               .time = 0.6f,
                               .txt = share(random_tokens(3, sizes.text_width, kTextLength))};
    for (int64_t i = 0; i < options.n_references; ++i) {
        example.references.push_back({random_tokens(4, sizes.channels, w * h), h, w});
    }
    return example;
}

std::string line_of(const char* what, double seconds) {
    char text[64];
    std::snprintf(text, sizeof(text), "%-24s %10.4f s\n", what, seconds);
    return text;
}

// The best seconds of each part of a step.
struct Best {
    double step = std::numeric_limits<double>::infinity();
    double pass = step, optimiser = step;
};

}  // namespace

std::string measure_training(Backend& backend, const std::filesystem::path& transformer,
                             const WeightOptions& weights, const TrainingBench& options) {
    const Checkpoint checkpoint = Checkpoint::open(transformer, Part::transformer);
    const TransformerSizes sizes = read_transformer_sizes(checkpoint);
    TrainedAdapter adapter(sizes, {.rank = options.rank});
    TrainingPass pass(backend, checkpoint, adapter, weights);
    AdamW optimiser(adapter.parameters().size(), {});
    const TrainingExample example = random_example(sizes, options);
    std::vector<float> gradients(adapter.parameters().size());
    const auto run_pass = [&] { return pass.add_gradients(example, 1.0f, gradients); };
    double loss = 0;
    const double first_seconds = seconds_of([&] { loss = run_pass(); });
    Best best;
    for (int i = 0; i < options.n_repeats; ++i) {
        std::fill(gradients.begin(), gradients.end(), 0.0f);
        const double pass_seconds = seconds_of([&] { loss = run_pass(); });
        const double optimiser_seconds = seconds_of([&] {
            clip_gradients(gradients, 1.0, backend.n_threads());
            optimiser.step(adapter.parameters(), gradients, 1e-4, backend.n_threads());
        });
        best.pass = std::min(best.pass, pass_seconds);
        best.optimiser = std::min(best.optimiser, optimiser_seconds);
        best.step = std::min(best.step, pass_seconds + optimiser_seconds);
    }
    check(std::isfinite(loss), ErrorKind::internal, "the loss is ", loss);
    const MemoryUse weight_memory = pass.weight_memory().own;
    const MemoryUse compute = pass.compute_memory(shape_of(example));
    std::string report =
        line_of("training step", best.step) + line_of("  forwards and backwards", best.pass) +
        line_of("  clipping, AdamW", best.optimiser) + line_of("  first step", first_seconds);
    char memory[240];
    const auto gigabytes = [](uint64_t bytes) { return static_cast<double>(bytes) / 1e9; };
    std::snprintf(memory, sizeof(memory),
                  "%zu parameters, loss %.5f\ndevice: weights %.2f GB, computation %.2f GB; RAM: "
                  "weights %.2f GB, computation %.2f GB\n",
                  gradients.size(), loss, gigabytes(weight_memory.device),
                  gigabytes(compute.device), gigabytes(weight_memory.host),
                  gigabytes(compute.host));
    report += memory;
    if (options.profile) {
        Profile profile;
        backend.set_on_operation(
            [&](const ggml_tensor& node, double seconds) { profile.add(node, seconds); });
        run_pass();
        backend.set_on_operation({});
        report += profile.to_text();
    }
    return report;
}

}  // namespace flux2::cli
