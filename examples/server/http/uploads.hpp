// Pictures that come with requests: files of a form, data URLs, bare base64. Addresses of other
// servers are refused: this one fetches nothing.
#pragma once

#include <flux2/image.hpp>
#include "http/answer.hpp"

#include <httplib.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flux2::server {

// Pixels that an uploaded picture may have. Decoded it takes three bytes for each.
constexpr int64_t kMostUploadedPixels = 64'000'000;

// The file behind a text: a data URL, or base64. Throws FieldError, for an address with its reason.
std::string file_from_text(const std::string& field, std::string_view text);

// The files of a field: a text, a list of texts, or OpenAI's {"image_url": ...} in place of texts.
// Throws FieldError, also for more than `most`.
std::vector<std::string> files_from_json(const std::string& field, const nlohmann::json& value,
                                         size_t most);
// The files of a form under `field` and `field[]`, in the order of the form. Throws FieldError.
std::vector<std::string> files_from_form(const std::string& field,
                                         const httplib::MultipartFormData& form, size_t most);

// Decodes a file. Throws FieldError for a broken one, one of another format and one with too many
// pixels.
Image uploaded_image(const std::string& field, std::string_view file, Alpha alpha = Alpha::drop);
// The transparency of a picture as a mask: what is transparent is repainted. Throws FieldError,
// also for a picture without transparency.
Mask uploaded_alpha_mask(const std::string& field, std::string_view file);
// A mask by its brightness: white is repainted; by its transparency if it has transparent pixels.
Mask uploaded_mask(const std::string& field, std::string_view file,
                   MaskAlpha alpha = MaskAlpha::holes);

}  // namespace flux2::server
