// What is built without Little CMS: profiles are told apart by their headers, and no colour is
// converted.
#include "image/colour_profile.hpp"

#include <flux2/image.hpp>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace flux2 {
namespace {

using Bytes = std::span<const std::byte>;

// The header of a profile (ICC.1, section 7.2): its space of colours, and what marks it.
constexpr size_t kSpaceAt = 16;
constexpr size_t kMarkAt = 36;
constexpr size_t kHeaderBytes = 128;

std::string_view word_at(Bytes profile, size_t at) {
    return {reinterpret_cast<const char*>(profile.data()) + at, 4};
}

// In its description, in one byte a character or in two.
bool names_srgb(Bytes profile) {
    const std::string_view text(reinterpret_cast<const char*>(profile.data()), profile.size());
    constexpr std::string_view kWide("s\0R\0G\0B", 7);
    return text.find("sRGB") != std::string_view::npos ||
           text.find(kWide) != std::string_view::npos;
}

}  // namespace

bool supports_profiles() {
    return false;
}

std::optional<ProfileFacts> examine_profile(Bytes profile) {
    if (profile.size() < kHeaderBytes || profile.size() > kMaxProfileBytes ||
        word_at(profile, kMarkAt) != "acsp") {
        return std::nullopt;
    }
    const std::string_view space = word_at(profile, kSpaceAt);
    if (space == "RGB ") {
        return ProfileFacts{ColourSpace::rgb, names_srgb(profile), true};
    }
    if (space == "GRAY" || space == "CMYK") {
        return ProfileFacts{space == "GRAY" ? ColourSpace::grey : ColourSpace::cmyk, false, false};
    }
    return std::nullopt;
}

void convert_to_srgb(Bytes, PixelLayout, const void* pixels, std::span<uint8_t> rgb) {
    std::memmove(rgb.data(), pixels, rgb.size());
}

void convert_from_srgb(Bytes, std::span<uint8_t>) {}

}  // namespace flux2
