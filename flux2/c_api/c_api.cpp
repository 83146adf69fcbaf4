// The C front door over flux2.hpp: texts and structs translated, exceptions turned into status
// values. When a struct grows, the new field goes to the end and is wide enough to leave no padding
// behind it, which an older caller would have filled with anything.
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
#include <string>
#include <vector>

using flux2::check;
using flux2::ErrorKind;

struct flux2_pipeline {
    flux2_pipeline(const flux2::ModelFiles& files, flux2::LoadOptions options,
                   flux2_progress callback, void* callback_data)
        : progress(callback), progress_data(callback_data), pipeline([&] {
              options.cancel = &cancel;
              return flux2::Pipeline::load(files, options);
          }()) {}

    std::atomic<bool> cancel = false;
    flux2_progress progress;
    void* progress_data;
    flux2::Pipeline pipeline;
};

namespace {

namespace fs = std::filesystem;

// As in flux2/image.hpp.
constexpr int kMaxImageSide = 16384;
constexpr int kMaxThreads = 512;

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

// What an older caller does not know keeps its default.
template <typename T>
T completed(const T* given, const char* name, const T& defaults) {
    check_size(given, name);
    T full = defaults;
    std::memcpy(&full, given, given->size);
    return full;
}

// A size beyond what is known is kept, so that the call that follows can refuse it.
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
    std::string transformer, text_encoder, vae, choice;
};

const char* c_text(const std::string& text) {
    return text.empty() ? nullptr : text.c_str();
}

// ---- Pictures ----

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
    auto rgb = std::make_unique<uint8_t[]>(image.rgb.size());
    std::copy(image.rgb.begin(), image.rgb.end(), rgb.get());
    return {image.width, image.height, rgb.release()};
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

flux2_load_options completed_options(const flux2_load_options* given) {
    return given == nullptr ? default_load_options()
                            : completed(given, "flux2_load_options", default_load_options());
}

flux2::LoadOptions to_options(const flux2_load_options& given) {
    check(given.threads >= 0 && given.threads <= kMaxThreads, ErrorKind::bad_argument,
          given.threads, " threads are out of range; use 1 to ", kMaxThreads,
          ", or 0 for one per core");
    flux2::LoadOptions options;
    options.device = text_or(given.device, options.device);
    options.threads = given.threads;
    options.type = text_or(given.type);
    options.variant = text_or(given.variant);
    options.keep_loaded = given.keep_loaded;
    options.max_device_bytes = given.max_device_bytes;
    options.repack = given.repack;
    options.unpack = given.unpack;
    options.cache_folder = path_of(given.cache_folder);
    options.cache_bytes = given.cache_bytes;
    return options;
}

void add_pictures(const flux2_request& given, flux2::Request& request) {
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
    check(given.prompt != nullptr || given.embeds_file != nullptr, ErrorKind::bad_argument,
          "flux2_request.prompt is a null pointer; say what the picture shows");
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
    request.fit_size = given.fit_size;
    request.steps = unless_zero(given.steps);
    if (!(given.guidance < 0)) {  // what is no number is refused later
        request.guidance = given.guidance;
    }
    if (given.has_seed) {
        request.seed = given.seed;
    }
    if (given.n_sigmas > 0) {
        request.sigmas.assign(given.sigmas, given.sigmas + given.n_sigmas);
    }
    request.text_length = unless_zero(given.text_length);
    request.generator = text_or(given.generator, request.generator);
    request.preview = given.preview;
    request.noise_file = path_of(given.noise_file);
    request.embeds_file = path_of(given.embeds_file);
    add_pictures(given, request);
    return request;
}

bool report(const flux2_pipeline& pipeline, const flux2::Step& step) {
    if (pipeline.progress == nullptr) {
        return true;
    }
    flux2_image preview{};
    if (step.preview != nullptr) {
        // Not written to: the callback gets it as constant.
        preview = {step.preview->width, step.preview->height,
                   const_cast<uint8_t*>(step.preview->rgb.data())};
    }
    const flux2_step translated = {static_cast<flux2_stage>(step.stage),
                                   step.what.c_str(),
                                   step.share,
                                   step.step,
                                   step.n_steps,
                                   step.preview != nullptr ? &preview : nullptr};
    return pipeline.progress(&translated, pipeline.progress_data);
}

flux2_result to_c(const flux2::Result& result, size_t size) {
    return {size,
            to_c(result.image),
            result.seed,
            result.steps,
            result.guidance,
            result.timings.load,
            result.timings.encode_prompt,
            result.timings.encode_references,
            result.timings.denoise,
            result.timings.decode};
}

// What the library must be able to write to, whatever the caller's version.
constexpr size_t kSmallestModelFiles = offsetof(flux2_model_files, memory) + sizeof(void*);
constexpr size_t kSmallestResult = offsetof(flux2_result, image) + sizeof(flux2_image);

}  // namespace

