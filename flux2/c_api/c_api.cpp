// The C interface over flux2.hpp: converts texts and structs, and exceptions to status values. When
// a struct grows, the new field goes to the end and must leave no padding, since an older caller
// leaves padding uninitialised; tests/c_api/layout.c checks both.
#include <flux2/flux2.h>
#include <flux2/flux2.hpp>
#include "base/check.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

using flux2::check;
using flux2::ErrorKind;

// What a signal handler may write to.
static_assert(std::atomic<bool>::is_always_lock_free);
struct flux2_cancel_token {
    std::atomic<bool> raised = false;
};

namespace {

namespace fs = std::filesystem;

// As in flux2/image.hpp.
constexpr int kMaxImageSide = 16384;
constexpr int kMaxThreads = 512;
constexpr const char* kPicture = "the picture";  // name in errors for pixels without a file

// ---- Errors ----

constexpr flux2_status status_of(ErrorKind kind) {
    return static_cast<flux2_status>(static_cast<int>(kind) + 1);
}
static_assert(status_of(ErrorKind::bad_argument) == FLUX2_BAD_ARGUMENT);
static_assert(status_of(ErrorKind::bad_file) == FLUX2_BAD_FILE);
static_assert(status_of(ErrorKind::unsupported) == FLUX2_UNSUPPORTED);
static_assert(status_of(ErrorKind::out_of_memory) == FLUX2_OUT_OF_MEMORY);
static_assert(status_of(ErrorKind::out_of_disk) == FLUX2_OUT_OF_DISK);
static_assert(status_of(ErrorKind::backend) == FLUX2_BACKEND);
static_assert(status_of(ErrorKind::cancelled) == FLUX2_CANCELLED);
static_assert(status_of(ErrorKind::internal) == FLUX2_INTERNAL);

thread_local std::string last_error;

flux2_status failed(ErrorKind kind, const char* message) noexcept {
    try {
        last_error = message;
    } catch (const std::bad_alloc&) {
        last_error = "out of memory";  // short enough to need none
    }
    return status_of(kind);
}

template <typename Body>
flux2_status guarded(const Body& body) noexcept {
    try {
        body();
        return FLUX2_OK;
    } catch (const flux2::Error& error) {
        return failed(error.kind(), error.what());
    } catch (const fs::filesystem_error& error) {
        return failed(ErrorKind::bad_file, error.what());
    } catch (const std::bad_alloc&) {
        return failed(ErrorKind::out_of_memory, "out of memory; close other programs");
    } catch (const std::exception& error) {
        return failed(ErrorKind::internal, error.what());
    } catch (...) {
        return failed(ErrorKind::internal, "an exception of unknown type");
    }
}

void check_given(const void* pointer, const char* name) {
    check(pointer != nullptr, ErrorKind::bad_argument, name, " is a null pointer");
}

// ---- Structs that know their size ----

template <typename T>
bool is_known(const T* given, size_t smallest) {
    return given != nullptr && given->size >= smallest && given->size <= sizeof(T);
}

template <typename T>
void check_size(const T* given, const char* name, size_t smallest = sizeof(size_t)) {
    check_given(given, name);
    check(is_known(given, smallest), ErrorKind::bad_argument, name, " says it is ", given->size,
          " bytes large, this library knows ", smallest, " to ", sizeof(T), "; start with ", name,
          "_default(), and use a header no newer than the library");
}

// Fields that an older caller does not have keep their defaults.
template <typename T>
T completed(const T* given, const char* name, const T& defaults) {
    check_size(given, name);
    T full = defaults;
    std::memcpy(&full, given, given->size);
    return full;
}

// A size larger than the known one is kept, so that the next call can refuse it.
template <typename T>
void init(T* target, size_t size, const T& defaults) {
    if (target == nullptr || size < sizeof(size_t)) {
        return;
    }
    std::memset(static_cast<void*>(target), 0, size);
    std::memcpy(static_cast<void*>(target), &defaults, std::min(size, sizeof(T)));
    target->size = size;
}

flux2_load_options default_load_options() {
    flux2_load_options options{};
    options.cache_bytes = flux2::LoadOptions().cache_bytes;
    options.repack = flux2::LoadOptions().repack;
    options.unpack = flux2::LoadOptions().unpack;
    return options;
}

flux2_request default_request() {
    flux2_request request{};
    request.guidance = -1.0f;
    request.match_reference = -1;
    request.strength = flux2::InitImage().strength;
    return request;
}

// ---- Texts ----

std::string text_or(const char* text, const std::string& otherwise = "") {
    return text != nullptr ? std::string(text) : otherwise;
}

fs::path path_of(const char* text) {
    const std::string bytes = text_or(text);
    return fs::path(std::u8string(bytes.begin(), bytes.end()));
}

std::string utf8(const fs::path& path) {
    const std::u8string text = path.u8string();
    return std::string(text.begin(), text.end());
}

// Behind flux2_model_files.memory.
struct FoundTexts {
    std::string transformer, text_encoder, vae, taesd, choice;
};

const char* c_text(const std::string& text) {
    return text.empty() ? nullptr : text.c_str();
}

// Text or bytes of the library's own, for the caller to free.
template <typename T>
T* copy_of(const T* values, size_t n) {
    auto copy = std::make_unique<T[]>(n);
    std::copy(values, values + n, copy.get());
    return copy.release();
}

char* copy_of(const std::string& text) {
    return copy_of(text.c_str(), text.size() + 1);
}

// ---- Facts about files ----

// A FileInfo, and what of it C needs in another form.
struct FileFacts {
    flux2::FileInfo info;
    std::string path;
    std::vector<const char*> notes;  // of `info`, whose notes stay in place when this is moved

