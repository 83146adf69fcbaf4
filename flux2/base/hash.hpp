// FNV-1a in 64 bits: for keys and to detect damage; not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace flux2 {

class Hash {
  public:
    static constexpr uint64_t kStart = 14695981039346656037u;

    explicit Hash(uint64_t start = kStart) : value_(start) {}

    Hash& add(std::span<const std::byte> bytes) {
        for (const std::byte byte : bytes) {
            value_ = (value_ ^ static_cast<uint64_t>(byte)) * 1099511628211u;
        }
        return *this;
    }
    // The length is hashed too, so that ("ab", "c") and ("a", "bc") differ.
    Hash& add(std::string_view text) {
        const uint64_t size = text.size();
        add(std::as_bytes(std::span(&size, 1)));
        return add(std::as_bytes(std::span(text)));
    }

    // 16 digits.
    std::string hex() const {
        std::string text;
        for (int shift = 60; shift >= 0; shift -= 4) {
            text += "0123456789abcdef"[value_ >> shift & 15];
        }
        return text;
    }

  private:
    uint64_t value_;
};

}  // namespace flux2
