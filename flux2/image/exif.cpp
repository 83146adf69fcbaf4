// The layout is TIFF 6.0's, section 2: a header, then a directory of tags. CIPA DC-008, section
// 4.6.4 has the orientation, section 4.7.2 the segment in a JPEG.
#include "image/exif.hpp"

#include "image/png_chunk.hpp"

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

}  // namespace

int exif_orientation(Bytes exif) {
    constexpr size_t kOrientationTag = 0x0112;
    constexpr size_t kShort = 3;
    constexpr size_t kEntrySize = 12;  // tag, type, number of values, the value
    const bool big_endian = starts_with(exif, std::string_view("MM\0*", 4));
    if (!big_endian && !starts_with(exif, std::string_view("II*\0", 4))) {
        return kUpright;
    }
    const TiffReader reader(exif, big_endian);
    const size_t directory = reader.u32(4);
    const size_t n_entries = reader.u16(directory);
    for (size_t i = 0; i < n_entries; i++) {
        const size_t entry = directory + 2 + i * kEntrySize;
        if (reader.u16(entry) != kOrientationTag) {
            continue;
        }
        const size_t value = reader.u16(entry + 8);
        const bool sound = reader.u16(entry + 2) == kShort && reader.u32(entry + 4) == 1 &&
                           value >= 1 && value <= 8;
        return sound ? static_cast<int>(value) : kUpright;
    }
    return kUpright;
}

Bytes jpeg_exif(Bytes bytes) {
    constexpr std::byte kApp1{0xe1};
    constexpr std::byte kStartOfScan{0xda};
    constexpr std::string_view kName("Exif\0\0", 6);
    const TiffReader reader(bytes, true);  // a JPEG's lengths are big-endian as well
    size_t i = 2;
    while (i + 4 <= bytes.size() && bytes[i] == std::byte{0xff} && bytes[i + 1] != kStartOfScan) {
        if (bytes[i + 1] == std::byte{0xff}) {
            i++;  // padding
            continue;
        }
        const size_t length = reader.u16(i + 2);  // counts itself
        if (length < 2 || length > bytes.size() - i - 2) {
            break;
        }
        const Bytes content = bytes.subspan(i + 4, length - 2);
        if (bytes[i + 1] == kApp1 && starts_with(content, kName)) {
            return content.subspan(kName.size());
        }
        i += 2 + length;
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
    const auto [width, height, rgb] = std::move(image);
    Image upright{swap_axes ? height : width, swap_axes ? width : height,
                  std::vector<uint8_t>(rgb.size())};
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
