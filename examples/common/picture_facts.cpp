#include "common/picture_facts.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/text_stream.hpp"
#include "common/a1111_parameters.hpp"
#include "common/stored_facts.hpp"
#include "formats/json_file.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kKey = "flux2";
constexpr const char* kParametersKey = "parameters";
constexpr size_t kShortHash = 10;  // as other programs print it
constexpr std::array kParts = {"transformer", "text_encoder", "vae", "taesd"};

std::string name_of(const fs::path& path, FileNames names) {
    if (path.empty()) {
        return "";
    }
    return names == FileNames::names ? path.filename().string() : full_path(path).string();
}

json file_facts(const fs::path& path, ModelHashes& hashes, FileNames names) {
    return {{"file", name_of(path, names)}, {"sha256", hashes.get(path)}};
}

json adapter_facts(const Adapter& adapter, ModelHashes& hashes, FileNames names) {
    json facts = file_facts(adapter.file, hashes, names);
    facts["strength"] = adapter.strength;
    facts["include"] = adapter.include;
    facts["exclude"] = adapter.exclude;
    facts["blocks"] = adapter.block_strengths;
    return facts;
}

// Of parts with a device or type of their own. The picture's `device` is the transformer's: where
// that is its own, the others' is the one for all parts.
json part_facts(const LoadOptions& load) {
    json facts = json::object();
    const bool is_apart = !load.transformer.device.empty() || !load.split.empty();
    const auto add = [&](const char* name, const PartOptions& part) {
        const std::string& device = part.device.empty() && is_apart && &part != &load.transformer
                                        ? load.device
                                        : part.device;
        if (!device.empty() || !part.type.empty()) {
            facts[name] = {{"device", device}, {"type", part.type}};
        }
    };
    add("transformer", load.transformer);
    add("text_encoder", load.text_encoder);
    add("vae", load.vae);
    return facts;
}

}  // namespace

json picture_facts(const GenerateOptions& options, const ModelFiles& files, ModelHashes& hashes,
                   const Pipeline& pipeline, const Request& request, const Result& result,
                   FileNames names) {
    json references = json::array();
    for (const fs::path& file : options.references) {
        references.push_back(name_of(file, names));
    }
    json adapters = json::array();
    for (const Adapter& adapter : request.adapters) {
        adapters.push_back(adapter_facts(adapter, hashes, names));
    }
    const bool is_edit = request.inpaint || request.outpaint;
    json facts = {{"version", version()},
                  {"model",
                   {{"name", pipeline.model().name},
                    {"variant", pipeline.model().variant},
                    {"types", pipeline.model().types},
                    {"transformer", file_facts(files.transformer, hashes, names)},
                    {"text_encoder", file_facts(files.text_encoder, hashes, names)},
                    {"vae", file_facts(files.vae, hashes, names)},
                    {"taesd", file_facts(files.taesd, hashes, names)},
                    {"taesd_preview_only", files.taesd_preview_only}}},
                  {"device", pipeline.device()},
                  {"type", options.model.load.type},
                  {"parts", part_facts(options.model.load)},
                  {"split", options.model.load.split},
                  {"prompt", request.prompt},
                  {"full_prompt", result.prompt},
                  {"negative_prompt", request.negative_prompt},
                  {"width", result.image.width},
                  {"height", result.image.height},
                  {"steps", result.steps},
                  {"guidance", result.guidance},
                  {"seed", result.seed},
                  {"rng", request.generator},
                  {"sigmas", result.sigmas},
                  {"own_sigmas", request.sigmas},
                  {"requested_steps", nullptr},
                  {"references", references},
                  {"reference_roles", request.reference_roles},
                  {"init_img", name_of(options.init, names)},
                  {"strength", options.strength.value_or(is_edit ? 1.0f : 0.75f)},
                  {"edit", edit_facts(options.edit, request)},
                  {"keep_colours", request.keep_colours},
                  {"adapters", adapters},
                  {"alpha", options.alpha == Alpha::white ? "white" : "drop"},
                  {"noise", name_of(request.noise_file, names)},
                  {"embeds", name_of(request.embeds_file, names)}};
    facts["text_length"] = request.text_length ? json(*request.text_length) : json();
    facts["reference_pixels"] = request.reference_pixels ? json(*request.reference_pixels) : json();
    if (request.steps) {
        facts["requested_steps"] = *request.steps;
    }
    facts["cfg_scale"] = request.cfg_scale ? json(*request.cfg_scale) : json();
    facts["used_cfg_scale"] = result.cfg_scale;
    facts["guidance_interval"] = {request.guidance_interval.from, request.guidance_interval.until};
    return facts;
}

