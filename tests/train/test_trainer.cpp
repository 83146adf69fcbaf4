// What a step trains: mirror images, examples without captions, and the average over steps.
#include "base/random.hpp"
#include "train/counted_random.hpp"
#include "train/small_training.hpp"
#include "train/trainer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace flux2 {
namespace {

constexpr uint64_t kSeed = 9;

// One picture of 2 x 8 tokens, its mirror image, a caption and none.
struct SmallRun {
    SmallRun() {
        const DatasetPicture picture = {.file = "a.png",
                                        .caption = "a",
                                        .controls = {},
                                        .source = 0,
                                        .size = {128, 32},
                                        .trained = {128, 32},
                                        .content = "a"};
        pictures.push_back(picture);
        sources.emplace_back();
        EncodedPicture encoded;
        encoded.latents = {test::noise_tensor(sizes.channels, 16, 1), 2, 8};
        encoded.mirrored = {test::noise_tensor(sizes.channels, 16, 2), 2, 8};
        encoded.txt = share(test::noise_tensor(sizes.text_width, 5, 3));
        data.pictures.push_back(encoded);
        data.no_caption = share(test::noise_tensor(sizes.text_width, 5, 4));
    }

    Trainer trainer(TrainerOptions options) {
        options.seed = kSeed;
        options.n_threads = 2;
        options.rate.peak = 1e-2;
        return Trainer(pass, adapter, data, DataOrder(sources, pictures, kSeed), options);
    }

    std::vector<float> values() const {
        const std::span<const float> parameters = adapter.parameters();
        return {parameters.begin(), parameters.end()};
    }
    void set_values(const std::vector<float>& values) {
        std::copy(values.begin(), values.end(), adapter.parameters().begin());
    }

    // The loss of step i with this picture and caption.
    double loss(int64_t i, double time, const LatentGrid& latents, const SharedTensor& txt) {
        TrainingExample example;
        example.picture = latents;
        example.noise = HostTensor(latents.tokens.ne);
        example.noise.data = draw_normal(
            Generator::cuda_f32, random_bits(kSeed, RandomUse::noise, static_cast<uint64_t>(i), 0),
            example.noise.data.size());
        example.time = static_cast<float>(time);
        example.txt = txt;
        return pass.loss(example);
    }

    TransformerSizes sizes = test::trained_sizes(false);
    test::OpenedModel model{sizes};
    TrainedAdapter adapter{sizes, {.rank = 2}};
    Backend backend{"CPU", 2};
    TrainingPass pass{backend, model.checkpoint, adapter};
    std::vector<DatasetSource> sources;
    std::vector<DatasetPicture> pictures;
    TrainingData data;
};

TEST_CASE("half of the examples are mirrored, some have no caption, as the seed says") {
    SmallRun run;
    constexpr double kDropout = 0.3;
    TrainerOptions options;
    options.n_steps = 24;
    options.caption_dropout = kDropout;
    options.flips = true;
    Trainer trainer = run.trainer(options);
    int n_mirrored = 0, n_without = 0;
    for (int64_t i = 0; i < 24; ++i) {
        const std::vector<float> before = run.values();
        const StepResult result = trainer.step();
        const std::vector<float> after = run.values();
        CHECK(before != after);
        const auto number = static_cast<uint64_t>(i);
        const bool is_mirrored = random_uniform(kSeed, RandomUse::flip, number, 0) < 0.5;
        const bool is_without =
            random_uniform(kSeed, RandomUse::caption_dropout, number, 0) < kDropout;
        n_mirrored += is_mirrored ? 1 : 0;
        n_without += is_without ? 1 : 0;
        // What the step saw, computed again with the pairs that it began with.
        run.set_values(before);
        const EncodedPicture& picture = run.data.pictures[0];
        REQUIRE(result.examples.size() == 1);
        const auto loss = [&](bool mirrored, bool without) {
            return run.loss(i, result.examples[0].time,
                            mirrored ? *picture.mirrored : picture.latents,
                            without ? run.data.no_caption : picture.txt);
        };
        const double expected = loss(is_mirrored, is_without);
        CHECK(result.examples[0].loss == doctest::Approx(expected).epsilon(1e-6));
        CHECK(std::abs(loss(!is_mirrored, is_without) - expected) > 1e-4 * expected);
        CHECK(std::abs(loss(is_mirrored, !is_without) - expected) > 1e-6 * expected);
        run.set_values(after);
    }
    CHECK(n_mirrored > 5);
    CHECK(n_mirrored < 19);
    CHECK(n_without > 2);
    CHECK(n_without < 14);
}

TEST_CASE("without these options every example is the picture with its caption") {
    SmallRun run;
    Trainer trainer = run.trainer({});
    for (int64_t i = 0; i < 6; ++i) {
        const std::vector<float> before = run.values();
        const ExampleLoss example = trainer.step().examples.at(0);
        const std::vector<float> after = run.values();
        run.set_values(before);
        const EncodedPicture& picture = run.data.pictures[0];
        CHECK(
            example.loss ==
            doctest::Approx(run.loss(i, example.time, picture.latents, picture.txt)).epsilon(1e-6));
        run.set_values(after);
    }
}

TEST_CASE("the result is the average over steps when it is asked for") {
    SmallRun run;
    constexpr float kDecay = 0.7f;
    TrainerOptions options;
    options.ema_decay = static_cast<double>(kDecay);
    Trainer trainer = run.trainer(options);
    std::vector<float> expected = run.values();
    for (int i = 0; i < 5; ++i) {
        trainer.step();
        for (size_t j = 0; j < expected.size(); ++j) {
            expected[j] = kDecay * expected[j] + (1 - kDecay) * run.adapter.parameters()[j];
        }
    }
    const std::vector<float> last = run.values();
    {
        const Trainer::ResultValues values(trainer);
        const std::vector<float> averaged = run.values();
        for (size_t j = 0; j < expected.size(); ++j) {
            REQUIRE(averaged[j] == doctest::Approx(expected[j]).epsilon(1e-5));
        }
        CHECK(averaged != last);
    }
    CHECK(run.values() == last);
    // It is part of the state, and goes on from there.
    const test::TemporaryFolder folder;
    const RunSettings none;
    write_state(folder / "a.state", trainer.state(none));
    Trainer other = run.trainer(options);
    other.restore(read_state(folder / "a.state"));
    const auto average_of = [&](const Trainer& t) {
        const std::span<const float> average = t.state(none).average;
        return std::vector<float>(average.begin(), average.end());
    };
    CHECK(average_of(other) == average_of(trainer));
    CHECK(!average_of(other).empty());
}

}  // namespace
}  // namespace flux2
