#include "dialects/native_repeat.hpp"

#include "base/check.hpp"
#include "common/lora_tags.hpp"
#include "common/picture_facts.hpp"

#include <algorithm>
#include <span>

namespace flux2::server {
namespace {

using nlohmann::json;

constexpr const char* kOwnText = "flux2";

template <typename T>
void set(json& request, const char* name, const std::optional<T>& value) {
    if (value) {
        request[name] = *value;
    }
}

// Tags of other programs as LoRAs. A prompt with a broken one stays as it is.
void read_tags(json& request) {
    try {
        const auto tagged = cli::split_tags(request["prompt"].get<std::string>());
        for (const cli::LoraTag& tag : tagged.tags) {
            request["lora"].push_back({{"name", tag.name}, {"strength", tag.strength}});
        }
        request["prompt"] = tagged.text;
    } catch (const Error&) {
        // as it is
    }
}

void set_edit(json& request, const cli::GenerateOptions& o) {
    set(request, "strength", o.strength);
    if (!o.edit.mask.empty()) {
        const Inpaint& inpaint = o.edit.inpaint;
        request["mask_invert"] = inpaint.invert;
        request["mask_grow"] = inpaint.grow;
        request["mask_blur"] = inpaint.blur;
        set(request, "mask_blend", inpaint.blend);
        request["inpaint_area"] = inpaint.area == InpaintArea::masked ? "masked" : "whole";
        set(request, "inpaint_padding", inpaint.padding);
    }
    if (const auto& margins = o.edit.outpaint) {
        request["outpaint_left"] = margins->left;
        request["outpaint_top"] = margins->top;
        request["outpaint_right"] = margins->right;
        request["outpaint_bottom"] = margins->bottom;
    }
}

json repeat_json(const Service& service, const cli::GenerateOptions& o, const std::string& model) {
    const Request& r = o.request;
    json request = {{"prompt", o.prompt.value_or("")},
                    {"negative_prompt", r.negative_prompt},
                    {"generator", r.generator},
                    {"guidance_interval", {r.guidance_interval.from, r.guidance_interval.until}},
                    {"sigmas", r.sigmas},
                    {"reference_roles", r.reference_roles},
                    {"keep_colours", o.edit.keep_colours},
                    {"lora", json::array()}};
    if (!model.empty() && service.pool().find(model) != nullptr) {
        request["model"] = model;
    }
    set(request, "width", r.width);
    set(request, "height", r.height);
    set(request, "steps", r.steps);
    set(request, "guidance", r.guidance);
    set(request, "cfg_scale", r.cfg_scale);
    set(request, "seed", r.seed);
    set(request, "text_length", r.text_length);
    set(request, "reference_pixels", r.reference_pixels);
    for (const Adapter& adapter : r.adapters) {
        request["lora"].push_back(
            {{"name", adapter.file.stem().string()}, {"strength", adapter.strength}});
    }
    read_tags(request);
    if (!o.init.empty()) {
        set_edit(request, o);
    }
    return {{"request", request},
            {"needs",
             {{"references", o.references.size()},
              {"image", !o.init.empty()},
              {"mask", !o.edit.mask.empty()}}}};
}

// Of a picture whose settings are not known.
json unknown() {
    return {{"request", nullptr},
            {"needs", {{"references", 0}, {"image", false}, {"mask", false}}}};
}

// By which name requests chose the model; of pictures that were not made by a server its file's.
std::string model_of(const json& facts, const cli::GenerateOptions& o) {
    const json model = facts.value("model", json::object());
    const json id = model.is_object() ? model.value("id", json()) : json();
    return id.is_string() ? id.get<std::string>() : o.model.files.transformer.stem().string();
}

}  // namespace

json repeat_of_facts(const Service& service, const json& facts) {
    try {
        const cli::GenerateOptions options = cli::options_from_facts(facts, "picture");
        return repeat_json(service, options, model_of(facts, options));
    } catch (const Error&) {
        return unknown();
    }
}

json repeat_of_file(const Service& service, const std::string& bytes) {
    std::vector<ImageText> texts;
    try {
        texts = decode_image_texts(std::as_bytes(std::span(bytes)), "image");
    } catch (const Error& error) {
        throw FieldError("image", error.what());
    }
    const auto own = std::find_if(texts.begin(), texts.end(),
                                  [](const ImageText& text) { return text.key == kOwnText; });
    const bool is_own = own != texts.end();
    json answer = unknown();
    answer["source"] = nullptr;
    answer["unused"] = json::array();
    try {
        const cli::GenerateOptions options = cli::options_of_texts(texts, "image");
        const std::string model =
            is_own ? model_of(json::parse(own->text), options) : options.stored_model;
        answer.update(repeat_json(service, options, model));
        answer["source"] = is_own ? "flux2" : "a1111";
        answer["unused"] = options.not_repeated;
    } catch (const Error&) {
        // none that are understood
    }
    return answer;
}

}  // namespace flux2::server
