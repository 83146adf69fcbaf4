// Colours of pictures with ICC profiles and of CMYK against what Pillow with Little CMS makes of
// them (fixtures/colour), profiles in all formats, and damaged ones.
#include "image/colour_profile.hpp"

#include <flux2/image.hpp>
#include <flux2/log.hpp>
#include "image/codec.hpp"
#include "image/embedded_profile.hpp"
#include "image/jpeg_segment.hpp"
#include "support/png_builder.hpp"
#include "support/smooth_image.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using namespace test;

fs::path colour_fixture(const std::string& name) {
    return fixture("colour/" + name);
}

// The warnings that a function logs.
template <typename Function>
std::vector<std::string> warnings_of(const Function& function) {
    std::vector<std::string> lines;
    set_log([&](LogLevel level, const std::string& line) {
        CHECK(level == LogLevel::warning);
        lines.push_back(line);
    });
    function();
    set_log({});
    return lines;
}

int largest_difference(const Image& a, const Image& b) {
    REQUIRE(a.width == b.width);
    REQUIRE(a.height == b.height);
    int largest = 0;
    for (size_t i = 0; i < a.rgb.size(); ++i) {
        largest = std::max(largest, std::abs(a.rgb[i] - b.rgb[i]));
    }
    return largest;
}

// Cases about conversion are about builds with Little CMS.
#define PROFILE_TEST_CASE(name) TEST_CASE(name* doctest::skip(!supports_profiles()))

// Decoders of JPEG differ by 1, which conversion can double.
constexpr int kMostDifference = 2;

void check_colours(const std::string& name) {
    CAPTURE(name);
    const Image expected = load_image(colour_fixture(name + ".srgb.png"));
    CHECK(largest_difference(load_image(colour_fixture(name)), expected) <= kMostDifference);
}

TEST_CASE("a CMYK JPEG without a profile has Pillow's colours, with and without Adobe's segment") {
    for (const char* name : {"cmyk-adobe.jpg", "cmyk-plain.jpg", "cmyk-ycck.jpg"}) {
        check_colours(name);
    }
    // A mask is its brightness: that of the same colours.
    const Image picture = load_image(colour_fixture("cmyk-plain.jpg"));
    const Mask mask = load_mask(colour_fixture("cmyk-plain.jpg"));
    for (size_t i = 0; i < mask.values.size(); ++i) {
        const double expected = 0.299 * picture.rgb[3 * i] + 0.587 * picture.rgb[3 * i + 1] +
                                0.114 * picture.rgb[3 * i + 2];
        REQUIRE(std::abs(mask.values[i] - expected) <= 1.0);
    }
}

PROFILE_TEST_CASE("pictures with a profile have the colours of Pillow with Little CMS in sRGB") {
    for (const char* name :
         {"p3.png", "p3.jpg", "adobe-rgb.png", "adobe-rgb.jpg", "adobe-rgb-grey.jpg",
          "prophoto-16.png", "linear-16.png", "scanner.png", "cmyk-press.jpg",
          "cmyk-press-plain.jpg", "grey-1.8.jpg", "grey-2.2.png", "srgb.png"}) {
        check_colours(name);
    }
    if (supports_webp()) {
        check_colours("p3-lossy.webp");
        check_colours("p3-lossless.webp");
    }
}

PROFILE_TEST_CASE("bytes are kept with a profile of RGB that is not sRGB, others are converted") {
    for (const char* name : {"p3.png", "p3.jpg", "adobe-rgb.png", "linear-16.png"}) {
        CAPTURE(name);
        const fs::path file = colour_fixture(name);
        const Image kept = load_image_with_profile(file);
        const Bytes bytes = read_file(file);
        const bool is_png = file.extension() == ".png";
        CHECK(kept.profile ==
              read_profile(is_png ? ImageFormat::png : ImageFormat::jpeg, bytes, file.string()));
        const Pixels raw = decode_pixels(bytes, file.string());
        CHECK(std::equal(kept.rgb.begin(), kept.rgb.end(), raw.values.get()));
        const Image converted = load_image(file);
        CHECK(converted.profile.empty());
        CHECK(largest_difference(converted, kept) > 20);
        CHECK(largest_difference(to_srgb(kept), converted) <= 1);  // 16 bits are rounded first
    }
    for (const char* name : {"scanner.png", "cmyk-press.jpg", "grey-2.2.png", "srgb.png"}) {
        CAPTURE(name);
        const Image kept = load_image_with_profile(colour_fixture(name));
        CHECK(kept.profile.empty());
        CHECK(kept.rgb == load_image(colour_fixture(name)).rgb);
    }
}

