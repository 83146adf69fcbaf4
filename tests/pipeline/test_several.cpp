// Several pictures in one pass: what each of them is alone.
#include <flux2/flux2.hpp>
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <utility>
#include <vector>

namespace flux2 {
namespace {

Pipeline load(const std::string& variant) {
    LoadOptions options;
    options.device = "CPU";
    options.variant = variant;
    return Pipeline::load(
        {test::fixture("klein/flux2.safetensors"), {}, test::fixture("klein/vae.safetensors")},
        options);
}

Request small_request() {
    Request request;
    request.prompt = "x";
    request.embeds_file = test::fixture("klein/text_encoder.golden.safetensors");
    request.width = 64;
    request.height = 80;
    request.steps = 2;
    request.seed = 7;
    return request;
}

std::vector<Result> make_several(Pipeline& pipeline, const Request& request, int n) {
    std::vector<Result> results;
    pipeline.generate_several(request, n,
                              [&](Result result) { results.push_back(std::move(result)); });
    return results;
}

// Sums in another order may round a value to the next one.
int largest_difference(const Image& a, const Image& b) {
    REQUIRE(a.rgb.size() == b.rgb.size());
    int largest = 0;
    for (size_t i = 0; i < a.rgb.size(); ++i) {
        largest = std::max(largest, std::abs(int{a.rgb[i]} - int{b.rgb[i]}));
    }
    return largest;
}

void check_as_one_at_a_time(const std::string& variant, Request request) {
    CAPTURE(variant);
    Pipeline pipeline = load(variant);
    const std::vector<Result> several = make_several(pipeline, request, 3);
    REQUIRE(several.size() == 3);
    CHECK(largest_difference(several[0].image, several[1].image) > 8);
    for (const Result& result : several) {
        CHECK(result.seed == 7 + static_cast<uint64_t>(&result - several.data()));
        request.seed = result.seed;
        CHECK(largest_difference(pipeline.generate(request).image, result.image) <= 1);
    }
}

TEST_CASE("pictures of one pass are those made one at a time") {
    const Request plain = small_request();
    check_as_one_at_a_time("klein", plain);
    Request guided = plain;
    guided.cfg_scale = 3.0f;
    guided.guidance_interval = {0.0f, 0.5f};
    check_as_one_at_a_time("base", guided);
    Request with_reference = plain;
    with_reference.references.push_back(load_image(test::fixture("klein/ref_0.png")));
    check_as_one_at_a_time("klein", with_reference);
    check_as_one_at_a_time("kv", with_reference);
    Request from_picture = plain;
    from_picture.init = InitImage{load_image(test::fixture("klein/ref_0.png")), 0.8f};
    check_as_one_at_a_time("klein", from_picture);
}

TEST_CASE("a masked edit of one pass keeps what is known in every picture") {
    Request request = small_request();
    request.width.reset();
    request.height.reset();
    Image source = load_image(test::fixture("klein/ref_0.png"));
    Mask mask;
    mask.width = source.width;
    mask.height = source.height;
    mask.values.assign(static_cast<size_t>(mask.width) * static_cast<size_t>(mask.height), 0);
    std::fill(mask.values.begin(), mask.values.begin() + mask.width * (mask.height / 2), 255);
    request.init = InitImage{source, {}};
    request.inpaint.emplace();
    request.inpaint->mask = mask;
    Pipeline pipeline = load("klein");
    for (const Result& result : make_several(pipeline, request, 2)) {
        const auto last_row = static_cast<std::ptrdiff_t>(source.width) * 3;
        CHECK(std::equal(source.rgb.end() - last_row, source.rgb.end(),
                         result.image.rgb.end() - last_row));
        request.seed = result.seed;
        CHECK(largest_difference(pipeline.generate(request).image, result.image) <= 1);
    }
}

TEST_CASE("previews show the pictures of a pass side by side, and progress ends at 1") {
    Request request = small_request();
    request.preview = true;
    int width = 0;
    double share = 0;
    Pipeline pipeline = load("klein");
    pipeline.generate(request, [&](const Step& step) {
        width = step.preview != nullptr ? step.preview->width : width;
        return true;
    });
    int wide = 0;
    const auto ignore_picture = [](const Result&) {};
    pipeline.generate_several(request, 3, ignore_picture, [&](const Step& step) {
        wide = step.preview != nullptr ? step.preview->width : wide;
        share = step.stage == Stage::denoise ? step.share : share;
        return true;
    });
    CHECK(width > 0);
    CHECK(wide == 3 * width);
    CHECK(share == doctest::Approx(1.0));
}

TEST_CASE("pictures that are finished are handed over before a later one is cancelled") {
    Pipeline pipeline = load("klein");
    Request request = small_request();
    std::atomic<bool> cancel = false;
    request.cancel = &cancel;
    std::vector<Result> kept;
    const auto error = test::error_of([&] {
        pipeline.generate_several(request, 3, [&](Result result) {
            kept.push_back(std::move(result));
            cancel = kept.size() == 2;
        });
    });
    CHECK(error.kind == ErrorKind::cancelled);
    REQUIRE(kept.size() == 2);
    CHECK(kept[1].seed == 8);
    request.cancel = nullptr;
    request.seed = 8;
    CHECK(largest_difference(pipeline.generate(request).image, kept[1].image) <= 1);
}

TEST_CASE("the plan counts the pictures of a pass") {
    Pipeline pipeline = load("klein");
    const Request request = small_request();
    const MemoryPlan one = pipeline.plan(request);
    const MemoryPlan four = pipeline.plan(request, 4);
    CHECK(one.n_pictures == 1);
    CHECK(four.n_pictures == 4);
    const auto transformer = [](const MemoryPlan& plan) {
        const auto found =
            std::find_if(plan.stages.begin(), plan.stages.end(),
                         [](const StageMemory& stage) { return stage.stage == "transformer"; });
        REQUIRE(found != plan.stages.end());
        return found->host_compute;
    };
    CHECK(transformer(four) > transformer(one));
}

TEST_CASE("numbers out of range and the noise of a file are refused") {
    Pipeline pipeline = load("klein");
    Request request = small_request();
    for (const int n : {0, -1, 65}) {
        const auto error = test::error_of([&] { make_several(pipeline, request, n); });
        CHECK(error.kind == ErrorKind::bad_argument);
        CHECK(error.mentions("use 1 to 64"));
    }
    request.noise_file = "noise.safetensors";
    const auto error = test::error_of([&] { make_several(pipeline, request, 2); });
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("one picture"));
}

}  // namespace
}  // namespace flux2