    explicit FileFacts(flux2::FileInfo given) : info(std::move(given)), path(utf8(info.path)) {
        for (const std::string& note : info.notes) {
            notes.push_back(note.c_str());
        }
    }
    FileFacts(FileFacts&&) noexcept = default;
    FileFacts& operator=(FileFacts&&) noexcept = default;
};

flux2_file_info to_c(const FileFacts& facts) {
    const flux2::FileInfo& info = facts.info;
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
flux2::FileInfo to_info(const flux2_file_info* given, const char* name) {
    check_given(given, name);
    check(given->size == sizeof(flux2_file_info), ErrorKind::bad_argument, name,
          " was not made by this library; take it from flux2_inspect or flux2_model_info");
    const flux2_file_info& file = *given;
    flux2::FileInfo info;
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

// ---- Pictures ----

static_assert(static_cast<int>(flux2::Alpha::drop) == FLUX2_ALPHA_DROP);
static_assert(static_cast<int>(flux2::Alpha::white) == FLUX2_ALPHA_WHITE);
static_assert(static_cast<int>(flux2::ImageFormat::png) == FLUX2_IMAGE_PNG);
static_assert(static_cast<int>(flux2::ImageFormat::jpeg) == FLUX2_IMAGE_JPEG);
static_assert(static_cast<int>(flux2::ImageFormat::bmp) == FLUX2_IMAGE_BMP);

flux2::Alpha to_alpha(flux2_alpha alpha) {
    check(alpha == FLUX2_ALPHA_DROP || alpha == FLUX2_ALPHA_WHITE, ErrorKind::bad_argument,
          "alpha ", static_cast<int>(alpha), " is unknown; use one of flux2_alpha");
    return static_cast<flux2::Alpha>(alpha);
}

flux2::ImageFormat to_format(flux2_image_format format) {
    check(format == FLUX2_IMAGE_PNG || format == FLUX2_IMAGE_JPEG || format == FLUX2_IMAGE_BMP,
          ErrorKind::bad_argument, "image format ", static_cast<int>(format),
          " is unknown; use one of flux2_image_format");
    return static_cast<flux2::ImageFormat>(format);
}

flux2::Image to_image(const flux2_image& given, const char* name) {
    check(given.rgb != nullptr && given.width > 0 && given.height > 0 &&
              given.width <= kMaxImageSide && given.height <= kMaxImageSide,
          ErrorKind::bad_argument, name, " is ", given.width, "x", given.height,
          given.rgb == nullptr ? " without pixels" : "", "; sides of 1 to ", kMaxImageSide,
          " and three bytes a pixel are expected");
    const size_t n_bytes = static_cast<size_t>(given.width) * static_cast<size_t>(given.height) * 3;
    return {given.width, given.height, {given.rgb, given.rgb + n_bytes}};
}

flux2_image to_c(const flux2::Image& image) {
    return {image.width, image.height, copy_of(image.rgb.data(), image.rgb.size())};
}

std::span<const std::byte> to_bytes(const void* bytes, size_t n_bytes) {
    check_given(bytes, "bytes");
    return {static_cast<const std::byte*>(bytes), n_bytes};
}

std::vector<flux2::ImageText> to_texts(const flux2_image_text* texts, size_t n_texts) {
    check(n_texts == 0 || texts != nullptr, ErrorKind::bad_argument,
          "texts is a null pointer, but n_texts is ", n_texts);
    std::vector<flux2::ImageText> translated;
    for (size_t i = 0; i < n_texts; ++i) {
        check_given(texts[i].key, "flux2_image_text.key");
        check_given(texts[i].text, "flux2_image_text.text");
        translated.push_back({texts[i].key, texts[i].text});
    }
    return translated;
}

flux2_image_text to_c(const flux2::ImageText& text) {
    return {text.key.c_str(), text.text.c_str()};
}
// ---- Memory and devices ----

flux2_device to_c(const flux2::DeviceInfo& device) {
    return {sizeof(flux2_device), device.name.c_str(), device.description.c_str(),
            device.free_bytes, device.total_bytes};
}

flux2_stage_memory to_c(const flux2::StageMemory& stage) {
    return {sizeof(flux2_stage_memory), stage.stage.c_str(),  stage.placement.c_str(),
            stage.device_weights,       stage.device_compute, stage.host_weights,
            stage.host_compute,         stage.mapped};
}

// ---- Lists ----

// The memory of a list made by the library: its items and their texts. Callers get pointers to
// items where these may grow.
template <typename Source, typename Item>
struct ListMemory {
    explicit ListMemory(std::vector<Source> given) : sources(std::move(given)) {
        for (const Source& source : sources) {
            items.push_back(to_c(source));
        }
        for (const Item& item : items) {
            pointers.push_back(&item);
        }
    }

    std::vector<Source> sources;
    std::vector<Item> items;
    std::vector<const Item*> pointers;
};
using DeviceMemory = ListMemory<flux2::DeviceInfo, flux2_device>;
using FileMemory = ListMemory<FileFacts, flux2_file_info>;
using StageMemory = ListMemory<flux2::StageMemory, flux2_stage_memory>;
using TextMemory = ListMemory<flux2::ImageText, flux2_image_text>;

template <typename Memory, typename List, typename Source>
void fill(List& list, std::vector<Source> sources) {
    auto memory = std::make_unique<Memory>(std::move(sources));
    list = {memory->items.size(), memory->pointers.data(), memory.get()};
    memory.release();
}

void fill(flux2_image_text_list& list, std::vector<flux2::ImageText> texts) {
    auto memory = std::make_unique<TextMemory>(std::move(texts));
    list = {memory->items.size(), memory->items.data(), memory.get()};
    memory.release();
}

template <typename Memory, typename List>
void free_list(List* list) {
    if (list != nullptr) {
        delete static_cast<Memory*>(list->memory);
        *list = {};
    }
}

// ---- Options, requests, progress ----

static_assert(static_cast<int>(flux2::Stage::load) == FLUX2_STAGE_LOAD);
static_assert(static_cast<int>(flux2::Stage::encode_prompt) == FLUX2_STAGE_ENCODE_PROMPT);
static_assert(static_cast<int>(flux2::Stage::encode_references) == FLUX2_STAGE_ENCODE_REFERENCES);
static_assert(static_cast<int>(flux2::Stage::denoise) == FLUX2_STAGE_DENOISE);
static_assert(static_cast<int>(flux2::Stage::decode) == FLUX2_STAGE_DECODE);
static_assert(static_cast<int>(flux2::LogLevel::debug) == FLUX2_LOG_DEBUG);
static_assert(static_cast<int>(flux2::LogLevel::info) == FLUX2_LOG_INFO);
static_assert(static_cast<int>(flux2::LogLevel::warning) == FLUX2_LOG_WARNING);
static_assert(static_cast<int>(flux2::LogLevel::error) == FLUX2_LOG_ERROR);

flux2::LoadOptions to_options(const flux2_load_options* options) {
    const flux2_load_options given =
        options == nullptr ? default_load_options()
                           : completed(options, "flux2_load_options", default_load_options());
    check(given.threads >= 0 && given.threads <= kMaxThreads, ErrorKind::bad_argument,
          given.threads, " threads are out of range; use 1 to ", kMaxThreads,
          ", or 0 for one per core");
    flux2::LoadOptions load;
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
    return load;
}

flux2::ModelFiles to_files(const flux2_model_files& files) {
    return {path_of(files.transformer), path_of(files.text_encoder), path_of(files.vae),
            path_of(files.taesd), files.taesd_preview_only != 0};
}

void add_images(const flux2_request& given, flux2::Request& request) {
    check(given.n_references == 0 || given.references != nullptr, ErrorKind::bad_argument,
          "flux2_request.references is a null pointer, but n_references is ", given.n_references);
    for (size_t i = 0; i < given.n_references; ++i) {
        const std::string name = flux2::concat("reference ", i);
        request.references.push_back(to_image(given.references[i], name.c_str()));
    }
    if (given.match_reference >= 0) {
        request.match_reference = static_cast<size_t>(given.match_reference);
    }
    if (given.init != nullptr) {
        request.init = {to_image(*given.init, "flux2_request.init"), given.strength};
    }
}

flux2::Request to_request(const flux2_request& given) {
    check(given.n_sigmas == 0 || given.sigmas != nullptr, ErrorKind::bad_argument,
          "flux2_request.sigmas is a null pointer, but n_sigmas is ", given.n_sigmas);
    const auto unless_zero = [](int value) {
        return value != 0 ? std::optional(value) : std::nullopt;
    };
    flux2::Request request;
    request.prompt = text_or(given.prompt);
    request.negative_prompt = text_or(given.negative_prompt);
    request.width = unless_zero(given.width);
    request.height = unless_zero(given.height);
    request.fit_size = given.fit_size != 0;
    request.steps = unless_zero(given.steps);
    if (!(given.guidance < 0)) {  // NaN is refused later
        request.guidance = given.guidance;
    }
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
    return request;
}

bool report(const flux2_request& request, const flux2::Step& step) {
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

// Borrows the request.
flux2::Progress to_progress(const flux2_request& request) {
    if (request.progress == nullptr) {
        return {};
    }
    return [&request](const flux2::Step& step) { return report(request, step); };
}

flux2_result to_c(const flux2::Result& made, size_t size) {
    std::unique_ptr<float[]> sigmas(copy_of(made.sigmas.data(), made.sigmas.size()));
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
    return result;
}

// The fields that every version of a caller has.
constexpr size_t kSmallestModelFiles = offsetof(flux2_model_files, memory) + sizeof(void*);
constexpr size_t kSmallestResult = offsetof(flux2_result, n_sigmas) + sizeof(size_t);
constexpr size_t kSmallestPlan = offsetof(flux2_memory_plan, memory) + sizeof(void*);

}  // namespace

struct flux2_pipeline {
    flux2_pipeline(const flux2::ModelFiles& files, const flux2::LoadOptions& options)
        : pipeline(flux2::Pipeline::load(files, options)),
          facts(pipeline.model()),
          model(to_c(facts)) {}

    flux2::Pipeline pipeline;
    FileFacts facts;
    flux2_file_info model;
};

extern "C" {

// ---- Errors; this library and this machine ----

const char* flux2_last_error(void) {
    return last_error.c_str();
}

int flux2_exit_code(flux2_status status) {
    return status == FLUX2_OK
               ? 0
               : flux2::exit_code(static_cast<ErrorKind>(static_cast<int>(status) - 1));
}

flux2_status flux2_worded(const char* text, flux2_wording wording, void* user_data, char** result) {
    return guarded([&] {
        check_given(result, "result");
        *result = nullptr;
        check_given(text, "text");
        check(wording != nullptr, ErrorKind::bad_argument, "wording is a null pointer");
        *result = copy_of(flux2::worded(text, [&](flux2::Setting setting) {
            const std::string name = flux2::to_string(setting);
            return text_or(wording(name.c_str(), user_data), "`" + name + "`");
        }));
    });
}

void flux2_text_free(char* text) {
    delete[] text;
}

const char* flux2_version(void) {
    return flux2::version();
}

flux2_status flux2_list_devices(flux2_device_list* list) {
    return guarded([&] {
        check_given(list, "list");
        *list = {};
        fill<DeviceMemory>(*list, flux2::list_devices());
    });
}

void flux2_device_list_free(flux2_device_list* list) {
    free_list<DeviceMemory>(list);
}

flux2_status flux2_set_log(flux2_log log, void* user_data) {
    return guarded([&] {
        if (log == nullptr) {
            flux2::set_log({});
            return;
        }
        flux2::set_log([log, user_data](flux2::LogLevel level, const std::string& line) {
            log(static_cast<flux2_log_level>(level), line.c_str(), user_data);
        });
    });
}

// ---- Pictures ----

flux2_status flux2_image_load(const char* path, flux2_alpha alpha, flux2_image* image) {
    return guarded([&] {
        check_given(image, "image");
        *image = {};
        check_given(path, "path");
        *image = to_c(flux2::load_image(path_of(path), to_alpha(alpha)));
    });
}

flux2_status flux2_image_decode(const void* bytes, size_t n_bytes, flux2_alpha alpha,
                                flux2_image* image) {
    return guarded([&] {
        check_given(image, "image");
        *image = {};
        *image = to_c(flux2::decode_image(to_bytes(bytes, n_bytes), kPicture, to_alpha(alpha)));
    });
}

void flux2_image_free(flux2_image* image) {
    if (image != nullptr) {
        delete[] image->rgb;
        *image = {};
    }
}

flux2_status flux2_image_texts_load(const char* path, flux2_image_text_list* list) {
    return guarded([&] {
        check_given(list, "list");
        *list = {};
        check_given(path, "path");
        fill(*list, flux2::read_image_texts(path_of(path)));
    });
}

flux2_status flux2_image_texts_decode(const void* bytes, size_t n_bytes,
                                      flux2_image_text_list* list) {
    return guarded([&] {
        check_given(list, "list");
        *list = {};
        fill(*list, flux2::decode_image_texts(to_bytes(bytes, n_bytes), kPicture));
    });
}

void flux2_image_text_list_free(flux2_image_text_list* list) {
    free_list<TextMemory>(list);
}

flux2_status flux2_image_save(const char* path, const flux2_image* image,
                              const flux2_image_text* texts, size_t n_texts) {
    return guarded([&] {
        check_given(path, "path");
        check_given(image, "image");
        flux2::save_image(path_of(path), to_image(*image, kPicture), to_texts(texts, n_texts));
    });
}

flux2_status flux2_image_save_new(const char* path, const flux2_image* image,
                                  const flux2_image_text* texts, size_t n_texts, uint32_t* saved) {
    return guarded([&] {
        check_given(saved, "saved");
        *saved = 0;
        check_given(path, "path");
        check_given(image, "image");
        const bool is_new = flux2::save_new_image(path_of(path), to_image(*image, kPicture),
                                                  to_texts(texts, n_texts));
        *saved = is_new ? 1 : 0;
    });
}

flux2_status flux2_image_encode(const flux2_image* image, flux2_image_format format,
                                const flux2_image_text* texts, size_t n_texts, flux2_bytes* bytes) {
    return guarded([&] {
        check_given(bytes, "bytes");
        *bytes = {};
        check_given(image, "image");
        const std::vector<std::byte> encoded = flux2::encode_image(
            to_image(*image, kPicture), to_format(format), to_texts(texts, n_texts));
        bytes->data = copy_of(reinterpret_cast<const uint8_t*>(encoded.data()), encoded.size());
        bytes->count = encoded.size();
    });
}

void flux2_bytes_free(flux2_bytes* bytes) {
    if (bytes != nullptr) {
        delete[] bytes->data;
        *bytes = {};
    }
}

// ---- Model files ----

void flux2_model_files_init(flux2_model_files* files, size_t size) {
    init(files, size, flux2_model_files{});
}

flux2_status flux2_find_model(const char* folder, const char* variant, flux2_model_files* files) {
    return guarded([&] {
        check_given(folder, "folder");
        check_size(files, "flux2_model_files", kSmallestModelFiles);
        const flux2_model_files given = completed(files, "flux2_model_files", flux2_model_files{});
        const flux2::FoundModel found =
            flux2::find_model(path_of(folder), text_or(variant), to_files(given));
        auto texts = std::make_unique<FoundTexts>(
            FoundTexts{utf8(found.files.transformer), utf8(found.files.text_encoder),
                       utf8(found.files.vae), utf8(found.files.taesd), found.choice});
        delete static_cast<FoundTexts*>(files->memory);
        files->transformer = c_text(texts->transformer);
        files->text_encoder = c_text(texts->text_encoder);
        files->vae = c_text(texts->vae);
        files->taesd = c_text(texts->taesd);
        files->choice = c_text(texts->choice);
        files->memory = texts.release();
    });
}

void flux2_model_files_free(flux2_model_files* files) {
    if (is_known(files, kSmallestModelFiles)) {
        delete static_cast<FoundTexts*>(files->memory);
        init(files, files->size, flux2_model_files{});
    }
}

flux2_status flux2_inspect(const char* path, flux2_file_list* parts) {
    return guarded([&] {
        check_given(parts, "parts");
        *parts = {};
        check_given(path, "path");
        std::vector<FileFacts> facts;
        for (flux2::FileInfo& info : flux2::inspect_parts(path_of(path))) {
            facts.emplace_back(std::move(info));
        }
        fill<FileMemory>(*parts, std::move(facts));
    });
}

void flux2_file_list_free(flux2_file_list* parts) {
    free_list<FileMemory>(parts);
}

flux2_status flux2_misfit(const flux2_file_info* a, const flux2_file_info* b, char** reason) {
    return guarded([&] {
        check_given(reason, "reason");
        *reason = nullptr;
        if (const auto why = flux2::misfit(to_info(a, "a"), to_info(b, "b"))) {
            *reason = copy_of(*why);
        }
    });
}

// ---- Loading ----

void flux2_load_options_init(flux2_load_options* options, size_t size) {
    init(options, size, default_load_options());
}

flux2_status flux2_load(const char* folder, const flux2_load_options* options,
                        flux2_pipeline** pipeline) {
    return guarded([&] {
        check_given(pipeline, "pipeline");
        *pipeline = nullptr;
        check_given(folder, "folder");
        const flux2::LoadOptions load = to_options(options);
        const flux2::FoundModel found = flux2::find_model(path_of(folder), load.variant);
        *pipeline = new flux2_pipeline(found.files, load);
    });
}

flux2_status flux2_load_files(const flux2_model_files* files, const flux2_load_options* options,
                              flux2_pipeline** pipeline) {
    return guarded([&] {
        check_given(pipeline, "pipeline");
        *pipeline = nullptr;
        const flux2_model_files given = completed(files, "flux2_model_files", flux2_model_files{});
        check_given(given.transformer, "flux2_model_files.transformer");
        *pipeline = new flux2_pipeline(to_files(given), to_options(options));
    });
}

void flux2_free(flux2_pipeline* pipeline) {
    delete pipeline;
}

const flux2_file_info* flux2_model_info(const flux2_pipeline* pipeline) {
    return pipeline != nullptr ? &pipeline->model : nullptr;
}

const char* flux2_device_name(const flux2_pipeline* pipeline) {
    return pipeline != nullptr ? pipeline->pipeline.device().c_str() : nullptr;
}

// ---- Requests ----

flux2_status flux2_cancel_token_create(flux2_cancel_token** token) {
    return guarded([&] {
        check_given(token, "token");
        *token = nullptr;
        *token = new flux2_cancel_token;
    });
}

void flux2_cancel_token_raise(flux2_cancel_token* token) {
    if (token != nullptr) {
        token->raised = true;
    }
}

bool flux2_cancel_token_is_raised(const flux2_cancel_token* token) {
    return token != nullptr && token->raised;
}

void flux2_cancel_token_free(flux2_cancel_token* token) {
    delete token;
}

const char* flux2_stage_name(flux2_stage stage) {
    return flux2::to_string(static_cast<flux2::Stage>(stage));
}

void flux2_request_init(flux2_request* request, size_t size) {
    init(request, size, default_request());
}

// ---- Making pictures ----

void flux2_result_init(flux2_result* result, size_t size) {
    init(result, size, flux2_result{});
}

flux2_status flux2_generate(flux2_pipeline* pipeline, const flux2_request* request,
                            flux2_result* result) {
    return guarded([&] {
        check_given(pipeline, "pipeline");
        const flux2_request given = completed(request, "flux2_request", default_request());
        check_size(result, "flux2_result", kSmallestResult);
        check(given.prompt != nullptr || given.embeds_file != nullptr, ErrorKind::bad_argument,
              "flux2_request.prompt is a null pointer; say what the picture shows");
        const flux2::Result made =
            pipeline->pipeline.generate(to_request(given), to_progress(given));
        const flux2_result full = to_c(made, result->size);
        std::memcpy(static_cast<void*>(result), &full, result->size);
    });
}

void flux2_result_free(flux2_result* result) {
    if (is_known(result, kSmallestResult)) {
        flux2_image_free(&result->image);
        delete[] result->sigmas;
        init(result, result->size, flux2_result{});
    }
}

flux2_status flux2_encode_prompts(flux2_pipeline* pipeline, const flux2_request* request,
                                  const char* const* prompts, size_t n_prompts) {
    return guarded([&] {
        check_given(pipeline, "pipeline");
        const flux2_request given = completed(request, "flux2_request", default_request());
        check_given(prompts, "prompts");
        std::vector<std::string> texts;
        for (size_t i = 0; i < n_prompts; ++i) {
            check(prompts[i] != nullptr, ErrorKind::bad_argument, "prompt ", i,
                  " is a null pointer");
            texts.emplace_back(prompts[i]);
        }
        pipeline->pipeline.encode_prompts(to_request(given), texts, to_progress(given));
    });
}

// ---- Memory ----

void flux2_memory_plan_init(flux2_memory_plan* plan, size_t size) {
    init(plan, size, flux2_memory_plan{});
}

flux2_status flux2_plan(flux2_pipeline* pipeline, const flux2_request* request,
                        flux2_memory_plan* plan) {
    return guarded([&] {
        check_given(pipeline, "pipeline");
        const flux2_request given = completed(request, "flux2_request", default_request());
        check_size(plan, "flux2_memory_plan", kSmallestPlan);
        flux2::MemoryPlan made = pipeline->pipeline.plan(to_request(given));
        auto memory = std::make_unique<StageMemory>(std::move(made.stages));
        const flux2_memory_plan full = {
            plan->size,       memory->items.size(), memory->pointers.data(), memory.get(),
            made.device_peak, made.host_peak,       made.mapped_peak};
        std::memcpy(static_cast<void*>(plan), &full, plan->size);
        memory.release();
    });
}

void flux2_memory_plan_free(flux2_memory_plan* plan) {
    if (is_known(plan, kSmallestPlan)) {
        delete static_cast<StageMemory*>(plan->memory);
        init(plan, plan->size, flux2_memory_plan{});
    }
}

}  // extern "C"
