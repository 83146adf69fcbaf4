// OpenAI's images API over a real connection.
#include <flux2/flux2.hpp>
#include "http/base64.hpp"
#include "support/folders.hpp"
#include "support/program.hpp"
#include "support/running_server.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <thread>

using namespace flux2;
using namespace flux2::test;
using nlohmann::json;

namespace {

Image picture_of(const json& item) {
    return picture_from_base64(item.at("b64_json").get<std::string>());
}

std::string data_url(const std::string& png) {
    return "data:image/png;base64," + server::to_base64(png);
}

// What the library makes of the same request.
Image library_picture(const std::string& prompt, uint64_t seed) {
    LoadOptions options;
    options.device = "CPU";
    Pipeline pipeline = Pipeline::load(find_model(test::tiny_model()).files, options);
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

TEST_CASE("the command line makes the same pixels as a request over HTTP") {
    TestServer server;
    const TemporaryFolder folder;
    const std::string file = (folder / "out.png").string();
    const ProgramResult run = run_program(flux2_path() + " -m " + test::tiny_model() +
                                          " --device CPU --no-cache -q -p 'a green tree' -W 96 "
                                          "-H 64 --steps 3 -s 11 -o " +
                                          file);
    REQUIRE(run.exit_code == 0);
    const auto answer =
        server.post("/v1/images/generations",
                    {{"prompt", "a green tree"}, {"size", "96x64"}, {"steps", 3}, {"seed", 11}});
    REQUIRE(answer.status == 200);
    CHECK(picture_of(answer.body["data"][0]).rgb == load_image(file).rgb);
}

TEST_CASE("of an edit with a mask the transparent part is painted and the rest keeps its bytes") {
    TestServer server;
    const std::string source = striped_png(96, 96);
    const std::string mask = half_transparent_png(96, 96, 48);
    const auto answer =
        server.post_form("/v1/images/edits", {{"image", source, "a.png", "image/png"},
                                              {"mask", mask, "mask.png", "image/png"},
                                              {"prompt", "a boat", "", ""},
                                              {"seed", "3", "", ""}});
    REQUIRE(answer.status == 200);
    const Image before = decode_image(std::as_bytes(std::span(source)));
    const Image after = picture_of(answer.body["data"][0]);
    REQUIRE(after.width == 96);
    REQUIRE(after.height == 96);
    int n_changed_inside = 0, n_changed_outside = 0;
    for (size_t i = 0; i < after.rgb.size(); ++i) {
        const bool is_inside = i / 3 % 96 < 48;
        (is_inside ? n_changed_inside : n_changed_outside) += after.rgb[i] != before.rgb[i];
    }
    CHECK(n_changed_outside == 0);
    CHECK(n_changed_inside > 48 * 96);  // of three values for each of these pixels
}

TEST_CASE("an edit takes several pictures, in a form and as data URLs alike") {
    TestServer server;
    const std::string one = striped_png(64, 64), two = half_transparent_png(64, 64, 20);
    const auto form = server.post_form("/v1/images/edits", {{"image[]", one, "1.png", "image/png"},
                                                            {"image[]", two, "2.png", "image/png"},
                                                            {"prompt", "make it night", "", ""},
                                                            {"size", "64x64", "", ""},
                                                            {"seed", "7", "", ""}});
    const auto body =
        server.post("/v1/images/edits",
                    {{"images", {{{"image_url", data_url(one)}}, {{"image_url", data_url(two)}}}},
                     {"prompt", "make it night"},
                     {"size", "64x64"},
                     {"seed", 7}});
    REQUIRE(form.status == 200);
    REQUIRE(body.status == 200);
    CHECK(picture_of(form.body["data"][0]).rgb == picture_of(body.body["data"][0]).rgb);
    CHECK(form.body["usage"]["input_tokens_details"]["image_tokens"] == 2 * 4 * 4);
}

TEST_CASE("a mask without transparency, or of another size than its picture, is refused") {
    TestServer server;
    const auto edit = [&](const std::string& mask) {
        return server.post_form("/v1/images/edits", {{"image", striped_png(64, 64), "a.png", ""},
                                                     {"mask", mask, "mask.png", ""},
                                                     {"prompt", "a boat", "", ""}});
    };
    for (const std::string& mask :
         {striped_png(64, 64), half_transparent_png(64, 64, 0), half_transparent_png(64, 80, 9)}) {
        const auto answer = edit(mask);
        CHECK(answer.status == 400);
        CHECK(answer.body["error"]["param"] == "mask");
    }
}

TEST_CASE("a streamed request sends partial pictures and then the finished one") {
    TestServer server;
    const auto result =
        server.client().Post("/v1/images/generations",
                             R"({"prompt": "a house", "size": "64x64", "seed": 5, "stream": true,
                                 "partial_images": 2, "steps": 8})",
                             "application/json");
    REQUIRE(result);
    CHECK(result->get_header_value("Content-Type") == "text/event-stream");
    const std::vector<Event> events = events_of(result->body);
    REQUIRE(events.size() >= 1);
    for (size_t i = 0; i + 1 < events.size(); ++i) {
        CHECK(events[i].name == "image_generation.partial_image");
        CHECK(events[i].data["type"] == events[i].name);
        CHECK(events[i].data["partial_image_index"] == i);
        CHECK_FALSE(picture_of(events[i].data).rgb.empty());
    }
    CHECK(events.size() <= 3);
    CHECK(events.back().name == "image_generation.completed");
    CHECK(events.back().data["size"] == "64x64");
    CHECK(events.back().data.contains("usage"));
    const auto plain =
        server.post("/v1/images/generations",
                    {{"prompt", "a house"}, {"size", "64x64"}, {"seed", 5}, {"steps", 8}});
    CHECK(picture_of(events.back().data).rgb == picture_of(plain.body["data"][0]).rgb);
}

