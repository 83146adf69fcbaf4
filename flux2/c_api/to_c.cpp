#include "c_api/to_c.hpp"

namespace flux2::c_api {

std::string utf8(const std::filesystem::path& path) {
    const std::u8string text = path.u8string();
    return std::string(text.begin(), text.end());
}

const char* c_text(const std::string& text) {
    return text.empty() ? nullptr : text.c_str();
}

char* copy_of(const std::string& text) {
    return copy_of(text.c_str(), text.size() + 1);
}

FileFacts::FileFacts(FileInfo given) : info(std::move(given)), path(utf8(info.path)) {
    for (const std::string& note : info.notes) {
        notes.push_back(note.c_str());
    }
}

flux2_file_info to_c(const FileFacts& facts) {
    const FileInfo& info = facts.info;
    flux2_file_info file{};
    file.size = sizeof(file);
    file.path = facts.path.c_str();
    file.part = info.part.c_str();
    file.name = info.name.c_str();
    file.format = info.format.c_str();
    file.naming = info.naming.c_str();
    file.types = info.types.c_str();
    file.scheme = info.scheme.c_str();
    file.partners = info.partners.c_str();
    file.variant = info.variant.c_str();
    file.variant_reason = info.variant_reason.c_str();
    file.notes = facts.notes.data();
    file.n_notes = facts.notes.size();
    file.n_parameters = info.n_parameters;
    file.size_bytes = info.size_bytes;
    file.text_width = info.text_width;
    file.latent_channels = info.latent_channels;
    file.default_steps = info.default_steps;
    file.default_guidance = info.default_guidance;
    file.default_width = info.default_width;
    file.default_height = info.default_height;
    file.distilled = info.distilled ? 1 : 0;
    return file;
}

AdapterFacts::AdapterFacts(AdapterInfo given)
    : flux2_adapter_info{}, source(std::move(given)), path_text(utf8(source.path)) {
    for (const auto& [what, text] : source.facts) {
        fact_items.push_back({what.c_str(), text.c_str()});
    }
    for (const std::string& key : source.unused) {
        unused_items.push_back(key.c_str());
    }
    size = sizeof(flux2_adapter_info);
    path = path_text.c_str();
    kinds = source.kinds.c_str();
    dialect = source.dialect.c_str();
    format = source.format.c_str();
    ranks = source.ranks.c_str();
    made_for = source.made_for.c_str();
    touches = source.touches.c_str();
    facts = fact_items.data();
    n_facts = fact_items.size();
    unused = unused_items.data();
    n_unused = unused_items.size();
    n_modules = source.n_modules;
    size_bytes = source.size_bytes;
}

flux2_image to_c(const Image& image) {
    return {image.width, image.height, copy_of(image.rgb.data(), image.rgb.size())};
}

flux2_mask to_c(const Mask& mask) {
    return {mask.width, mask.height, copy_of(mask.values.data(), mask.values.size())};
}

flux2_image_text to_c(const ImageText& text) {
    return {text.key.c_str(), text.text.c_str()};
}

flux2_device to_c(const DeviceInfo& device) {
    return {sizeof(flux2_device), device.name.c_str(), device.description.c_str(),
            device.free_bytes,    device.total_bytes,  device.is_software ? 1u : 0u,
            /*reserved=*/0};
}

flux2_stage_memory to_c(const StageMemory& stage) {
    return {sizeof(flux2_stage_memory), stage.stage.c_str(),  stage.placement.c_str(),
            stage.device_weights,       stage.device_compute, stage.host_weights,
            stage.host_compute,         stage.mapped,         stage.seconds};
}

void fill(flux2_image_text_list& list, std::vector<ImageText> texts) {
    auto memory = std::make_unique<TextMemory>(std::move(texts));
    list = {memory->items.size(), memory->items.data(), memory.get()};
    memory.release();
}

flux2_result to_c(const Result& made, size_t size) {
    std::unique_ptr<float[]> sigmas(copy_of(made.sigmas.data(), made.sigmas.size()));
    // Callers whose struct has no place for it would not free it.
    const bool has_prompt = size > offsetof(flux2_result, prompt);
    std::unique_ptr<char[]> prompt(has_prompt ? copy_of(made.prompt) : nullptr);
    flux2_result result{};
    result.size = size;
    result.image = to_c(made.image);
    result.sigmas = sigmas.release();
    result.n_sigmas = made.sigmas.size();
    result.seed = made.seed;
    result.device_peak = made.device_peak;
    result.host_peak = made.host_peak;
    result.load_seconds = made.timings.load;
    result.encode_prompt_seconds = made.timings.encode_prompt;
    result.encode_references_seconds = made.timings.encode_references;
    result.denoise_seconds = made.timings.denoise;
    result.decode_seconds = made.timings.decode;
    result.steps = made.steps;
    result.guidance = made.guidance;
    result.prompt_cached = made.prompt_cached ? 1 : 0;
    result.cfg_scale = made.cfg_scale;
    result.prompt = prompt.release();
    result.references_cached = static_cast<uint32_t>(made.references_cached);
    result.references_encoded = static_cast<uint32_t>(made.references_encoded);
    return result;
}

}  // namespace flux2::c_api
