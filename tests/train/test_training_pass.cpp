// Whole passes: a recorded training run, gradients against differences of the loss, frozen weights
// of other types, the same bits from any number of threads.
#include "checkpoints/inventory.hpp"
#include "models/transformer.hpp"
#include "pipeline/latents.hpp"
#include "support/folders.hpp"
#include "support/support.hpp"
#include "train/small_training.hpp"
#include "train/training_pass.hpp"
#include "verify/training_check.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace flux2 {
namespace {

using test::check_by_differences;
using test::fill_pairs;
using test::OpenedModel;
using test::small_example;
using test::trained_sizes;

std::vector<float> gradients_of(const OpenedModel& model, const TrainedAdapter& adapter,
                                const TrainingExample& example, const WeightOptions& options = {},
                                int n_threads = 2) {
    const Backend backend("CPU", n_threads);
    TrainingPass pass(backend, model.checkpoint, adapter, options);
    std::vector<float> gradients(adapter.parameters().size());
    pass.add_gradients(example, 1.0f, gradients);
    return gradients;
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
    REQUIRE(a.size() == b.size());
    double difference = 0, size = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
        size += std::pow(static_cast<double>(b[i]), 2);
    }
    return std::sqrt(difference / size);
}

TEST_CASE("a recorded training run is met, within other limits by quantised weights") {
    for (const char* type : {"F32", "Q8_0"}) {
        std::ostringstream lines;
        cli::Report report(lines);
        cli::ModelOptions model;
        model.files.transformer =
            std::filesystem::path(test::tiny_model()) / "flux2-tiny-bf16.gguf";
        model.load.type = type;
        model.load.device = "CPU";
        cli::check_training(test::fixture("tiny/training/golden-training-distilled.safetensors"),
                            model, 2, report);
        CAPTURE(lines.str());
        CHECK(report.n_compared() == 98);
        CHECK(report.n_failed() == 0);
    }
}

TEST_CASE("gradients of every pair agree with differences of the loss") {
    for (const bool guidance : {false, true}) {
        CAPTURE(guidance);
        const TransformerSizes sizes = trained_sizes(guidance);
        const OpenedModel model(sizes);
        // All that can be trained, outside of the blocks too.
        TrainedAdapter adapter(sizes, {.rank = 3, .alpha = 4.5, .include = {"."}});
        CHECK(adapter.modules().size() == 2 * 8 + 2 * 2 + 3);
        fill_pairs(adapter);
        const TrainingExample example = small_example(sizes, /*has_references=*/true);
        const Backend backend("CPU", 2);
        TrainingPass pass(backend, model.checkpoint, adapter);
        std::vector<float> gradients(adapter.parameters().size());
        CHECK(pass.add_gradients(example, 1, gradients) ==
              doctest::Approx(pass.loss(example)).epsilon(1e-6));
        check_by_differences(pass, adapter, example);
    }
}

TEST_CASE("gradients agree with differences of the loss under dropout too") {
    const TransformerSizes sizes = trained_sizes(false);
    const OpenedModel model(sizes);
    TrainedAdapter adapter(sizes, {.rank = 3, .alpha = 4.5, .dropout = 0.3});
    fill_pairs(adapter);
    TrainingExample example = small_example(sizes, true);
    example.dropout_seed = 5;
    const Backend backend("CPU", 2);
    TrainingPass pass(backend, model.checkpoint, adapter);
    check_by_differences(pass, adapter, example);
    // The form for NVIDIA GPUs, by the plain forms of its nodes; values are rounded to BF16.
    TrainingPass on_gpu(backend, model.checkpoint, adapter, {}, Operations::cuda);
    std::vector<float> exact(adapter.parameters().size()), rounded(exact.size());
    pass.add_gradients(example, 1, exact);
    on_gpu.add_gradients(example, 1, rounded);
    CHECK(relative_difference(rounded, exact) < 2e-2);
}

