#include "c_api/from_c.hpp"

#include "base/check.hpp"
#include "base/image_limits.hpp"
#include "c_api/guarded.hpp"
#include "c_api/sized_struct.hpp"

#include <optional>

namespace flux2::c_api {

namespace {

namespace fs = std::filesystem;

constexpr int kMaxThreads = 512;

static_assert(static_cast<int>(Alpha::drop) == FLUX2_ALPHA_DROP);
static_assert(static_cast<int>(Alpha::white) == FLUX2_ALPHA_WHITE);
static_assert(static_cast<int>(ImageFormat::png) == FLUX2_IMAGE_PNG);
static_assert(static_cast<int>(ImageFormat::jpeg) == FLUX2_IMAGE_JPEG);
static_assert(static_cast<int>(ImageFormat::bmp) == FLUX2_IMAGE_BMP);
static_assert(static_cast<int>(ImageFormat::webp) == FLUX2_IMAGE_WEBP);
static_assert(static_cast<int>(InpaintArea::whole) == FLUX2_INPAINT_WHOLE);
static_assert(static_cast<int>(InpaintArea::masked) == FLUX2_INPAINT_MASKED);
static_assert(static_cast<int>(Stage::load) == FLUX2_STAGE_LOAD);
static_assert(static_cast<int>(Stage::encode_prompt) == FLUX2_STAGE_ENCODE_PROMPT);
static_assert(static_cast<int>(Stage::encode_references) == FLUX2_STAGE_ENCODE_REFERENCES);
static_assert(static_cast<int>(Stage::denoise) == FLUX2_STAGE_DENOISE);
static_assert(static_cast<int>(Stage::decode) == FLUX2_STAGE_DECODE);
static_assert(static_cast<int>(LogLevel::debug) == FLUX2_LOG_DEBUG);
static_assert(static_cast<int>(LogLevel::info) == FLUX2_LOG_INFO);
static_assert(static_cast<int>(LogLevel::warning) == FLUX2_LOG_WARNING);
static_assert(static_cast<int>(LogLevel::error) == FLUX2_LOG_ERROR);

}  // namespace

std::string text_or(const char* text, const std::string& otherwise) {
    return text != nullptr ? std::string(text) : otherwise;
}

fs::path path_of(const char* text) {
    const std::string bytes = text_or(text);
    return fs::path(std::u8string(bytes.begin(), bytes.end()));
}

Alpha to_alpha(flux2_alpha alpha) {
    check(alpha == FLUX2_ALPHA_DROP || alpha == FLUX2_ALPHA_WHITE, ErrorKind::bad_argument,
          "alpha ", static_cast<int>(alpha), " is unknown; use one of flux2_alpha");
    return static_cast<Alpha>(alpha);
}

ImageFormat to_format(flux2_image_format format) {
    check(format == FLUX2_IMAGE_PNG || format == FLUX2_IMAGE_JPEG || format == FLUX2_IMAGE_BMP ||
              format == FLUX2_IMAGE_WEBP,
          ErrorKind::bad_argument, "image format ", static_cast<int>(format),
          " is unknown; use one of flux2_image_format");
    return static_cast<ImageFormat>(format);
}

Image to_image(const flux2_image& given, const char* name) {
    check(given.rgb != nullptr && given.width > 0 && given.height > 0 &&
              given.width <= kMaxImageSide && given.height <= kMaxImageSide,
          ErrorKind::bad_argument, name, " is ", given.width, "x", given.height,
          given.rgb == nullptr ? " without pixels" : "", "; sides of 1 to ", kMaxImageSide,
          " and three bytes a pixel are expected");
    const size_t n_bytes = static_cast<size_t>(given.width) * static_cast<size_t>(given.height) * 3;
    return {given.width, given.height, {given.rgb, given.rgb + n_bytes}};
}

std::span<const std::byte> to_bytes(const void* bytes, size_t n_bytes) {
    check_given(bytes, "bytes");
    return {static_cast<const std::byte*>(bytes), n_bytes};
}

std::vector<ImageText> to_texts(const flux2_image_text* texts, size_t n_texts) {
    check(n_texts == 0 || texts != nullptr, ErrorKind::bad_argument,
          "texts is a null pointer, but n_texts is ", n_texts);
    std::vector<ImageText> translated;
    for (size_t i = 0; i < n_texts; ++i) {
        check_given(texts[i].key, "flux2_image_text.key");
        check_given(texts[i].text, "flux2_image_text.text");
        translated.push_back({texts[i].key, texts[i].text});
    }
    return translated;
}

FileInfo to_info(const flux2_file_info* given, const char* name) {
    check_given(given, name);
    check(given->size == sizeof(flux2_file_info), ErrorKind::bad_argument, name,
          " was not made by this library; take it from flux2_inspect or flux2_model_info");
    const flux2_file_info& file = *given;
    FileInfo info;
    info.path = path_of(file.path);
    info.part = text_or(file.part);
    info.name = text_or(file.name);
    info.format = text_or(file.format);
    info.naming = text_or(file.naming);
    info.types = text_or(file.types);
    info.scheme = text_or(file.scheme);
    info.partners = text_or(file.partners);
    info.variant = text_or(file.variant);
    info.variant_reason = text_or(file.variant_reason);
    for (size_t i = 0; i < file.n_notes; ++i) {
        info.notes.push_back(text_or(file.notes[i]));
    }
    info.n_parameters = file.n_parameters;
    info.size_bytes = file.size_bytes;
    info.text_width = file.text_width;
    info.latent_channels = file.latent_channels;
    info.default_steps = file.default_steps;
    info.default_guidance = file.default_guidance;
    info.default_width = file.default_width;
    info.default_height = file.default_height;
    info.distilled = file.distilled != 0;
    return info;
}

flux2_load_options default_load_options() {
    flux2_load_options options{};
    options.cache_bytes = LoadOptions().cache_bytes;
    options.repack = LoadOptions().repack;
    options.unpack = LoadOptions().unpack;
    return options;
}

flux2_request default_request() {
    flux2_request request{};
    request.guidance = -1.0f;
    request.match_reference = -1;
    request.strength = -1.0f;
    request.reference_pixels = -1;
    request.mask_blend = -1;
    request.inpaint_padding = -1;
    request.cfg_scale = -1.0f;
    request.guidance_until = 1.0f;
    return request;
}

flux2_adapter default_adapter() {
    flux2_adapter adapter{};
    adapter.strength = Adapter().strength;
    return adapter;
}

LoadOptions to_options(const flux2_load_options* options) {
    const flux2_load_options given =
        options == nullptr ? default_load_options()
                           : completed(options, "flux2_load_options", default_load_options());
    check(given.threads >= 0 && given.threads <= kMaxThreads, ErrorKind::bad_argument,
          given.threads, " threads are out of range; use 1 to ", kMaxThreads,
          ", or 0 for one per core");
    LoadOptions load;
    load.device = text_or(given.device, load.device);
    load.threads = given.threads;
    load.type = text_or(given.type);
    load.variant = text_or(given.variant);
    load.keep_loaded = given.keep_loaded != 0;
    load.max_device_bytes = given.max_device_bytes;
    load.repack = given.repack != 0;
    load.unpack = given.unpack != 0;
    load.cache_folder = path_of(given.cache_folder);
    load.cache_bytes = given.cache_bytes;
    load.transformer = {text_or(given.transformer_device), text_or(given.transformer_type)};
    load.text_encoder = {text_or(given.text_encoder_device), text_or(given.text_encoder_type)};
    load.split = text_or(given.split);
    load.vae = {text_or(given.vae_device), text_or(given.vae_type)};
    return load;
}

ModelFiles to_files(const flux2_model_files& files) {
    return {path_of(files.transformer), path_of(files.text_encoder), path_of(files.vae),
            path_of(files.taesd), files.taesd_preview_only != 0};
}

namespace {

void add_images(const flux2_request& given, Request& request) {
    check(given.n_references == 0 || given.references != nullptr, ErrorKind::bad_argument,
          "flux2_request.references is a null pointer, but n_references is ", given.n_references);
    for (size_t i = 0; i < given.n_references; ++i) {
        const std::string name = concat("reference ", i);
        request.references.push_back(to_image(given.references[i], name.c_str()));
    }
    if (given.match_reference >= 0) {
        request.match_reference = static_cast<size_t>(given.match_reference);
    }
    if (given.reference_pixels >= 0) {
        request.reference_pixels = given.reference_pixels;
    }
    if (given.reference_roles != nullptr) {
        for (size_t i = 0; i < given.n_references; ++i) {
            request.reference_roles.push_back(text_or(given.reference_roles[i]));
        }
    }
    request.keep_colours = given.keep_colours != 0;
}

std::optional<int> unless_below_zero(int value) {
    return value >= 0 ? std::optional(value) : std::nullopt;
}

// Of a float that a caller may not set; NaN is refused later.
std::optional<float> unless_below_zero(float value) {
    return value < 0 ? std::nullopt : std::optional(value);
}

Mask to_mask(const flux2_mask& given) {
    check(given.values != nullptr && given.width > 0 && given.height > 0 &&
              given.width <= kMaxImageSide && given.height <= kMaxImageSide,
          ErrorKind::bad_argument, "flux2_request.mask is ", given.width, "x", given.height,
          given.values == nullptr ? " without values" : "", "; sides of 1 to ", kMaxImageSide,
          " and a byte a pixel are expected");
    const size_t n_bytes = static_cast<size_t>(given.width) * static_cast<size_t>(given.height);
    return {given.width, given.height, {given.values, given.values + n_bytes}};
}

void add_init(const flux2_request& given, Request& request) {
    if (given.init != nullptr) {
        request.init = {to_image(*given.init, "flux2_request.init"),
                        unless_below_zero(given.strength)};
    }
    if (given.mask != nullptr) {
        check(
            given.inpaint_area == FLUX2_INPAINT_WHOLE || given.inpaint_area == FLUX2_INPAINT_MASKED,
            ErrorKind::bad_argument, "inpaint_area ", static_cast<int>(given.inpaint_area),
            " is unknown; use one of flux2_inpaint_area");
        request.inpaint = Inpaint{.mask = to_mask(*given.mask),
                                  .invert = given.mask_invert != 0,
                                  .grow = given.mask_grow,
                                  .blur = given.mask_blur,
                                  .blend = unless_below_zero(given.mask_blend),
                                  .area = static_cast<InpaintArea>(given.inpaint_area),
                                  .padding = unless_below_zero(given.inpaint_padding)};
    }
    const Outpaint outpaint = {given.outpaint_left, given.outpaint_top, given.outpaint_right,
                               given.outpaint_bottom};
    if (outpaint.left != 0 || outpaint.top != 0 || outpaint.right != 0 || outpaint.bottom != 0) {
        request.outpaint = outpaint;
    }
}

Adapter to_adapter(const flux2_adapter* adapter) {
    const flux2_adapter given = completed(adapter, "flux2_adapter", default_adapter());
    check_given(given.file, "flux2_adapter.file");
    Adapter used;
    used.file = path_of(given.file);
    used.strength = given.strength;
    used.include = text_or(given.include);
    used.exclude = text_or(given.exclude);
    used.block_strengths = text_or(given.block_strengths);
    return used;
}

void add_adapters(const flux2_request& given, Request& request) {
    check(given.n_adapters == 0 || given.adapters != nullptr, ErrorKind::bad_argument,
          "flux2_request.adapters is a null pointer, but n_adapters is ", given.n_adapters);
    for (size_t i = 0; i < given.n_adapters; ++i) {
        request.adapters.push_back(to_adapter(given.adapters[i]));
    }
    request.strict_adapters = given.strict_adapters != 0;
}

}  // namespace

Request to_request(const flux2_request& given) {
    check(given.n_sigmas == 0 || given.sigmas != nullptr, ErrorKind::bad_argument,
          "flux2_request.sigmas is a null pointer, but n_sigmas is ", given.n_sigmas);
    const auto unless_zero = [](int value) {
        return value != 0 ? std::optional(value) : std::nullopt;
    };
    Request request;
    request.prompt = text_or(given.prompt);
    request.negative_prompt = text_or(given.negative_prompt);
    request.width = unless_zero(given.width);
    request.height = unless_zero(given.height);
    request.fit_size = given.fit_size != 0;
    request.steps = unless_zero(given.steps);
    request.guidance = unless_below_zero(given.guidance);
    request.cfg_scale = unless_below_zero(given.cfg_scale);
    request.guidance_interval = {given.guidance_from, given.guidance_until};
    if (given.has_seed != 0) {
        request.seed = given.seed;
    }
    if (given.n_sigmas > 0) {
        request.sigmas.assign(given.sigmas, given.sigmas + given.n_sigmas);
    }
    request.text_length = unless_zero(given.text_length);
    request.generator = text_or(given.generator, request.generator);
    request.preview = given.preview != 0;
    request.noise_file = path_of(given.noise_file);
    request.embeds_file = path_of(given.embeds_file);
    request.cancel = given.cancel != nullptr ? &given.cancel->raised : nullptr;
    add_images(given, request);
    add_init(given, request);
    add_adapters(given, request);
    return request;
}

namespace {

bool report(const flux2_request& request, const Step& step) {
    flux2_image preview{};
    if (step.preview != nullptr) {
        // Not written to: the callback gets it as constant.
        preview = {step.preview->width, step.preview->height,
                   const_cast<uint8_t*>(step.preview->rgb.data())};
    }
    const flux2_step translated = {sizeof(flux2_step),
                                   step.what.c_str(),
                                   step.preview != nullptr ? &preview : nullptr,
                                   step.share,
                                   static_cast<flux2_stage>(step.stage),
                                   step.step,
                                   step.n_steps,
                                   0};
    return request.progress(&translated, request.progress_data);
}

}  // namespace

Progress to_progress(const flux2_request& request) {
    if (request.progress == nullptr) {
        return {};
    }
    return [&request](const Step& step) { return report(request, step); };
}

}  // namespace flux2::c_api
