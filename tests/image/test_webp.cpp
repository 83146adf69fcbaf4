// WebP pictures: ours, those that Pillow wrote, and broken ones.
#include <flux2/image.hpp>
#include "image/exif.hpp"
#include "image/webp_text.hpp"
#include "support/needs.hpp"
#include "support/png_builder.hpp"
#include "support/smooth_image.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace flux2 {
namespace {

using namespace test;

using Rgb = std::vector<uint8_t>;

Bytes webp_chunk(std::string_view type, const Bytes& data) {
    return bytes_of(type) + little_endian(static_cast<uint32_t>(data.size())) + data +
           (data.size() % 2 == 0 ? Bytes{} : bytes({0}));
}

Bytes riff(const Bytes& chunks) {
    return bytes_of("RIFF") + little_endian(static_cast<uint32_t>(chunks.size()) + 4) +
           bytes_of("WEBP") + chunks;
}

Bytes extension(int flags, uint32_t width, uint32_t height) {
    return webp_chunk("VP8X", bytes({flags, 0, 0, 0}) + little_endian(width - 1, 3) +
                                  little_endian(height - 1, 3));
}

// Chunks as Pillow 9.4 writes them.

// 2 x 3 pixels: red, green, blue, white, black, (10, 20, 30).
Bytes lossless_chunk() {
    return webp_chunk("VP8L",
                      bytes({0x2f, 0x01, 0x80, 0x00, 0x00, 0x2f, 0x20, 0x10, 0x20, 0x88, 0xf0,
                             0x9f, 0x6a, 0x43, 0x48, 0x90, 0xd0, 0xfd, 0xbf, 0x57, 0x81, 0x00,
                             0x41, 0x89, 0xff, 0x4a, 0xf3, 0x1f, 0x20, 0x36, 0x39, 0xb6, 0x0a,
                             0x04, 0x02, 0x69, 0x08, 0x26, 0x92, 0x0d, 0x8e, 0xe8, 0x7f, 0x68}));
}
const Rgb kLosslessPixels = {255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 10, 20, 30};

// 2 x 2 pixels: (255, 0, 0, 255), (0, 255, 0, 0), (0, 0, 255, 128), (9, 8, 7, 255).
Bytes lossless_alpha_chunk() {
    return webp_chunk(
        "VP8L",
        bytes({0x2f, 0x01, 0x40, 0x00, 0x10, 0x1f, 0x20, 0x24, 0x20, 0x68, 0xfe, 0x1f, 0x76, 0x43,
               0x48, 0x40, 0x10, 0xfd, 0x1f, 0x4c, 0x48, 0x90, 0x10, 0xfd, 0x7f, 0x58, 0x01, 0x09,
               0xe1, 0xb9, 0x2c, 0x17, 0x03, 0x37, 0x5e, 0x25, 0xd6, 0x21, 0xa2, 0xff, 0x21}));
}

// 16 x 16 pixels of (200, 100, 50); alpha 0 in the left half.
Bytes lossy_chunk() {
    return webp_chunk("VP8 ",
                      bytes({0xf0, 0x01, 0x00, 0x9d, 0x01, 0x2a, 0x10, 0x00, 0x10, 0x00, 0x01, 0x40,
                             0x26, 0x25, 0xa0, 0x02, 0x74, 0xba, 0x01, 0xf8, 0x00, 0x04, 0xc8, 0x00,
                             0x00, 0xfe, 0xae, 0x17, 0xff, 0x36, 0x04, 0x0c, 0xd0, 0xfa, 0x60, 0xff,
                             0xd2, 0x6c, 0xf1, 0x36, 0x78, 0x9b, 0x3e, 0x39, 0x80, 0x00}));
}
Bytes alpha_chunk() {
    return webp_chunk("ALPH", bytes({0x01, 0x0f, 0x30, 0xff, 0x11, 0x11, 0x42, 0x2c, 0x98, 0xcc,
                                     0x5f, 0xba, 0x3b, 0x83, 0x88, 0xfe, 0x87, 0x2e}));
}
Bytes lossy_with_alpha() {
    return riff(extension(0x10, 16, 16) + alpha_chunk() + lossy_chunk());
}

// EXIF data with an orientation, big-endian.
Bytes orientation(uint32_t value) {
    return bytes_of(std::string_view("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01", 18)) +
           big_endian(value, 2) + bytes({0, 0, 0, 0, 0, 0});
}

double mean_difference(const Image& a, const Image& b) {
    REQUIRE(a.rgb.size() == b.rgb.size());
    int64_t total = 0;
    for (size_t i = 0; i < a.rgb.size(); i++) {
        total += std::abs(a.rgb[i] - b.rgb[i]);
    }
    return static_cast<double>(total) / static_cast<double>(a.rgb.size());
}

CaughtError refused(const Bytes& file) {
    const auto error = error_of([&] { decode_image(file, "test.webp"); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("test.webp: "));
    return error;
}

// Cases that decode or encode are about builds with libwebp.
#define WEBP_TEST_CASE(name) TEST_CASE(name* test::needs(supports_webp(), "needs libwebp"))

WEBP_TEST_CASE("a lossless WebP of another program is read to the pixel") {
    const Image image = decode_image(riff(lossless_chunk()), "test.webp");
    CHECK(image.width == 2);
    CHECK(image.height == 3);
    CHECK(image.rgb == kLosslessPixels);
}

WEBP_TEST_CASE("a lossy WebP of another program is read, whatever its name") {
    const TemporaryFolder folder;
    write_file(folder / "a.png", riff(lossy_chunk()));
    const Image image = load_image(folder / "a.png");
    CHECK(image.width == 16);
    CHECK(image.height == 16);
    // One colour, coded at quality 80: within a few levels.
    CHECK(mean_difference(image, {16, 16, [] {
                                      Rgb rgb;
                                      for (int i = 0; i < 256; i++) {
                                          rgb.insert(rgb.end(), {200, 100, 50});
                                      }
                                      return rgb;
                                  }()}) < 4);
}

WEBP_TEST_CASE("transparency of a WebP is dropped or blended over white") {
    const Bytes file = riff(lossless_alpha_chunk());
    CHECK(decode_image(file).rgb == Rgb{255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 8, 7});
    // 128 / 255 of 0 is 127 over white.
    CHECK(decode_image(file, "", Alpha::white).rgb ==
          Rgb{255, 0, 0, 255, 255, 255, 127, 127, 255, 9, 8, 7});

    const Image lossy = decode_image(lossy_with_alpha(), "", Alpha::white);
    CHECK(lossy.rgb[0] == 255);
    CHECK(lossy.rgb[2] == 255);
    CHECK(lossy.rgb[3 * 15 + 2] < 60);
}

WEBP_TEST_CASE("a mask is read from a WebP: its holes, else its brightness") {
    CHECK(decode_mask(riff(lossless_alpha_chunk())).values == std::vector<uint8_t>{0, 255, 127, 0});
    const Mask halves = decode_mask(lossy_with_alpha());
    REQUIRE(halves.values.size() == 256);
    CHECK(halves.values[7] == 255);
    CHECK(halves.values[8] == 0);
    // Rec. 601: 0.299, 0.587 and 0.114 of 255; white; black.
    const Mask bright = decode_mask(riff(lossless_chunk()));
    CHECK(std::vector<uint8_t>(bright.values.begin(), bright.values.begin() + 5) ==
          std::vector<uint8_t>{76, 150, 29, 255, 0});
}

WEBP_TEST_CASE("a WebP is turned upright by its EXIF data") {
    for (const char* name : {"", "Exif"}) {  // some programs write the name of the JPEG's segment
        const Bytes prefix = *name == 0 ? Bytes{} : bytes_of(std::string_view("Exif\0\0", 6));
        const Bytes file = riff(extension(0x08, 2, 3) + lossless_chunk() +
                                webp_chunk("EXIF", prefix + orientation(6)));
        const Image image = decode_image(file, "test.webp");
        CHECK(image.width == 3);
        CHECK(image.height == 2);
        // Rotated to the right: the left column, from below, is the first row.
        CHECK(image.rgb == Rgb{0, 0, 0, 0, 0, 255, 255, 0, 0,  //
                               10, 20, 30, 255, 255, 255, 0, 255, 0});
        CHECK(decode_mask(file).width == 3);
    }
}

WEBP_TEST_CASE("a WebP comes back as it was saved, nearly or to the pixel") {
    const Image image = test::smooth_image(50, 33);
    const TemporaryFolder folder;
    save_image(folder / "a.WEBP", image);
    const Image back = load_image(folder / "a.WEBP");
    CHECK(back.width == 50);
    // Colour at half resolution, quality 95: about two levels on average.
    CHECK(mean_difference(back, image) < 3);
    CHECK(back.rgb != image.rgb);
    for (const int quality : {0, 100}) {
        const Bytes lossless =
            encode_image(image, ImageFormat::webp, {}, {.quality = quality, .lossless = true});
        CHECK(decode_image(lossless).rgb == image.rgb);
    }
    // A single pixel, and the longest side that WebP has.
    for (const Image& odd :
         {test::smooth_image(1, 1), test::smooth_image(16383, 1), test::smooth_image(1, 16383)}) {
        CHECK(decode_image(encode_image(odd, ImageFormat::webp)).width == odd.width);
    }
    const auto error =
        error_of([] { encode_image(test::smooth_image(16384, 1), ImageFormat::webp); });
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("16384 x 1"));
}

TEST_CASE("quality makes a JPEG and a WebP smaller, and only from 0 to 100") {
    const Image image = test::smooth_image(64, 64);
    std::vector<ImageFormat> formats = {ImageFormat::jpeg};
    if (supports_webp()) {
        formats.push_back(ImageFormat::webp);
    }
    for (const ImageFormat format : formats) {
        const auto size = [&](int quality) {
            return encode_image(image, format, {}, {.quality = quality}).size();
        };
        CHECK(size(0) < size(50));
        CHECK(size(50) < size(95));
        CHECK(size(95) < size(100));
        CHECK(size(95) == encode_image(image, format).size());
    }
    for (const int quality : {-1, 101}) {
        const auto error =
            error_of([&] { encode_image(image, ImageFormat::jpeg, {}, {.quality = quality}); });
        CHECK(error.kind == ErrorKind::bad_argument);
        CHECK(error.mentions("expected 0 to 100"));
    }
}

TEST_CASE("a WebP cut off anywhere is refused") {
    for (const Bytes& whole :
         {riff(lossless_chunk()), riff(lossy_chunk()), lossy_with_alpha(),
          riff(extension(0x08, 2, 3) + lossless_chunk() + webp_chunk("EXIF", orientation(6)))}) {
        for (size_t size = 0; size < whole.size(); size++) {
            CAPTURE(size);
            refused({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)});
        }
    }
}