TEST_CASE("references change the loss, and are no part of it") {
    const TransformerSizes sizes = trained_sizes(false);
    const OpenedModel model(sizes);
    const TrainedAdapter adapter(sizes, {.rank = 2});
    const Backend backend("CPU", 2);
    TrainingPass pass(backend, model.checkpoint, adapter);
    const TrainingExample example = small_example(sizes, true);
    const double loss = pass.loss(example);
    // B is zero: the velocity is that of the model alone.
    Transformer transformer(backend, sizes, model.checkpoint, {.type = TensorType::f32});
    const TransformerInput input = test::model_input(example);
    const HostTensor velocity = transformer.predict(input);
    CHECK(relative_difference(pass.velocity().data, velocity.data) < 1e-5);
    double expected = 0;
    for (size_t i = 0; i < velocity.data.size(); ++i) {
        const float target = example.noise.data[i] - example.picture.tokens.data[i];
        expected += std::pow(static_cast<double>(velocity.data[i] - target), 2);
    }
    CHECK(loss ==
          doctest::Approx(expected / static_cast<double>(velocity.data.size())).epsilon(1e-5));
    CHECK(std::abs(pass.loss(small_example(sizes, false)) - loss) > 1e-3 * loss);
}

TEST_CASE("references of KV models are trained as these see them") {
    for (const bool guidance : {false, true}) {
        const TransformerSizes sizes = trained_sizes(guidance);
        const OpenedModel model(sizes);
        TrainedAdapter adapter(sizes, {.rank = 2, .include = {"."}});
        TrainingExample example = small_example(sizes, true);
        const Backend backend("CPU", 2);
        const auto pass_of = [&](std::optional<Operations> operations) {
            return TrainingPass(backend, model.checkpoint, adapter, {}, operations,
                                ReferenceMode::extract);
        };
        TrainingPass pass = pass_of(std::nullopt);
        const double loss = pass.loss(example);
        // B is zero: the velocity is that of the model in its first step.
        Transformer transformer(backend, sizes, model.checkpoint, {.type = TensorType::f32});
        TransformerInput input = test::model_input(example);
        const HostTensor expected = transformer.predict(input, ReferenceMode::extract);
        CHECK(relative_difference(pass.velocity().data, expected.data) < 1e-5);
        CHECK(relative_difference(pass.velocity().data, transformer.predict(input).data) > 1e-3);
        fill_pairs(adapter);
        CHECK(pass.loss(example) != loss);
        if (guidance) {
            continue;
        }
        check_by_differences(pass, adapter, example);
        // The form for NVIDIA GPUs, by the plain forms of its nodes; values are rounded to BF16.
        TrainingPass on_gpu = pass_of(Operations::cuda);
        std::vector<float> exact(adapter.parameters().size()), rounded(exact.size());
        pass.add_gradients(example, 1, exact);
        on_gpu.add_gradients(example, 1, rounded);
        CHECK(relative_difference(rounded, exact) < 2e-2);
        // Without references nothing is different.
        TrainingPass joint(backend, model.checkpoint, adapter);
        example.references.clear();
        CHECK(pass.loss(example) == joint.loss(example));
    }
}

TEST_CASE("frozen weights of any type give the gradients of the values that they stand for") {
    const TransformerSizes sizes = {.hidden = 256,
                                    .head_dim = 64,
                                    .mlp = 256,
                                    .text_width = 256,
                                    .channels = 16,
                                    .n_double = 1,
                                    .n_single = 1};
    const OpenedModel model(sizes);
    TrainedAdapter adapter(sizes, {.rank = 4});
    fill_pairs(adapter);
    const TrainingExample example = small_example(sizes, true);
    const std::vector<float> exact = gradients_of(model, adapter, example);
    for (const TensorType type : {TensorType::bf16, TensorType::f16, TensorType::q8_0,
                                  TensorType::q4_0, TensorType::q4_k}) {
        CAPTURE(type_name(type));
        const OpenedModel same_values(sizes, type);
        const std::vector<float> ours = gradients_of(model, adapter, example, {.type = type});
        const std::vector<float> expected = gradients_of(same_values, adapter, example);
        CHECK(relative_difference(ours, expected) < 1e-6);
        // Rounded weights are other weights: the first check would not notice unrounded ones.
        CHECK(relative_difference(ours, exact) > 1e-4);
    }
}

