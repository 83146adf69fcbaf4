// The layout is TIFF 6.0's, section 2: a header, then a directory of tags. CIPA DC-008, section
// 4.6.4 has the orientation, section 4.6.5 the comment, section 4.7.2 the segment in a JPEG.
#include "image/exif.hpp"

#include "base/utf8.hpp"
#include "image/jpeg_segment.hpp"
#include "image/png_chunk.hpp"
#include "image/webp_chunk.hpp"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace flux2 {
namespace {

using Bytes = std::span<const std::byte>;

bool starts_with(Bytes bytes, std::string_view text) {
    const Bytes wanted = std::as_bytes(std::span(text));
    return bytes.size() >= wanted.size() && std::equal(wanted.begin(), wanted.end(), bytes.begin());
}

// Numbers in either byte order. Past the end 0 is read, which is not a valid tag.
class TiffReader {
  public:
    TiffReader(Bytes bytes, bool big_endian) : bytes_(bytes), big_endian_(big_endian) {}

    size_t u16(size_t i) const { return number(i, 2); }
    size_t u32(size_t i) const { return number(i, 4); }

  private:
    size_t number(size_t i, size_t size) const {
        if (i > bytes_.size() || bytes_.size() - i < size) {
            return 0;
        }
        size_t value = 0;
        for (size_t k = 0; k < size; k++) {
            const std::byte byte = bytes_[big_endian_ ? i + k : i + size - 1 - k];
            value = value << 8 | std::to_integer<size_t>(byte);
        }
        return value;
    }

    Bytes bytes_;
    bool big_endian_;
};

// Nothing for data that do not begin as TIFF does.
std::optional<TiffReader> open_tiff(Bytes bytes) {
    const bool big_endian = starts_with(bytes, std::string_view("MM\0*", 4));
    if (!big_endian && !starts_with(bytes, std::string_view("II*\0", 4))) {
        return std::nullopt;
    }
    return TiffReader(bytes, big_endian);
}

// Where the first entry of a directory with this tag begins: tag, type, number of values, the value
// or its place.
std::optional<size_t> find_entry(const TiffReader& reader, size_t directory, size_t tag) {
    constexpr size_t kEntrySize = 12;
    const size_t n_entries = reader.u16(directory);
    for (size_t i = 0; i < n_entries; i++) {
        const size_t entry = directory + 2 + i * kEntrySize;
        if (reader.u16(entry) == tag) {
            return entry;
        }
    }
    return std::nullopt;
}

// Tags and types of TIFF that a user comment takes: where the directory is that has it.
constexpr size_t kExifDirectoryTag = 0x8769;
constexpr size_t kUserCommentTag = 0x9286;
constexpr size_t kTiffLong = 4;
constexpr size_t kTiffUndefined = 7;

constexpr size_t kEncodingBytes = 8;  // the name of a comment's encoding

// UTF-16 of unknown byte order. Programs do not agree whether it is that of the EXIF data, so the
// one that gives more characters below 256 is taken.
std::optional<std::string> decode_utf16(std::string_view text) {
    if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
        return utf8_from_utf16(text.substr(2), text.starts_with("\xFE"));
    }
    size_t n_big = 0, n_little = 0;
    for (size_t i = 0; i + 1 < text.size(); i += 2) {
        n_big += text[i] == '\0' ? 1 : 0;
        n_little += text[i + 1] == '\0' ? 1 : 0;
    }
    return utf8_from_utf16(text, n_big >= n_little);
}

// A comment is the name of its encoding, then the text (CIPA DC-008, section 4.6.5).
std::optional<std::string> decode_comment(std::string_view comment) {
    const std::string_view encoding = comment.substr(0, kEncodingBytes);
    const std::string_view text = comment.substr(kEncodingBytes);
    if (encoding == std::string_view("UNICODE\0", kEncodingBytes)) {
        return decode_utf16(text);
    }
    const bool plain = encoding == std::string_view("ASCII\0\0\0", kEncodingBytes) ||
                       encoding == std::string_view("\0\0\0\0\0\0\0\0", kEncodingBytes);
    return plain && is_utf8(text) ? std::optional(std::string(text)) : std::nullopt;
}

std::string big_endian(size_t value, int n_bytes) {
    std::string bytes;
    for (int shift = 8 * (n_bytes - 1); shift >= 0; shift -= 8) {
        bytes += static_cast<char>(value >> shift & 0xff);
    }
    return bytes;
}

// An entry of a directory: tag, type, number of values, the value or where it is.
std::string tiff_entry(size_t tag, size_t type, size_t n_values, size_t value) {
    return big_endian(tag, 2) + big_endian(type, 2) + big_endian(n_values, 4) +
           big_endian(value, 4);
}

}  // namespace

