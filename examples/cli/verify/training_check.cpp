#include "verify/training_check.hpp"

#include "base/check.hpp"
#include "checkpoints/inventory.hpp"
#include "common/model_choice.hpp"
#include "formats/json_file.hpp"
#include "train/adamw.hpp"
#include "train/trained_adapter.hpp"
#include "train/training_pass.hpp"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;

// Largest relative errors.
struct TrainingLimits {
    double velocity, gradient, loss;
    double change;  // of the pairs, as a share of what training changed
};
// For F32 weights on a CPU. Sums of thousands of products in another order differ by 1e-6;
// gradients pass through all blocks, and AdamW's first steps divide by their size.
constexpr TrainingLimits kExact = {2e-4, 5e-4, 1e-4, 1e-3};
// On a GPU, for F32 and BF16 weights: what matrices are multiplied with is rounded to BF16, by up
// to 1/512 each time. AdamW gives small and large derivatives the same step, so the errors of small
// ones count fully.
constexpr TrainingLimits kRounded = {2e-2, 1e-1, 1e-2, 1.5e-1};
// For Q8_0, whose values are another model's. In F32 they alone move the velocity of the recorded
// runs by 1.9e-2, gradients by 6.5e-2 and pairs by 1.4e-1. The roundings on a GPU are independent
// of that, so the squares of both errors add up: to 2.3e-2 for the velocity. Coarser types exceed
// this.
constexpr TrainingLimits kQuantised = {4e-2, 1.5e-1, 1e-2, 2.5e-1};

const TrainingLimits& training_limits(const Backend& backend, TensorType weights) {
    if (is_quantized(weights)) {
        return kQuantised;
    }
    return backend.is_cpu() ? kExact : kRounded;
}

struct Settings {
    int64_t rank, n_steps, height, width;
    double alpha, learning_rate;
    AdamWOptions optimiser;
};

Settings read_settings(const Recording& recording) {
    const nlohmann::json json = recording.settings();
    const auto number = [&](const char* key, double least, double most) {
        const auto value = get_json<double>(json, key, recording.file());
        check(value && *value >= least && *value <= most, ErrorKind::bad_file,
              recording.file().string(), ": the setting ", key,
              " is missing in its metadata or out of range; it is not a recorded training run");
        return *value;
    };
    const auto whole = [&](const char* key, double most) {
        return static_cast<int64_t>(number(key, 1, most));
    };
    const auto betas = json.find("betas");
    check(betas != json.end() && betas->is_array() && betas->size() == 2 &&
              (*betas)[0].is_number() && (*betas)[1].is_number(),
          ErrorKind::bad_file, recording.file().string(),
          ": the setting betas is no list of two numbers");
    return {.rank = whole("rank", 1024),
            .n_steps = whole("steps", 1e6),
            .height = whole("height", 1e5),
            .width = whole("width", 1e5),
            .alpha = number("alpha", 1e-9, 1e9),
            .learning_rate = number("lr", 0, 1e3),
            .optimiser = {.beta1 = (*betas)[0].get<double>(),
                          .beta2 = (*betas)[1].get<double>(),
                          .eps = number("eps", 1e-30, 1),
                          .weight_decay = number("weight_decay", 0, 1e3)}};
}

// Item i of the slowest dimension of x [a, b, n].
HostTensor item(const HostTensor& x, int64_t i) {
    HostTensor result({x.ne[0], x.ne[1], 1, 1});
    const int64_t n = x.ne[0] * x.ne[1];
    const auto first = x.data.begin() + static_cast<std::ptrdiff_t>(i * n);
    std::copy_n(first, n, result.data.begin());
    return result;
}

std::vector<TrainingExample> read_examples(const Recording& recording, const Settings& settings) {
    constexpr int64_t kPixelsPerToken = 16;
    const HostTensor latents = recording.get("latents");
    const HostTensor noise = recording.get("noise");
    const HostTensor txt = recording.get("prompt_embeds");
    const HostTensor time = recording.get("time");
    const int64_t n = latents.ne[2];
    check(noise.ne == latents.ne && txt.ne[2] == n && time.elements() == n, ErrorKind::bad_file,
          recording.file().string(),
          ": latents, noise, prompt_embeds and time are of different numbers of examples");
    std::vector<TrainingExample> examples;
    for (int64_t i = 0; i < n; ++i) {
        examples.push_back({.picture = {item(latents, i), settings.height / kPixelsPerToken,
                                        settings.width / kPixelsPerToken},
                            .noise = item(noise, i),
                            .time = time.data[static_cast<size_t>(i)],
                            .txt = share(item(txt, i))});
    }
    return examples;
}

