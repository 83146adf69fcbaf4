#include "http/picture_header.hpp"

namespace flux2::server {
namespace {

using namespace std::string_view_literals;

// Unsigned numbers of n bytes; 0 behind the end.
int64_t big_endian(std::string_view bytes, size_t at, size_t n) {
    int64_t value = 0;
    for (size_t i = at; i < at + n; ++i) {
        value = value << 8 | (i < bytes.size() ? static_cast<uint8_t>(bytes[i]) : 0);
    }
    return value;
}

int64_t little_endian(std::string_view bytes, size_t at, size_t n) {
    int64_t value = 0;
    for (size_t i = at + n; i-- > at;) {
        value = value << 8 | (i < bytes.size() ? static_cast<uint8_t>(bytes[i]) : 0);
    }
    return value;
}

// Whether a chunk tRNS comes before the pixels.
bool has_transparent_colour(std::string_view png) {
    for (size_t at = 8; at + 12 <= png.size();) {
        const std::string_view type = png.substr(at + 4, 4);
        if (type == "tRNS") {
            return true;
        }
        if (type == "IDAT") {
            return false;
        }
        at += 12 + static_cast<size_t>(big_endian(png, at, 4));
    }
    return false;
}

std::optional<PictureHeader> png_header(std::string_view bytes) {
    if (bytes.size() < 33 || bytes.substr(12, 4) != "IHDR") {
        return std::nullopt;
    }
    constexpr int kAlphaBit = 4;
    const bool has_channel = (bytes[25] & kAlphaBit) != 0;
    return PictureHeader{big_endian(bytes, 16, 4), big_endian(bytes, 20, 4),
                         has_channel || has_transparent_colour(bytes)};
}

// Segments up to the frame header, SOF0 to SOF15 without DHT, JPG and DAC.
std::optional<PictureHeader> jpeg_header(std::string_view bytes) {
    for (size_t at = 2; at + 9 < bytes.size() && bytes[at] == '\xff';) {
        const auto marker = static_cast<uint8_t>(bytes[at + 1]);
        if (marker == 0xff) {
            ++at;  // fill byte
            continue;
        }
        const bool is_frame =
            marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
        if (is_frame) {
            return PictureHeader{big_endian(bytes, at + 7, 2), big_endian(bytes, at + 5, 2), false};
        }
        at += 2 + static_cast<size_t>(big_endian(bytes, at + 2, 2));
    }
    return std::nullopt;
}

std::optional<PictureHeader> webp_header(std::string_view bytes) {
    const std::string_view kind = bytes.substr(12, 4);
    if (kind == "VP8X") {
        constexpr int kAlphaBit = 16;
        return PictureHeader{little_endian(bytes, 24, 3) + 1, little_endian(bytes, 27, 3) + 1,
                             (little_endian(bytes, 20, 1) & kAlphaBit) != 0};
    }
    if (kind == "VP8L") {
        const int64_t bits = little_endian(bytes, 21, 4);
        return PictureHeader{(bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1, (bits >> 28 & 1) != 0};
    }
    if (kind == "VP8 ") {
        return PictureHeader{little_endian(bytes, 26, 2) & 0x3fff,
                             little_endian(bytes, 28, 2) & 0x3fff, false};
    }
    return std::nullopt;
}

}  // namespace

std::optional<PictureHeader> read_picture_header(std::string_view bytes) {
    if (bytes.starts_with("\x89PNG\r\n\x1a\n"sv)) {
        return png_header(bytes);
    }
    if (bytes.starts_with("\xff\xd8"sv)) {
        return jpeg_header(bytes);
    }
    if (bytes.size() >= 30 && bytes.starts_with("RIFF"sv) && bytes.substr(8, 4) == "WEBP"sv) {
        return webp_header(bytes);
    }
    return std::nullopt;
}

}  // namespace flux2::server