// The inverse of the light's share that IEC 61966-2-1 gives for a value of sRGB.
double srgb_of_light(double light) {
    return light <= 0.0031308 ? 12.92 * light : 1.055 * std::pow(light, 1 / 2.4) - 0.055;
}

PROFILE_TEST_CASE("all 16 bits of a PNG count when its colours are converted") {
    const Image with_profile = load_image_with_profile(colour_fixture("linear-16.png"));
    Bytes row = bytes({0});
    std::vector<double> expected;
    constexpr int kValues = 200;
    for (int i = 0; i < kValues; ++i) {
        const auto value = static_cast<uint32_t>(7 * i);  // below 6 of 255 in 8 bits
        row = row + big_endian(value, 2) + big_endian(value, 2) + big_endian(value, 2);
        expected.push_back(255 * srgb_of_light(value / 65535.0));
    }
    const std::string compressed = deflate(with_profile.profile);
    const Bytes profile = chunk("iCCP", bytes({'x', 0, 0}) + bytes_of(compressed));
    const Image image = decode_image(png(kValues, 1, 16, rgb, row, profile));
    for (size_t i = 0; i < expected.size(); ++i) {
        CAPTURE(i);
        // Half a step of rounding, and as much of the profiles' own.
        CHECK(std::abs(image.rgb[3 * i] - expected[i]) <= 1.0);
    }
    CHECK(image.rgb[3 * 199] > 30);
}

// A profile whose data go on behind its end, which readers ignore.
Bytes long_profile(size_t size) {
    Bytes profile = load_image_with_profile(colour_fixture("p3.png")).profile;
    REQUIRE(profile.size() < size);
    uint32_t state = 1;
    while (profile.size() < size) {
        state = state * 1664525u + 1013904223u;
        profile.push_back(static_cast<std::byte>(state >> 24));
    }
    return profile;
}

