#include "http/uploads.hpp"

#include "base/check.hpp"
#include "base/letter_case.hpp"
#include "http/base64.hpp"
#include "http/picture_header.hpp"

#include <algorithm>
#include <cstdint>
#include <span>

namespace flux2::server {
namespace {

using nlohmann::json;

void check_count(const std::string& field, size_t n, size_t most) {
    if (n > most) {
        throw FieldError(field,
                         concat(field, " has ", n, " pictures, at most ", most, " can be used"));
    }
}

// OpenAI's {"image_url": "data:..."} or {"image_url": {"url": ...}}, or the text itself.
std::string text_of_item(const std::string& field, const json& item) {
    if (item.is_string()) {
        return item.get<std::string>();
    }
    if (item.is_object() && item.contains("file_id")) {
        throw FieldError(field, concat(field,
                                       " names a file_id, and this server stores no uploads; "
                                       "send a data URL as image_url"));
    }
    const json url = item.is_object() ? item.value("image_url", json()) : json();
    const json text = url.is_object() ? url.value("url", json()) : url;
    if (!text.is_string()) {
        throw FieldError(field, concat(field,
                                       " has an item without a picture; send a data URL, or "
                                       "{\"image_url\": \"data:image/png;base64,...\"}"));
    }
    return text.get<std::string>();
}

// Runs a function of the library whose errors are about this field.
template <typename Function>
auto decoded(const std::string& field, std::string_view file, const Function& decode) {
    const std::optional<PictureHeader> header = read_picture_header(file);
    if (header && header->width * header->height > kMostUploadedPixels) {
        throw FieldError(field,
                         concat(field, " is a picture of ", header->width, "x", header->height,
                                " pixels, at most ", kMostUploadedPixels / 1'000'000,
                                " million can be used; scale it down"));
    }
    try {
        return decode(std::as_bytes(std::span(file)));
    } catch (const Error& error) {
        throw FieldError(field, error.what());
    }
}

}  // namespace

std::string file_from_text(const std::string& field, std::string_view text) {
    const std::string scheme = to_lower(std::string(text.substr(0, 8)));
    if (scheme.starts_with("http:") || scheme.starts_with("https:")) {
        throw FieldError(field, concat(field,
                                       " is an address; this server fetches no pictures from "
                                       "others, send a data URL"));
    }
    if (scheme.starts_with("data:")) {
        const size_t comma = text.find(',');
        const bool is_base64 =
            comma != std::string_view::npos && text.substr(0, comma).ends_with(";base64");
        if (!is_base64) {
            throw FieldError(field, concat(field,
                                           " is a data URL without base64; send "
                                           "data:image/png;base64,..."));
        }
        text.remove_prefix(comma + 1);
    }
    std::optional<std::string> file = from_base64(text);
    if (!file || file->empty()) {
        throw FieldError(field, concat(field,
                                       " is no base64 of a picture; send "
                                       "data:image/png;base64,..."));
    }
    return std::move(*file);
}

std::vector<std::string> files_from_json(const std::string& field, const json& value, size_t most) {
    if (value.is_null()) {
        return {};
    }
    const json list = value.is_array() ? value : json::array({value});
    check_count(field, list.size(), most);
    std::vector<std::string> files;
    for (const json& item : list) {
        files.push_back(file_from_text(field, text_of_item(field, item)));
    }
    return files;
}

std::vector<std::string> files_from_form(const std::string& field,
                                         const httplib::MultipartFormData& form, size_t most) {
    std::vector<std::string> files;
    for (const std::string& name : {field, field + "[]"}) {
        for (const httplib::FormData& file : form.get_files(name)) {
            files.push_back(file.content);
        }
        // A part without a file name: a data URL, or the file itself.
        for (const std::string& content : form.get_fields(name)) {
            files.push_back(content.starts_with("data:") || content.starts_with("http")
                                ? file_from_text(field, content)
                                : content);
        }
    }
    check_count(field, files.size(), most);
    return files;
}

Image uploaded_image(const std::string& field, std::string_view file, Alpha alpha) {
    return decoded(field, file, [&](std::span<const std::byte> bytes) {
        return decode_image_with_profile(bytes, field, alpha);
    });
}

Mask uploaded_mask(const std::string& field, std::string_view file, MaskAlpha alpha) {
    return decoded(field, file, [&](std::span<const std::byte> bytes) {
        return decode_mask(bytes, field, alpha);
    });
}

Mask uploaded_alpha_mask(const std::string& field, std::string_view file) {
    const std::optional<PictureHeader> header = read_picture_header(file);
    if (header && !header->has_alpha) {
        throw FieldError(field, concat(field,
                                       " has no transparency; what is to be painted anew must "
                                       "be transparent in it, so send a PNG with alpha"));
    }
    Mask mask = uploaded_mask(field, file, MaskAlpha::only_holes);
    if (std::all_of(mask.values.begin(), mask.values.end(), [](uint8_t v) { return v == 0; })) {
        throw FieldError(field, concat(field,
                                       " has no transparent pixel; make transparent what is to be "
                                       "painted anew"));
    }
    return mask;
}

}  // namespace flux2::server
