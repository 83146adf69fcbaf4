// How long a job takes: what it computes, what is measured and kept, and what follows from both.
#include "pipeline/time_forecast.hpp"

#include "base/log.hpp"
#include "pipeline/memory_plan.hpp"
#include "support/cli.hpp"
#include "support/folders.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
constexpr auto kLinear = static_cast<size_t>(WorkKind::linear);
constexpr auto kAttention = static_cast<size_t>(WorkKind::attention);
constexpr auto kConvolution = static_cast<size_t>(WorkKind::convolution);
constexpr auto kMemory = static_cast<size_t>(WorkKind::memory);

// The bundled model on one thread, with a job of 64x64 in four steps.
struct Bundled {
    LoadOptions options;
    Model model = open_model(find_model(test::tiny_model()).files, "");
    Job job;

    Bundled() {
        options.device = "CPU";
        options.threads = 1;
        job.width = job.height = 64;
        job.text_length = 32;
        job.steps = 4;
    }
    StageComputations computations() const {
        MemoryPlanner planner(model, options, 0);
        const MemoryLimits no_limit = {.device = kNoLimit, .host = kNoLimit};
        return planner.computations(job, planner.choose(job, no_limit));
    }
    MemoryPlan plan(MachineSpeed& machine) const {
        MemoryPlanner planner(model, options, 0);
        MemoryChoice choice = planner.choose(job, {.device = kNoLimit, .host = kNoLimit});
        forecast(choice.plan, planner.computations(job, choice), machine);
        return choice.plan;
    }
};

Speed speed_at(int64_t size, double seconds_per_flop) {
    Speed speed;
    speed.size = size;
    speed.seconds_per.fill(seconds_per_flop);
    speed.seconds = 1;
    return speed;
}

TEST_CASE("what a job computes grows with its size, its steps and its passes") {
    Bundled bundled;
    const StageComputations small = bundled.computations();
    REQUIRE(small.size() == 3);
    const Computation& pass = small[1].front();
    CHECK(small[0].front().times == 1);
    CHECK(pass.times == 4);
    CHECK(pass.size == 32 + 4 * 4);
    CHECK(small[2].front().size == 64 * 64);
    CHECK(small[2].front().work[kConvolution] > 0);
    CHECK(small[2].front().work[kMemory] > 0);

    bundled.job.width = bundled.job.height = 256;
    bundled.job.two_passes = true;
    bundled.job.guided_steps = {0, 4};
    const StageComputations large = bundled.computations();
    const Computation& large_pass = large[1].front();
    CHECK(large[0].front().times == 2);
    // Both texts in one pass of 288 tokens each.
    CHECK(large_pass.times == 4);
    CHECK(large_pass.size == 2 * (32 + 16 * 16));
    // Each token costs what each of 48 did, but for what is computed of the time; attention goes
    // with the square.
    CHECK(large_pass.work[kLinear] == doctest::Approx(2 * 6 * pass.work[kLinear]).epsilon(0.1));
    CHECK(large_pass.work[kAttention] == doctest::Approx(2 * 36 * pass.work[kAttention]));
    CHECK(large[2].front().work[kConvolution] ==
          doctest::Approx(16 * small[2].front().work[kConvolution]));
}

TEST_CASE("steps without guidance take half of a pass with both texts, more pictures are decoded") {
    Bundled bundled;
    bundled.job.two_passes = true;
    bundled.job.guided_steps = {0, 3};
    bundled.job.n_pictures = 2;
    const StageComputations stages = bundled.computations();
    CHECK(stages[1].front().size == 2 * 2 * (32 + 16));
    CHECK(stages[1].front().times == 3.5);
    CHECK(stages[2].front().times == 2);
    bundled.job.width = bundled.job.height = 1024;  // too many tokens for one pass
    CHECK(bundled.computations()[1].front().times == 4 + 3);
}

TEST_CASE("references of the KV variant are computed in the first pass alone") {
    Bundled bundled;
    bundled.model.variant = Variant::kv;
    bundled.job.references = {{128, 128}};
    const StageComputations stages = bundled.computations();
    REQUIRE(stages.size() == 4);
    REQUIRE(stages[2].size() == 2);
    CHECK(stages[1].front().size == 128 * 128);
    CHECK(stages[2][0].times == 1);
    CHECK(stages[2][0].size == 32 + 16 + 64);
    CHECK(stages[2][1].times == 3);
    CHECK(stages[2][1].size == 32 + 16);
    CHECK(stages[2][0].work[kLinear] > 2 * stages[2][1].work[kLinear]);
}

