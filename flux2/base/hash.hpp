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

    Hash& add(std::byte byte) {
        value_ = (value_ ^ static_cast<uint64_t>(byte)) * 1099511628211u;
        return *this;
    }
    Hash& add(std::span<const std::byte> bytes) {
        for (const std::byte byte : bytes) {
            add(byte);
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

// Two such hashes from different starts: 128 bits, for keys that stand for contents.
class WideHash {
  public:
    WideHash& add(std::span<const std::byte> bytes) {
        for (const std::byte byte : bytes) {
            first_.add(byte);
            second_.add(byte);
        }
        return *this;
    }
    WideHash& add(std::string_view text) {
        first_.add(text);
        second_.add(text);
        return *this;
    }

    // 32 digits.
    std::string hex() const { return first_.hex() + second_.hex(); }

  private:
    // The last bytes of the starts must differ: otherwise the same contents would collide in both.
    static constexpr uint64_t kOtherStart = 1099511628211u;
    static_assert((kOtherStart ^ Hash::kStart) % 256 != 0);

    Hash first_, second_{kOtherStart};
};

}  // namespace flux2
