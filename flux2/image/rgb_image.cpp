#include "image/rgb_image.hpp"

#include "base/check.hpp"
#include "base/log.hpp"
#include "image/colour_profile.hpp"
#include "image/embedded_profile.hpp"
#include "image/image.hpp"
#include "image/jpeg_cmyk.hpp"
#include "image/png_chunk.hpp"
#include "image/webp_codec.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace flux2 {
namespace {

using Bytes = std::span<const std::byte>;

// ---- Which profile holds ----

struct UsedProfile {
    std::vector<std::byte> data;
    ProfileFacts facts;
};

const char* words_for(ColourSpace space) {
    return space == ColourSpace::rgb ? "RGB" : space == ColourSpace::grey ? "grey" : "CMYK";
}

// A space that pixels can be taken for: grey ones are RGB, too.
bool fits(ColourSpace profile, ColourSpace pixels) {
    return profile == pixels || (profile == ColourSpace::rgb && pixels == ColourSpace::grey);
}

// Nothing when the colours need no conversion.
std::optional<UsedProfile> used_profile(ImageFormat format, Bytes bytes, const std::string& file,
                                        ColourSpace pixels) {
    std::optional<std::vector<std::byte>> data = read_profile(format, bytes, file);
    if (data && data->empty()) {
        return std::nullopt;
    }
    const auto facts = data ? examine_profile(*data) : std::nullopt;
    const char* taken_for = pixels == ColourSpace::cmyk ? "CMYK without a profile" : "sRGB";
    if (!facts) {
        log(LogLevel::warning, concat(file,
                                      ": its colour profile is damaged or of an unknown "
                                      "kind; its colours are taken for ",
                                      taken_for));
        return std::nullopt;
    }
    if (!fits(facts->space, pixels)) {
        log(LogLevel::warning, concat(file, ": its colour profile is for ", words_for(facts->space),
                                      ", its pixels are ", words_for(pixels),
                                      "; its colours are taken for ", taken_for));
        return std::nullopt;
    }
    if (facts->is_srgb) {
        return std::nullopt;
    }
    if (!supports_profiles()) {
        log(LogLevel::warning,
            concat(file,
                   ": has a colour profile, which this build of flux2 cannot use; its "
                   "colours are taken for ",
                   taken_for,
                   "; convert it to sRGB, or build flux2 with Little CMS installed (Debian: "
                   "liblcms2-dev, Homebrew: little-cms2)"));
        if (facts->space != ColourSpace::rgb) {
            return std::nullopt;
        }
    }
    return UsedProfile{std::move(*data), *facts};
}

// ---- Pixels ----

template <typename Value>
Value over_white(uint64_t value, uint64_t alpha) {
    constexpr uint64_t kWhite = std::numeric_limits<Value>::max();
    return static_cast<Value>((value * alpha + kWhite * (kWhite - alpha) + kWhite / 2) / kWhite);
}

void warn_of_transparency(const std::string& file) {
    log(LogLevel::warning, concat(file, ": has transparent pixels, whose hidden colours now show; ",
                                  Setting::alpha, " white blends them with white"));
}

// Three values for each pixel of Pixels or Pixels16.
template <typename AnyPixels>
auto rgb_values(const AnyPixels& pixels, const std::string& file, Alpha alpha) {
    using Value = typename decltype(pixels.values)::element_type;
    constexpr Value kOpaque = std::numeric_limits<Value>::max();
    const auto n_channels = static_cast<size_t>(pixels.n_channels);
    const bool has_alpha = n_channels % 2 == 0;
    const size_t green = n_channels >= 3 ? 1 : 0;  // grey: one channel for all three
    const size_t blue = 2 * green;
    const size_t n = static_cast<size_t>(pixels.width) * static_cast<size_t>(pixels.height);
    std::vector<Value> rgb(3 * n);
    const Value* in = pixels.values.get();
    Value* out = rgb.data();
    bool opaque = true;
    for (size_t i = 0; i < n; i++, in += n_channels) {
        const Value opacity = has_alpha ? in[n_channels - 1] : kOpaque;
        opaque = opaque && opacity == kOpaque;
        for (const size_t channel : {size_t{0}, green, blue}) {
            *out++ = alpha == Alpha::white ? over_white<Value>(in[channel], opacity) : in[channel];
        }
    }
    if (alpha == Alpha::drop && !opaque) {
        warn_of_transparency(file);
    }
    return rgb;
}

bool has_16_bits(ImageFormat format, Bytes bytes) {
    constexpr size_t kDepthAt = 24;  // after the signature, the chunk's length and name, the sides
    return format == ImageFormat::png && bytes[kDepthAt] == std::byte{16};
}

bool is_grey(const Pixels& pixels) {
    return pixels.n_channels <= 2;
}

Image image_of_inks(Bytes jpeg, const std::string& file) {
    Pixels inks = decode_cmyk(jpeg, file);
    const auto profile = used_profile(ImageFormat::jpeg, jpeg, file, ColourSpace::cmyk);
    if (!profile) {
        const Pixels pixels = rgb_of_inks(std::move(inks));
        return {pixels.width, pixels.height, rgb_values(pixels, file, Alpha::drop)};
    }
    const size_t n = static_cast<size_t>(inks.width) * static_cast<size_t>(inks.height);
    Image image{inks.width, inks.height, std::vector<uint8_t>(3 * n)};
    convert_to_srgb(profile->data, PixelLayout::cmyk8, inks.values.get(), image.rgb);
    return image;
}

// All bits of a value count where colours far from sRGB are converted.
Image converted_from_16_bits(Bytes png, const std::string& file, Alpha alpha,
                             const UsedProfile& profile) {
    const Pixels16 pixels = decode_pixels_16(png, file);
    const std::vector<uint16_t> rgb = rgb_values(pixels, file, alpha);
    Image image{pixels.width, pixels.height, std::vector<uint8_t>(rgb.size())};
    convert_to_srgb(
        profile.data,
        profile.facts.space == ColourSpace::grey ? PixelLayout::grey16 : PixelLayout::rgb16,
        rgb.data(), image.rgb);
    return image;
}

}  // namespace

