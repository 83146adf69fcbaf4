// What a request leaves behind that is cancelled, or finds no memory, at any point before its
// picture is denoised: the next pictures are those of a fresh process.
#include <flux2/flux2.hpp>
#include "networks/part.hpp"
#include "support/folders.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <vector>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

LoadOptions one_thread(bool keep_loaded) {
    LoadOptions options;
    options.device = "CPU";
    options.threads = 1;
    options.keep_loaded = keep_loaded;
    return options;
}

Pipeline bundled_model(bool keep_loaded) {
    return Pipeline::load(find_model(test::tiny_model()).files, one_thread(keep_loaded));
}

Request red_house() {
    Request request;
    request.prompt = "a red house";
    request.width = request.height = 64;
    request.steps = 1;
    request.seed = 1;
    return request;
}

Request with_lora(const fs::path& file) {
    Request request = red_house();
    request.adapters.emplace_back();
    request.adapters.back().file = file;
    request.adapters.back().strength = 0.5f;
    return request;
}

const fs::path kBlueprint = fs::path(test::tiny_model()) / "blueprint-lora.safetensors";

enum class Stop { cancel, no_memory };

// Runs the request. At the n-th allocation of a few values or more before denoising has begun, its
// flag is raised, or the allocation fails. Returns how many there were.
size_t run_stopped(Pipeline& pipeline, Request request, Stop stop, size_t n) {
    constexpr size_t kLeastBytes = 1024;
    constexpr size_t kMostBytes = std::numeric_limits<size_t>::max();
    std::atomic<bool> cancel = false;
    request.cancel = &cancel;
    bool has_begun = false;
    size_t passed = 0;
    std::optional<ErrorKind> ended;
    {
        const test::AllocationHook hook(kLeastBytes, kMostBytes, [&](size_t i) {
            if (has_begun) {
                return;
            }
            passed = i + 1;
            if (i == n && stop == Stop::cancel) {
                cancel = true;
            } else if (i == n) {
                throw std::bad_alloc();
            }
        });
        try {
            pipeline.generate(request, [&](const Step& step) {
                has_begun = has_begun || step.stage == Stage::denoise;
                return true;
            });
        } catch (const Error& error) {
            ended = error.kind();
        }
    }
    // Where memory is lacking a part may be loaded again with the others freed.
    CHECK((!ended || (n < passed && *ended == (stop == Stop::cancel ? ErrorKind::cancelled
                                                                    : ErrorKind::out_of_memory))));
    CHECK((ended || n >= passed || stop == Stop::no_memory));
    return passed;
}

// Draws `first` and a stopped `second` in turn; then both must be as fresh pipelines draw them.
template <typename Load>
void check_stops(const Load& load, const Request& first, const Request& second, Stop stop,
                 size_t n_stops) {
    const Image expected_first = load().generate(first).image;
    const Image expected_second = load().generate(second).image;
    REQUIRE(expected_first.rgb != expected_second.rgb);
    Pipeline pipeline = load();
    pipeline.generate(second);
    pipeline.generate(first);
    const size_t n = run_stopped(pipeline, second, stop, std::numeric_limits<size_t>::max());
    REQUIRE(n > n_stops / 2);
    for (size_t i = 0; i < n; i += std::max<size_t>(1, n / n_stops)) {
        CAPTURE(i);
        CHECK(pipeline.generate(first).image.rgb == expected_first.rgb);
        run_stopped(pipeline, second, stop, i);
        CHECK(pipeline.generate(second).image.rgb == expected_second.rgb);
    }
}

TEST_CASE("a LoRA that was put on in part is put on again") {
    for (const Stop stop : {Stop::cancel, Stop::no_memory}) {
        CAPTURE(static_cast<int>(stop));
        check_stops([] { return bundled_model(/*keep_loaded=*/true); }, red_house(),
                    with_lora(kBlueprint), stop, 30);
    }
}

