// The `parameters` text that AUTOMATIC1111's web interface, Forge, stable-diffusion.cpp and savers
// for ComfyUI put into pictures: prompt, negative prompt, then a line of settings.
#pragma once

#include "common/options.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace flux2::cli {

struct A1111Parameters {
    std::string prompt, negative_prompt;  // tags such as <lora:name:0.8> stay in them
    std::optional<int> steps, width, height;
    std::optional<uint64_t> seed;
    std::optional<float> cfg_scale;  // of two passes
    std::optional<float> guidance;   // embedded: "Distilled CFG Scale" or "Guidance"
    std::optional<float> strength;
    std::string model;                // its name, not its file
    std::vector<std::string> unused;  // "Sampler: DPM++ 2M": not understood, or not repeatable
};

// Nothing for a text without a line of settings.
std::optional<A1111Parameters> parse_a1111(const std::string& text);

// Options that come as close to the picture as they can, without the model.
GenerateOptions options_from_parameters(const A1111Parameters& parameters);

}  // namespace flux2::cli
