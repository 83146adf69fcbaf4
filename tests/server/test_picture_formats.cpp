// The formats in which pictures are sent and taken.
#include <flux2/image.hpp>
#include "http/base64.hpp"
#include "support/needs.hpp"
#include "support/running_server.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

using namespace flux2;
using namespace flux2::test;
using nlohmann::json;

namespace {

std::string file_of(const TestServer& server, json body) {
    body.update({{"prompt", "a red house"}, {"size", "128x128"}, {"seed", 5}});
    const auto answer = server.post("/v1/images/generations", body);
    REQUIRE_MESSAGE(answer.status == 200, answer.body.dump());
    CHECK(answer.body["output_format"] == body.value("output_format", "png"));
    return server::from_base64(answer.body["data"][0]["b64_json"].get<std::string>()).value();
}

Image decoded(const std::string& file) {
    return decode_image(std::as_bytes(std::span(file)));
}

}  // namespace

TEST_CASE("output_format and output_compression choose the file of an answer") {
    TestServer server;
    const std::string png = file_of(server, json::object());
    CHECK(png.starts_with("\x89PNG"));
    std::vector<std::pair<std::string, std::string>> formats = {{"jpeg", "\xff\xd8"}};
    if (supports_webp()) {
        formats.emplace_back("webp", "RIFF");
    }
    for (const auto& [format, start] : formats) {
        CAPTURE(format);
        const std::string best = file_of(server, {{"output_format", format}});
        const std::string small =
            file_of(server, {{"output_format", format}, {"output_compression", 20}});
        CHECK(best.starts_with(start));
        CHECK(small.starts_with(start));
        CHECK(small.size() < best.size());
        CHECK(best.size() < png.size());
        CHECK(decoded(best).width == 128);
        CHECK(decode_image_texts(std::as_bytes(std::span(best))).size() == 2);
    }
}

TEST_CASE("a WebP can be uploaded" * test::needs(supports_webp(), "needs libwebp")) {
    TestServer server;
    const std::vector<std::byte> webp =
        encode_image({64, 64, std::vector<uint8_t>(size_t{64} * 64 * 3, 90)}, ImageFormat::webp);
    const std::string text =
        server::to_base64({reinterpret_cast<const char*>(webp.data()), webp.size()});
    const auto answer =
        server.post("/sdapi/v1/img2img", {{"prompt", "a tree"}, {"init_images", {text}}});
    CHECK(answer.status == 200);
}
