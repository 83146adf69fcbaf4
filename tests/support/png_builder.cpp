#include "support/png_builder.hpp"

namespace flux2::test {
namespace {

uint32_t crc32(const Bytes& data) {
    uint32_t crc = ~0u;
    for (const std::byte byte : data) {
        crc ^= std::to_integer<uint32_t>(byte);
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320 : 0);
        }
    }
    return ~crc;
}

// One stored block of at most 65535 bytes.
Bytes zlib_stored(const Bytes& data) {
    uint32_t a = 1;
    uint32_t b = 0;
    for (const std::byte byte : data) {
        a = (a + std::to_integer<uint32_t>(byte)) % 65521;
        b = (b + a) % 65521;
    }
    const int size = static_cast<int>(data.size());
    return bytes({0x78, 0x01, 0x01, size & 255, size >> 8, ~size & 255, (~size >> 8) & 255}) +
           data + big_endian(b << 16 | a);
}

}  // namespace

Bytes big_endian(uint32_t value, int n_bytes) {
    Bytes result;
    for (int i = n_bytes - 1; i >= 0; i--) {
        result.push_back(static_cast<std::byte>(value >> (8 * i)));
    }
    return result;
}

Bytes little_endian(uint32_t value, int n_bytes) {
    const Bytes reversed = big_endian(value, n_bytes);
    return {reversed.rbegin(), reversed.rend()};
}

Bytes bytes(std::initializer_list<int> values) {
    Bytes result;
    for (const int value : values) {
        result.push_back(static_cast<std::byte>(value));
    }
    return result;
}

Bytes operator+(Bytes a, const Bytes& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

Bytes chunk(std::string_view type, const Bytes& data) {
    const Bytes body = bytes_of(type) + data;
    return big_endian(static_cast<uint32_t>(data.size())) + body + big_endian(crc32(body));
}

Bytes png(uint32_t width, uint32_t height, int depth, Colour colour, const Bytes& rows,
          const Bytes& more) {
    return bytes({0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}) +
           chunk("IHDR", big_endian(width) + big_endian(height) + bytes({depth, colour, 0, 0, 0})) +
           more + chunk("IDAT", zlib_stored(rows)) + chunk("IEND", {});
}

}  // namespace flux2::test
