#include "image/webp_chunk.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <cstdint>

namespace flux2 {
namespace {

using Bytes = std::span<const std::byte>;

constexpr size_t kChunkHeader = 8;  // type and length
constexpr size_t kFormName = 4;     // "WEBP", which counts as data

std::string_view text_of(Bytes bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

uint32_t little_endian(Bytes bytes) {
    uint32_t value = 0;
    for (size_t i = bytes.size(); i > 0; i--) {
        value = value << 8 | std::to_integer<uint32_t>(bytes[i - 1]);
    }
    return value;
}

void append(std::vector<std::byte>& out, Bytes bytes) {
    out.insert(out.end(), bytes.begin(), bytes.end());
}

void append_header(std::vector<std::byte>& out, std::string_view type, size_t size) {
    append(out, std::as_bytes(std::span(type)));
    for (const int shift : {0, 8, 16, 24}) {
        out.push_back(static_cast<std::byte>(size >> shift & 255));
    }
}

// RFC 6386, section 9.1: three bytes of which the first bit is 0 in a key frame, a start code, then
// width and height in the lower 14 bits of two bytes each.
std::optional<ImageSize> lossy_size(Bytes data) {
    if (data.size() < 10 || (std::to_integer<unsigned>(data[0]) & 1) != 0 ||
        text_of(data.subspan(3, 3)) != "\x9d\x01\x2a") {
        return std::nullopt;
    }
    return ImageSize{static_cast<int>(little_endian(data.subspan(6, 2)) & 0x3fff),
                     static_cast<int>(little_endian(data.subspan(8, 2)) & 0x3fff)};
}

// RFC 9649, section 3.4: a signature, then width - 1 and height - 1 in 14 bits each.
std::optional<ImageSize> lossless_size(Bytes data) {
    if (data.size() < 5 || data[0] != std::byte{0x2f}) {
        return std::nullopt;
    }
    const uint32_t bits = little_endian(data.subspan(1, 4));
    return ImageSize{static_cast<int>((bits & 0x3fff) + 1),
                     static_cast<int>((bits >> 14 & 0x3fff) + 1)};
}

}  // namespace

bool is_webp(Bytes bytes) {
    return bytes.size() >= kChunkHeader + kFormName && text_of(bytes).starts_with("RIFF") &&
           text_of(bytes.subspan(kChunkHeader)).starts_with("WEBP");
}

std::optional<ImageSize> webp_picture_size(const WebpChunk& chunk) {
    return chunk.type == kWebpLossy      ? lossy_size(chunk.data)
           : chunk.type == kWebpLossless ? lossless_size(chunk.data)
                                         : std::nullopt;
}

WebpChunks::WebpChunks(Bytes bytes, const std::string& file) : file_(file) {
    const size_t size = little_endian(bytes.subspan(4, 4));
    check(size >= kFormName && size <= bytes.size() - kChunkHeader, ErrorKind::bad_file, file,
          ": has ", bytes.size(), " bytes, the WebP in it says that it has ", size + kChunkHeader,
          "; the file is truncated or damaged");
    rest_ = bytes.subspan(kChunkHeader, size).subspan(kFormName);
}

std::optional<WebpChunk> WebpChunks::next() {
    if (rest_.empty()) {
        return std::nullopt;
    }
    const size_t room = rest_.size() < kChunkHeader ? 0 : rest_.size() - kChunkHeader;
    const size_t size = rest_.size() < kChunkHeader ? 0 : little_endian(rest_.subspan(4, 4));
    check(rest_.size() >= kChunkHeader && size <= room, ErrorKind::bad_file, file_,
          ": the WebP ends within a chunk; the file is truncated or damaged");
    const WebpChunk chunk{text_of(rest_.first(4)), rest_.subspan(kChunkHeader, size)};
    rest_ = rest_.subspan(kChunkHeader + std::min(size + size % 2, room));
    return chunk;
}

// Flags, three bytes that are not used, width - 1 and height - 1.
std::string webp_extension(ImageSize size, char flags) {
    std::string header = {flags, '\0', '\0', '\0'};
    for (const int side : {size.width, size.height}) {
        for (const int shift : {0, 8, 16}) {
            header += static_cast<char>((side - 1) >> shift & 255);
        }
    }
    return header;
}

void append_webp_chunk(std::vector<std::byte>& out, std::string_view type, Bytes data) {
    append_header(out, type, data.size());
    append(out, data);
    if (data.size() % 2 != 0) {
        out.push_back(std::byte{0});
    }
}

std::vector<std::byte> webp_of_chunks(Bytes chunks) {
    std::vector<std::byte> file;
    append_header(file, "RIFF", kFormName + chunks.size());
    append(file, std::as_bytes(std::span(std::string_view("WEBP"))));
    append(file, chunks);
    return file;
}

}  // namespace flux2
