#include "http/base64.hpp"
#include "http/picture_header.hpp"
#include "http/request_fields.hpp"
#include "support/png_builder.hpp"
#include "support/running_server.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

using namespace flux2;
using namespace flux2::server;
using nlohmann::json;

namespace {

const FieldTable& table() {
    static const FieldTable fields = {{"prompt", FieldKind::text, "say it", 0, 10, {}, true},
                                      {"n", FieldKind::integer, "", 1, 10},
                                      {"guidance", FieldKind::number, "", 0, 5},
                                      {"stream", FieldKind::boolean, ""},
                                      {"seed", FieldKind::seed, ""},
                                      {"sigmas", FieldKind::numbers, ""}};
    return fields;
}

httplib::MultipartFormData form(const std::vector<std::pair<std::string, std::string>>& values) {
    httplib::MultipartFormData data;
    for (const auto& [name, value] : values) {
        data.fields.emplace(name, httplib::FormField{name, value, {}});
    }
    return data;
}

}  // namespace

TEST_CASE("fields are read alike from JSON and from the strings of a form") {
    const auto from_json = RequestFields::from_json(table(), {{"prompt", "a"},
                                                              {"n", 3},
                                                              {"guidance", 1.5},
                                                              {"stream", true},
                                                              {"seed", 18446744073709551u},
                                                              {"sigmas", {1, 0.5, 0}},
                                                              {"unknown", "x"}});
    const auto from_form = RequestFields::from_form(table(), form({{"prompt", "a"},
                                                                   {"n", "3"},
                                                                   {"guidance", "1.5"},
                                                                   {"stream", "true"},
                                                                   {"seed", "18446744073709551"},
                                                                   {"sigmas", "[1, 0.5, 0]"}}));
    for (const RequestFields* fields : {&from_json, &from_form}) {
        CHECK(fields->text("prompt") == "a");
        CHECK(fields->integer("n") == 3);
        CHECK(fields->number("guidance") == 1.5f);
        CHECK(fields->boolean("stream"));
        CHECK(fields->seed("seed") == 18446744073709551u);
        CHECK(fields->numbers("sigmas") == std::vector<float>{1, 0.5f, 0});
        CHECK_FALSE(fields->has("unknown"));
    }
}

TEST_CASE("null and absent are the same, and -1 is no seed") {
    const auto fields =
        RequestFields::from_json(table(), {{"prompt", "a"}, {"n", nullptr}, {"seed", -1}});
    CHECK_FALSE(fields.integer("n").has_value());
    CHECK_FALSE(fields.seed("seed").has_value());
}

TEST_CASE("a text in a form that looks like a number stays a text") {
    CHECK(RequestFields::from_form(table(), form({{"prompt", "1984"}})).text("prompt") == "1984");
}

TEST_CASE("base64 is that of the RFC, with and without padding and line ends") {
    // RFC 4648, section 10.
    const std::vector<std::pair<std::string, std::string>> cases = {{"", ""},
                                                                    {"f", "Zg=="},
                                                                    {"fo", "Zm8="},
                                                                    {"foo", "Zm9v"},
                                                                    {"foob", "Zm9vYg=="},
                                                                    {"fooba", "Zm9vYmE="},
                                                                    {"foobar", "Zm9vYmFy"}};
    for (const auto& [bytes, text] : cases) {
        CHECK(to_base64(bytes) == text);
        CHECK(from_base64(text) == bytes);
        CHECK(from_base64(text.substr(0, text.find('='))) == bytes);
    }
    CHECK(from_base64("Zm9v\r\nYmFy\n") == "foobar");
    for (const char* text : {"Z", "Zg=", "Zg===", "Z=g=", "Zm9v!", "Zm 9v", "===="}) {
        INFO(text);
        CHECK_FALSE(from_base64(text).has_value());
    }
}

TEST_CASE("the size and the transparency of a picture are read before it is decoded") {
    const auto header = [](const std::string& file) { return read_picture_header(file).value(); };
    CHECK(header(test::striped_png(40, 30)).width == 40);
    CHECK(header(test::striped_png(40, 30)).height == 30);
    CHECK_FALSE(header(test::striped_png(40, 30)).has_alpha);
    CHECK(header(test::half_transparent_png(40, 30, 5)).has_alpha);
    const std::vector<std::byte> jpeg =
        encode_image({24, 8, std::vector<uint8_t>(24 * 8 * 3)}, ImageFormat::jpeg);
    const std::string text(reinterpret_cast<const char*>(jpeg.data()), jpeg.size());
    CHECK(header(text).width == 24);
    CHECK(header(text).height == 8);
    // A lossless WebP of 3 x 5 pixels with alpha, as its specification lays out the header.
    using namespace std::string_literals;
    const std::string webp =
        "RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0\x2f\x02\0\x01\x10"s + std::string(9, '\0');
    CHECK(header(webp).width == 3);
    CHECK(header(webp).height == 5);
    CHECK(header(webp).has_alpha);
    for (const std::string& broken :
         {""s, "\x89PNG\r\n\x1a\n"s, "\xff\xd8\xff"s, text.substr(0, 30)}) {
        CHECK_FALSE(read_picture_header(broken).has_value());
    }
}