int exif_orientation(Bytes exif) {
    constexpr size_t kOrientationTag = 0x0112;
    constexpr size_t kShort = 3;
    const auto reader = open_tiff(exif);
    const auto entry = reader ? find_entry(*reader, reader->u32(4), kOrientationTag) : std::nullopt;
    if (!entry) {
        return kUpright;
    }
    const size_t value = reader->u16(*entry + 8);
    const bool sound = reader->u16(*entry + 2) == kShort && reader->u32(*entry + 4) == 1 &&
                       value >= 1 && value <= 8;
    return sound ? static_cast<int>(value) : kUpright;
}

std::optional<std::string> exif_user_comment(Bytes exif) {
    const auto reader = open_tiff(exif);
    const auto pointer =
        reader ? find_entry(*reader, reader->u32(4), kExifDirectoryTag) : std::nullopt;
    const auto entry =
        pointer ? find_entry(*reader, reader->u32(*pointer + 8), kUserCommentTag) : std::nullopt;
    if (!entry || reader->u16(*entry + 2) != kTiffUndefined) {
        return std::nullopt;
    }
    const size_t size = reader->u32(*entry + 4);
    const size_t at = reader->u32(*entry + 8);
    if (size <= kEncodingBytes || at > exif.size() || exif.size() - at < size) {
        return std::nullopt;
    }
    auto text =
        decode_comment(std::string_view(reinterpret_cast<const char*>(exif.data()) + at, size));
    if (!text) {
        return std::nullopt;
    }
    text->erase(std::min(text->find('\0'), text->size()));
    const bool blank = text->find_first_not_of(' ') == std::string::npos;
    return blank ? std::nullopt : text;
}

std::optional<std::string> exif_with_comment(const std::string& text) {
    constexpr size_t kHeaderBytes = 8;
    constexpr size_t kDirectoryBytes = 2 + 12 + 4;  // with one entry
    constexpr size_t kExifDirectory = kHeaderBytes + kDirectoryBytes;
    const std::string comment = std::string("UNICODE\0", 8) + utf16_from_utf8(text);
    const std::string one = big_endian(1, 2);
    const std::string last = big_endian(0, 4);
    std::string exif = std::string("MM\0*", 4) + big_endian(kHeaderBytes, 4) +  //
                       one + tiff_entry(kExifDirectoryTag, kTiffLong, 1, kExifDirectory) + last +
                       one +
                       tiff_entry(kUserCommentTag, kTiffUndefined, comment.size(),
                                  kExifDirectory + kDirectoryBytes) +
                       last + comment;
    const bool exact = exif_user_comment(std::as_bytes(std::span(exif))) == text;
    return exact ? std::optional(std::move(exif)) : std::nullopt;
}

Bytes jpeg_exif(Bytes bytes) {
    JpegSegments segments(bytes);
    while (const std::optional<JpegSegment> segment = segments.next()) {
        if (segment->marker == kJpegApp1 && starts_with(segment->data, kJpegExifName)) {
            return segment->data.subspan(kJpegExifName.size());
        }
    }
    return {};
}

Bytes png_exif(Bytes bytes, const std::string& file) {
    PngChunks chunks(bytes, file);
    while (const std::optional<PngChunk> chunk = chunks.next()) {
        if (chunk->type == "eXIf") {
            return chunk->intact() ? chunk->data : Bytes{};
        }
    }
    return {};
}

Bytes webp_exif(Bytes bytes, const std::string& file) {
    WebpChunks chunks(bytes, file);
    while (const std::optional<WebpChunk> chunk = chunks.next()) {
        if (chunk->type == "EXIF") {
            // Some programs write the name that the data have in a JPEG, too.
            const bool named = starts_with(chunk->data, kJpegExifName);
            return chunk->data.subspan(named ? kJpegExifName.size() : 0);
        }
    }
    return {};
}

Image turn_upright(Image image, int orientation) {
    if (orientation == kUpright) {
        return image;
    }
    const auto any_of = [&](std::initializer_list<int> list) {
        return std::find(list.begin(), list.end(), orientation) != list.end();
    };
    const bool swap_axes = orientation >= 5;
    const bool from_right = any_of({2, 3, 7, 8});
    const bool from_bottom = any_of({3, 4, 6, 7});
    const auto [width, height, rgb, profile] = std::move(image);
    Image upright{swap_axes ? height : width, swap_axes ? width : height,
                  std::vector<uint8_t>(rgb.size()), profile};
    uint8_t* out = upright.rgb.data();
    for (int y = 0; y < upright.height; y++) {
        for (int x = 0; x < upright.width; x++) {
            const int along = swap_axes ? y : x;
            const int down = swap_axes ? x : y;
            const int column = from_right ? width - 1 - along : along;
            const int row = from_bottom ? height - 1 - down : down;
            const size_t pixel =
                static_cast<size_t>(row) * static_cast<size_t>(width) + static_cast<size_t>(column);
            out = std::copy_n(rgb.data() + 3 * pixel, 3, out);
        }
    }
    return upright;
}

}  // namespace flux2
