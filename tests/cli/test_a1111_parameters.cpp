// Settings that other programs store in pictures; the texts are as those programs write them.
#include "common/a1111_parameters.hpp"

#include "support/support.hpp"

#include <doctest/doctest.h>

namespace flux2::cli {
namespace {

using Strings = std::vector<std::string>;

A1111Parameters parsed(const std::string& text) {
    const auto parameters = parse_a1111(text);
    REQUIRE(parameters);
    return *parameters;
}

TEST_CASE("a text of AUTOMATIC1111's web interface is understood") {
    const A1111Parameters p = parsed(
        "a house by the sea <lora:ink:0.8>\nNegative prompt: ugly, blurry\n"
        "Steps: 20, Sampler: Euler a, Schedule type: Karras, CFG scale: 7, Seed: 965400086, Size: "
        "512x768, Model hash: 45dee52b, Model: klein, Denoising strength: 0.4, Clip skip: 2, Hires "
        "upscale: 2, Lora hashes: \"ink: 0123, x: 45\", Version: v1.9.4");
    CHECK(p.prompt == "a house by the sea <lora:ink:0.8>");
    CHECK(p.negative_prompt == "ugly, blurry");
    CHECK(p.steps == 20);
    CHECK(p.cfg_scale == 7.0f);
    CHECK(!p.guidance);
    CHECK(p.seed == 965400086u);
    CHECK(p.width == 512);
    CHECK(p.height == 768);
    CHECK(p.model == "klein");
    CHECK(p.strength == 0.4f);
    CHECK(p.unused ==
          Strings{"Sampler: Euler a", "Schedule type: Karras", "Clip skip: 2", "Hires upscale: 2"});
}

TEST_CASE("texts of Forge, stable-diffusion.cpp and savers for ComfyUI are understood") {
    const A1111Parameters forge = parsed(
        "a house\nSteps: 4, Sampler: Euler, Schedule type: Simple, CFG scale: 1, Distilled CFG "
        "Scale: 3.5, Seed: 7, Size: 64x64, Model: flux2-dev, Module 1: ae, RNG: CPU");
    CHECK(forge.cfg_scale == 1.0f);
    CHECK(forge.guidance == 3.5f);
    CHECK(forge.unused == Strings{"Schedule type: Simple", "RNG: CPU"});
    const A1111Parameters sd_cpp = parsed(
        "A sunflower field\nNegative prompt: Blue sky\nSteps: 30, CFG scale: 5.000000, Guidance: "
        "3.500000, Eta: 0.000000, Seed: 1375127038, Size: 512x512, Model: v1-5.safetensors, RNG: "
        "cuda, Sampler: euler, Skip layers: [7, 8, ], Version: stable-diffusion.cpp");
    CHECK(sd_cpp.negative_prompt == "Blue sky");
    CHECK(sd_cpp.cfg_scale == 5.0f);
    CHECK(sd_cpp.guidance == 3.5f);
    CHECK(sd_cpp.unused == Strings{"Skip layers: [7, 8, ]"});
    const A1111Parameters comfy = parsed(
        "a house\nSteps: 4, Sampler: Euler, CFG scale: 1.0, Seed: 18446744073709551615, Size: "
        "64x64, Hashes: {\"model\": \"ab, c\", \"vae\": \"d\"}, Version: ComfyUI");
    CHECK(comfy.seed == 18446744073709551615u);
    CHECK(comfy.unused.empty());
}

TEST_CASE("prompts have as many lines as they like") {
    const A1111Parameters p = parsed(
        "a house\nSteps: up to the door\r\n\nby the sea\nNegative prompt: one\ntwo\nSteps: 4, "
        "Seed: "
        "1\r\nTemplate: a house\n");
    CHECK(p.prompt == "a house\nSteps: up to the door\n\nby the sea");
    CHECK(p.negative_prompt == "one\ntwo");
    CHECK(p.steps == 4);
    CHECK(p.unused == Strings{"Template: a house"});
    const A1111Parameters only = parsed("Steps: 4");
    CHECK(only.prompt == "");
    CHECK(only.negative_prompt == "");
    CHECK(parsed("x\nSeed: 1, Size: 64x64, Sampler: Euler").seed == 1u);
}

TEST_CASE("values in quotes have commas and quotes") {
    const A1111Parameters p = parsed(R"(x
Steps: 4, Hires prompt: "a, \"b\": c\nd", Style: "open, Seed: 5)");
    CHECK(p.unused == Strings{"Hires prompt: a, \"b\": c\nd", "Style: \"open"});
    CHECK(p.seed == 5u);
}

TEST_CASE("values that make no sense are not used, and said so") {
    const A1111Parameters p = parsed(
        "x\nSteps: many, , Seed: -1, Size: 64, CFG scale: 7x, Size: 1x2x3, noise, Denoising "
        "strength:, Steps: 99999999999");
    CHECK(!p.steps);
    CHECK(!p.seed);
    CHECK(!p.width);
    CHECK(!p.cfg_scale);
    CHECK(!p.strength);
    CHECK(p.unused == Strings{"Steps: many", "Seed: -1", "Size: 64", "CFG scale: 7x", "Size: 1x2x3",
                              "noise", "Denoising strength: ", "Steps: 99999999999"});
}

TEST_CASE("texts without settings are none of these") {
    for (const char* text : {"", "\n\n", "a house", "a house: red, by the sea",
                             "a house\nNegative prompt: x", "{\"steps\": 4}"}) {
        CAPTURE(text);
        CHECK(!parse_a1111(text));
    }
}

TEST_CASE("options of another program's picture have its guidance by two passes or embedded") {
    A1111Parameters p;
    p.prompt = "a house";
    p.steps = 4;
    p.cfg_scale = 1.0f;
    p.guidance = 3.5f;
    const GenerateOptions embedded = options_from_parameters(p);
    CHECK(embedded.prompt == "a house");
    CHECK(embedded.request.steps == 4);
    CHECK(embedded.request.guidance == 3.5f);
    CHECK(!embedded.request.cfg_scale);
    p.cfg_scale = 5.0f;
    p.unused = {"Clip skip: 2"};
    const GenerateOptions two_passes = options_from_parameters(p);
    CHECK(!two_passes.request.guidance);
    CHECK(two_passes.request.cfg_scale == 5.0f);
    CHECK(two_passes.not_repeated == Strings{"Clip skip: 2", "Guidance: 3.5"});
    p.guidance.reset();
    p.cfg_scale = 1.0f;
    CHECK(options_from_parameters(p).request.cfg_scale == 1.0f);
}

}  // namespace
}  // namespace flux2::cli
