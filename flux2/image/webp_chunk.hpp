// The chunks a WebP consists of: four letters, length of the data, the data, padded to an even
// length. Follows RFC 9649.
#pragma once

#include "image/region.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

// Chunks of pixels, and the one that comes first in a file with more than pixels.
constexpr std::string_view kWebpLossy = "VP8 ";
constexpr std::string_view kWebpLossless = "VP8L";
constexpr std::string_view kWebpExtended = "VP8X";
constexpr size_t kWebpExtensionBytes = 10;  // of its data

// Whether a file begins as a WebP does.
bool is_webp(std::span<const std::byte> bytes);

// A view of the file's bytes.
struct WebpChunk {
    std::string_view type;
    std::span<const std::byte> data;

    bool is_picture() const { return type == kWebpLossy || type == kWebpLossless; }
};

// The size that a chunk of pixels begins with; nothing for another chunk or a broken beginning.
std::optional<ImageSize> webp_picture_size(const WebpChunk& chunk);

// Iterates over the chunks of a file that is_webp. `file` names it in errors; both must outlive
// this. Bytes behind the length that the file begins with are ignored.
class WebpChunks {
  public:
    // Throws bad_file when the file is shorter than that length.
    WebpChunks(std::span<const std::byte> bytes, const std::string& file);

    // Throws bad_file when the file ends within the chunk.
    std::optional<WebpChunk> next();

  private:
    std::span<const std::byte> rest_;
    const std::string& file_;
};

// What else is in a file with more than a picture.
constexpr char kWebpExifFlag = 0x08;
constexpr char kWebpProfileFlag = 0x20;

// The data of the chunk that comes first in it, with these flags.
std::string webp_extension(ImageSize size, char flags);

// Appends a chunk of less than 2^32 bytes of data.
void append_webp_chunk(std::vector<std::byte>& out, std::string_view type,
                       std::span<const std::byte> data);

// A file of these chunks, which are less than 2^32 bytes together.
std::vector<std::byte> webp_of_chunks(std::span<const std::byte> chunks);

}  // namespace flux2
