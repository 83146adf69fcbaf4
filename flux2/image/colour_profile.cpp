#include "image/colour_profile.hpp"

#include <flux2/image.hpp>
#include "base/check.hpp"

#include <lcms2.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <type_traits>
#include <vector>

namespace flux2 {
namespace {

using Bytes = std::span<const std::byte>;

struct Closes {
    void operator()(void* profile) const { cmsCloseProfile(profile); }
};
using Profile = std::unique_ptr<void, Closes>;

struct Deletes {
    void operator()(void* transform) const { cmsDeleteTransform(transform); }
};
using Transform = std::unique_ptr<void, Deletes>;

// A context of its own, whose errors are told to nobody, for each use: threads share nothing.
struct DeletesContext {
    void operator()(cmsContext context) const { cmsDeleteContext(context); }
};
using Context = std::unique_ptr<std::remove_pointer_t<cmsContext>, DeletesContext>;

constexpr cmsUInt32Number kRgb8 = TYPE_RGB_8;

cmsUInt32Number format_of(PixelLayout layout) {
    switch (layout) {
        case PixelLayout::rgb8:
            return TYPE_RGB_8;
        case PixelLayout::rgb16:
            return TYPE_RGB_16;
        case PixelLayout::grey8:
            return TYPE_GRAY_8 | EXTRA_SH(2);
        case PixelLayout::grey16:
            return TYPE_GRAY_16 | EXTRA_SH(2);
        case PixelLayout::cmyk8:
            return TYPE_CMYK_8_REV;
    }
    fail(ErrorKind::internal, "unknown layout of pixels");
}

std::optional<ColourSpace> space_of(cmsHPROFILE profile) {
    const cmsProfileClassSignature kind = cmsGetDeviceClass(profile);
    if (kind != cmsSigInputClass && kind != cmsSigDisplayClass && kind != cmsSigOutputClass &&
        kind != cmsSigColorSpaceClass) {
        return std::nullopt;
    }
    switch (cmsGetColorSpace(profile)) {
        case cmsSigRgbData:
            return ColourSpace::rgb;
        case cmsSigGrayData:
            return ColourSpace::grey;
        case cmsSigCmykData:
            return ColourSpace::cmyk;
        default:
            return std::nullopt;
    }
}

PixelLayout layout_of(ColourSpace space) {
    return space == ColourSpace::rgb    ? PixelLayout::rgb8
           : space == ColourSpace::grey ? PixelLayout::grey8
                                        : PixelLayout::cmyk8;
}

// A profile beside sRGB, and conversions between them, which are null when they are not possible.
class Conversion {
  public:
    explicit Conversion(Bytes data)
        : context_(cmsCreateContext(nullptr, nullptr)),
          profile_(cmsOpenProfileFromMemTHR(context_.get(), data.data(),
                                            static_cast<cmsUInt32Number>(data.size()))),
          srgb_(cmsCreate_sRGBProfileTHR(context_.get())) {}

    std::optional<ColourSpace> space() const {
        return profile_ && srgb_ ? space_of(profile_.get()) : std::nullopt;
    }
    Transform to_srgb(PixelLayout layout) const {
        // Little CMS would put a table in the place of the exact conversion of 16 bits, up to 5 of
        // 255 away from it.
        const bool has_16_bits = layout == PixelLayout::rgb16 || layout == PixelLayout::grey16;
        return create(profile_, format_of(layout), srgb_, has_16_bits ? cmsFLAGS_NOOPTIMIZE : 0);
    }
    Transform from_srgb() const { return create(srgb_, kRgb8, profile_, 0); }

  private:
    Transform create(const Profile& from, cmsUInt32Number format, const Profile& to,
                     cmsUInt32Number flags) const {
        return Transform(cmsCreateTransformTHR(context_.get(), from.get(), format, to.get(), kRgb8,
                                               INTENT_PERCEPTUAL, flags));
    }

    Context context_;
    Profile profile_, srgb_;
};

// Colours that are spread evenly, of which greys are a part.
std::vector<uint8_t> probe_of(ColourSpace space) {
    std::vector<uint8_t> rgb;
    if (space == ColourSpace::grey) {
        for (int grey = 0; grey < 256; ++grey) {
            rgb.insert(rgb.end(), 3, static_cast<uint8_t>(grey));
        }
        return rgb;
    }
    constexpr int kStep = 15;
    for (int red = 0; red < 256; red += kStep) {
        for (int green = 0; green < 256; green += kStep) {
            for (int blue = 0; blue < 256; blue += kStep) {
                for (const int value : {red, green, blue}) {
                    rgb.push_back(static_cast<uint8_t>(value));
                }
            }
        }
    }
    return rgb;
}

bool changes_little(const Transform& transform, ColourSpace space) {
    if (space == ColourSpace::cmyk) {
        return false;
    }
    const std::vector<uint8_t> before = probe_of(space);
    std::vector<uint8_t> after(before.size());
    cmsDoTransform(transform.get(), before.data(), after.data(),
                   static_cast<cmsUInt32Number>(before.size() / 3));
    return std::equal(before.begin(), before.end(), after.begin(),
                      [](int a, int b) { return std::abs(a - b) <= 1; });
}

// Some pixels at a time: Little CMS counts them in 32 bits.
void run(const Transform& transform, const void* pixels, size_t pixel_bytes,
         std::span<uint8_t> rgb) {
    check(transform != nullptr, ErrorKind::internal, "a colour profile was not examined");
    constexpr size_t kAtOnce = size_t{1} << 16;
    const size_t n = rgb.size() / 3;
    const auto* in = static_cast<const std::byte*>(pixels);
    for (size_t i = 0; i < n; i += kAtOnce) {
        cmsDoTransform(transform.get(), in + i * pixel_bytes, rgb.data() + 3 * i,
                       static_cast<cmsUInt32Number>(std::min(kAtOnce, n - i)));
    }
}

size_t pixel_bytes_of(PixelLayout layout) {
    switch (layout) {
        case PixelLayout::rgb16:
        case PixelLayout::grey16:
            return 6;
        case PixelLayout::cmyk8:
            return 4;
        case PixelLayout::rgb8:
        case PixelLayout::grey8:
            return 3;
    }
    fail(ErrorKind::internal, "unknown layout of pixels");
}

}  // namespace

bool supports_profiles() {
    return true;
}

std::optional<ProfileFacts> examine_profile(Bytes profile) {
    if (profile.size() > kMaxProfileBytes) {
        return std::nullopt;
    }
    const Conversion conversion(profile);
    const std::optional<ColourSpace> space = conversion.space();
    const Transform transform = space ? conversion.to_srgb(layout_of(*space)) : Transform();
    if (!transform) {
        return std::nullopt;
    }
    return ProfileFacts{.space = *space,
                        .is_srgb = changes_little(transform, *space),
                        .is_two_way = *space == ColourSpace::rgb && conversion.from_srgb()};
}

void convert_to_srgb(Bytes profile, PixelLayout layout, const void* pixels,
                     std::span<uint8_t> rgb) {
    const Conversion conversion(profile);
    run(conversion.to_srgb(layout), pixels, pixel_bytes_of(layout), rgb);
}

void convert_from_srgb(Bytes profile, std::span<uint8_t> rgb) {
    const Conversion conversion(profile);
    run(conversion.from_srgb(), rgb.data(), 3, rgb);
}

}  // namespace flux2
