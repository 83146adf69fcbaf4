#include "dialects/a1111_info.hpp"

#include <flux2/version.hpp>
#include "base/check.hpp"
#include "common/a1111_parameters.hpp"
#include "common/picture_facts.hpp"

#include <span>

namespace flux2::server {
namespace {

using nlohmann::json;

constexpr const char* kParameters = "parameters";

std::string text_of(const json& facts, const char* key) {
    for (const ImageText& text : cli::picture_texts(facts)) {
        if (text.key == key) {
            return text.text;
        }
    }
    return "";
}

// The settings in the line of a picture.
json settings_of(const std::string& text) {
    json settings = json::object();
    const auto found = cli::parse_a1111(text);
    if (!found) {
        return settings;
    }
    const auto add = [&](const char* name, const auto& value) {
        if (value) {
            settings[name] = concat(*value);
        }
    };
    settings["Prompt"] = found->prompt;
    settings["Negative prompt"] = found->negative_prompt;
    add("Steps", found->steps);
    add("Seed", found->seed);
    add("CFG scale", found->cfg_scale);
    add("Distilled CFG Scale", found->guidance);
    add("Denoising strength", found->strength);
    add("Size-1", found->width);
    add("Size-2", found->height);
    if (!found->model.empty()) {
        settings["Model"] = found->model;
    }
    return settings;
}

}  // namespace

json a1111_info(const A1111Request& asked, const std::vector<Picture>& pictures) {
    const Request& request = asked.job.request;
    const json facts = pictures.empty() ? json::object() : pictures.front().facts;
    json seeds = json::array(), prompts = json::array(), negatives = json::array();
    json infotexts = json::array(), subseeds = json::array();
    for (const Picture& picture : pictures) {
        seeds.push_back(picture.facts.at("seed"));
        subseeds.push_back(0);
        prompts.push_back(picture.facts.at("prompt"));
        negatives.push_back(picture.facts.at("negative_prompt"));
        infotexts.push_back(text_of(picture.facts, kParameters));
    }
    const std::string hash =
        facts.empty() ? "" : facts.at("model").at("transformer").value("sha256", "");
    json extra = json::object();
    if (!asked.ignored.empty()) {
        extra["Ignored"] = asked.ignored;
    }
    return {{"prompt", request.prompt},
            {"all_prompts", prompts},
            {"negative_prompt", request.negative_prompt},
            {"all_negative_prompts", negatives},
            {"seed", request.seed.value_or(0)},
            {"all_seeds", seeds},
            {"subseed", 0},
            {"all_subseeds", subseeds},
            {"subseed_strength", 0},
            {"width", facts.value("width", request.width.value_or(0))},
            {"height", facts.value("height", request.height.value_or(0))},
            {"sampler_name", "Euler"},
            {"cfg_scale", facts.value("used_cfg_scale", request.cfg_scale.value_or(1.0f))},
            {"steps", facts.value("steps", request.steps.value_or(0))},
            {"batch_size", asked.job.n},
            {"restore_faces", false},
            {"face_restoration_model", nullptr},
            {"sd_model_name", asked.job.model},
            {"sd_model_hash", hash.substr(0, kShownHash)},
            {"sd_vae_name", nullptr},
            {"sd_vae_hash", nullptr},
            {"seed_resize_from_w", -1},
            {"seed_resize_from_h", -1},
            {"denoising_strength",
             request.init && request.init->strength ? json(*request.init->strength) : json()},
            {"extra_generation_params", extra},
            {"index_of_first_image", 0},
            {"infotexts", infotexts},
            {"styles", json::array()},
            {"job_timestamp", "0"},
            {"clip_skip", 1},
            {"is_using_inpainting_conditioning", false},
            {"version", "flux2 " + std::string(version())}};
}

json a1111_png_info(const std::string& bytes) {
    std::vector<ImageText> texts;
    try {
        texts = decode_image_texts(std::as_bytes(std::span(bytes)), "image");
    } catch (const Error& error) {
        throw FieldError("image", error.what());
    }
    std::string info;
    json items = json::object();
    for (const ImageText& text : texts) {
        if (text.key == kParameters) {
            info = text.text;
        }
        items[text.key] = text.text;
    }
    return {{"info", info}, {"items", items}, {"parameters", settings_of(info)}};
}

}  // namespace flux2::server