TEST_CASE("seconds are work times what was measured") {
    const WorkAmounts work = {1000, 0, 0, 0};
    CHECK(forecast_seconds(work, 64, {}) == 0);
    CHECK(forecast_seconds(work, 64, {{speed_at(64, 0.25)}, {}}) == 250);
    CHECK(forecast_seconds(work, 4096, {{speed_at(64, 0.25)}, {}}) == 250);
    // 1 second for the start and 1/8 for each of 64 or 128 tokens: 9 and 17 seconds.
    const NetworkSpeeds two = {{speed_at(64, 9.0 / 64), speed_at(128, 17.0 / 128)}, {}};
    for (const int64_t n : {64, 80, 128, 256, 1024}) {
        CAPTURE(n);
        const auto tokens = static_cast<double>(n);
        CHECK(forecast_seconds({tokens, 0, 0, 0}, n, two) == doctest::Approx(1 + tokens / 8));
    }
    // Of a disturbed measurement no negative times follow.
    const NetworkSpeeds odd = {{speed_at(64, 1), speed_at(128, 0.25)}, {}};
    CHECK(forecast_seconds(work, 100'000, odd) == doctest::Approx(125));
}

TEST_CASE("attention has a speed of its own where it was timed alone") {
    const NetworkSpeeds speeds = {{speed_at(64, 1)}, {speed_at(64, 8), speed_at(128, 2)}};
    CHECK(forecast_seconds({10, 0, 0, 0}, 128, speeds) == 10);
    CHECK(forecast_seconds({10, 100, 0, 0}, 128, speeds) == 10 + 200);
    CHECK(forecast_seconds({0, 100, 0, 0}, 128, {{speed_at(64, 1)}, {}}) == 100);
}

TEST_CASE("every stage of a plan gets seconds, and their sum") {
    const Bundled bundled;
    const TensorCache cache("", 0);
    MachineSpeed machine(bundled.model, bundled.options, cache);
    const MemoryPlan plan = bundled.plan(machine);
    double sum = 0;
    for (const StageMemory& stage : plan.stages) {
        CAPTURE(stage.stage);
        CHECK(stage.seconds > 0);
        CHECK(stage.seconds < 1000);
        sum += stage.seconds;
    }
    CHECK(plan.seconds == doctest::Approx(sum));
    // Network and attention of the transformer and the autoencoder, and the text encoder.
    CHECK(machine.n_measured() == 5);
    bundled.plan(machine);
    CHECK(machine.n_measured() == 5);
}

TEST_CASE("what was measured is found in the cache, unless it is damaged or from other threads") {
    const test::TemporaryFolder folder;
    Bundled bundled;
    const TensorCache cache(folder.path(), 1'000'000);
    MachineSpeed first(bundled.model, bundled.options, cache);
    const double seconds = bundled.plan(first).seconds;
    MachineSpeed second(bundled.model, bundled.options, cache);
    CHECK(bundled.plan(second).seconds == doctest::Approx(seconds).epsilon(1e-5));  // kept in F32
    CHECK(second.n_measured() == 0);

    std::vector<std::string> lines;
    const ScopedLog log([&](LogLevel level, const std::string& line) {
        if (level >= LogLevel::warning) {
            lines.push_back(line);
        }
    });
    const fs::path entry = fs::directory_iterator(folder.path())->path();
    fs::resize_file(entry, fs::file_size(entry) - 1);
    MachineSpeed third(bundled.model, bundled.options, cache);
    CHECK(bundled.plan(third).seconds > 0);
    CHECK(third.n_measured() == 1);
    REQUIRE(lines.size() == 1);
    CHECK(lines.front().find("is damaged") != std::string::npos);

    bundled.options.threads = 2;
    MachineSpeed other(bundled.model, bundled.options, cache);
    bundled.plan(other);
    CHECK(other.n_measured() == 5);
}

TEST_CASE("a plan is cancelled before it and while it measures") {
    const auto flag_and_request = [](std::atomic<bool>& flag) {
        Request request;
        request.prompt = "a house";
        request.width = request.height = 64;
        request.cancel = &flag;
        return request;
    };
    LoadOptions options;
    options.device = "CPU";
    options.threads = 1;
    Pipeline pipeline = Pipeline::load(find_model(test::tiny_model()).files, options);
    std::atomic<bool> flag = true;
    CHECK(test::error_of([&] { pipeline.plan(flag_and_request(flag)); }).kind ==
          ErrorKind::cancelled);
    flag = false;
    int n_measured = 0;
    {
        const ScopedLog log([&](LogLevel, const std::string& line) {
            if (line.find("GFLOP/s") != std::string::npos) {
                ++n_measured;
                flag = true;
            }
        });
        CHECK(test::error_of([&] { pipeline.plan(flag_and_request(flag)); }).kind ==
              ErrorKind::cancelled);
        CHECK(n_measured == 1);
    }
    // The next plan measures what is missing.
    flag = false;
    CHECK(pipeline.plan(flag_and_request(flag)).seconds > 0);
}

TEST_CASE("a larger job measures only the sizes that are missing") {
    Bundled bundled;
    const TensorCache cache("", 0);
    MachineSpeed machine(bundled.model, bundled.options, cache);
    const double small = bundled.plan(machine).seconds;
    bundled.job.width = bundled.job.height = 128;
    CHECK(bundled.plan(machine).seconds > small);
    // One more size of both networks with attention at most; 96 tokens are below the next one.
    CHECK(machine.n_measured() >= 5);
    CHECK(machine.n_measured() <= 7);
}

TEST_CASE("flux2 plan tells the seconds of every stage") {
    const auto plan = test::flux2_program(test::joined({"plan", "--json"}, test::small_picture()));
    REQUIRE(plan.exit_code == 0);
    const auto json = nlohmann::json::parse(plan.out);
    double sum = 0;
    for (const auto& stage : json.at("stages")) {
        CHECK(stage.at("seconds").get<double>() > 0);
        sum += stage.at("seconds").get<double>();
    }
    CHECK(json.at("seconds").get<double>() == doctest::Approx(sum));
    const auto text = test::flux2_program(test::joined({"plan"}, test::small_picture()));
    CHECK(text.out.find("  seconds\n") != std::string::npos);
    CHECK(text.out.find("time: about ") != std::string::npos);
}

}  // namespace
}  // namespace flux2
