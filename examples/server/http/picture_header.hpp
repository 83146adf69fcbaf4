// What the first bytes of a picture file say, so that huge pictures are refused before anything is
// decoded.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace flux2::server {

struct PictureHeader {
    int64_t width = 0, height = 0;
    bool has_alpha = false;  // a channel of transparency, or a transparent colour
};

// Of a PNG, JPEG or WebP. Nothing for other and broken files; decoding them tells why.
std::optional<PictureHeader> read_picture_header(std::string_view bytes);

}  // namespace flux2::server
