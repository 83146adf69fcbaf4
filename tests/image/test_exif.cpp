#include "image/exif.hpp"

#include <flux2/image.hpp>
#include "support/png_builder.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <array>

namespace flux2 {
namespace {

using namespace test;

using Number = Bytes (*)(uint32_t value, int n_bytes);

struct Entry {
    uint32_t tag = 0x0112;
    uint32_t type = 3;
    uint32_t count = 1;
    uint32_t value = 0;
};

// EXIF data with one directory, in either byte order. Short values are left-aligned in their four
// bytes.
Bytes exif(Number number, const std::vector<Entry>& entries) {
    Bytes data = bytes_of(number == big_endian ? "MM" : "II") + number(42, 2) + number(8, 4) +
                 number(static_cast<uint32_t>(entries.size()), 2);
    for (const Entry& entry : entries) {
        data = data + number(entry.tag, 2) + number(entry.type, 2) + number(entry.count, 4) +
               number(entry.value, 2) + bytes({0, 0});
    }
    return data + number(0, 4);
}

Bytes exif(Number number, uint32_t orientation) {
    return exif(number, {{.tag = 0x010f, .type = 2, .count = 3, .value = 7},
                         {.value = orientation},
                         {.tag = 0x0128, .value = 2}});
}

// A picture of 2 x 3 pixels, and how it is to be seen by its orientation (CIPA DC-008, 4.6.4):
// a b
// c d
// e f
constexpr std::string_view kStored = "abcdef";
constexpr std::array<std::string_view, 8> kUprights = {"abcdef", "badcfe", "fedcba", "efcdab",
                                                       "acebdf", "ecafdb", "fdbeca", "bdface"};

std::string letters(const Image& image) {
    std::string result;
    for (size_t i = 0; i < image.rgb.size(); i += 3) {
        result += static_cast<char>(image.rgb[i]);
        CHECK(image.rgb[i + 1] == 1);
        CHECK(image.rgb[i + 2] == 2);
    }
    return result;
}

Bytes png_with(const Bytes& more) {
    Bytes rows;
    for (size_t i = 0; i < kStored.size(); i++) {
        rows = rows + (i % 2 == 0 ? bytes({0}) : Bytes{}) + bytes({kStored[i], 1, 2});
    }
    return png(2, 3, 8, rgb, rows, more);
}

TEST_CASE("a PNG is turned upright in all eight orientations") {
    for (const Number number : {big_endian, little_endian}) {
        for (uint32_t orientation = 1; orientation <= 8; orientation++) {
            CAPTURE(orientation);
            const Bytes data = exif(number, orientation);
            const Image image = decode_image(png_with(chunk("eXIf", data)), "test.png");
            CHECK(image.width == (orientation < 5 ? 2 : 3));
            CHECK(image.height == (orientation < 5 ? 3 : 2));
            CHECK(letters(image) == kUprights[orientation - 1]);
        }
    }
}

Bytes jpeg_segment(int marker, const Bytes& content) {
    return bytes({0xff, marker}) + big_endian(static_cast<uint32_t>(content.size()) + 2, 2) +
           content;
}

// A JPEG, red left, green right, dark below, with segments after its first marker.
Bytes jpeg_with(const Bytes& segments) {
    Image image{32, 16, {}};
    for (int i = 0; i < 32 * 16; i++) {
        const uint8_t level = i < 32 * 8 ? 255 : 100;
        const bool left = i % 32 < 16;
        image.rgb.insert(image.rgb.end(),
                         {left ? level : uint8_t{0}, left ? uint8_t{0} : level, 0});
    }
    const TemporaryFolder folder;
    save_image(folder / "a.jpg", image);
    const Bytes file = read_file(folder / "a.jpg");
    return bytes({0xff, 0xd8}) + segments + Bytes(file.begin() + 2, file.end());
}

Image decode_jpeg(const Bytes& segments) {
    return decode_image(jpeg_with(segments), "test.jpg");
}

TEST_CASE("a JPEG is rotated by its EXIF segment, with any segments before it") {
    const Bytes name = bytes_of(std::string_view("Exif\0\0", 6));
    const Bytes other = jpeg_segment(0xe1, bytes_of("http://ns.adobe.com/xap/1.0/"));
    for (const Number number : {big_endian, little_endian}) {
        const Image image =
            decode_jpeg(other + bytes({0xff}) + jpeg_segment(0xe1, name + exif(number, 6)));
        REQUIRE(image.width == 16);
        REQUIRE(image.height == 32);
        // Rotated clockwise: red above, green below, what was below is left.
        const auto pixel = [&](int x, int y) {
            return &image.rgb[static_cast<size_t>(y * 16 + x) * 3];
        };
        CHECK(pixel(12, 8)[0] > 240);
        CHECK(pixel(12, 24)[1] > 240);
        CHECK(pixel(4, 8)[0] < 120);
        CHECK(pixel(4, 24)[1] < 120);
    }
    CHECK(decode_jpeg(other).width == 32);
    CHECK(decode_jpeg(jpeg_segment(0xe2, name + exif(big_endian, 6))).width == 32);
    CHECK(decode_jpeg(jpeg_segment(0xe1, name)).width == 32);
}

TEST_CASE("EXIF data of a JPEG are found only within the file") {
    const Bytes name = bytes_of(std::string_view("Exif\0\0", 6));
    const Bytes segment = bytes({0xff, 0xd8}) + jpeg_segment(0xe1, name + exif(big_endian, 6));
    for (size_t size = 0; size < segment.size(); size++) {
        CHECK(jpeg_exif(std::span(segment).first(size)).empty());
    }
    CHECK(exif_orientation(jpeg_exif(segment)) == 6);
    CHECK(jpeg_exif(bytes({0xff, 0xd8, 0xff, 0xe1, 0, 1, 0, 0})).empty());
    CHECK(jpeg_exif(bytes({0xff, 0xd8, 0xff, 0xff, 0xff, 0xff})).empty());
}

TEST_CASE("EXIF data cut off within the directory say nothing") {
    for (const Number number : {big_endian, little_endian}) {
        const Bytes whole = exif(number, 8);
        const size_t needed = 8 + 2 + 12 + 8 + 2;  // up to the value in the second entry
        for (size_t size = 0; size <= whole.size(); size++) {
            CAPTURE(size);
            const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
            CHECK(exif_orientation(cut) == (size < needed ? kUpright : 8));
        }
    }
}

TEST_CASE("absurd EXIF data say nothing") {
    const auto orientation = [](const Entry& entry) {
        return exif_orientation(exif(big_endian, std::vector{entry}));
    };
    CHECK(orientation({.value = 7}) == 7);
    CHECK(orientation({.value = 0}) == kUpright);
    CHECK(orientation({.value = 9}) == kUpright);
    CHECK(orientation({.value = 0xffff}) == kUpright);
    CHECK(orientation({.tag = 0x0111, .value = 7}) == kUpright);
    CHECK(orientation({.type = 4, .value = 7}) == kUpright);
    CHECK(orientation({.count = 2, .value = 7}) == kUpright);
    CHECK(orientation({.count = 0xffffffff, .value = 7}) == kUpright);

    const Bytes whole = exif(little_endian, 6);
    const auto with = [&](size_t at, const Bytes& part) {
        Bytes changed = whole;
        std::copy(part.begin(), part.end(), changed.begin() + static_cast<std::ptrdiff_t>(at));
        return exif_orientation(changed);
    };
    CHECK(with(0, bytes_of("MM")) == kUpright);  // one byte order said, the other used
    CHECK(with(2, bytes({43})) == kUpright);
    for (const uint32_t directory : {0u, 9u, 0x7fffffffu, 0xfffffffeu, 0xffffffffu}) {
        CAPTURE(directory);
        CHECK(with(4, little_endian(directory)) == kUpright);
    }
    CHECK(with(8, bytes({0, 0})) == kUpright);
    CHECK(with(8, bytes({0xff, 0xff})) == 6);  // more entries said than there are
}

TEST_CASE("broken EXIF data leave a PNG as it is stored") {
    Bytes damaged = chunk("eXIf", exif(big_endian, 6));
    damaged.back() ^= std::byte{1};  // its checksum
    CHECK(letters(decode_image(png_with(damaged), "test.png")) == kStored);
    CHECK(letters(decode_image(png_with(chunk("eXIf", {})), "test.png")) == kStored);
    CHECK(letters(decode_image(png_with(chunk("eXIf", bytes_of("MM"))), "test.png")) == kStored);
}

}  // namespace
}  // namespace flux2
