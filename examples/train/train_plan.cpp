#include "train/train_plan.hpp"

#include "base/check.hpp"
#include "base/image_limits.hpp"
#include "base/progress_bar.hpp"
#include "base/random.hpp"
#include "common/download_display.hpp"
#include "image/image.hpp"
#include "train/training_data.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace flux2::cli {
namespace {

constexpr uint64_t kBytesOfParameter = 8;  // value and gradient, in F32

HostTensor random_tensor(int64_t width, int64_t n) {
    HostTensor tensor({width, n, 1, 1});
    const size_t n_drawn = (tensor.data.size() + 15) / 16 * 16;
    const std::vector<float> values = draw_normal(Generator::cuda_f32, 1, n_drawn);
    std::copy_n(values.begin(), tensor.data.size(), tensor.data.begin());
    return tensor;
}

int64_t tokens_of(int width, int height) {
    return int64_t{width / kImageGrid} * (height / kImageGrid);
}

}  // namespace

ExampleShape largest_shape(const Model& model, const std::vector<DatasetSource>& sources,
                           const std::vector<DatasetPicture>& pictures) {
    ExampleShape largest;
    for (const DatasetPicture& picture : pictures) {
        ExampleShape shape = {.n_img = tokens_of(picture.trained.width, picture.trained.height),
                              .n_ref = 0,
                              .n_txt = model.text.text_length};
        for (size_t i = 0; i < picture.controls.size(); ++i) {
            const Image control = load_control(picture, i, sources[picture.source]);
            shape.n_ref += tokens_of(control.width, control.height);
        }
        if (shape.n_img + shape.n_ref > largest.n_img + largest.n_ref) {
            largest = shape;
        }
    }
    return largest;
}

TrainPlan plan_memory(const TrainOptions& o, const Model& model,
                      const std::vector<DatasetSource>& sources,
                      const std::vector<DatasetPicture>& pictures, const TrainedAdapter& adapter,
                      const WeightOptions& weights) {
    const std::string& own = o.model.load.transformer.device;
    const Backend backend(own.empty() ? o.model.load.device : own, o.model.load.threads,
                          BackendUse::measure);
    TrainingPass pass(backend, model.transformer, adapter, weights, std::nullopt,
                      reference_mode(model));
    TrainPlan plan;
    plan.device = backend.name();
    plan.largest = largest_shape(model, sources, pictures);
    plan.weights = pass.weight_memory();
    plan.streams = weights.stream_blocks;
    plan.compute = pass.compute_memory(plan.largest);
    const size_t n_parameters = adapter.parameters().size();
    plan.adapter = kBytesOfParameter * n_parameters +
                   AdamW::state_bytes(n_parameters, o.trainer.optimiser.eight_bits) +
                   (o.trainer.ema_decay > 0 ? sizeof(float) * n_parameters : 0);
    plan.dataset = encoded_bytes(model, pictures,
                                 {.trigger_word = o.trigger_word,
                                  .mirrored = o.trainer.flips,
                                  .without_caption = o.trainer.caption_dropout > 0,
                                  .cache_folder = {}});
    const DataOrder order(sources, pictures, o.trainer.seed);
    double n_of_epoch = 0;
    for (const DatasetPicture& picture : pictures) {
        n_of_epoch += sources[picture.source].num_repeats;
    }
    const double n_batches =
        static_cast<double>(o.trainer.n_steps) * o.trainer.gradient_accumulation_steps;
    plan.n_examples =
        std::llround(n_batches * n_of_epoch / static_cast<double>(order.batches_per_epoch()));
    return plan;
}

ReferenceMode reference_mode(const Model& model) {
    return model.variant == Variant::kv ? ReferenceMode::extract : ReferenceMode::joint;
}

void add_times(TrainPlan& plan, TrainingPass& pass, size_t n_parameters) {
    const ExampleShape& shape = plan.largest;
    TrainingExample example;
    example.picture = {random_tensor(pass.sizes().channels, shape.n_img), 1, shape.n_img};
    example.noise = random_tensor(pass.sizes().channels, shape.n_img);
    example.time = 0.5f;
    example.txt = share(random_tensor(pass.sizes().text_width, shape.n_txt));
    if (shape.n_ref > 0) {
        example.references = {{random_tensor(pass.sizes().channels, shape.n_ref), 1, shape.n_ref}};
    }
    std::vector<float> gradients(n_parameters);
    pass.add_gradients(example, 1, gradients);  // the first one lays out and allocates
    const auto start = std::chrono::steady_clock::now();
    pass.add_gradients(example, 1, gradients);
    plan.seconds_of_example =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    plan.seconds = plan.seconds_of_example * static_cast<double>(plan.n_examples);
}

std::string plan_text(const TrainPlan& plan, int64_t n_steps) {
    std::string text =
        concat("largest example: ", plan.largest.n_img, " image, ", plan.largest.n_ref,
               " reference and ", plan.largest.n_txt, " text tokens\n", "memory of ", plan.device,
               plan.streams ? ": streamed weights " : ": weights ",
               readable_bytes(plan.weights.own.device), ", computation ",
               readable_bytes(plan.compute.device), "\n", "RAM: weights ",
               readable_bytes(plan.weights.own.host), " (and ", readable_bytes(plan.weights.mapped),
               " of mapped files), computation ", readable_bytes(plan.compute.host),
               ", LoRA with optimiser ", readable_bytes(plan.adapter), ", encoded dataset ",
               readable_bytes(plan.dataset), "\n");
    if (plan.seconds > 0) {
        text += concat("time: ", readable_seconds(plan.seconds_of_example), " for an example, ",
                       readable_seconds(plan.seconds), " for ", n_steps, " steps with ",
                       plan.n_examples, " examples, without encoding the dataset and samples\n");
    }
    return text;
}

}  // namespace flux2::cli