TEST_CASE("the form for NVIDIA GPUs gives the same gradients but for BF16's rounding") {
    // By the plain forms of its nodes; kernels are compared with these by flux2 selftest --ops.
    for (const bool guidance : {false, true}) {
        const TransformerSizes sizes = trained_sizes(guidance);
        const OpenedModel model(sizes);
        TrainedAdapter adapter(sizes, {.rank = 3, .alpha = 4.5, .include = {"."}});
        fill_pairs(adapter);
        const TrainingExample example = small_example(sizes, /*has_references=*/true);
        const std::vector<float> exact = gradients_of(model, adapter, example);
        const Backend backend("CPU", 2);
        for (const std::optional<TensorType> type :
             {std::optional<TensorType>(), {TensorType::bf16}, {TensorType::q8_0}}) {
            TrainingPass pass(backend, model.checkpoint, adapter, {.type = type}, Operations::cuda);
            std::vector<float> gradients(adapter.parameters().size());
            pass.add_gradients(example, 1.0f, gradients);
            // Values are rounded by up to 1/512 at some 20 places between a pair and the loss.
            CHECK(relative_difference(gradients, exact) < 2e-2);
            CHECK(relative_difference(gradients, exact) > 1e-4);
            for (const TrainedModule& module : adapter.modules()) {
                CAPTURE(module.name);
                const size_t end = module.b.end();
                const auto part = [&](const std::vector<float>& all) {
                    return std::vector<float>(
                        all.begin() + static_cast<std::ptrdiff_t>(module.a.first),
                        all.begin() + static_cast<std::ptrdiff_t>(end));
                };
                CHECK(relative_difference(part(gradients), part(exact)) < 4e-2);
            }
        }
    }
}

TEST_CASE("streamed blocks give the same gradients") {
    const TransformerSizes sizes = trained_sizes(false);
    const OpenedModel model(sizes);
    const TrainingExample example = small_example(sizes, true);
    for (const std::vector<std::string>& include :
         {std::vector<std::string>{}, {"."}, {"single_blocks.1"}, {"double_blocks.1.img_mlp"}}) {
        TrainedAdapter adapter(sizes, {.rank = 2, .include = include});
        fill_pairs(adapter);
        const Backend backend("CPU", 2);
        TrainingPass pass(backend, model.checkpoint, adapter);
        TrainingPass streamed(backend, model.checkpoint, adapter,
                              {.type = {}, .stream_blocks = true});
        for (int i = 0; i < 2; ++i) {  // the second begins with the first block again
            std::vector<float> expected(adapter.parameters().size());
            std::vector<float> gradients(adapter.parameters().size());
            CHECK(pass.add_gradients(example, 1.0f, expected) ==
                  streamed.add_gradients(example, 1.0f, gradients));
            CHECK(gradients == expected);
            CHECK(streamed.loss(example) == pass.loss(example));
        }
    }
}

