// OpenAI's images API over a real connection.
#include <flux2/flux2.hpp>
#include "http/base64.hpp"
#include "support/support.hpp"
#include "support/running_server.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <thread>

using namespace flux2;
using namespace flux2::test;
using nlohmann::json;

namespace {

Image picture_of(const json& item) {
    const auto bytes = server::from_base64(item.at("b64_json").get<std::string>());
    REQUIRE(bytes.has_value());
    return decode_image(std::as_bytes(std::span(*bytes)));
}

// What the library makes of the same request.
Image library_picture(const std::string& prompt, uint64_t seed) {
    LoadOptions options;
    options.device = "CPU";
    Pipeline pipeline = Pipeline::load(find_model(FLUX2_TINY_MODEL).files, options);
    Request request;
    request.prompt = prompt;
    request.width = request.height = 64;
    request.seed = seed;
    return pipeline.generate(request).image;
}

}  // namespace

TEST_CASE("a picture over HTTP has the pixels that the library makes") {
    TestServer server;
    const auto answer = server.post(
        "/v1/images/generations",
        {{"prompt", "a red house"}, {"size", "64x64"}, {"seed", 5}, {"n", 2}, {"model", "tiny"}});
    REQUIRE(answer.status == 200);
    REQUIRE(answer.body["data"].size() == 2);
    CHECK(picture_of(answer.body["data"][0]).rgb == library_picture("a red house", 5).rgb);
    CHECK(picture_of(answer.body["data"][1]).rgb == library_picture("a red house", 6).rgb);
    CHECK(answer.body["size"] == "64x64");
    CHECK(answer.body["output_format"] == "png");
    CHECK(answer.body["usage"]["output_tokens"] == 2 * 4 * 4);
}

TEST_CASE("the picture in an answer stores its settings without any path") {
    TestServer server;
    const auto answer = server.post("/v1/images/generations",
                                    {{"prompt", "a boat"}, {"size", "64x64"}, {"seed", 3}});
    REQUIRE(answer.status == 200);
    const auto bytes = server::from_base64(answer.body["data"][0]["b64_json"].get<std::string>());
    std::string texts;
    for (const ImageText& text : decode_image_texts(std::as_bytes(std::span(*bytes)))) {
        texts += text.text;
    }
    CHECK(texts.find("a boat") != std::string::npos);
    CHECK(texts.find("flux2-tiny-bf16.gguf") != std::string::npos);
    CHECK(texts.find('/') == std::string::npos);
}

TEST_CASE("a wrong value is answered with 400 and an error object that names the field") {
    TestServer server;
    const auto answer =
        server.post("/v1/images/generations", {{"prompt", "a house"}, {"n", "three"}});
    CHECK(answer.status == 400);
    const json error = answer.body.at("error");
    CHECK(error.at("param") == "n");
    CHECK(error.at("type") == "invalid_request_error");
    CHECK(error.at("code") == "invalid_value");
    CHECK(error.at("message").get<std::string>().find("n is \"three\"") == 0);
    CHECK(answer.headers.find("x-should-retry")->second == "false");
    CHECK(answer.headers.count("x-request-id") == 1);
}

TEST_CASE("a connection that the client closes cancels its job") {
    TestServer server;
    {
        httplib::Client client("127.0.0.1", server.port());
        client.set_read_timeout(std::chrono::milliseconds(300));
        CHECK_FALSE(client.Post("/v1/images/generations",
                                R"({"prompt": "a house", "size": "256x256", "steps": 900})",
                                "application/json"));
    }
    // At this size a block takes milliseconds; 900 steps would take minutes.
    CHECK(server.service().runner().wait_idle(std::chrono::seconds(10)));
}

TEST_CASE("the models and the health of a server can be asked for") {
    TestServer server;
    CHECK(server.get("/health").body == json{{"status", "ok"}});
    const auto models = server.get("/v1/models");
    CHECK(models.body["object"] == "list");
    CHECK(models.body["data"][0]["id"] == "tiny");
    CHECK(models.body["data"][0]["object"] == "model");
}