PROFILE_TEST_CASE("a profile comes back from every format, with the texts beside it") {
    const std::vector<ImageText> texts = {{"parameters", "Steps: 4"}, {"flux2", "{\"a\": 1}"}};
    std::vector<ImageFormat> formats = {ImageFormat::png, ImageFormat::jpeg};
    if (supports_webp()) {
        formats.push_back(ImageFormat::webp);
    }
    for (const ImageFormat format : formats) {
        for (const size_t size : {size_t{2045}, size_t{65519}, size_t{65520}, size_t{150'000}}) {
            CAPTURE(size);
            Image image = smooth_image(20, 10);
            image.profile = long_profile(size);
            for (const auto& given : {texts, {}}) {
                const Bytes file = encode_image(image, format, given, {.lossless = true});
                const Image back = decode_image_with_profile(file);
                CHECK(back.profile == image.profile);
                CHECK(largest_difference(back, image) <= (format == ImageFormat::jpeg ? 6 : 0));
                const std::vector<ImageText> read = decode_image_texts(file);
                REQUIRE(read.size() == given.size());
                for (size_t i = 0; i < read.size(); ++i) {
                    CHECK(read[i].text == given[i].text);
                }
            }
        }
    }
    Image image = smooth_image(20, 10);
    image.profile = long_profile(3000);
    CHECK(encode_image(image, ImageFormat::bmp) == encode_image(to_srgb(image), ImageFormat::bmp));
    image.profile.resize(kMaxProfileBytes + 1);
    CHECK(error_of([&] { encode_image(image); }).mentions("at most 16707345"));
}

// The file with its segments of a profile, as `change` leaves them.
template <typename Change>
Bytes with_parts(const Bytes& jpeg, const Change& change) {
    std::vector<Bytes> parts;
    size_t begin = 0;
    size_t end = 0;
    JpegSegments segments(jpeg);
    while (const auto segment = segments.next()) {
        if (segment->marker == kJpegApp2) {
            end = segment->end;
            parts.emplace_back(segment->data.begin(), segment->data.end());
            begin = parts.size() == 1 ? end - segment->data.size() - 4 : begin;
        }
    }
    REQUIRE(parts.size() == 3);
    change(parts);
    Bytes file(jpeg.begin(), jpeg.begin() + static_cast<std::ptrdiff_t>(begin));
    for (const Bytes& part : parts) {
        append_jpeg_segment(file, kJpegApp2,
                            {reinterpret_cast<const char*>(part.data()), part.size()});
    }
    file.insert(file.end(), jpeg.begin() + static_cast<std::ptrdiff_t>(end), jpeg.end());
    return file;
}

PROFILE_TEST_CASE("the segments of a JPEG's profile come in any order, but all and once") {
    Image image = smooth_image(20, 10);
    image.profile = long_profile(150'000);
    const Bytes jpeg = encode_image(image, ImageFormat::jpeg);
    using Parts = std::vector<Bytes>;
    const Bytes reversed =
        with_parts(jpeg, [](Parts& parts) { std::reverse(parts.begin(), parts.end()); });
    REQUIRE(reversed != jpeg);
    CHECK(decode_image_with_profile(reversed).profile == image.profile);

    constexpr size_t kNumberAt = 12;
    const std::vector<void (*)(Parts&)> damages = {
        [](Parts& parts) { parts.pop_back(); },
        [](Parts& parts) { parts.erase(parts.begin()); },
        [](Parts& parts) { parts.push_back(parts[1]); },
        [](Parts& parts) { parts[1][kNumberAt] = std::byte{0}; },
        [](Parts& parts) { parts[1][kNumberAt] = std::byte{4}; },
        [](Parts& parts) { parts[2][kNumberAt + 1] = std::byte{9}; },
        [](Parts& parts) { parts[0].resize(kNumberAt + 1); },
        [](Parts& parts) { parts[0].resize(kNumberAt + 2); },
    };
    const Image plain = decode_image(encode_image(Image{20, 10, image.rgb}, ImageFormat::jpeg));
    for (size_t i = 0; i < damages.size(); ++i) {
        CAPTURE(i);
        Image read;
        const auto warnings =
            warnings_of([&] { read = decode_image(with_parts(jpeg, damages[i]), "a.jpg"); });
        REQUIRE(warnings.size() == 1);
        CHECK(has(warnings[0], "a.jpg: its colour profile is damaged"));
        CHECK(read.rgb == plain.rgb);
    }
}

TEST_CASE("a profile cut off anywhere is ignored with a warning, or used as it is") {
    const Image image = smooth_image(8, 8);
    const Bytes whole = read_file(colour_fixture("adobe-rgb.png"));
    const Bytes profile = read_profile(ImageFormat::png, whole, "adobe-rgb.png").value();
    size_t n_ignored = 0;
    for (size_t size = 1; size < profile.size(); ++size) {
        CAPTURE(size);
        Image cut = image;
        cut.profile.assign(profile.begin(), profile.begin() + static_cast<std::ptrdiff_t>(size));
        Image read;
        const auto warnings = warnings_of([&] { read = decode_image(encode_image(cut), "a.png"); });
        REQUIRE(read.rgb.size() == image.rgb.size());
        if (!warnings.empty()) {
            CHECK(warnings.size() == 1);
            CHECK(has(warnings[0], "a.png: "));
            CHECK(read.rgb == image.rgb);
            n_ignored++;
        }
    }
    CHECK(n_ignored > 128);  // at least where its header is cut
}

PROFILE_TEST_CASE("a profile with any byte changed is used or ignored, nothing else") {
    size_t n_used = 0;
    size_t n_tried = 0;
    // Those with tables take a hundred times as long.
    const std::vector<std::pair<const char*, size_t>> profiles = {
        {"adobe-rgb.png", 3}, {"scanner.png", 31}, {"grey-2.2.png", 3}};
    for (const auto& [name, step] : profiles) {
        const Bytes profile =
            read_profile(ImageFormat::png, read_file(colour_fixture(name)), name).value();
        // In the header, the list of tags and the beginning of what they hold.
        for (size_t at = 0; at < std::min<size_t>(profile.size(), 500); at += step) {
            Bytes changed = profile;
            changed[at] ^= std::byte{0xff};
            n_tried++;
            const auto facts = examine_profile(changed);
            if (!facts) {
                continue;
            }
            n_used++;
            std::vector<uint8_t> pixels = {0, 40, 80, 120, 160, 200, 240, 255, 1, 2, 3, 4};
            std::vector<uint8_t> rgb(9);
            const PixelLayout layout = facts->space == ColourSpace::grey   ? PixelLayout::grey8
                                       : facts->space == ColourSpace::cmyk ? PixelLayout::cmyk8
                                                                           : PixelLayout::rgb8;
            CHECK_NOTHROW(convert_to_srgb(changed, layout, pixels.data(), rgb));
        }
    }
    CHECK(n_used > n_tried / 2);
    CHECK(n_used < n_tried);
}

TEST_CASE("a profile that is broken in a PNG or inflates without end is ignored with a warning") {
    const Image image{2, 1, {200, 30, 40, 50, 160, 70}};
    const Bytes row = bytes({0, 200, 30, 40, 50, 160, 70});
    const auto read_with = [&](const Bytes& broken) {
        Image read;
        const auto warnings =
            warnings_of([&] { read = decode_image(png(2, 1, 8, rgb, row, broken), "a.png"); });
        REQUIRE(warnings.size() == 1);
        CHECK(has(warnings[0], "a.png: its colour profile is damaged"));
        CHECK(has(warnings[0], "its colours are taken for sRGB"));
        CHECK(read.rgb == image.rgb);
    };
    const Bytes profile =
        read_profile(ImageFormat::png, read_file(colour_fixture("p3.png")), "p3").value();
    const Bytes good = bytes({'x', 0, 0}) + bytes_of(deflate(profile));
    Bytes wrong_checksum = chunk("iCCP", good);
    wrong_checksum.back() ^= std::byte{1};
    read_with(wrong_checksum);
    read_with(chunk("iCCP", {}));
    read_with(chunk("iCCP", bytes({'x', 'y'})));
    read_with(chunk("iCCP", bytes({'x', 0})));
    read_with(chunk("iCCP", bytes({'x', 0, 1}) + bytes_of(deflate(profile))));
    read_with(chunk("iCCP", bytes({'x', 0, 0, 1, 2, 3, 4})));
    read_with(chunk("iCCP", bytes({'x', 0, 0}) + bytes_of(deflate({}))));
    const Bytes zeros(kMaxProfileBytes + 1);
    const Bytes bomb = chunk("iCCP", bytes({'x', 0, 0}) + bytes_of(deflate(zeros)));
    const AllocationWatch watch;
    read_with(bomb);
    CHECK(watch.largest() <= kMaxProfileBytes + 1);
}

TEST_CASE("a profile for other pixels than the picture's is ignored with a warning") {
    const auto profile_of = [](const char* name) {
        const fs::path file = colour_fixture(name);
        return read_profile(file.extension() == ".png" ? ImageFormat::png : ImageFormat::jpeg,
                            read_file(file), name)
            .value();
    };
    const auto check_ignored = [](const Image& image, const char* words) {
        Image read;
        const auto warnings =
            warnings_of([&] { read = decode_image(encode_image(image), "a.png"); });
        REQUIRE(warnings.size() == 1);
        CHECK(has(warnings[0], words));
        CHECK(read.rgb == image.rgb);
    };
    Image image = smooth_image(4, 4);
    image.profile = profile_of("cmyk-press.jpg");
    check_ignored(image, "its colour profile is for CMYK, its pixels are RGB");
    image.profile = profile_of("grey-2.2.png");
    check_ignored(image, "its colour profile is for grey, its pixels are RGB");
}

PROFILE_TEST_CASE("a picture whose profile cannot be used is refused") {
    Image image = smooth_image(4, 4);
    CHECK(to_srgb(image).rgb == image.rgb);
    image.profile = bytes_of("no profile");
    const auto error = error_of([&] { to_srgb(image); });
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("the colour profile of a picture is damaged"));
    image.profile =
        read_profile(ImageFormat::png, read_file(colour_fixture("grey-2.2.png")), "grey").value();
    CHECK(error_of([&] { to_srgb(image); }).mentions("is not one of RGB"));
}

TEST_CASE("a build without Little CMS says so, and keeps profiles with their bytes" *
          doctest::skip(supports_profiles())) {
    for (const char* name : {"p3.png", "grey-2.2.png", "cmyk-press.jpg"}) {
        const auto warnings = warnings_of([&] { load_image_with_profile(colour_fixture(name)); });
        REQUIRE(warnings.size() == 1);
        CHECK(has(warnings[0], "this build of flux2 cannot use"));
        CHECK(has(warnings[0], "liblcms2-dev"));
    }
    CHECK(warnings_of([&] { load_image(colour_fixture("srgb.png")); }).empty());
    CHECK_FALSE(load_image_with_profile(colour_fixture("p3.png")).profile.empty());
}

}  // namespace
}  // namespace flux2