std::vector<std::string> other_model_files(const GenerateOptions& options, const json& facts) {
    std::vector<std::string> lines;
    const auto compare = [&](const std::string& what, const std::string& stored, const json& file) {
        const std::string found = file["sha256"].get<std::string>();
        if (!stored.empty() && found != stored) {
            lines.push_back(
                concat("the ", what, " is not the one that made the stored picture: SHA-256 ",
                       stored.substr(0, kShortHash), " then, ",
                       found.empty() ? "no such file" : found.substr(0, kShortHash), " now",
                       found.empty() ? "" : " (" + file["file"].get<std::string>() + ")"));
        }
    };
    for (const auto& [part, stored] : options.stored_hashes) {
        compare(part, stored, facts["model"][part]);
    }
    for (const json& adapter : facts["adapters"]) {
        const auto stored = options.stored_adapter_hashes.find(adapter["file"].get<std::string>());
        if (stored != options.stored_adapter_hashes.end()) {
            compare("LoRA", stored->second, adapter);
        }
    }
    return lines;
}

namespace {

std::string stem_of(const json& file) {
    return fs::path(file["file"].get<std::string>()).stem().string();
}

// The tags that would name the adapters in a prompt: " <lora:blueprint:0.8>".
std::string tags_of(const json& adapters) {
    std::string tags;
    for (const json& adapter : adapters) {
        tags += concat(" <lora:", stem_of(adapter), ":", adapter["strength"].get<float>(), ">");
    }
    return tags;
}

// "blueprint: 0123456789, ink: 89abcdef01"
std::string hashes_of(const json& adapters) {
    std::string hashes;
    for (const json& adapter : adapters) {
        hashes += concat(hashes.empty() ? "" : ", ", stem_of(adapter), ": ",
                         adapter["sha256"].get<std::string>().substr(0, kShortHash));
    }
    return hashes;
}

// "CFG scale: 4", with dev's embedded guidance as others name it.
std::string guidance_of(const json& facts) {
    std::string text = concat("CFG scale: ", facts.value("used_cfg_scale", 1.0f));
    if (facts["model"].value("variant", "") == "dev") {
        text += concat(", Distilled CFG Scale: ", facts["guidance"].get<float>());
    }
    return text;
}

}  // namespace

std::vector<ImageText> picture_texts(const json& given) {
    // Prompts and file names may contain any bytes; invalid UTF-8 is replaced.
    const std::string stored = given.dump(-1, ' ', false, json::error_handler_t::replace);
    const json facts = json::parse(stored);
    TextStream line;
    const json adapters = facts.value("adapters", json::array());
    line << facts["prompt"].get<std::string>() << tags_of(adapters) << "\n";
    if (const std::string negative = facts["negative_prompt"].get<std::string>();
        !negative.empty()) {
        line << "Negative prompt: " << negative << "\n";
    }
    const json& model = facts["model"];
    line << "Steps: " << facts["steps"] << ", Sampler: Euler, " << guidance_of(facts)
         << ", Seed: " << facts["seed"] << ", Size: " << facts["width"] << "x" << facts["height"]
         << ", Model hash: "
         << model["transformer"]["sha256"].get<std::string>().substr(0, kShortHash)
         << ", Model: " << stem_of(model["transformer"]);
    if (facts["init_img"] != "") {
        line << ", Denoising strength: " << facts["strength"];
    }
    if (!adapters.empty()) {
        line << ", Lora hashes: \"" << hashes_of(adapters) << "\"";
    }
    line << ", Version: flux2 " << facts["version"].get<std::string>();
    std::string parameters = line.str();
    std::replace(parameters.begin(), parameters.end(), '\0', ' ');
    return {{kParametersKey, parameters}, {kKey, stored}};
}