// A and B of every module by their recorded names, as parts of an array like the parameters.
struct NamedPart {
    std::string name;  // single_blocks.0.linear1.A
    size_t first, n;
};

std::vector<NamedPart> parts_of(const TrainedAdapter& adapter) {
    std::vector<NamedPart> parts;
    for (const TrainedModule& module : adapter.modules()) {
        parts.push_back({module.name + ".A", module.a.first, module.a.size()});
        parts.push_back({module.name + ".B", module.b.first, module.b.size()});
    }
    return parts;
}

HostTensor part(std::span<const float> values, const NamedPart& named) {
    HostTensor result({static_cast<int64_t>(named.n), 1, 1, 1});
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(named.first), named.n,
                result.data.begin());
    return result;
}

void read_parameters(const Recording& recording, TrainedAdapter& adapter) {
    for (const NamedPart& named : parts_of(adapter)) {
        const HostTensor values = recording.get("init." + named.name);
        check(values.data.size() == named.n, ErrorKind::bad_file, recording.file().string(),
              ": init.", named.name, " has ", values.data.size(), " values, expected ", named.n,
              "; give the model it was recorded with");
        std::copy(values.data.begin(), values.data.end(),
                  adapter.parameters().begin() + static_cast<std::ptrdiff_t>(named.first));
    }
}

HostTensor difference(HostTensor a, const HostTensor& b) {
    for (size_t i = 0; i < a.data.size(); ++i) {
        a.data[i] -= b.data[i];
    }
    return a;
}

fs::path transformer_of(ModelOptions model, const Recording& recording) {
    model.load.variant = recorded_variant(recording);
    return model.files.transformer.empty() ? choose_files(model, nullptr).transformer
                                           : model.files.transformer;
}

}  // namespace

void check_training(const fs::path& file, const ModelOptions& model, int n_threads,
                    Report& report) {
    const Recording recording(file);
    const Settings settings = read_settings(recording);
    const std::vector<TrainingExample> examples = read_examples(recording, settings);
    const Checkpoint checkpoint =
        Checkpoint::open(transformer_of(model, recording), Part::transformer);
    TrainedAdapter adapter(read_transformer_sizes(checkpoint),
                           {.rank = settings.rank, .alpha = settings.alpha});
    read_parameters(recording, adapter);
    const Backend backend(model.load.device, n_threads);
    const TensorType type = parse_matrix_type(model.load.type);
    const TrainingLimits& limits = training_limits(backend, type);
    TrainingPass pass(backend, checkpoint, adapter, {.type = type});
    AdamW optimiser(adapter.parameters().size(), settings.optimiser);
    const std::vector<NamedPart> parts = parts_of(adapter);
    const std::string stage = "training";
    HostTensor losses({settings.n_steps, 1, 1, 1});
    for (int64_t step = 0; step < settings.n_steps; ++step) {
        std::vector<float> gradients(adapter.parameters().size());
        const auto i = static_cast<size_t>(step);
        losses.data[i] =
            static_cast<float>(pass.add_gradients(examples[i % examples.size()], 1.0f, gradients));
        if (step == 0) {
            report.compare_as_named(stage, "velocity", pass.velocity(), recording, limits.velocity);
            for (const NamedPart& named : parts) {
                report.compare_as_named(stage, "grad." + named.name, part(gradients, named),
                                        recording, limits.gradient);
            }
        }
        optimiser.step(adapter.parameters(), gradients, settings.learning_rate,
                       backend.n_threads());
    }
    report.compare_as_named(stage, "losses", losses, recording, limits.loss);
    for (const NamedPart& named : parts) {
        const HostTensor ours = part(adapter.parameters(), named);
        const HostTensor first = recording.get("init." + named.name);
        const std::string name = "final." + named.name;
        const HostTensor recorded = recording.get(name);
        check(recorded.data.size() == named.n, ErrorKind::bad_file, file.string(), ": ", name,
              " has another size than init.", named.name);
        report.compare_values(stage, name, difference(ours, first), difference(recorded, first),
                              limits.change);
        report.add_to_dump(name, recording.shape(name), ours);
    }
}

}  // namespace flux2::cli
