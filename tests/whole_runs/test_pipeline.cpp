// The C++ interface: many pictures in one process, cancelling, and the memory it says it
// takes.
#include <flux2/flux2.hpp>
#include "base/check.hpp"
#include "base/system.hpp"
#include "support/folders.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace flux2 {
namespace {

LoadOptions on_cpu() {
    LoadOptions options;
    options.device = "CPU";
    options.type = "F32";
    return options;
}

Pipeline bundled(const LoadOptions& options) {
    return Pipeline::load(find_model(test::tiny_model()).files, options);
}

Request small_request(uint64_t seed) {
    Request request;
    request.prompt = "a red house";
    request.width = request.height = 64;
    request.seed = seed;
    return request;
}

TEST_CASE("a dozen pictures in one process: memory stays where it was after the first few") {
#if defined(__GLIBC__)
    // What glibc keeps for each thread grows while threads come to different work.
    mallopt(M_ARENA_MAX, 1);
#endif
    for (const bool keep_loaded : {false, true}) {
        LoadOptions options = on_cpu();
        options.keep_loaded = keep_loaded;
        Pipeline pipeline = bundled(options);
        // What threads hold of their own comes and goes, so several readings count.
        uint64_t most_of_first = 0;
        uint64_t least_of_last = std::numeric_limits<uint64_t>::max();
        for (uint64_t seed = 1; seed <= 12; ++seed) {
            pipeline.generate(small_request(seed));
            if (seed >= 2 && seed <= 4) {
                most_of_first = std::max(most_of_first, own_memory_bytes());
            }
            if (seed >= 10) {
                least_of_last = std::min(least_of_last, own_memory_bytes());
            }
        }
        // Allocators round; a picture's latents and pixels are below 0.2 MB, its graphs above 3 MB.
        CHECK(least_of_last <= most_of_first + 1'000'000);
    }
}

TEST_CASE("a pipeline serves on after a picture was cancelled or refused") {
    Pipeline pipeline = bundled(on_cpu());
    const Image whole = pipeline.generate(small_request(1)).image;
    for (const Stage stage : {Stage::load, Stage::denoise, Stage::decode}) {
        const auto error = test::error_of([&] {
            pipeline.generate(small_request(1), [&](const Step& s) { return s.stage != stage; });
        });
        CHECK(error.kind == ErrorKind::cancelled);
    }
    Request wrong = small_request(1);
    wrong.steps = -1;
    CHECK(test::error_of([&] { pipeline.generate(wrong); }).kind == ErrorKind::bad_argument);
    CHECK(pipeline.generate(small_request(1)).image.rgb == whole.rgb);
}

TEST_CASE("a raised flag ends the request that carries it, in every stage, and no other") {
    Pipeline pipeline = bundled(on_cpu());
    const Image whole = pipeline.generate(small_request(1)).image;
    for (const Stage stage : {Stage::load, Stage::encode_prompt, Stage::denoise, Stage::decode}) {
        std::atomic<bool> cancel = false;
        Request request = small_request(1);
        request.prompt = concat("a house ", static_cast<int>(stage));  // not encoded yet
        request.cancel = &cancel;
        int n_after = 0;
        const auto error = test::error_of([&] {
            pipeline.generate(request, [&](const Step& step) {
                n_after += cancel ? 1 : 0;
                cancel = cancel || step.stage == stage;
                return true;
            });
        });
        CHECK(error.kind == ErrorKind::cancelled);
        CHECK(n_after == 0);
        // Still raised: what begins with it ends at once, prompts that are encoded ahead too.
        CHECK(test::error_of([&] { pipeline.generate(request); }).kind == ErrorKind::cancelled);
        CHECK(test::error_of([&] { pipeline.encode_prompts(request, {"a tree"}); }).kind ==
              ErrorKind::cancelled);
        CHECK(pipeline.generate(small_request(1)).image.rgb == whole.rgb);
    }
}

TEST_CASE("the plan holds what is then allocated, and loads nothing") {
    const uint64_t before = own_memory_bytes();
    Pipeline pipeline = bundled(on_cpu());
    Request request = small_request(1);
    request.width = request.height = 128;
    const MemoryPlan plan = pipeline.plan(request);
    REQUIRE(plan.stages.size() == 3);
    CHECK(plan.stages[0].stage == "text encoder");
    CHECK(plan.stages[1].stage == "transformer");
    CHECK(plan.stages[2].stage == "decode");
    for (const StageMemory& stage : plan.stages) {
        CHECK(stage.placement == "CPU");
        CHECK(stage.device_weights + stage.device_compute == 0);
        CHECK(stage.host_weights > 1'000'000);  // converted to F32, so no longer mapped
    }
    const Result result = pipeline.generate(request);
    CHECK(result.host_peak > 0);
    CHECK(result.host_peak <= plan.host_peak);
    // Beyond the allocations the plan counts the process itself, the tokenizer and pixels.
    CHECK(plan.host_peak <= result.host_peak + before + 20'000'000);
    // A larger picture takes more, and a reference adds a stage.
    Request larger = request;
    larger.width = 192;
    CHECK(pipeline.plan(larger).host_peak > plan.host_peak);
    request.references = {Image{128, 128, std::vector<uint8_t>(3 * 128 * 128, 100)}};
    CHECK(pipeline.plan(request).stages.size() == 4);
}

TEST_CASE("the plan of parts that stay loaded holds what is then allocated") {
    const uint64_t before = own_memory_bytes();
    LoadOptions options = on_cpu();
    options.keep_loaded = true;
    Pipeline pipeline = bundled(options);
    Request request = small_request(1);
    request.references = {Image{128, 128, std::vector<uint8_t>(3 * 128 * 128, 100)}};
    const MemoryPlan plan = pipeline.plan(request);
    const Result result = pipeline.generate(request);
    CHECK(result.host_peak <= plan.host_peak);
    CHECK(plan.host_peak <= result.host_peak + before + 20'000'000);
}

TEST_CASE("prompts that are encoded ahead keep to the limits of their pictures") {
    Pipeline pipeline = bundled(on_cpu());
    Request request = small_request(1);
    request.width = 8192;
    const auto error = test::error_of([&] {
        pipeline.encode_prompts(request, {"a red house", "a tree"});
    });
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("over the limit of 4096"));
    request.width = 64;
    const auto too_long = test::error_of([&] {
        pipeline.encode_prompts(request, {"a tree", std::string(2'000'000, 'x')});
    });
    CHECK(too_long.mentions("2000000 bytes"));
    pipeline.encode_prompts(request, {"a red house", "a tree"});
    for (const char* prompt : {"a red house", "a tree"}) {
        request.prompt = prompt;
        CHECK(pipeline.generate(request).prompt_cached);
    }
}