TEST_CASE("gradients are the same bits for any number of threads, and when computed again") {
    const TransformerSizes sizes = trained_sizes(false);
    const OpenedModel model(sizes);
    TrainedAdapter adapter(sizes, {.rank = 4});
    fill_pairs(adapter);
    const TrainingExample example = small_example(sizes, true);
    const std::vector<float> gradients = gradients_of(model, adapter, example);
    CHECK(gradients == gradients_of(model, adapter, example));
    CHECK(gradients == gradients_of(model, adapter, example, {}, 1));
    CHECK(gradients == gradients_of(model, adapter, example, {}, 5));
    // Gradients are added, with their weights; other shapes between do not matter.
    const Backend backend("CPU", 2);
    TrainingPass pass(backend, model.checkpoint, adapter);
    std::vector<float> sum(gradients.size());
    pass.add_gradients(example, 1.0f, sum);
    std::vector<float> unused(gradients.size());
    pass.add_gradients(small_example(sizes, false), 1.0f, unused);
    CHECK(unused != gradients);
    pass.add_gradients(example, 3.0f, sum);
    std::vector<float> four_times = gradients;
    for (float& value : four_times) {
        value *= 4;
    }
    CHECK(relative_difference(sum, four_times) < 1e-6);
}

TEST_CASE("pairs of late blocks get the same gradients when nothing else is trained") {
    const TransformerSizes sizes = trained_sizes(false);
    const OpenedModel model(sizes);
    const TrainingExample example = small_example(sizes, true);
    TrainedAdapter all(sizes, {.rank = 2});
    const std::vector<float> gradients = gradients_of(model, all, example);
    for (const char* name : {"single_blocks.1.linear1", "double_blocks.1.txt_mlp.2"}) {
        CAPTURE(name);
        TrainedAdapter some(sizes, {.rank = 2, .include = {name}});
        REQUIRE(some.modules().size() == 1);
        for (const TrainedModule& module : all.modules()) {
            if (module.name == name) {
                const size_t n = some.parameters().size();
                std::copy_n(all.parameters().begin() + static_cast<std::ptrdiff_t>(module.a.first),
                            n, some.parameters().begin());
                const auto first = gradients.begin() + static_cast<std::ptrdiff_t>(module.a.first);
                CHECK(gradients_of(model, some, example) ==
                      std::vector<float>(first, first + static_cast<std::ptrdiff_t>(n)));
            }
        }
    }
}

TEST_CASE("examples that do not fit the model are refused") {
    const TransformerSizes sizes = trained_sizes(false);
    const OpenedModel model(sizes);
    const TrainedAdapter adapter(sizes, {.rank = 2});
    const Backend backend("CPU", 1);
    TrainingPass pass(backend, model.checkpoint, adapter);
    const auto refusal = [&](const auto& change) {
        TrainingExample example = small_example(sizes, true);
        change(example);
        const test::CaughtError error = test::error_of([&] { pass.loss(example); });
        CHECK(error.kind == ErrorKind::bad_argument);
        return error.message;
    };
    CHECK(refusal([](TrainingExample& e) { e.picture.height = 3; }).find("grid of 3 x 3") !=
          std::string::npos);
    CHECK(refusal([](TrainingExample& e) {
              e.references[1].tokens.data.pop_back();
          }).find("reference") != std::string::npos);
    CHECK(refusal([](TrainingExample& e) { e.noise.data.clear(); }).find("noise") !=
          std::string::npos);
    CHECK(refusal([](TrainingExample& e) { e.time = 1.5f; }).find("time") != std::string::npos);
    CHECK(refusal([](TrainingExample& e) { e.txt = share({}); }).find("text features") !=
          std::string::npos);
}

TEST_CASE("a backend that measures tells what a pass takes") {
    const TransformerSizes sizes = trained_sizes(false);
    const OpenedModel model(sizes);
    const TrainedAdapter adapter(sizes, {.rank = 2});
    const Backend measuring("CPU", 2, BackendUse::measure);
    TrainingPass measured(measuring, model.checkpoint, adapter);
    const Backend backend("CPU", 2);
    TrainingPass pass(backend, model.checkpoint, adapter);
    const ExampleShape shape = shape_of(small_example(sizes, true));
    const uint64_t bytes = pass.compute_memory(shape).host;
    CHECK(bytes > 100000);
    CHECK(measured.compute_memory(shape).host == bytes);
    CHECK(measured.compute_memory(shape, /*wants_gradients=*/false).host < bytes);
}

}  // namespace
}  // namespace flux2