WEBP_TEST_CASE("a WebP whose pixels end early within a whole file is refused") {
    for (const auto& [type, chunk] :
         {std::pair{"VP8L", lossless_chunk()}, std::pair{"VP8 ", lossy_chunk()}}) {
        // From the size of the picture on; the last bytes may be padding of the coded bits.
        for (size_t size = 8 + 10; size + 8 < chunk.size(); size++) {
            CAPTURE(size);
            const auto end = chunk.begin() + static_cast<std::ptrdiff_t>(size);
            CHECK(refused(riff(webp_chunk(type, {chunk.begin() + 8, end})))
                      .mentions("the picture is broken"));
        }
    }
    CHECK(decode_image(riff(lossless_chunk()) + bytes({1, 2, 3})).rgb == kLosslessPixels);
}

TEST_CASE("an animated WebP is refused with what to do") {
    // As Pillow writes it: ANIM and two frames.
    const Bytes frame = webp_chunk("ANMF", Bytes(16) + lossy_chunk());
    const Bytes file = riff(extension(0x02, 16, 16) + webp_chunk("ANIM", Bytes(6)) + frame + frame);
    CHECK(refused(file).mentions("is an animation; save one of its pictures"));
}

TEST_CASE("a WebP without a whole picture, or with an absurd size, is refused before decoding") {
    const Bytes start = bytes({0x30, 0x01, 0x00, 0x9d, 0x01, 0x2a});
    const auto lossy = [&](uint32_t width, uint32_t height) {
        return riff(webp_chunk("VP8 ", start + little_endian(width, 2) + little_endian(height, 2)));
    };
    CHECK(refused(riff({})).mentions("has no picture"));
    CHECK(refused(riff(extension(0, 16, 16))).mentions("has no picture"));
    CHECK(refused(riff(webp_chunk("JUNK", {}) + lossy_chunk())).mentions("has no picture"));
    CHECK(refused(riff(webp_chunk("VP8X", bytes({0, 0})))).mentions("has 2 bytes, expected 10"));
    CHECK(refused(riff(webp_chunk("VP8 ", start))).mentions("has no picture"));
    CHECK(refused(riff(webp_chunk("VP8 ", bytes({0x31}) + Bytes(9)))).mentions("has no picture"));
    CHECK(refused(riff(webp_chunk("VP8L", bytes({0x2e, 0, 0, 0, 0})))).mentions("has no picture"));
    CHECK(refused(lossy(0, 16)).mentions("0 x 16 pixels"));
    CHECK(refused(lossy(16383, 16383)).mentions("16383 x 16383 pixels need at least"));
    // Lengths that reach beyond the file.
    const uint32_t most = std::numeric_limits<uint32_t>::max();
    CHECK(refused(bytes_of("RIFF") + little_endian(most) + bytes_of("WEBP") + lossy_chunk())
              .mentions("truncated"));
    CHECK(refused(riff(bytes_of("VP8X") + little_endian(most) + Bytes(10))).mentions("truncated"));
    CHECK(refused(riff(lossy_chunk() + bytes_of("EXIF") + little_endian(9) + Bytes(8)))
              .mentions("truncated"));
}