namespace {

const std::string* find_text(const std::vector<ImageText>& texts, const char* key) {
    const auto found = std::find_if(texts.begin(), texts.end(),
                                    [&](const ImageText& text) { return text.key == key; });
    return found == texts.end() ? nullptr : &found->text;
}

json parse_facts(const std::string& text, const fs::path& picture) {
    json facts = parse_json(text);
    check(facts.is_object(), ErrorKind::bad_file, picture.string(),
          ": the settings stored in it are broken");
    return facts;
}

[[noreturn]] void fail_without_settings(const fs::path& picture) {
    fail(ErrorKind::bad_file, picture.string(),
         ": holds no settings of flux2 or of another program that are understood; give them on the "
         "command line");
}

}  // namespace

json read_picture_facts(const fs::path& picture) {
    const std::vector<ImageText> texts = read_image_texts(picture);
    const std::string* facts = find_text(texts, kKey);
    if (facts == nullptr) {
        fail_without_settings(picture);
    }
    return parse_facts(*facts, picture);
}

GenerateOptions options_of_picture(const fs::path& picture) {
    return options_of_texts(read_image_texts(picture), picture);
}

GenerateOptions options_of_texts(const std::vector<ImageText>& texts, const fs::path& picture) {
    if (const std::string* facts = find_text(texts, kKey)) {
        return options_from_facts(parse_facts(*facts, picture), picture);
    }
    const std::string* stored = find_text(texts, kParametersKey);
    const auto parameters = stored == nullptr ? std::nullopt : parse_a1111(*stored);
    if (!parameters) {
        fail_without_settings(picture);
    }
    return options_from_parameters(*parameters);
}

namespace {

void read_adapters(const json& facts, const fs::path& picture, GenerateOptions& o) {
    for (const json& stored : get_fact<std::vector<json>>(facts, "adapters", {}, picture)) {
        check(stored.is_object(), ErrorKind::bad_file, picture.string(),
              ": its settings are broken at 'adapters'; give --lora FILE instead");
        const auto text = [&](const char* key) {
            return get_fact<std::string>(stored, key, "", picture);
        };
        const std::string file = text("file");
        o.request.adapters.push_back(
            {.file = file,
             .strength = get_fact<float>(stored, "strength", 1.0f, picture),
             .include = text("include"),
             .exclude = text("exclude"),
             .block_strengths = text("blocks")});
        o.stored_adapter_hashes[file] = text("sha256");
    }
}

void read_references(const json& facts, const fs::path& picture, GenerateOptions& o) {
    for (const std::string& file :
         get_fact<std::vector<std::string>>(facts, "references", {}, picture)) {
        o.references.emplace_back(file);
    }
    o.request.reference_roles =
        get_fact<std::vector<std::string>>(facts, "reference_roles", {}, picture);
    check(o.request.reference_roles.empty() ||
              o.request.reference_roles.size() == o.references.size(),
          ErrorKind::bad_file, picture.string(),
          ": its settings are broken at 'reference_roles'; give -r FILE instead");
    o.request.reference_roles.resize(o.references.size());
    o.request.reference_pixels = find_fact<int64_t>(facts, "reference_pixels", picture);
    check(o.request.reference_pixels.value_or(0) >= 0, ErrorKind::bad_file, picture.string(),
          ": its settings are broken at 'reference_pixels'; give --ref-resolution instead");
}

// Pictures of earlier versions store neither.
void read_cfg(const json& facts, const fs::path& picture, Request& request) {
    request.cfg_scale = find_fact<float>(facts, "cfg_scale", picture);
    const auto interval =
        get_fact<std::vector<float>>(facts, "guidance_interval", {0.0f, 1.0f}, picture);
    check(interval.size() == 2, ErrorKind::bad_file, picture.string(),
          ": its settings are broken at 'guidance_interval'; give --cfg-interval instead");
    request.guidance_interval = {interval[0], interval[1]};
}

}  // namespace

