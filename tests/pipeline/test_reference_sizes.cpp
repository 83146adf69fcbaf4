// Limits of reference pictures, and how long steps take with them.
#include "pipeline/reference_sizes.hpp"

#include "support/published_sizes.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <array>
#include <vector>

namespace flux2 {
namespace {

Image grey(int width, int height) {
    return {width, height,
            std::vector<uint8_t>(static_cast<size_t>(width) * static_cast<size_t>(height) * 3, 9)};
}

std::array<int, 2> fitted(int width, int height, std::optional<int64_t> pixels,
                          size_t n_references = 1) {
    Request request;
    request.references.resize(n_references);
    request.reference_pixels = pixels;
    const Image picture = grey(width, height);
    const ImageSize size = fitted_size(picture, request);
    const Image result = fit_reference(picture, request);
    CHECK(result.width == size.width);
    CHECK(result.height == size.height);
    return {size.width, size.height};
}

TEST_CASE("without a limit of the request, one reference may be larger than each of several") {
    CHECK(fitted(2048, 2048, std::nullopt, 1) == std::array{2016, 2016});
    CHECK(fitted(2048, 2048, std::nullopt, 2) == std::array{1024, 1024});
}

TEST_CASE("the request's limit holds for any number of references") {
    CHECK(fitted(2048, 1024, 512 * 512, 1) == std::array{720, 352});  // 724 x 362 cropped
    CHECK(fitted(2048, 1024, 512 * 512, 3) == std::array{720, 352});
    CHECK(fitted(512, 512, 1'000'000) == std::array{512, 512});
}

TEST_CASE("without any limit only the longest side is bounded") {
    CHECK(fitted(2304, 2304, 0, 2) == std::array{2304, 2304});
    CHECK(fitted(5000, 2500, 0) == std::array{4096, 2048});
    CHECK(fitted(1250, 5000, 0) == std::array{1024, 4096});
    CHECK(fitted(5000, 2500, 100'000'000) == std::array{4096, 2048});
}

TEST_CASE("a limit below 0, or one that leaves nothing of a picture, is refused") {
    CHECK(test::error_of([] { fitted(64, 64, -1); }).kind == ErrorKind::bad_argument);
    CHECK(test::error_of([] { fitted(64, 64, 100); }).mentions("no room in 100 pixels"));
}

TEST_CASE("the cost of references is what the benchmarks measured") {
    // docs/benchmarks.md: klein-9b, 1024x1024, one step alone and with one reference of that size,
    // 116 and 249 ms; KV 235 ms in the first step. klein-4b: 55.5 (54.5 to 56.5), 127 and 120 ms.
    constexpr TransformerSizes kKlein9b = {.hidden = 4096, .head_dim = 128, .mlp = 12288};
    const TokenCounts one = {.txt = 512, .img = 4096, .ref = 4096};
    // Other operations than multiplications take some of the time.
    constexpr double kTolerance = 0.07;
    CHECK(reference_cost(kKlein9b, one, false) ==
          doctest::Approx(249.0 / 116.0).epsilon(kTolerance));
    CHECK(reference_cost(kKlein9b, one, true) ==
          doctest::Approx(235.0 / 116.0).epsilon(kTolerance));
    CHECK(reference_cost(test::kKlein4b, one, false) ==
          doctest::Approx(127.0 / 55.5).epsilon(kTolerance));
    CHECK(reference_cost(test::kKlein4b, one, true) ==
          doctest::Approx(120.0 / 55.5).epsilon(kTolerance));
    CHECK(reference_cost(kKlein9b, {.txt = 512, .img = 4096, .ref = 0}, false) == 1.0);
}

TEST_CASE("references that double the time of a step are told with their tokens") {
    const auto line = [](const char* variant, std::vector<ImageSize> references) {
        const Model model = open_model(
            {test::fixture("klein/flux2.safetensors"), {}, test::fixture("klein/vae.safetensors")},
            variant);
        Job job;
        job.width = job.height = 1024;
        job.text_length = 512;
        job.references = std::move(references);
        return reference_cost_line(job, model);
    };
    CHECK(line("klein", {}).empty());
    CHECK(line("klein", {{256, 256}}).empty());
    const std::string two = line("klein", {{1024, 1024}, {1024, 1024}});
    CHECK(
        two.starts_with("2 references add 8192 tokens to the picture's 4096: a step takes about "));
    CHECK(two.ends_with(" times as long; `reference_pixels` makes them smaller"));
    const std::string kv = line("kv", {{2016, 2016}});
    CHECK(kv.starts_with(
        "1 reference adds 15876 tokens to the picture's 4096: the first step takes about "));
    CHECK(
        kv.ends_with(" times as long, later ones little longer; `reference_pixels` makes it "
                     "smaller"));
}

}  // namespace
}  // namespace flux2
