#include "http/base64.hpp"

#include <array>
#include <cstdint>

namespace flux2::server {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// The value of each digit; -1 for other characters.
constexpr std::array<int8_t, 256> make_values() {
    std::array<int8_t, 256> values{};
    values.fill(-1);
    for (size_t i = 0; i < kDigits.size(); ++i) {
        values[static_cast<uint8_t>(kDigits[i])] = static_cast<int8_t>(i);
    }
    return values;
}
constexpr std::array<int8_t, 256> kValues = make_values();

}  // namespace

std::string to_base64(std::string_view bytes) {
    std::string text;
    text.reserve((bytes.size() + 2) / 3 * 4);
    for (size_t i = 0; i < bytes.size(); i += 3) {
        const size_t n = std::min<size_t>(3, bytes.size() - i);
        uint32_t group = 0;
        for (size_t k = 0; k < 3; ++k) {
            group = group << 8 | (k < n ? static_cast<uint8_t>(bytes[i + k]) : 0);
        }
        for (size_t k = 0; k < 4; ++k) {
            text += k <= n ? kDigits[group >> (18 - 6 * k) & 63] : '=';
        }
    }
    return text;
}

std::optional<std::string> from_base64(std::string_view text) {
    std::string bytes;
    bytes.reserve(text.size() / 4 * 3);
    uint32_t group = 0;
    size_t n_digits = 0, n_padding = 0;
    for (const char c : text) {
        if (c == '\r' || c == '\n') {
            continue;
        }
        if (c == '=') {
            ++n_padding;
            continue;
        }
        const int value = kValues[static_cast<uint8_t>(c)];
        if (value < 0 || n_padding > 0) {
            return std::nullopt;
        }
        group = group << 6 | static_cast<uint32_t>(value);
        if (++n_digits % 4 == 0) {
            bytes += static_cast<char>(group >> 16 & 255);
            bytes += static_cast<char>(group >> 8 & 255);
            bytes += static_cast<char>(group & 255);
        }
    }
    const size_t rest = n_digits % 4;
    if (rest == 1 || n_padding > 2 || (n_padding > 0 && (n_digits + n_padding) % 4 != 0)) {
        return std::nullopt;
    }
    if (rest >= 2) {
        group <<= 6 * (4 - rest);
        bytes += static_cast<char>(group >> 16 & 255);
        if (rest == 3) {
            bytes += static_cast<char>(group >> 8 & 255);
        }
    }
    return bytes;
}

}  // namespace flux2::server
