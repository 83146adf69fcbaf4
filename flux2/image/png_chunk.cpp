#include "image/png_chunk.hpp"

#include "base/check.hpp"

#include <array>

namespace flux2 {
namespace {

using Bytes = std::span<const std::byte>;

constexpr size_t kSignature = 8;  // bytes before the first chunk

// CRC-32 of every byte value, with the reversed polynomial of ISO 3309 (PNG, annex D).
constexpr std::array<uint32_t, 256> kCrcTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0u);
        }
        table[i] = crc;
    }
    return table;
}();

// The checksum covers the type and the data.
uint32_t chunk_checksum(std::string_view type, Bytes data) {
    uint32_t crc = ~0u;
    for (const Bytes bytes : {std::as_bytes(std::span(type)), data}) {
        for (const std::byte byte : bytes) {
            crc = crc >> 8 ^ kCrcTable[(crc ^ std::to_integer<uint32_t>(byte)) & 255];
        }
    }
    return ~crc;
}

void append_big_endian32(std::vector<std::byte>& out, uint32_t value) {
    for (const int shift : {24, 16, 8, 0}) {
        out.push_back(static_cast<std::byte>(value >> shift & 255));
    }
}

void append(std::vector<std::byte>& out, Bytes bytes) {
    out.insert(out.end(), bytes.begin(), bytes.end());
}

}  // namespace

uint32_t big_endian32(Bytes bytes, size_t i) {
    uint32_t value = 0;
    for (const std::byte byte : bytes.subspan(i, 4)) {
        value = value << 8 | std::to_integer<uint32_t>(byte);
    }
    return value;
}

bool PngChunk::intact() const {
    return checksum == chunk_checksum(type, data);
}

PngChunks::PngChunks(Bytes bytes, const std::string& file)
    : bytes_(bytes), file_(file), at_(kSignature) {}

std::optional<PngChunk> PngChunks::next() {
    if (ended_) {
        return std::nullopt;
    }
    const size_t rest = bytes_.size() - at_;
    const uint64_t length = rest < kPngChunkOverhead ? 0 : big_endian32(bytes_, at_);
    check(length + kPngChunkOverhead <= rest, ErrorKind::bad_file, file_,
          ": the PNG ends within a chunk, after ", bytes_.size(),
          " bytes; the file is truncated or damaged");
    const size_t size = static_cast<size_t>(length);
    const PngChunk chunk = {{reinterpret_cast<const char*>(bytes_.data()) + at_ + 4, 4},
                            bytes_.subspan(at_ + 8, size),
                            big_endian32(bytes_, at_ + 8 + size)};
    at_ += kPngChunkOverhead + size;
    ended_ = chunk.type == "IEND";
    return chunk;
}

void append_png_chunk(std::vector<std::byte>& out, std::string_view type, std::string_view data) {
    const Bytes content = std::as_bytes(std::span(data));
    append_big_endian32(out, static_cast<uint32_t>(data.size()));
    append(out, std::as_bytes(std::span(type)));
    append(out, content);
    append_big_endian32(out, chunk_checksum(type, content));
}

}  // namespace flux2
