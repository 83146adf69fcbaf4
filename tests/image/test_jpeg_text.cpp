// Texts in JPEGs: ours, and the user comments of other programs.
#include "image/jpeg_text.hpp"

#include <flux2/image.hpp>
#include "base/utf8.hpp"
#include "image/exif.hpp"
#include "image/image_text.hpp"
#include "support/png_builder.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>

namespace flux2 {
namespace {

using namespace test;
using Number = Bytes (*)(uint32_t value, int n_bytes);

const Image kPixel{1, 1, {1, 2, 3}};

Bytes jpeg(const std::vector<ImageText>& texts = {}) {
    return encode_image(kPixel, ImageFormat::jpeg, texts);
}

bool contains(const Bytes& file, const Bytes& wanted) {
    return std::search(file.begin(), file.end(), wanted.begin(), wanted.end()) != file.end();
}

Bytes segment(int marker, const Bytes& content) {
    return bytes({0xff, marker}) + big_endian(static_cast<uint32_t>(content.size()) + 2, 2) +
           content;
}

Bytes with_segments(const Bytes& segments) {
    const Bytes file = jpeg();
    return bytes({0xff, 0xd8}) + segments + Bytes(file.begin() + 2, file.end());
}

std::vector<ImageText> texts_of(const Bytes& file) {
    return decode_image_texts(file, "test.jpg");
}

// UTF-16 of a text in ASCII.
Bytes utf16(Number number, std::string_view text) {
    Bytes result;
    for (const char c : text) {
        result = result + number(static_cast<uint32_t>(c), 2);
    }
    return result;
}

Bytes unicode_name() {
    return bytes_of(std::string_view("UNICODE\0", 8));
}

// A segment with an orientation, which is no concern here, and a user comment.
Bytes comment_segment(Number number, const Bytes& comment, uint32_t type = 7,
                      uint32_t extra_bytes = 0) {
    const auto size = static_cast<uint32_t>(comment.size());
    const auto entry = [&](uint32_t tag, uint32_t kind, uint32_t count, uint32_t value) {
        return number(tag, 2) + number(kind, 2) + number(count, 4) + number(value, 4);
    };
    const Bytes exif = bytes_of(number == big_endian ? "MM" : "II") + number(42, 2) + number(8, 4) +
                       number(2, 2) + entry(0x010e, 2, 1, 0) + entry(0x8769, 4, 1, 38) +
                       number(0, 4) + number(1, 2) + entry(0x9286, type, size + extra_bytes, 56) +
                       number(0, 4) + comment;
    return segment(0xe1, bytes_of(std::string_view("Exif\0\0", 6)) + exif);
}

TEST_CASE("texts of a JPEG come back as they were saved") {
    const std::string long_text(200'000, 'x');
    std::string wide = "a";  // cut within characters
    for (int i = 0; i < 50'000; ++i) {
        wide += "\xf0\x9f\x8c\x8a";
    }
    const std::vector<ImageText> texts = {{"parameters", "caf\xc3\xa9 \xf0\x9f\x8c\x8a\nSteps: 4"},
                                          {"flux2", R"({"prompt": "caf\u00e9"})"},
                                          {"a key", ""},
                                          {"long", long_text},
                                          {"wide", wide},
                                          {"parameters", "a second"}};
    const TemporaryFolder folder;
    save_image(folder / "a.jpg", kPixel, texts);
    const std::vector<ImageText> back = read_image_texts(folder / "a.jpg");
    REQUIRE(back.size() == texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
        CAPTURE(i);
        CHECK(back[i].key == texts[i].key);
        CHECK(back[i].text == texts[i].text);
    }
    CHECK(load_image(folder / "a.jpg").width == 1);
    CHECK(texts_of(jpeg()).empty());
}

TEST_CASE("the parameters are an EXIF comment as AUTOMATIC1111 writes it, behind JFIF's header") {
    const Bytes file = jpeg({{"parameters", "Steps: 4"}});
    const Bytes exif =
        bytes_of(std::string_view("Exif\0\0MM\0*\0\0\0\x08\0\x01\x87\x69\0\x04\0\0\0\x01\0\0\0\x1a"
                                  "\0\0\0\0\0\x01\x92\x86\0\x07\0\0\0\x18\0\0\0\x2c\0\0\0\0",
                                  50)) +
        unicode_name() + utf16(big_endian, "Steps: 4");
    const Bytes expected = segment(0xe1, exif);
    REQUIRE(file.size() > 20 + expected.size());
    CHECK(std::equal(expected.begin(), expected.end(), file.begin() + 20));
}

TEST_CASE("parameters that an EXIF comment would not give back are kept otherwise") {
    // Longer than a segment in UTF-16; blank; of letters whose bytes look like the other order.
    for (const std::string& text : {std::string(40'000, 'x'), std::string("  "), std::string(),
                                    std::string("\xe4\xb8\x80\xe4\xb8\x80")}) {
        const Bytes file = jpeg({{"parameters", text}});
        REQUIRE(texts_of(file).size() == 1);
        CHECK(texts_of(file)[0].key == "parameters");
        CHECK(texts_of(file)[0].text == text);
        CHECK_FALSE(contains(file, bytes_of("Exif")));
    }
}

TEST_CASE("user comments of other programs are read in either byte order") {
    const auto comment_of = [](const Bytes& file) {
        const auto texts = texts_of(file);
        REQUIRE(texts.size() == 1);
        CHECK(texts[0].key == "parameters");
        return texts[0].text;
    };
    for (const Number number : {big_endian, little_endian}) {
        for (const Number text_order : {big_endian, little_endian}) {
            CHECK(comment_of(with_segments(comment_segment(
                      number, unicode_name() + utf16(text_order, "a house")))) == "a house");
            CHECK(comment_of(with_segments(
                      comment_segment(number, unicode_name() + text_order(0xfeff, 2) +
                                                  utf16(text_order, "a house")))) == "a house");
        }
        CHECK(comment_of(with_segments(comment_segment(
                  number, bytes_of(std::string_view("ASCII\0\0\0a house\0\0", 17))))) == "a house");
        CHECK(comment_of(with_segments(
                  comment_segment(number, Bytes(8) + bytes_of("caf\xc3\xa9")))) == "caf\xc3\xa9");
    }
}

TEST_CASE("broken and empty user comments are left out") {
    const Bytes name = unicode_name();
    const Bytes text = utf16(big_endian, "a house");
    const std::vector<Bytes> segments = {
        comment_segment(big_endian, name),
        comment_segment(big_endian, name + utf16(big_endian, "   ")),
        comment_segment(big_endian, name + utf16(big_endian, std::string_view("\0\0", 2))),
        comment_segment(big_endian, name + text + bytes({0})),
        comment_segment(big_endian, name + bytes({0xd8, 0, 0, 'a'})),
        comment_segment(big_endian, bytes_of(std::string_view("JIS\0\0\0\0\0abc", 11))),
        comment_segment(big_endian, Bytes(8) + bytes({0xff})),
        comment_segment(big_endian, name + text, 2),
        comment_segment(big_endian, name + text, 7, 1),
        comment_segment(big_endian, name + text, 7, 0xffffff00),
        segment(0xe1, bytes_of(std::string_view("Exif\0\0", 6))),
        segment(0xe1, bytes_of(std::string_view("Exif\0\0MM\0*\xff\xff\xff\xff", 14)))};
    for (size_t i = 0; i < segments.size(); ++i) {
        CAPTURE(i);
        CHECK(texts_of(with_segments(segments[i])).empty());
    }
}

TEST_CASE("comment segments that are not whole texts of ours are left out") {
    const auto comments = [](const std::vector<std::string>& contents) {
        Bytes segments;
        for (const std::string& content : contents) {
            segments = segments + segment(0xfe, bytes_of(content));
        }
        return texts_of(with_segments(segments));
    };
    CHECK(comments({"made by a camera"}).empty());
    CHECK(comments({"flux2 text 1/1 key"}).empty());
    CHECK(comments({"flux2 text x/1 key\na"}).empty());
    CHECK(comments({"flux2 text 1/ key\na"}).empty());
    CHECK(comments({"flux2 text 1/1 \na"}).empty());
    CHECK(comments({"flux2 text 1/1 key\n\xff"}).empty());
    CHECK(comments({"flux2 text 1/2 key\na"}).empty());
    CHECK(comments({"flux2 text 2/2 key\na"}).empty());
    CHECK(comments({"flux2 text 1/3 key\na", "flux2 text 3/3 key\nc"}).empty());
    CHECK(comments({"flux2 text 1/2 key\na", "flux2 text 2/2 other\nb"}).empty());
    CHECK(comments({"flux2 text 0/0 key\na"}).empty());
    CHECK(comments({"flux2 text 99999999999999999999/1 key\na"}).empty());
    const auto whole = comments({"flux2 text 1/2 key\na", "a camera's", "flux2 text 2/2 key\nb"});
    REQUIRE(whole.size() == 1);
    CHECK(whole[0].text == "ab");
}

TEST_CASE("texts that a JPEG cannot hold are refused") {
    for (const ImageText& text : {ImageText{"", "text"},
                                  {"two\nlines", "text"},
                                  {"key", std::string("a\0b", 3)},
                                  {"key", "\xff"},
                                  {"parameters", "\xff"},
                                  {"key", std::string(kMaxTextBytes, 'x')}}) {
        CHECK(error_of([&] { jpeg({text}); }).kind == ErrorKind::bad_argument);
    }
}

TEST_CASE("a JPEG with texts that is cut off or changed is refused or read, nothing else") {
    const Bytes whole = jpeg({{"parameters", "Steps: 4"}, {"flux2", "{}"}});
    for (size_t size = 0; size < whole.size(); ++size) {
        const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
        CHECK(error_of([&] { texts_of(cut); }).kind == ErrorKind::bad_file);
        read_jpeg_texts(cut);
    }
    for (size_t i = 2; i < whole.size(); ++i) {
        for (const int value : {0x00, 0x01, 0xff}) {
            Bytes changed = whole;
            changed[i] = std::byte(value);
            read_jpeg_texts(changed);
        }
    }
}

}  // namespace
}  // namespace flux2