TEST_CASE("a LoRA that was taken off in part is taken off again") {
    for (const Stop stop : {Stop::cancel, Stop::no_memory}) {
        CAPTURE(static_cast<int>(stop));
        check_stops([] { return bundled_model(/*keep_loaded=*/true); }, with_lora(kBlueprint),
                    red_house(), stop, 8);
    }
}

TEST_CASE("networks that were loaded in part are loaded again") {
    Request other = red_house();
    other.seed = 2;
    for (const Stop stop : {Stop::cancel, Stop::no_memory}) {
        CAPTURE(static_cast<int>(stop));
        check_stops([] { return bundled_model(/*keep_loaded=*/false); }, red_house(), other, stop,
                    8);
    }
}

TEST_CASE("what a request has loaded is freed when it is cancelled or fails") {
    Pipeline pipeline = bundled_model(/*keep_loaded=*/false);
    const auto loaded_by = [&](const Request& request, const Progress& progress) {
        std::vector<std::string> loaded;
        try {
            pipeline.generate(request, [&](const Step& step) {
                if (step.stage == Stage::load) {
                    loaded.emplace_back(step.what);
                }
                return progress(step);
            });
        } catch (const Error&) {
            // What it has loaded is what counts.
        }
        return loaded;
    };
    const auto go_on = [](const Step&) { return true; };
    const std::string transformer = to_string(Part::transformer);
    const std::string vae = to_string(Part::vae);
    pipeline.generate(red_house());  // its prompt is held from here on
    CHECK(loaded_by(red_house(), go_on) == std::vector<std::string>{transformer, vae});
    for (const Stage stage : {Stage::denoise, Stage::decode}) {
        CAPTURE(to_string(stage));
        loaded_by(red_house(), [&](const Step& step) { return step.stage != stage; });
        CHECK(loaded_by(red_house(), go_on) == std::vector<std::string>{transformer, vae});
    }
    loaded_by(red_house(), [](const Step& step) -> bool {
        if (step.stage == Stage::denoise) {
            throw Error(ErrorKind::backend, "broken");
        }
        return true;
    });
    CHECK(loaded_by(red_house(), go_on) == std::vector<std::string>{transformer, vae});
    // Prompts that are encoded ahead load the text encoder, which stays for what comes next.
    CHECK(test::error_of([&] {
              pipeline.encode_prompts(red_house(), {"a tree"}, [](const Step& step) {
                  return step.stage != Stage::encode_prompt;
              });
          }).kind == ErrorKind::cancelled);
    Request tree = red_house();
    tree.prompt = "a tree";
    CHECK(loaded_by(tree, go_on) ==
          std::vector<std::string>{to_string(Part::text_encoder), transformer, vae});
}

TEST_CASE("a configuration beside a LoRA that changes is read again") {
    const test::TemporaryFolder folder;
    const fs::path lora = folder / "adapter_model.safetensors";
    fs::copy_file(kBlueprint, lora);
    Pipeline kept = bundled_model(/*keep_loaded=*/true);
    std::vector<std::vector<uint8_t>> pictures;
    for (const char* config :
         {R"({"r": 8, "lora_alpha": 8})", R"({"r": 8, "lora_alpha": 2})",
          R"({"r": 8, "lora_alpha": 2, "alpha_pattern": {"single_blocks.0.linear1": 32}})",
          R"({"r": 8, "lora_alpha": 8})"}) {
        CAPTURE(config);
        test::write_file(folder / "adapter_config.json", std::string_view(config));
        pictures.push_back(kept.generate(with_lora(lora)).image.rgb);
        CHECK(pictures.back() ==
              bundled_model(/*keep_loaded=*/true).generate(with_lora(lora)).image.rgb);
    }
    CHECK(pictures[0] != pictures[1]);
    CHECK(pictures[1] != pictures[2]);
    CHECK(pictures[0] == pictures[3]);
}

}  // namespace
}  // namespace flux2
