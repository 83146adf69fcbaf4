#include <flux2/image.hpp>
#include <flux2/log.hpp>
#include "base/file.hpp"
#include "support/png_builder.hpp"
#include "support/smooth_image.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>

namespace flux2 {
namespace {

using namespace test;

TEST_CASE("a picture in memory is the file that would be saved") {
    const TemporaryFolder folder;
    const Image image{2, 1, {1, 2, 3, 250, 251, 252}};
    const std::vector<ImageText> texts = {{"prompt", "caf\xc3\xa9"}};
    const std::vector<std::pair<ImageFormat, const char*>> formats = {
        {ImageFormat::png, "x.png"}, {ImageFormat::jpeg, "x.jpg"}, {ImageFormat::bmp, "x.bmp"}};
    for (const auto& [format, name] : formats) {
        save_image(folder / name, image, texts);
        const std::vector<std::byte> bytes = encode_image(image, format, texts);
        CHECK(read_text_file(folder / name, 10'000) ==
              std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    }
    const std::vector<std::byte> png = encode_image(image, ImageFormat::png, texts);
    CHECK(decode_image(png).rgb == image.rgb);
    REQUIRE(decode_image_texts(png).size() == 1);
    CHECK(decode_image_texts(png)[0].text == texts[0].text);
    CHECK(decode_image_texts(encode_image(image, ImageFormat::jpeg, texts))[0].text ==
          texts[0].text);
    const auto error = error_of([&] { encode_image(Image{2, 2, image.rgb}); });
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error_of([&] { decode_image({}, "reference 1"); }).mentions("reference 1: is neither"));
}

Image decode(const Bytes& file) {
    return decode_image(file, "test.png");
}

test::CaughtError refused(const Bytes& file) {
    const auto error = test::error_of([&] { decode(file); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("test.png"));
    return error;
}

using Rgb = std::vector<uint8_t>;

Bytes saved(const std::string& name, const Image& image) {
    const test::TemporaryFolder folder;
    save_image(folder / name, image);
    CHECK(folder.names() == std::vector<std::string>{name});
    return test::read_file(folder / name);
}

TEST_CASE("every kind of PNG becomes RGB") {
    SUBCASE("rgb") {
        const Image image = decode(png(2, 1, 8, rgb, bytes({0, 1, 2, 3, 4, 5, 6})));
        CHECK(image.width == 2);
        CHECK(image.height == 1);
        CHECK(image.rgb == Rgb{1, 2, 3, 4, 5, 6});
    }
    SUBCASE("grey") {
        CHECK(decode(png(1, 2, 8, grey, bytes({0, 9, 0, 200}))).rgb == Rgb{9, 9, 9, 200, 200, 200});
    }
    SUBCASE("grey with one bit is black and white") {
        CHECK(decode(png(2, 1, 1, grey, bytes({0, 0x40}))).rgb == Rgb{0, 0, 0, 255, 255, 255});
    }
    SUBCASE("palette") {
        const Bytes colours = chunk("PLTE", bytes({10, 20, 30, 40, 50, 60}));
        CHECK(decode(png(2, 1, 8, palette, bytes({0, 1, 0}), colours)).rgb ==
              Rgb{40, 50, 60, 10, 20, 30});
    }
    SUBCASE("palette with alpha keeps the colour under it") {
        const Bytes colours =
            chunk("PLTE", bytes({10, 20, 30, 40, 50, 60})) + chunk("tRNS", bytes({0}));
        CHECK(decode(png(2, 1, 8, palette, bytes({0, 0, 1}), colours)).rgb ==
              Rgb{10, 20, 30, 40, 50, 60});
    }
    SUBCASE("alpha is dropped, not blended") {
        CHECK(decode(png(2, 1, 8, rgb_alpha, bytes({0, 1, 2, 3, 0, 4, 5, 6, 128}))).rgb ==
              Rgb{1, 2, 3, 4, 5, 6});
        CHECK(decode(png(1, 1, 8, grey_alpha, bytes({0, 77, 0}))).rgb == Rgb{77, 77, 77});
    }
    SUBCASE("of 16 bits the upper 8 are kept") {
        CHECK(decode(png(1, 1, 16, rgb, bytes({0, 1, 255, 2, 0, 3, 128}))).rgb == Rgb{1, 2, 3});
        CHECK(decode(png(1, 1, 16, rgb_alpha, bytes({0, 1, 255, 2, 0, 3, 128, 0, 0}))).rgb ==
              Rgb{1, 2, 3});
        CHECK(decode(png(1, 1, 16, grey, bytes({0, 5, 255}))).rgb == Rgb{5, 5, 5});
    }
}

// The warnings logged while the object lives.
class WarningWatch {
  public:
    WarningWatch() {
        set_log([this](LogLevel level, const std::string& line) {
            CHECK(level == LogLevel::warning);
            lines.push_back(line);
        });
    }
    ~WarningWatch() { set_log({}); }
    WarningWatch(const WarningWatch&) = delete;
    WarningWatch& operator=(const WarningWatch&) = delete;

    std::vector<std::string> lines;
};

TEST_CASE("transparency is blended over white on request") {
    const auto over_white = [](const Bytes& file) {
        const WarningWatch warnings;
        const Image image = decode_image(file, "test.png", Alpha::white);
        CHECK(warnings.lines.empty());
        return image.rgb;
    };
    SUBCASE("rgb: c * a / 255 + 255 - a, to the nearest") {
        // 128 / 255 of 0, 100 and 255: 127, 177.2, 255. 1 / 255 of 0, 1 and 127: 254, 254.004 and
        // 254.498. 254 / 255 of 10: 10.96, of 131: 131.49.
        CHECK(
            over_white(png(5, 1, 8, rgb_alpha, bytes({0,   9,   8, 7, 255, 9, 8,  7,   0, 0,  100,
                                                      255, 128, 0, 1, 127, 1, 10, 131, 0, 254}))) ==
            Rgb{9, 8, 7, 255, 255, 255, 127, 177, 255, 254, 254, 254, 11, 131, 1});
    }
    SUBCASE("grey: half of 100 is 177.2") {
        CHECK(over_white(png(2, 1, 8, grey_alpha, bytes({0, 100, 128, 100, 255}))) ==
              Rgb{177, 177, 177, 100, 100, 100});
    }
    SUBCASE("palette") {
        const Bytes colours =
            chunk("PLTE", bytes({10, 20, 30, 40, 50, 60})) + chunk("tRNS", bytes({0}));
        CHECK(over_white(png(2, 1, 8, palette, bytes({0, 0, 1}), colours)) ==
              Rgb{255, 255, 255, 40, 50, 60});
    }
    SUBCASE("a colour that stands for transparency") {
        const Bytes key = chunk("tRNS", bytes({0, 1, 0, 2, 0, 3}));
        CHECK(over_white(png(2, 1, 8, rgb, bytes({0, 1, 2, 3, 1, 2, 4}), key)) ==
              Rgb{255, 255, 255, 1, 2, 4});
    }
    SUBCASE("16 bits") {
        CHECK(over_white(png(1, 1, 16, rgb_alpha, bytes({0, 0, 9, 100, 9, 255, 9, 128, 9}))) ==
              Rgb{127, 177, 255});
    }
    SUBCASE("nothing to blend") {
        CHECK(over_white(png(1, 1, 8, rgb, bytes({0, 1, 2, 3}))) == Rgb{1, 2, 3});
        CHECK(over_white(png(1, 1, 16, grey, bytes({0, 5, 255}))) == Rgb{5, 5, 5});
    }
}

TEST_CASE(
    "a mask repaints the holes of a picture or the rest of it, and without holes what is bright") {
    const auto values = [](const Bytes& file, MaskAlpha alpha) {
        return decode_mask(file, "the mask", alpha).values;
    };
    // White and opaque, white and transparent, black and half transparent.
    const Bytes holes = png(3, 1, 8, grey_alpha, bytes({0, 255, 255, 255, 0, 0, 128}));
    CHECK(values(holes, MaskAlpha::holes) == std::vector<uint8_t>{0, 255, 127});
    CHECK(values(holes, MaskAlpha::opaque) == std::vector<uint8_t>{255, 0, 128});
    const Bytes whole = png(2, 1, 8, grey_alpha, bytes({0, 200, 255, 10, 255}));
    for (const MaskAlpha alpha : {MaskAlpha::holes, MaskAlpha::opaque}) {
        CHECK(values(whole, alpha) == std::vector<uint8_t>{200, 10});
    }
    CHECK(values(holes, MaskAlpha::only_holes) == std::vector<uint8_t>{0, 255, 127});
    CHECK(values(whole, MaskAlpha::only_holes) == std::vector<uint8_t>{0, 0});
    const Bytes without_alpha = png(2, 1, 8, grey, bytes({0, 200, 10}));
    CHECK(values(without_alpha, MaskAlpha::only_holes) == std::vector<uint8_t>{0, 0});
}

TEST_CASE("dropped transparency is reported once, and only where there is some") {
    const auto reported = [](const Bytes& file) {
        const WarningWatch warnings;
        decode(file);
        return warnings.lines;
    };
    const auto lines = reported(png(2, 1, 8, rgb_alpha, bytes({0, 1, 2, 3, 254, 4, 5, 6, 0})));
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].find("test.png") != std::string::npos);
    CHECK(lines[0].find("`alpha` white") != std::string::npos);
    CHECK(reported(png(1, 1, 8, grey_alpha, bytes({0, 77, 3}))).size() == 1);

    CHECK(reported(png(2, 1, 8, rgb_alpha, bytes({0, 1, 2, 3, 255, 4, 5, 6, 255}))).empty());
    CHECK(reported(png(1, 1, 8, rgb, bytes({0, 1, 2, 3}))).empty());
    // The transparent colour is not used.
    const Bytes colours =
        chunk("PLTE", bytes({10, 20, 30, 40, 50, 60})) + chunk("tRNS", bytes({0}));
    CHECK(reported(png(1, 1, 8, palette, bytes({0, 1}), colours)).empty());
}

TEST_CASE("a PNG comes back as it was saved, whatever its name") {
    const Image image = test::smooth_image(37, 23);
    const test::TemporaryFolder folder;
    save_image(folder / "a.PNG", image);
    std::filesystem::rename(folder / "a.PNG", folder / "a.jpg");
    const Image back = load_image(folder / "a.jpg");
    CHECK(back.width == 37);
    CHECK(back.height == 23);
    CHECK(back.rgb == image.rgb);
}

TEST_CASE("a JPEG comes back nearly as it was saved") {
    const Image image = test::smooth_image(50, 33);
    for (const std::string name : {"a.jpg", "a.JPEG"}) {
        const Image back = decode(saved(name, image));
        CHECK(back.width == 50);
        REQUIRE(back.rgb.size() == image.rgb.size());
        int total = 0;
        for (size_t i = 0; i < image.rgb.size(); i++) {
            total += std::abs(image.rgb[i] - back.rgb[i]);
        }
        // JPEG's loss at quality 95 on slow colours: about one level on average.
        CHECK(total < 2 * static_cast<int>(image.rgb.size()));
    }
}

TEST_CASE("a BMP has its rows from the bottom, blue first") {
    const Bytes file = saved("a.bmp", {1, 2, {1, 2, 3, 4, 5, 6}});
    const Bytes rows = bytes({6, 5, 4, 0, 3, 2, 1, 0});
    REQUIRE(file.size() == 54 + rows.size());
    CHECK(std::equal(rows.begin(), rows.end(), file.end() - 8));
}

TEST_CASE("a new picture does not replace one that is there") {
    const test::TemporaryFolder folder;
    CHECK(save_new_image(folder / "a.png", test::smooth_image(4, 4)));
    CHECK_FALSE(save_new_image(folder / "a.png", test::smooth_image(8, 8)));
    CHECK(load_image(folder / "a.png").width == 4);
    CHECK(folder.names() == std::vector<std::string>{"a.png"});
}

TEST_CASE("what cannot be saved is refused and leaves nothing") {
    const test::TemporaryFolder folder;
    const Image image = test::smooth_image(4, 4);
    const auto refused_as = [&](const std::string& name, const Image& what) {
        return test::error_of([&] { save_image(folder / name, what); });
    };
    CHECK(refused_as("a.gif", image).kind == ErrorKind::bad_argument);
    CHECK(refused_as("a.gif", image).mentions("a.gif"));
    CHECK(refused_as("png", image).kind == ErrorKind::bad_argument);
    CHECK(refused_as("a.png", {4, 5, image.rgb}).kind == ErrorKind::bad_argument);
    CHECK(refused_as("missing/a.png", image).kind == ErrorKind::bad_file);
    CHECK(folder.names().empty());
}

// A layer on which something is painted in the left half.
Bytes painted_layer(int paint, int rest, int rest_opacity) {
    return png(2, 1, 8, grey_alpha, bytes({0, paint, 255, rest, rest_opacity}));
}

TEST_CASE("a mask painted in white on a transparent layer is used with a warning") {
    Mask mask;
    const auto read = [&](const Bytes& file, MaskAlpha alpha) {
        const WarningWatch watch;
        mask = decode_mask(file, "mask.png", alpha);
        return watch.lines;
    };
    const auto warnings = read(painted_layer(255, 0, 0), MaskAlpha::holes);
    REQUIRE(warnings.size() == 1);
    CHECK(warnings[0] ==
          "mask.png: is painted in white on a transparent layer, and what is transparent is "
          "repainted; to repaint what is painted, use `mask_invert` or fill the layer below with "
          "black");
    CHECK(mask.values == std::vector<uint8_t>{0, 255});
    // Taken for what is painted, or with holes by agreement.
    CHECK(read(painted_layer(255, 0, 0), MaskAlpha::opaque).empty());
    CHECK(mask.values == std::vector<uint8_t>{255, 0});
    CHECK(read(painted_layer(255, 0, 0), MaskAlpha::only_holes).empty());
    // Black with a hole, a photo with one, and white on opaque black.
    CHECK(read(painted_layer(0, 0, 0), MaskAlpha::holes).empty());
    CHECK(read(painted_layer(90, 0, 0), MaskAlpha::holes).empty());
    CHECK(read(painted_layer(255, 0, 255), MaskAlpha::holes).empty());
}

TEST_CASE("other files are refused by name") {
    const test::TemporaryFolder folder;
    CHECK(test::error_of([&] { load_image(folder / "missing.png"); }).mentions("missing.png"));
    test::write_file(folder / "text.png", "no picture at all");
    const auto error = test::error_of([&] { load_image(folder / "text.png"); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("text.png"));
    CHECK(error.mentions("neither a PNG nor a JPEG nor a WebP"));
    refused({});
    refused(saved("a.bmp", test::smooth_image(4, 4)));
}

TEST_CASE("a PNG in Apple's form for iPhones is refused with what to do") {
    const Bytes whole = png(1, 1, 8, rgb, bytes({0, 1, 2, 3}));
    constexpr std::ptrdiff_t kSignature = 8;
    const Bytes file = Bytes(whole.begin(), whole.begin() + kSignature) +
                       chunk("CgBI", bytes({0x50, 0, 0x20, 2})) +
                       Bytes(whole.begin() + kSignature, whole.end());
    const auto error = error_of([&] { decode_image(file, "icon.png"); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("icon.png: is a picture in Apple's form of PNG for iPhones (CgBI)"));
    CHECK(error.mentions("save it as PNG or JPEG"));
}

TEST_CASE("a PNG cut off anywhere is refused") {
    const Bytes whole = png(2, 2, 8, rgb, bytes({0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6}));
    for (size_t size = 0; size < whole.size(); size++) {
        CAPTURE(size);
        refused({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)});
    }
    refused(png(2, 3, 8, rgb, bytes({0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6})));
}

TEST_CASE("a JPEG cut off anywhere is refused") {
    const Bytes whole = saved("a.jpg", test::smooth_image(16, 16));
    for (size_t size = 0; size < whole.size(); size++) {
        CAPTURE(size);
        refused({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)});
    }
    CHECK(decode(whole + bytes({0, 1, 2})).width == 16);
}

// Where a JPEG's first segment of this kind begins.
size_t find_segment(const Bytes& file, int marker) {
    const Bytes wanted = bytes({0xff, marker});
    const auto found = std::search(file.begin(), file.end(), wanted.begin(), wanted.end());
    REQUIRE(found != file.end());
    return static_cast<size_t>(found - file.begin());
}

Bytes overwrite(Bytes file, size_t at, const Bytes& with) {
    REQUIRE(at + with.size() <= file.size());
    std::copy(with.begin(), with.end(), file.begin() + static_cast<std::ptrdiff_t>(at));
    return file;
}

// Replaces the sizes in the baseline frame header.
Bytes with_jpeg_size(const Bytes& file, uint32_t width, uint32_t height) {
    return overwrite(file, find_segment(file, 0xc0) + 5,
                     big_endian(height, 2) + big_endian(width, 2));
}

TEST_CASE("absurd sizes are refused before decoding") {
    const Bytes jpeg = saved("a.jpg", test::smooth_image(16, 16));
    const Bytes row = bytes({0, 1, 2, 3});
    const std::vector<Bytes> files = {png(16385, 1, 8, rgb, row),
                                      png(1, 16385, 8, rgb, row),
                                      png(0x7fffffff, 1, 8, rgb, row),
                                      png(0xffffffff, 0xffffffff, 8, rgb, row),
                                      png(0, 1, 8, rgb, row),
                                      with_jpeg_size(jpeg, 65535, 1),
                                      with_jpeg_size(jpeg, 65535, 65535),
                                      with_jpeg_size(jpeg, 4096, 4096),
                                      with_jpeg_size(jpeg, 0, 16)};
    for (const Bytes& file : files) {
        // What the decoder says begins with these words.
        CHECK_FALSE(refused(file).mentions("the picture is broken"));
    }
    CHECK(refused(files[0]).mentions("16385 x 1"));
    CHECK(refused(files[7]).mentions("4096 x 4096"));
}

TEST_CASE("a PNG with a chunk that is unknown but needed is refused by us, not by stb") {
    const auto with = [](const char* type) {
        return png(1, 1, 8, rgb, bytes({0, 1, 2, 3}), chunk(type, bytes({1, 2})));
    };
    const auto error = error_of([&] { decode(with("AbCD")); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("test.png: the PNG has a chunk of an unknown kind"));
    CHECK(decode(with("abCD")).rgb == std::vector<uint8_t>{1, 2, 3});
}

TEST_CASE("a PNG chunk longer than the file is refused") {
    const Bytes whole = png(2, 1, 8, rgb, bytes({0, 1, 2, 3, 4, 5, 6}));
    const size_t pixels = 8 + 12 + 13;  // behind the signature and the header
    CHECK(refused(overwrite(whole, pixels, big_endian(0x7ffffff0))).mentions("within a chunk"));
    CHECK(refused(overwrite(whole, pixels, big_endian(0xffffffff))).mentions("within a chunk"));
}

TEST_CASE("a JPEG with broken or missing tables is refused") {
    const Bytes whole = saved("a.jpg", test::smooth_image(16, 16));
    const size_t huffman = find_segment(whole, 0xc4);
    const size_t quantisation = find_segment(whole, 0xdb);
    const Bytes comment = bytes({0xff, 0xfe});
    CHECK(refused(overwrite(whole, huffman, comment)).mentions("Huffman table is missing"));
    CHECK(refused(overwrite(whole, quantisation, comment)).mentions("quantisation table"));
    // 510 codes, which stb 2.27 would write into a table of 257.
    CHECK(refused(overwrite(whole, huffman + 5, bytes({0, 0, 255, 255}))).mentions("256 codes"));
}

TEST_CASE("a JPEG of endless scans is refused") {
    const Bytes whole = saved("a.jpg", test::smooth_image(16, 16));
    const auto scan = whole.begin() + static_cast<std::ptrdiff_t>(find_segment(whole, 0xda));
    Bytes file = whole;
    file.resize(whole.size() - 2);  // without the end marker
    for (int i = 0; i < 100; i++) {
        file.insert(file.end(), scan, whole.end() - 2);
    }
    CHECK(refused(file + bytes({0xff, 0xd9})).mentions("scans"));
}

}  // namespace
}  // namespace flux2
