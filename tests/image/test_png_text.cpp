#include <flux2/image.hpp>
#include "image/image_text.hpp"
#include "image/png_text.hpp"
#include "support/png_builder.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>

namespace flux2 {
namespace {

using namespace test;

const Image kPixel{1, 1, {1, 2, 3}};

Bytes png_with(const Bytes& more) {
    return png(1, 1, 8, rgb, bytes({0, 1, 2, 3}), more);
}

// A chunk whose fields are separated by zero bytes.
Bytes text_chunk(std::string_view type, const Bytes& key, const Bytes& rest) {
    return chunk(type, key + bytes({0}) + rest);
}

std::vector<ImageText> texts_of(const Bytes& more) {
    return decode_image_texts(png_with(more), "test.png");
}

ImageText single_text(const Bytes& more) {
    const std::vector<ImageText> texts = texts_of(more);
    REQUIRE(texts.size() == 1);
    return texts[0];
}

void refused(const Bytes& more, std::string_view reason) {
    const CaughtError error = error_of([&] { texts_of(more); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("test.png"));
    CHECK_MESSAGE(error.mentions(reason), error.message);
    // The picture itself can still be decoded.
    CHECK(decode_image(png_with(more), "test.png").rgb == kPixel.rgb);
}

bool contains(const Bytes& file, const Bytes& part) {
    return std::search(file.begin(), file.end(), part.begin(), part.end()) != file.end();
}

TEST_CASE("texts come back as they were saved") {
    const TemporaryFolder folder;
    const std::string long_text(100000, 'x');
    const std::vector<ImageText> texts = {{"prompt", "a house\nby the sea"},
                                          {"Title", "水彩 – Grüße 🏠"},
                                          {"empty", ""},
                                          {std::string(79, 'k'), long_text},
                                          {"prompt", "the same key again"}};
    save_image(folder / "a.png", kPixel, texts);
    const std::vector<ImageText> back = read_image_texts(folder / "a.png");
    REQUIRE(back.size() == texts.size());
    for (size_t i = 0; i < texts.size(); i++) {
        CHECK(back[i].key == texts[i].key);
        CHECK(back[i].text == texts[i].text);
    }
    CHECK(load_image(folder / "a.png").rgb == kPixel.rgb);
}

TEST_CASE("texts are written as the specification has them, behind the header") {
    const TemporaryFolder folder;
    save_image(folder / "a.png", kPixel, {{"prompt", "a house"}, {"Title", "ü"}});
    const Bytes file = read_file(folder / "a.png");
    const Bytes expected = text_chunk("tEXt", bytes_of("prompt"), bytes_of("a house")) +
                           text_chunk("iTXt", bytes_of("Title"), bytes({0, 0, 0, 0, 0xc3, 0xbc}));
    REQUIRE(file.size() > 33 + expected.size());
    CHECK(std::equal(expected.begin(), expected.end(), file.begin() + 33));
}

TEST_CASE("a BMP carries no texts, and a PNG none that it is not given") {
    const TemporaryFolder folder;
    save_image(folder / "a.bmp", kPixel, {{"prompt", "a house"}});
    CHECK_FALSE(contains(read_file(folder / "a.bmp"), bytes_of("a house")));
    save_image(folder / "a.png", kPixel);
    CHECK(read_image_texts(folder / "a.png").empty());
}

TEST_CASE("texts that a PNG cannot hold are refused and leave nothing") {
    const TemporaryFolder folder;
    const auto refused_text = [&](const ImageText& text) {
        const auto error = error_of([&] { save_image(folder / "a.png", kPixel, {text}); });
        CHECK(error.kind == ErrorKind::bad_argument);
    };
    refused_text({"", "text"});
    refused_text({std::string(80, 'k'), "text"});
    refused_text({"two\nlines", "text"});
    refused_text({"schlüssel", "text"});
    refused_text({std::string("a\0b", 3), "text"});
    refused_text({"key", std::string("a\0b", 3)});
    refused_text({"key", "\xff"});
    refused_text({"key", std::string(kMaxTextBytes, 'x')});
    CHECK(folder.names().empty());
}

TEST_CASE("Latin-1 becomes UTF-8") {
    const ImageText text =
        single_text(text_chunk("tEXt", bytes({'K', 0xe9}), bytes({'G', 'r', 0xfc, 0xdf, 'e'})));
    CHECK(text.key == "Ké");
    CHECK(text.text == "Grüße");
}

// Compressed by Python's zlib module: "Grüße, Grüße" in Latin-1 and "水彩, 水彩, 水彩" in UTF-8.
const Bytes kLatin1 = bytes({0x78, 0xda, 0x73, 0x2f, 0xfa, 0x73, 0x3f, 0x55, 0x47, 0xc1, 0x1d, 0x44,
                             0x01, 0x00, 0x27, 0x53, 0x06, 0x3f});
const Bytes kUtf8 = bytes({0x78, 0xda, 0x7b, 0xb6, 0x61, 0xcb, 0xd3, 0xbd, 0x2b, 0x75, 0x14, 0x9e,
                           0xa1, 0xd0, 0x00, 0xa6, 0x50, 0x0e, 0x58});

TEST_CASE("compressed texts are read, before and behind the pixels") {
    const Bytes key = bytes_of("key");
    CHECK(single_text(text_chunk("zTXt", key, bytes({0}) + kLatin1)).text == "Grüße, Grüße");
    // Compressed, method 0, Japanese, a key in it.
    const Bytes head = bytes({1, 0}) + bytes_of("ja") + bytes({0}) + bytes_of("鍵") + bytes({0});
    const Bytes international = text_chunk("iTXt", key, head + kUtf8);
    CHECK(single_text(international).key == "key");
    CHECK(single_text(international).text == "水彩, 水彩, 水彩");

    Bytes file = png_with({});
    file.insert(file.end() - 12, international.begin(), international.end());
    CHECK(decode_image_texts(file, "test.png").size() == 1);
}

TEST_CASE("broken texts are refused") {
    const Bytes key = bytes_of("key");
    const Bytes good = text_chunk("tEXt", key, bytes_of("text"));
    Bytes damaged = good;
    damaged[10] ^= std::byte{1};
    refused(damaged, "checksum");
    damaged = good;
    damaged.back() ^= std::byte{1};
    refused(good + damaged, "text 2");

    refused(chunk("tEXt", {}), "ends too early");
    refused(chunk("tEXt", bytes_of("no end of the key")), "ends too early");
    refused(text_chunk("tEXt", {}, bytes_of("text")), "key");
    refused(text_chunk("tEXt", Bytes(80, std::byte{'k'}), {}), "key");

    refused(text_chunk("zTXt", key, {}), "ends too early");
    refused(text_chunk("zTXt", key, bytes({1}) + kLatin1), "compression is unknown");
    refused(text_chunk("zTXt", key, bytes({0})), "compressed data are broken");
    refused(text_chunk("zTXt", key, bytes({0, 1, 2, 3})), "compressed data are broken");
    refused(text_chunk("zTXt", key, bytes({0}) + Bytes(kLatin1.begin(), kLatin1.end() - 8)),
            "compressed data are broken");

    refused(text_chunk("iTXt", key, {}), "ends too early");
    refused(text_chunk("iTXt", key, bytes({0})), "ends too early");
    refused(text_chunk("iTXt", key, bytes({0, 0, 0})), "ends too early");
    refused(text_chunk("iTXt", key, bytes({2, 0, 0, 0})), "compression is unknown");
    refused(text_chunk("iTXt", key, bytes({1, 1, 0, 0}) + kUtf8), "compression is unknown");
    refused(text_chunk("iTXt", key, bytes({1, 0, 0, 0}) + kLatin1), "not UTF-8");
}

TEST_CASE("what is not UTF-8 is refused") {
    const auto text = [](const Bytes& content) {
        return text_chunk("iTXt", bytes_of("key"), bytes({0, 0, 0, 0}) + content);
    };
    // Lone and missing continuations, forms longer than needed, a surrogate, past the last one.
    for (const Bytes& content :
         {bytes({0x80}), bytes({0xc3}), bytes({0xc3, 0x28}), bytes({0xe2, 0x82}),
          bytes({0xc0, 0x80}), bytes({0xe0, 0x80, 0x80}), bytes({0xf0, 0x80, 0x80, 0x80}),
          bytes({0xed, 0xa0, 0x80}), bytes({0xf4, 0x90, 0x80, 0x80}), bytes({0xff})}) {
        refused(text(content), "not UTF-8");
    }
    // The first and the last of each length.
    const Bytes edges = bytes({0x7f, 0xc2, 0x80, 0xdf, 0xbf, 0xe0, 0xa0, 0x80, 0xed, 0x9f, 0xbf,
                               0xee, 0x80, 0x80, 0xf0, 0x90, 0x80, 0x80, 0xf4, 0x8f, 0xbf, 0xbf});
    CHECK(bytes_of(single_text(text(edges)).text) == edges);
}

// zlib data of n_runs * 258 + 1 letters a, deflated with the fixed code: the letter is 10010001,
// a run of 258 is 11000101 followed by the distance 00000, the end is 0000000 (RFC 1951).
Bytes many_letters(size_t n_runs) {
    Bytes out = bytes({0x78, 0x01});
    unsigned bits = 0;
    int n_bits = 0;
    const auto put = [&](std::string_view code) {
        for (const char bit : code) {
            bits |= static_cast<unsigned>(bit - '0') << n_bits;
            if (++n_bits == 8) {
                out.push_back(static_cast<std::byte>(bits));
                bits = 0;
                n_bits = 0;
            }
        }
    };
    put("110");  // last block, fixed code
    put("10010001");
    for (size_t i = 0; i < n_runs; i++) {
        put("1100010100000");
    }
    put("000000000000000");
    return out + bytes({0, 0, 0, 0});
}

TEST_CASE("texts are not inflated without bound") {
    const auto compressed = [](size_t n_runs) {
        return text_chunk("zTXt", bytes_of("key"), bytes({0}) + many_letters(n_runs));
    };
    CHECK(single_text(compressed(1000)).text == std::string(258001, 'a'));

    const Bytes bomb = png_with(compressed(1000000));
    const AllocationWatch watch;
    CHECK(error_of([&] { decode_image_texts(bomb, "test.png"); }).mentions("too long"));
    CHECK(watch.largest() < 2 * kMaxTextBytes);

    // Each fits, together they do not.
    const Bytes half = compressed(20000);
    CHECK(texts_of(half).size() == 1);
    refused(half + half, "too long");
    const Bytes plain = text_chunk("tEXt", bytes_of("key"), Bytes(5 << 20, std::byte{'x'}));
    refused(plain + plain, "bytes of text");
}

TEST_CASE("texts of files that are no pictures are refused as pictures are") {
    const auto kind = [](const Bytes& file) {
        return error_of([&] { decode_image_texts(file, "test.png"); }).kind;
    };
    const Bytes whole = png_with(text_chunk("tEXt", bytes_of("key"), bytes_of("text")));
    for (size_t size = 0; size < whole.size(); size++) {
        CHECK(kind({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)}) ==
              ErrorKind::bad_file);
    }
    const TemporaryFolder folder;
    CHECK(error_of([&] { read_image_texts(folder / "missing.png"); }).mentions("missing.png"));
}

}  // namespace
}  // namespace flux2
