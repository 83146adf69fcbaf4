// The chunks a PNG consists of: length of the data, four letters, the data, a checksum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

// Bytes around a chunk's data.
constexpr size_t kPngChunkOverhead = 12;

// A number as PNG writes it; there must be four bytes from i on.
uint32_t big_endian32(std::span<const std::byte> bytes, size_t i);

// A view of the file's bytes.
struct PngChunk {
    std::string_view type;
    std::span<const std::byte> data;
    uint32_t checksum = 0;

    // Whether the checksum is correct.
    bool intact() const;
};

// Iterates over the chunks of a file that begins with PNG's signature. `file` names it in errors;
// both must outlive this.
class PngChunks {
  public:
    PngChunks(std::span<const std::byte> bytes, const std::string& file);

    // Nothing after IEND. Throws bad_file when the file ends within the chunk.
    std::optional<PngChunk> next();

  private:
    std::span<const std::byte> bytes_;
    const std::string& file_;
    size_t at_;
    bool ended_ = false;
};

// Appends a chunk of at most 2^31 - 1 bytes of data.
void append_png_chunk(std::vector<std::byte>& out, std::string_view type, std::string_view data);

}  // namespace flux2
