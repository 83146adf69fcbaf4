// ICC profiles: what they are for, and conversion of pixels between them and sRGB, by Little CMS as
// Pillow's ImageCms.profileToProfile does it by default: perceptual intent, no flags. In a build
// without it (no_lcms.cpp) nothing is converted; supports_profiles() of flux2/image.hpp says which
// build it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace flux2 {

// The largest profile that is read or written: what the segments of a JPEG can hold.
constexpr size_t kMaxProfileBytes = size_t{255} * 65519;

// The pixels that a profile is for.
enum class ColourSpace { rgb, grey, cmyk };

struct ProfileFacts {
    ColourSpace space = ColourSpace::rgb;
    bool is_srgb = false;     // changes no colour by more than 1 of 255
    bool is_two_way = false;  // one of RGB into which colours can be converted, too
};

// Nothing when the data are no profile, damaged, or one of anything else than such pixels.
std::optional<ProfileFacts> examine_profile(std::span<const std::byte> profile);

// How pixels lie in memory, without padding.
enum class PixelLayout {
    rgb8,
    rgb16,
    grey8,   // three equal values
    grey16,  // three equal values
    cmyk8,   // 0 is full ink, as JPEGs have it
};

// From as many pixels of this layout as `rgb` has; both may be the same memory when the layout is
// one of 8 bits and three values. The layout must be one of the profile's space. Throws internal
// when the profile is none that examine_profile takes.
void convert_to_srgb(std::span<const std::byte> profile, PixelLayout layout, const void* pixels,
                     std::span<uint8_t> rgb);

// In place, by a profile that is_two_way. Throws internal for another one.
void convert_from_srgb(std::span<const std::byte> profile, std::span<uint8_t> rgb);

}  // namespace flux2
