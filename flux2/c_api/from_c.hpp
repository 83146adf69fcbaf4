// From the structs and texts of flux2.h to those of flux2.hpp. Functions throw bad_argument for
// what cannot be meant.
#pragma once

#include <flux2/flux2.h>
#include <flux2/flux2.hpp>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

// What a signal handler may write to.
static_assert(std::atomic<bool>::is_always_lock_free);
struct flux2_cancel_token {
    std::atomic<bool> raised = false;
};

namespace flux2::c_api {

// Texts and paths are UTF-8; null is `otherwise`, or an empty path.
std::string text_or(const char* text, const std::string& otherwise = "");
std::filesystem::path path_of(const char* text);

Alpha to_alpha(flux2_alpha alpha);
ImageFormat to_format(flux2_image_format format);
// `name` says which picture it is, in errors.
Image to_image(const flux2_image& given, const char* name);
std::span<const std::byte> to_bytes(const void* bytes, size_t n_bytes);
std::vector<ImageText> to_texts(const flux2_image_text* texts, size_t n_texts);

// Of a struct that this library made.
FileInfo to_info(const flux2_file_info* given, const char* name);
ModelFiles to_files(const flux2_model_files& files);

flux2_load_options default_load_options();
flux2_request default_request();
flux2_adapter default_adapter();
// Null: the defaults.
LoadOptions to_options(const flux2_load_options* options);
Request to_request(const flux2_request& given);
// Borrows the request.
Progress to_progress(const flux2_request& request);

}  // namespace flux2::c_api