TEST_CASE("an error in a stream is an event with an error object") {
    server::ServerOptions options = test_options();
    options.lora_folder = test::tiny_model();
    TestServer server(options);
    // No LoRA, which is noticed when the job runs: after the headers were sent.
    const auto result = server.client().Post(
        "/v1/images/generations",
        R"({"prompt": "a house", "size": "64x64", "lora": ["vae-bf16"], "stream": true})",
        "application/json");
    REQUIRE(result);
    const std::vector<Event> events = events_of(result->body);
    REQUIRE(events.size() == 1);
    CHECK(events[0].data.contains("error"));
    CHECK(events[0].data["error"].contains("message"));
}

TEST_CASE("a picture can be fetched by the address in the answer") {
    TestServer server;
    const auto answer =
        server.post("/v1/images/generations",
                    {{"prompt", "a house"}, {"size", "64x64"}, {"seed", 5}, {"model", "dall-e-3"}});
    REQUIRE(answer.status == 200);
    const std::string url = answer.body["data"][0]["url"];
    const size_t path = url.find("/images/");
    REQUIRE(path != std::string::npos);
    const auto picture = server.client().Get(url.substr(path));
    REQUIRE(picture);
    CHECK(picture->get_header_value("Content-Type") == "image/png");
    CHECK(decode_image(std::as_bytes(std::span(picture->body))).rgb ==
          library_picture("a house", 5).rgb);
    CHECK(server.get("/images/00000000000000000000.png").status == 404);
}

TEST_CASE("quality is a number of steps, and auto the model's own") {
    TestServer server;
    const auto steps_of = [&](const char* quality) {
        const auto answer = server.post("/v1/images/generations", {{"prompt", "a house"},
                                                                   {"size", "64x64"},
                                                                   {"quality", quality},
                                                                   {"response_format", "url"}});
        REQUIRE(answer.status == 200);
        const std::string url = answer.body["data"][0]["url"];
        const std::string id = url.substr(url.find("/images/") + 8, 20);
        return server.get("/api/v1/history/" + id).body["settings"]["steps"].get<int>();
    };
    CHECK(steps_of("auto") == 4);
    CHECK(steps_of("low") == 2);
    CHECK(steps_of("high") == 8);
}
