// What answers of A1111's API say about pictures, in the words of its own settings.
#pragma once

#include "dialects/a1111_fields.hpp"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace flux2::server {

constexpr size_t kShownHash = 10;  // characters of a model's hash in lists and answers

// The object that an answer has as a JSON string in `info`. Without pictures, after an
// interruption, it says what was asked for.
nlohmann::json a1111_info(const A1111Request& asked, const std::vector<Picture>& pictures);

// The texts of a picture: {"info", "items", "parameters"}. Throws FieldError for a broken picture.
nlohmann::json a1111_png_info(const std::string& bytes);

}  // namespace flux2::server