GenerateOptions options_from_facts(const json& facts, const fs::path& picture) {
    const auto text = [&](const json& from, const char* key) {
        return get_fact<std::string>(from, key, "", picture);
    };
    const json model = get_fact<json>(facts, "model", json::object(), picture);
    const auto part = [&](const char* name) {
        const json file = get_fact<json>(model, name, json::object(), picture);
        return fs::path(file.is_object() ? text(file, "file") : "");
    };
    GenerateOptions o;
    o.model.files = {part("transformer"), part("text_encoder"), part("vae"), part("taesd"),
                     get_fact<bool>(model, "taesd_preview_only", false, picture)};
    for (const char* name : kParts) {
        const json file = get_fact<json>(model, name, json::object(), picture);
        o.stored_hashes[name] = file.is_object() ? text(file, "sha256") : "";
    }
    o.model.load.variant = text(model, "variant");
    o.model.load.type = text(facts, "type");
    o.model.load.device = get_fact<std::string>(facts, "device", "auto", picture);
    const json parts = get_fact<json>(facts, "parts", json::object(), picture);
    const auto read_part = [&](const char* name, PartOptions& target) {
        const json own = get_fact<json>(parts, name, json::object(), picture);
        target =
            own.is_object() ? PartOptions{text(own, "device"), text(own, "type")} : PartOptions{};
    };
    read_part("transformer", o.model.load.transformer);
    read_part("text_encoder", o.model.load.text_encoder);
    read_part("vae", o.model.load.vae);
    o.model.load.split = text(facts, "split");
    o.prompt = text(facts, "prompt");
    Request& r = o.request;
    r.negative_prompt = text(facts, "negative_prompt");
    const json edit = get_fact<json>(facts, "edit", json(), picture);
    if (edit.is_object()) {
        o.edit = edit_from_facts(edit, picture);
        r.width = find_fact<int>(edit, "width", picture);
        r.height = find_fact<int>(edit, "height", picture);
    } else {
        r.width = get_fact<int>(facts, "width", 1024, picture);
        r.height = get_fact<int>(facts, "height", 1024, picture);
    }
    o.edit.keep_colours = get_fact<bool>(facts, "keep_colours", false, picture);
    r.guidance = get_fact<float>(facts, "guidance", 1.0f, picture);
    read_cfg(facts, picture, r);
    r.seed = get_fact<uint64_t>(facts, "seed", 0, picture);
    r.generator = get_fact<std::string>(facts, "rng", "cuda", picture);
    r.sigmas = get_fact<std::vector<float>>(facts, "own_sigmas", {}, picture);
    if (const int steps = get_fact<int>(facts, "requested_steps", 0, picture); steps > 0) {
        r.steps = steps;
    }
    if (const int length = get_fact<int>(facts, "text_length", 0, picture); length > 0) {
        r.text_length = length;
    }
    read_references(facts, picture, o);
    o.init = text(facts, "init_img");
    o.strength = find_fact<float>(facts, "strength", picture);
    o.alpha = text(facts, "alpha") == "white" ? Alpha::white : Alpha::drop;
    r.noise_file = text(facts, "noise");
    r.embeds_file = text(facts, "embeds");
    read_adapters(facts, picture, o);
    return o;
}

}  // namespace flux2::cli