Pixels file_pixels(ImageFormat format, Bytes bytes, const std::string& file) {
    if (format == ImageFormat::webp) {
        return decode_webp(bytes, file);
    }
    return format == ImageFormat::jpeg && has_four_planes(bytes)
               ? rgb_of_inks(decode_cmyk(bytes, file))
               : decode_pixels(bytes, file);
}

Image rgb_image(ImageFormat format, Bytes bytes, const std::string& file, Alpha alpha,
                ProfileUse use) {
    if (format == ImageFormat::jpeg && has_four_planes(bytes)) {
        return image_of_inks(bytes, file);
    }
    const Pixels pixels = file_pixels(format, bytes, file);
    const auto profile =
        used_profile(format, bytes, file, is_grey(pixels) ? ColourSpace::grey : ColourSpace::rgb);
    const bool keeps = profile && use == ProfileUse::keep && profile->facts.is_two_way;
    if (profile && !keeps && supports_profiles() && has_16_bits(format, bytes)) {
        return converted_from_16_bits(bytes, file, alpha, *profile);
    }
    Image image{pixels.width, pixels.height, rgb_values(pixels, file, alpha)};
    if (keeps) {
        image.profile = profile->data;
    } else if (profile) {
        convert_to_srgb(
            profile->data,
            profile->facts.space == ColourSpace::grey ? PixelLayout::grey8 : PixelLayout::rgb8,
            image.rgb.data(), image.rgb);
    }
    return image;
}

Image to_srgb(const Image& image) {
    check_image(image);
    if (image.profile.empty()) {
        return image;
    }
    const auto facts = examine_profile(image.profile);
    check(facts && facts->space == ColourSpace::rgb, ErrorKind::bad_argument,
          "the colour profile of a picture ",
          facts ? "is not one of RGB" : "is damaged or of an unknown kind",
          "; convert the picture to sRGB and leave it out");
    Image converted{image.width, image.height, image.rgb};
    convert_to_srgb(image.profile, PixelLayout::rgb8, converted.rgb.data(), converted.rgb);
    return converted;
}

}  // namespace flux2