WEBP_TEST_CASE("a WebP with any byte changed is refused or read, nothing else") {
    for (const Bytes& whole : {riff(lossless_alpha_chunk()), lossy_with_alpha()}) {
        for (size_t i = 0; i < whole.size(); i++) {
            for (const int change : {0x01, 0x80, 0xff}) {
                Bytes changed = whole;
                changed[i] ^= static_cast<std::byte>(change);
                try {
                    decode_image(changed, "test.webp", Alpha::white);
                } catch (const Error& error) {
                    CHECK(error.kind() == ErrorKind::bad_file);
                }
            }
        }
    }
}

// ---- Texts ----

const std::vector<ImageText> kTexts = {{"parameters", "caf\xc3\xa9 \xf0\x9f\x8c\x8a\nSteps: 4"},
                                       {"flux2", R"({"prompt": "caf\u00e9"})"},
                                       {"a key", ""},
                                       {"odd", "xyz"},
                                       {"parameters", "a second"}};

WEBP_TEST_CASE("texts of a WebP come back as they were saved, and so do its pixels") {
    std::vector<ImageText> texts = kTexts;
    texts.push_back({"long", std::string(200'000, 'x')});
    const TemporaryFolder folder;
    const Image image = test::smooth_image(20, 10);
    save_image(folder / "a.webp", image, texts);
    const std::vector<ImageText> back = read_image_texts(folder / "a.webp");
    REQUIRE(back.size() == texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
        CAPTURE(i);
        CHECK(back[i].key == texts[i].key);
        CHECK(back[i].text == texts[i].text);
    }
    CHECK(load_image(folder / "a.webp").rgb ==
          decode_image(encode_image(image, ImageFormat::webp)).rgb);
    CHECK(decode_image_texts(encode_image(image, ImageFormat::webp)).empty());
}

TEST_CASE("parameters are the EXIF comment of a WebP, other texts follow in chunks of our own") {
    Bytes file = riff(lossless_chunk());
    insert_webp_texts(file, {{"parameters", "Steps: 4"}, {"flux2", "{}"}});
    const Bytes exif =
        bytes_of(std::string_view("MM\0*\0\0\0\x08\0\x01\x87\x69\0\x04\0\0\0\x01\0\0\0\x1a"
                                  "\0\0\0\0\0\x01\x92\x86\0\x07\0\0\0\x18\0\0\0\x2c\0\0\0\0"
                                  "UNICODE\0\0S\0t\0e\0p\0s\0:\0 \0004",
                                  68));
    CHECK(file == riff(extension(0x08, 2, 3) + lossless_chunk() + webp_chunk("EXIF", exif) +
                       webp_chunk("f2tx", bytes_of(std::string_view("flux2\0{}", 8)))));
}

TEST_CASE("parameters that an EXIF comment would not give back are kept in a chunk") {
    // Blank; empty; of letters whose bytes look like the other order.
    for (const std::string& text : {std::string("  "), std::string(),  //
                                    std::string("\xe4\xb8\x80\xe4\xb8\x80")}) {
        Bytes file = riff(lossless_chunk());
        insert_webp_texts(file, {{"parameters", text}});
        const auto back = decode_image_texts(file, "test.webp");
        REQUIRE(back.size() == 1);
        CHECK(back[0].key == "parameters");
        CHECK(back[0].text == text);
        CHECK(webp_exif(file, "test.webp").empty());
    }
}

TEST_CASE("broken texts of a WebP are left out, and texts it cannot hold are refused") {
    const auto texts = [](const Bytes& data) {
        return decode_image_texts(
            riff(extension(0, 2, 3) + lossless_chunk() + webp_chunk("f2tx", data)), "test.webp");
    };
    CHECK(texts(bytes_of(std::string_view("a\0b", 3))).size() == 1);
    CHECK(texts({}).empty());
    CHECK(texts(bytes_of("no end")).empty());
    CHECK(texts(bytes_of(std::string_view("\0b", 2))).empty());
    CHECK(texts(bytes_of(std::string_view("a\0\xff", 3))).empty());
    CHECK(texts(Bytes(size_t{9} << 20, std::byte{'x'})).empty());
    for (const ImageText& text :
         {ImageText{"", "x"}, {"a", "\xff"}, {"a", std::string(size_t{9} << 20, 'x')}}) {
        Bytes file = riff(lossless_chunk());
        CHECK(error_of([&] { insert_webp_texts(file, {text}); }).kind == ErrorKind::bad_argument);
    }
}

TEST_CASE("a build without libwebp says so, before anything is made" *
          test::needs(!supports_webp(), "needs a build without libwebp")) {
    const std::vector<CaughtError> errors = {
        error_of([] { decode_image(riff(lossless_chunk()), "a.webp"); }),
        error_of([] { decode_mask(riff(lossless_chunk()), "a.webp"); }),
        error_of([] { encode_image(test::smooth_image(1, 1), ImageFormat::webp); }),
        error_of([] { image_format_of("a.webp"); })};
    for (const CaughtError& error : errors) {
        CHECK(error.kind == ErrorKind::unsupported);
        CHECK(error.mentions("this build of flux2 has no WebP; use PNG or JPEG"));
    }
    CHECK(decode_image_texts(riff(lossless_chunk())).empty());
}

TEST_CASE("the name of a file decides its format") {
    CHECK(image_format_of("a.png") == ImageFormat::png);
    CHECK(image_format_of("a.b/c.JPG") == ImageFormat::jpeg);
    CHECK(image_format_of("a.jpeg") == ImageFormat::jpeg);
    CHECK(image_format_of("a.Bmp") == ImageFormat::bmp);
    if (supports_webp()) {
        CHECK(image_format_of("a.WebP") == ImageFormat::webp);
    }
    for (const char* name : {"a.gif", "png", "a.png.", ""}) {
        const auto error = error_of([&] { image_format_of(name); });
        CHECK(error.kind == ErrorKind::bad_argument);
        CHECK(error.mentions(".png, .jpg, .jpeg, .webp or .bmp"));
    }
}

}  // namespace
}  // namespace flux2