extern "C" {

const char* flux2_last_error(void) {
    return last_error.c_str();
}

int flux2_exit_code(flux2_status status) {
    return status == FLUX2_OK
               ? 0
               : flux2::exit_code(static_cast<ErrorKind>(static_cast<int>(status) - 1));
}

const char* flux2_version(void) {
    return flux2::version();
}

const char* const* flux2_devices(void) {
    thread_local std::vector<flux2::DeviceInfo> devices;
    thread_local std::vector<const char*> names;
    const flux2_status status = guarded([] {
        devices = flux2::list_devices();
        names.clear();
        for (const flux2::DeviceInfo& device : devices) {
            names.push_back(device.name.c_str());
        }
        names.push_back(nullptr);
    });
    return status == FLUX2_OK ? names.data() : nullptr;
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

flux2_status flux2_image_load(const char* path, flux2_image* image) {
    return guarded([&] {
        check_given(image, "image");
        *image = {};
        check_given(path, "path");
        *image = to_c(flux2::load_image(path_of(path)));
    });
}

flux2_status flux2_image_save(const char* path, const flux2_image* image) {
    return guarded([&] {
        check_given(path, "path");
        check_given(image, "image");
        flux2::save_image(path_of(path), to_image(*image, "the image"));
    });
}

void flux2_image_free(flux2_image* image) {
    if (image != nullptr) {
        delete[] image->rgb;
        *image = {};
    }
}

void flux2_model_files_init(flux2_model_files* files, size_t size) {
    init(files, size, flux2_model_files{});
}

flux2_status flux2_find_model(const char* folder, const char* variant, flux2_model_files* files) {
    return guarded([&] {
        check_given(folder, "folder");
        check_size(files, "flux2_model_files", kSmallestModelFiles);
        const flux2::FoundModel found = flux2::find_model(
            path_of(folder), text_or(variant),
            {path_of(files->transformer), path_of(files->text_encoder), path_of(files->vae)});
        auto texts = std::make_unique<FoundTexts>(FoundTexts{utf8(found.files.transformer),
                                                             utf8(found.files.text_encoder),
                                                             utf8(found.files.vae), found.choice});
        delete static_cast<FoundTexts*>(files->memory);
        files->transformer = c_text(texts->transformer);
        files->text_encoder = c_text(texts->text_encoder);
        files->vae = c_text(texts->vae);
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

const char* flux2_stage_name(flux2_stage stage) {
    return flux2::to_string(static_cast<flux2::Stage>(stage));
}

void flux2_load_options_init(flux2_load_options* options, size_t size) {
    init(options, size, default_load_options());
}

flux2_status flux2_load(const char* folder, const flux2_load_options* options,
                        flux2_pipeline** pipeline) {
    return guarded([&] {
        check_given(pipeline, "pipeline");
        *pipeline = nullptr;
        check_given(folder, "folder");
        const flux2_load_options given = completed_options(options);
        const flux2::LoadOptions load = to_options(given);
        const flux2::FoundModel found = flux2::find_model(path_of(folder), load.variant);
        *pipeline = new flux2_pipeline(found.files, load, given.progress, given.progress_data);
    });
}

flux2_status flux2_load_files(const flux2_model_files* files, const flux2_load_options* options,
                              flux2_pipeline** pipeline) {
    return guarded([&] {
        check_given(pipeline, "pipeline");
        *pipeline = nullptr;
        const flux2_model_files paths = completed(files, "flux2_model_files", flux2_model_files{});
        const flux2_load_options given = completed_options(options);
        check_given(paths.transformer, "flux2_model_files.transformer");
        if (paths.taesd == nullptr) {
            check_given(paths.vae, "flux2_model_files.vae");
        }
        *pipeline = new flux2_pipeline(
            {path_of(paths.transformer), path_of(paths.text_encoder), path_of(paths.vae),
             path_of(paths.taesd), paths.taesd_preview_only != 0},
            to_options(given), given.progress, given.progress_data);
    });
}

void flux2_free(flux2_pipeline* pipeline) {
    delete pipeline;
}

const char* flux2_model_name(const flux2_pipeline* pipeline) {
    return pipeline != nullptr ? pipeline->pipeline.model().name.c_str() : nullptr;
}

const char* flux2_device_name(const flux2_pipeline* pipeline) {
    return pipeline != nullptr ? pipeline->pipeline.device().c_str() : nullptr;
}

void flux2_request_init(flux2_request* request, size_t size) {
    init(request, size, default_request());
}

void flux2_result_init(flux2_result* result, size_t size) {
    init(result, size, flux2_result{});
}

flux2_status flux2_generate(flux2_pipeline* pipeline, const flux2_request* request,
                            flux2_result* result) {
    return guarded([&] {
        check_given(pipeline, "pipeline");
        const flux2_request given = completed(request, "flux2_request", default_request());
        check_size(result, "flux2_result", kSmallestResult);
        pipeline->cancel = false;
        const flux2::Result made =
            pipeline->pipeline.generate(to_request(given), [&](const flux2::Step& step) {
                return !pipeline->cancel && report(*pipeline, step) && !pipeline->cancel;
            });
        const flux2_result full = to_c(made, result->size);
        std::memcpy(static_cast<void*>(result), &full, result->size);
    });
}

void flux2_result_free(flux2_result* result) {
    if (is_known(result, kSmallestResult)) {
        flux2_image_free(&result->image);
        init(result, result->size, flux2_result{});
    }
}

flux2_status flux2_cancel(flux2_pipeline* pipeline) {
    return guarded([&] {
        check_given(pipeline, "pipeline");
        pipeline->cancel = true;
    });
}

}  // extern "C"
