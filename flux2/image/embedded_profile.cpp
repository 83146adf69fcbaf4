// Follows ICC.1:2022, annex B, for JPEG, the PNG specification, section 11.3.2.3, and RFC 9649,
// section 2.7.1.4, for WebP.
#include "image/embedded_profile.hpp"

#include "base/check.hpp"
#include "image/codec.hpp"
#include "image/colour_profile.hpp"
#include "image/jpeg_segment.hpp"
#include "image/png_chunk.hpp"
#include "image/webp_chunk.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace flux2 {
namespace {

using Bytes = std::span<const std::byte>;
using Profile = std::vector<std::byte>;

std::string_view text_of(Bytes bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Profile copy_of(Bytes bytes) {
    return {bytes.begin(), bytes.end()};
}

// ---- PNG: a name, a zero byte, the method 0, the compressed profile ----

std::optional<Profile> parse_png_profile(const PngChunk& chunk) {
    const size_t name = text_of(chunk.data).find('\0');
    if (!chunk.intact() || name == std::string_view::npos || chunk.data.size() < name + 2 ||
        chunk.data[name + 1] != std::byte{0}) {
        return std::nullopt;
    }
    const auto profile = inflate(chunk.data.subspan(name + 2), kMaxProfileBytes);
    return profile ? std::optional(copy_of(std::as_bytes(std::span(*profile)))) : std::nullopt;
}

std::optional<Profile> read_png_profile(Bytes bytes, const std::string& file) {
    PngChunks chunks(bytes, file);
    while (const std::optional<PngChunk> chunk = chunks.next()) {
        if (chunk->type == "iCCP") {
            return parse_png_profile(*chunk);
        }
    }
    return Profile();
}

void insert_png_profile(std::vector<std::byte>& png, Bytes profile) {
    constexpr size_t kHeaderEnd = 8 + kPngChunkOverhead + 13;  // signature, IHDR
    std::vector<std::byte> chunk;
    append_png_chunk(chunk, "iCCP", std::string("ICC profile\0\0", 13) + deflate(profile));
    png.insert(png.begin() + kHeaderEnd, chunk.begin(), chunk.end());
}

// ---- JPEG: a name, the number of the part from 1, how many there are, the part ----

constexpr std::string_view kJpegName("ICC_PROFILE\0", 12);
constexpr size_t kPartHeader = kJpegName.size() + 2;
constexpr size_t kPartBytes = kMaxJpegSegment - kPartHeader;
static_assert(kMaxProfileBytes == 255 * kPartBytes);

std::optional<Profile> read_jpeg_profile(Bytes bytes) {
    std::array<Bytes, 256> parts;
    size_t n_parts = 0;
    size_t n_found = 0;
    JpegSegments segments(bytes);
    while (const std::optional<JpegSegment> segment = segments.next()) {
        if (segment->marker != kJpegApp2 || !text_of(segment->data).starts_with(kJpegName)) {
            continue;
        }
        if (segment->data.size() <= kPartHeader) {
            return std::nullopt;
        }
        const auto number = std::to_integer<size_t>(segment->data[kJpegName.size()]);
        const auto count = std::to_integer<size_t>(segment->data[kJpegName.size() + 1]);
        const bool fits = number >= 1 && number <= count && parts[number].empty() &&
                          (n_found == 0 || count == n_parts);
        if (!fits) {
            return std::nullopt;
        }
        parts[number] = segment->data.subspan(kPartHeader);
        n_parts = count;
        n_found++;
    }
    if (n_found != n_parts) {
        return std::nullopt;
    }
    Profile profile;
    for (const Bytes part : parts) {
        profile.insert(profile.end(), part.begin(), part.end());
    }
    return profile;
}

void insert_jpeg_profile(std::vector<std::byte>& jpeg, Bytes profile) {
    const size_t n_parts = (profile.size() + kPartBytes - 1) / kPartBytes;
    std::vector<std::byte> segments;
    for (size_t i = 0; i < n_parts; ++i) {
        const Bytes rest = profile.subspan(i * kPartBytes);
        std::string part(kJpegName);
        part += static_cast<char>(i + 1);
        part += static_cast<char>(n_parts);
        part += text_of(rest.first(std::min(kPartBytes, rest.size())));
        append_jpeg_segment(segments, kJpegApp2, part);
    }
    const auto at = jpeg.begin() + static_cast<std::ptrdiff_t>(end_of_jpeg_header(jpeg));
    jpeg.insert(at, segments.begin(), segments.end());
}

// ---- WebP: a chunk between the header of the file and the picture ----

constexpr std::string_view kWebpProfile = "ICCP";

std::optional<Profile> read_webp_profile(Bytes bytes, const std::string& file) {
    WebpChunks chunks(bytes, file);
    while (const std::optional<WebpChunk> chunk = chunks.next()) {
        if (chunk->type == kWebpProfile) {
            const bool is_broken = chunk->data.empty() || chunk->data.size() > kMaxProfileBytes;
            return is_broken ? std::nullopt : std::optional(copy_of(chunk->data));
        }
    }
    return Profile();
}

void insert_webp_profile(std::vector<std::byte>& webp, Bytes profile) {
    const std::string name = "the WebP";
    WebpChunks chunks(webp, name);
    std::optional<WebpChunk> chunk = chunks.next();
    std::string extension;
    if (chunk && chunk->type == kWebpExtended) {
        extension = text_of(chunk->data);
        chunk = chunks.next();
    } else if (const auto size = chunk ? webp_picture_size(*chunk) : std::nullopt) {
        extension = webp_extension(*size, '\0');
    }
    check(extension.size() == kWebpExtensionBytes, ErrorKind::internal,
          "a WebP for a profile does not begin with a picture");
    extension.front() = static_cast<char>(extension.front() | kWebpProfileFlag);
    std::vector<std::byte> with_profile;
    append_webp_chunk(with_profile, kWebpExtended, std::as_bytes(std::span(extension)));
    append_webp_chunk(with_profile, kWebpProfile, profile);
    for (; chunk; chunk = chunks.next()) {
        append_webp_chunk(with_profile, chunk->type, chunk->data);
    }
    webp = webp_of_chunks(with_profile);
}

}  // namespace

std::optional<Profile> read_profile(ImageFormat format, Bytes bytes, const std::string& file) {
    return format == ImageFormat::png    ? read_png_profile(bytes, file)
           : format == ImageFormat::webp ? read_webp_profile(bytes, file)
                                         : read_jpeg_profile(bytes);
}

void insert_profile(ImageFormat format, std::vector<std::byte>& file, Bytes profile) {
    switch (format) {
        case ImageFormat::png:
            return insert_png_profile(file, profile);
        case ImageFormat::jpeg:
            return insert_jpeg_profile(file, profile);
        case ImageFormat::webp:
            return insert_webp_profile(file, profile);
        case ImageFormat::bmp:
            fail(ErrorKind::internal, "a BMP is written without a profile");
    }
}

}  // namespace flux2
