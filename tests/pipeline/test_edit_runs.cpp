// Repainting with every kind of model: the pipeline's picture against the same algorithm in plain
// loops, which calls the networks themselves.
#include "checkpoints/inventory.hpp"
#include "image/image.hpp"
#include "pipeline/edit.hpp"
#include "pipeline/latents.hpp"
#include "pipeline/loaded_model.hpp"
#include "pipeline/prompt.hpp"
#include "pipeline/sampler.hpp"
#include "support/support.hpp"

#include <flux2/flux2.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

constexpr int kSide = 96;
constexpr int kSteps = 3;
constexpr float kGuidance = 3.0f;

// A gradient, so that something is to be kept.
Image source_picture() {
    Image image{kSide, kSide, {}};
    for (int y = 0; y < kSide; ++y) {
        for (int x = 0; x < kSide; ++x) {
            for (const int value : {2 * x, 2 * y, 255 - x - y}) {
                image.rgb.push_back(static_cast<uint8_t>(value));
            }
        }
    }
    return image;
}

// A box with a soft edge.
Mask soft_mask() {
    Mask mask{kSide, kSide, {}};
    for (int y = 0; y < kSide; ++y) {
        for (int x = 0; x < kSide; ++x) {
            const int inside = std::min({x - 24, y - 24, 79 - x, 71 - y});
            mask.values.push_back(static_cast<uint8_t>(std::clamp(inside * 12, 0, 255)));
        }
    }
    return mask;
}

struct Kind {
    std::string name;
    fs::path file;
    bool two_passes = false;
    ReferenceMode mode = ReferenceMode::joint;
};

Request request_for(const Kind& variant) {
    Request request;
    request.prompt = "x";
    request.embeds_file = test::fixture("klein/text_encoder.golden.safetensors");
    request.seed = 11;
    request.generator = "cpu-f32";
    request.steps = kSteps;
    if (variant.name != "kv") {
        request.guidance = kGuidance;
    }
    request.init = InitImage{source_picture(), {}};
    request.inpaint = Inpaint{.mask = soft_mask()};
    return request;
}

// The algorithm in five lines, in double: velocity, Euler step, known tokens put back.
Image plain_picture(const Kind& variant, const Request& request) {
    const fs::path texts = request.embeds_file;
    const SharedTensor cond = share(read_features(texts, "prompt_embeds"));
    const SharedTensor uncond = share(read_features(texts, "negative_prompt_embeds"));
    const Model model =
        open_model({variant.file, {}, test::fixture("klein/vae.safetensors")}, variant.name);
    LoadOptions options;
    options.device = "CPU";
    LoadedModel loaded(model, options);
    const HostTensor z = to_tokens(loaded.vae().encode(to_planes(request.init->image)));
    const int64_t side = kSide / 16;
    const HostTensor noise =
        to_tokens(draw_noise(Generator::cpu_f32, 11, side, side, model.sizes.channels));

    // The largest mask value of each 16 x 16 pixels.
    std::vector<double> share_of(static_cast<size_t>(side * side));
    for (int y = 0; y < kSide; ++y) {
        for (int x = 0; x < kSide; ++x) {
            double& cell = share_of[static_cast<size_t>(y / 16 * side + x / 16)];
            cell = std::max(
                cell, request.inpaint->mask.values[static_cast<size_t>(y * kSide + x)] / 255.0);
        }
    }

    const std::vector<float> sigmas = schedule(side * side, kSteps);
    HostTensor x = noise;
    for (size_t step = 0; step < kSteps; ++step) {
        TransformerInput input;
        input.img = x;
        input.img_pos = image_positions(side, side);
        input.ref = z;
        input.ref_pos = image_positions(side, side, 10);
        input.txt_pos = text_positions(cond->ne[1]);
        input.timestep = sigmas[step];
        input.guidance = kGuidance;
        input.txt = cond;
        Backend backend("CPU");
        Transformer transformer(backend, model.sizes, model.transformer);
        const HostTensor with = transformer.predict(input, variant.mode);
        input.txt = uncond;
        const HostTensor without =
            variant.two_passes ? transformer.predict(input, variant.mode) : with;
        const double next = static_cast<double>(sigmas[step + 1]);
        for (size_t i = 0; i < x.data.size(); ++i) {
            const double v = static_cast<double>(without.data[i]) +
                             3.0 * static_cast<double>(with.data[i] - without.data[i]);
            const double moved =
                static_cast<double>(x.data[i]) + (next - static_cast<double>(sigmas[step])) * v;
            const double known = next * static_cast<double>(noise.data[i]) +
                                 (1 - next) * static_cast<double>(z.data[i]);
            const double m = share_of[i / static_cast<size_t>(model.sizes.channels)];
            x.data[i] = static_cast<float>(m * moved + (1 - m) * known);
        }
    }
    const Image made = from_planes(loaded.vae().decode(from_tokens(x, side, side)));
    const Edit edit(request, {1024, 1024}, {}, {});
    return edit.finish(request.init->image, made);
}

void check_against_plain(const Kind& variant) {
    CAPTURE(variant.name);
    const Request request = request_for(variant);
    LoadOptions options;
    options.device = "CPU";
    options.variant = variant.name;
    Pipeline pipeline =
        Pipeline::load({variant.file, {}, test::fixture("klein/vae.safetensors")}, options);
    const Image found = pipeline.generate(request).image;
    const Image expected = plain_picture(variant, request);
    REQUIRE(found.rgb.size() == expected.rgb.size());
    int largest = 0;
    double change = 0;
    for (size_t i = 0; i < found.rgb.size(); ++i) {
        largest = std::max(largest, std::abs(found.rgb[i] - expected.rgb[i]));
        change += std::abs(found.rgb[i] - request.init->image.rgb[i]);
    }
    // Rounding to bytes, and of kept keys and values to F16.
    CHECK(largest <= 2);
    CHECK(change / static_cast<double>(found.rgb.size()) > 2);
}

TEST_CASE("a base model repaints with guidance by two passes") {
    check_against_plain({"base", test::fixture("klein/flux2.safetensors"), true});
}

TEST_CASE("a KV model repaints with the picture's keys and values") {
    check_against_plain(
        {"kv", test::fixture("klein/flux2.safetensors"), false, ReferenceMode::extract});
}

TEST_CASE("dev repaints with its embedded guidance") {
    const test::TemporaryFolder folder;
    test::write_dev_like(folder / "dev.safetensors");
    check_against_plain({"dev", folder / "dev.safetensors"});
}

}  // namespace
}  // namespace flux2