TEST_CASE("pictures over the limits are refused before their pixels are worked on") {
    Pipeline pipeline = bundled(on_cpu());
    const Image picture{64, 64, std::vector<uint8_t>(3 * 64 * 64, 100)};
    Request request = small_request(1);
    request.width = request.height = 8192;
    request.init = InitImage{picture, std::nullopt};
    const test::AllocationWatch watch;
    CHECK(test::error_of([&] { pipeline.generate(request); }).mentions("over the limit of 4096"));
    CHECK(watch.largest() < 3u * 8192 * 8192);
    request = small_request(1);
    request.references.assign(17, picture);
    CHECK(test::error_of([&] { pipeline.generate(request); }).mentions("over the limit of 16"));
}

TEST_CASE("progress tells every stage in order and ends at its end") {
    Pipeline pipeline = bundled(on_cpu());
    std::vector<Stage> order;
    std::vector<int> steps;
    double share = 0;
    pipeline.generate(small_request(1), [&](const Step& step) {
        if (order.empty() || order.back() != step.stage) {
            order.push_back(step.stage);
            share = 0;
        }
        CHECK(step.share >= share);
        CHECK(step.share <= 1.0);
        share = step.share;
        if (step.stage == Stage::denoise && (steps.empty() || steps.back() != step.step)) {
            steps.push_back(step.step);
        }
        return true;
    });
    CHECK(order == std::vector<Stage>{Stage::load, Stage::encode_prompt, Stage::load,
                                      Stage::denoise, Stage::load, Stage::decode});
    CHECK(steps == std::vector<int>{0, 1, 2, 3, 4});
    CHECK(share == 1.0);
}

}  // namespace
}  // namespace flux2
