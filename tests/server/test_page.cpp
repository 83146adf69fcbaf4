// The page for browsers: its files, what browsers may keep of them, and what its API tells.
#include "http/base64.hpp"
#include "http/page.hpp"
#include "support/folders.hpp"
#include "support/running_server.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <regex>
#include <set>

using namespace flux2;
using namespace flux2::test;
using nlohmann::json;

namespace {

const httplib::Headers kBrowser = {{"Accept", "text/html,application/xhtml+xml,*/*;q=0.8"}};

std::filesystem::path web_folder() {
    return std::filesystem::path(test::tiny_model()) / "../../examples/server/web";
}

httplib::Response page_of(const TestServer& server, const std::string& path,
                          httplib::Headers headers = kBrowser) {
    const auto answer = server.client().Get(path, headers);
    REQUIRE(answer);
    return *answer;
}

const std::string kVersion(server::page_version());

// The addresses of other files in an HTML text.
std::set<std::string> addresses_in(const std::string& html) {
    const std::regex address("(?:src|href)=\"([^\"#][^\"]*)\"");
    std::set<std::string> found;
    for (std::sregex_iterator at(html.begin(), html.end(), address), end; at != end; ++at) {
        found.insert((*at)[1]);
    }
    return found;
}

// A picture with a text as A1111 writes it.
std::string a1111_picture(const std::string& parameters) {
    Image image;
    image.width = image.height = 16;
    image.rgb.resize(16 * 16 * 3);
    const auto bytes = encode_image(image, ImageFormat::png, {{"parameters", parameters}});
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

TEST_CASE("browsers get the page, programs the JSON that they know") {
    TestServer server;
    const auto page = page_of(server, "/");
    CHECK(page.status == 200);
    CHECK(page.get_header_value("Content-Type") == "text/html; charset=utf-8");
    CHECK(page.body.starts_with("<!doctype html>"));
    CHECK(server.get("/").body["model"] == "tiny");
    CHECK(page_of(server, "/", {{"Accept", "application/json"}}).body.starts_with("{"));
    const auto head = server.client().Head("/", kBrowser);
    REQUIRE(head);
    CHECK(head->status == 200);
    CHECK(head->body.empty());
}

TEST_CASE("everything that the page names is there, under an address that lasts") {
    TestServer server;
    const std::string html = page_of(server, "/").body;
    CHECK(html.find('@') == std::string::npos);  // nothing is left to be filled in
    const auto addresses = addresses_in(html);
    CHECK(addresses.contains("web/" + kVersion + "/app.js"));
    CHECK(addresses.contains("web/" + kVersion + "/editor/editor.js"));
    for (const std::string& address : addresses) {
        CAPTURE(address);
        const auto file = page_of(server, "/" + address);
        CHECK(file.status == 200);
        CHECK(file.get_header_value("Cache-Control") == "public, max-age=31536000, immutable");
        CHECK(file.get_header_value("X-Content-Type-Options") == "nosniff");
        const std::string type = file.get_header_value("Content-Type");
        CHECK(type == (address.ends_with(".css")   ? "text/css; charset=utf-8"
                       : address.ends_with(".svg") ? "image/svg+xml"
                                                   : "text/javascript; charset=utf-8"));
        CHECK(file.body == read_text(web_folder() / address.substr(address.find('/', 4) + 1)));
    }
}

TEST_CASE("files of the page are one route in the metrics") {
    server::ServerOptions options = test_options();
    options.metrics = true;
    TestServer server(options);
    page_of(server, "/");
    page_of(server, "/web/" + kVersion + "/app.js");
    const std::string metrics = page_of(server, "/metrics").body;
    CHECK(metrics.find("flux2_http_requests_total{route=\"page\",status=\"200\"} 2") !=
          std::string::npos);
}

TEST_CASE("the page runs only scripts of this server and is shown in no frame") {
    TestServer server;
    const auto page = page_of(server, "/");
    const std::string policy = page.get_header_value("Content-Security-Policy");
    for (const char* part : {"default-src 'none'", "script-src 'self'", "style-src 'self'",
                             "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"}) {
        CAPTURE(part);
        CHECK(policy.find(part) != std::string::npos);
    }
    CHECK(policy.find("unsafe") == std::string::npos);
    CHECK(page.get_header_value("Referrer-Policy") == "no-referrer");
    CHECK_FALSE(std::regex_search(page.body, std::regex("<style| style=| on[a-z]+=|https?://")));
}

TEST_CASE("a browser that has a file is told so, and another version is not kept") {
    TestServer server;
    const auto first = page_of(server, "/");
    CHECK(first.get_header_value("Cache-Control") == "no-cache");
    httplib::Headers again = kBrowser;
    again.emplace("If-None-Match", first.get_header_value("ETag"));
    const auto second = page_of(server, "/", again);
    CHECK(second.status == 304);
    CHECK(second.body.empty());
    const auto other = page_of(server, "/web/000000000000/style.css");
    CHECK(other.status == 200);
    CHECK(other.get_header_value("Cache-Control") == "no-cache");
    CHECK(other.get_header_value("ETag") != first.get_header_value("ETag"));
}

TEST_CASE("who accepts gzip gets it, and all files together stay small") {
    TestServer server;
    const std::string path = "/web/" + kVersion + "/style.css";
    const auto plain = page_of(server, path, {});
    CHECK_FALSE(plain.has_header("Content-Encoding"));
    httplib::Client client = server.client();
    client.set_decompress(false);
    const auto packed = client.Get(path, httplib::Headers{{"Accept-Encoding", "gzip, deflate"}});
    REQUIRE(packed);
    CHECK(packed->get_header_value("Content-Encoding") == "gzip");
    CHECK(packed->get_header_value("ETag") != plain.get_header_value("ETag"));
    const std::string& bytes = packed->body;
    CHECK(bytes.substr(0, 3) == "\x1f\x8b\x08");        // RFC 1952: gzip, deflate
    CHECK(bytes.substr(4, 4) == std::string(4, '\0'));  // no time: equal builds are equal
    uint32_t size = 0;                                  // of the plain bytes
    for (size_t i = 1; i <= 4; ++i) {
        size = size << 8 | static_cast<unsigned char>(bytes[bytes.size() - i]);
    }
    CHECK(size == plain.body.size());
    size_t total = 0;
    for (const server::PageFile& file : server::page_files()) {
        CHECK(file.packed.size() > 18);  // head and tail of gzip
        total += file.packed.size();
    }
    CHECK(total < 150'000);
}

TEST_CASE(
    "the page needs no key and comes while the model is loaded; unknown files and --no-webui are a "
    "404") {
    server::ServerOptions options = test_options();
    options.api_keys = {"key"};
    TestServer server(options);
    CHECK(page_of(server, "/").status == 200);
    CHECK(page_of(server, "/web/" + kVersion + "/app.js").status == 200);
    CHECK(page_of(server, "/", {{"Accept", "*/*"}}).status == 401);
    CHECK(page_of(server, "/web/" + kVersion + "/missing.js").status == 401);
    CHECK(page_of(server, "/api/v1/models").status == 401);
    CHECK(page_of(server, "/", {{"Accept", "text/html"}, {"Host", "evil.example"}}).status == 403);

    server::Service not_ready(test_options());
    server::HttpServer early(not_ready);
    early.listen();
    httplib::Client client("127.0.0.1", early.port());
    CHECK(client.Get("/", kBrowser)->status == 200);
    CHECK(client.Get("/api/v1/models")->status == 503);

    options.api_keys.clear();
    options.page = false;
    TestServer without(options);
    CHECK(page_of(without, "/").body.starts_with("{"));
    CHECK(page_of(without, "/web/" + kVersion + "/app.js").status == 404);
    const auto missing = page_of(without, "/web/" + kVersion + "/../../etc/passwd");
    CHECK(missing.status == 404);
}

TEST_CASE("a picture of the history comes with the request that makes it again") {
    server::ServerOptions options = test_options();
    options.lora_folder = test::tiny_model();
    TestServer server(options);
    const std::string reference = "data:image/png;base64," + server::to_base64(striped_png(64, 64));
    json asked = {{"prompt", "a house"},
                  {"width", 64},
                  {"height", 80},
                  {"seed", 9876543210987654321u},
                  {"steps", 2},
                  {"lora", {{{"name", "blueprint-lora"}, {"strength", 0.5}}}},
                  {"references", {reference}},
                  {"reference_roles", {"style"}}};
    const std::string id = server.post("/api/v1/jobs", asked).body["id"];
    server.client().Get("/api/v1/jobs/" + id + "/events");
    const json history = server.get("/api/v1/history").body;
    CHECK(history["total"] == 1);
    const json entry = history["pictures"][0];
    CHECK(entry["needs"] == json({{"references", 1}, {"image", false}, {"mask", false}}));
    const json& request = entry["request"];
    for (const char* name : {"prompt", "width", "height", "seed", "steps", "reference_roles"}) {
        CAPTURE(name);
        CHECK(request[name] == asked[name]);
    }
    CHECK(request["lora"] == json::array({{{"name", "blueprint-lora"}, {"strength", 0.5}}}));
    CHECK(request["model"] == "tiny");
    const json pictures = server.get("/api/v1/jobs/" + id + "/result").body["pictures"];
    CHECK(pictures[0]["request"] == request);

    // The same picture, bit by bit.
    json repeated = request;
    repeated["references"] = {reference};
    const std::string again = server.post("/api/v1/jobs", repeated).body["id"];
    server.client().Get("/api/v1/jobs/" + again + "/events");
    const json made = server.get("/api/v1/jobs/" + again + "/result").body["pictures"][0];
    const auto decoded = [&](const json& picture) {
        const auto file = server.client().Get(picture["url"].get<std::string>());
        REQUIRE(file);
        return decode_image(std::as_bytes(std::span(file->body))).rgb;
    };
    CHECK(decoded(made) == decoded(entry));
}

TEST_CASE("the settings of an edit say which pictures it needs") {
    TestServer server;
    const std::string picture = "data:image/png;base64," + server::to_base64(striped_png(64, 64));
    const json asked = {{"prompt", "a house"}, {"image", picture}, {"mask", picture},
                        {"mask_grow", 3},      {"mask_blur", 2},   {"steps", 2},
                        {"outpaint_left", 16}};
    const std::string id = server.post("/api/v1/jobs", asked).body["id"];
    server.client().Get("/api/v1/jobs/" + id + "/events");
    const json entry = server.get("/api/v1/history").body["pictures"][0];
    CHECK(entry["needs"] == json({{"references", 0}, {"image", true}, {"mask", true}}));
    CHECK(entry["request"]["mask_grow"] == 3);
    CHECK(entry["request"]["mask_blur"] == 2);
    CHECK(entry["request"]["outpaint_left"] == 16);
    CHECK(entry["request"]["outpaint_top"] == 0);
}

TEST_CASE("picture-settings reads pictures of ours and of A1111, and says what it does not use") {
    TestServer server;
    const std::string id =
        server
            .post("/api/v1/jobs",
                  {{"prompt", "a lake"}, {"width", 64}, {"height", 64}, {"seed", 9}})
            .body["id"];
    server.client().Get("/api/v1/jobs/" + id + "/events");
    const json made = server.get("/api/v1/jobs/" + id + "/result").body["pictures"][0];
    const auto file = server.client().Get(made["url"].get<std::string>());
    REQUIRE(file);
    const auto own = server.post_form("/api/v1/picture-settings",
                                      {{"image", file->body, "lake.png", "image/png"}});
    REQUIRE(own.status == 200);
    CHECK(own.body["source"] == "flux2");
    CHECK(own.body["request"] == made["request"]);

    const std::string other = a1111_picture(
        "a hill <lora:ink:0.8>\nNegative prompt: rain\nSteps: 20, Sampler: DPM++ 2M, CFG scale: 7, "
        "Seed: 42, Size: 512x768, Model: dreamshaper");
    const auto a1111 =
        server.post("/api/v1/picture-settings",
                    {{"image", "data:image/png;base64," + server::to_base64(other)}});
    REQUIRE(a1111.status == 200);
    CHECK(a1111.body["source"] == "a1111");
    const json& request = a1111.body["request"];
    CHECK(request["prompt"] == "a hill");
    CHECK(request["negative_prompt"] == "rain");
    CHECK(request["lora"][0]["name"] == "ink");
    CHECK(request["steps"] == 20);
    CHECK(request["seed"] == 42);
    CHECK(request["width"] == 512);
    CHECK(request["height"] == 768);
    CHECK_FALSE(request.contains("model"));  // there is none of this name
    CHECK(a1111.body["unused"].dump().find("DPM++ 2M") != std::string::npos);
}

TEST_CASE("picture-settings says that a picture holds none, and refuses what is no picture") {
    TestServer server;
    const auto answer_to = [&](const std::string& bytes) {
        return server.post("/api/v1/picture-settings",
                           {{"image", "data:image/png;base64," + server::to_base64(bytes)}});
    };
    for (const std::string& bytes : {striped_png(16, 16), a1111_picture("only a prompt")}) {
        const auto none = answer_to(bytes);
        CHECK(none.status == 200);
        CHECK(none.body["source"].is_null());
        CHECK(none.body["request"].is_null());
    }
    const auto missing = server.post("/api/v1/picture-settings", json::object());
    CHECK(missing.status == 400);
    CHECK(missing.body["error"]["message"].get<std::string>().starts_with("image is missing"));
    const auto broken = answer_to("not a picture");
    CHECK(broken.status == 400);
    CHECK(broken.body["error"]["param"] == "image");
}

TEST_CASE("models say whether they use a negative prompt, devices how much memory they have") {
    server::ServerOptions options = test_options();
    TestServer distilled(options);
    CHECK(distilled.get("/api/v1/models").body["models"][0]["uses_negative_prompt"] == false);
    const json device = distilled.get("/api/v1/capabilities").body["devices"][0];
    CHECK(device["memory_bytes"].get<uint64_t>() > 1'000'000);
    CHECK(device["host_memory_bytes"] == device["memory_bytes"]);
    options.model.load.variant = "base";
    TestServer base(options);
    CHECK(base.get("/api/v1/models").body["models"][0]["uses_negative_prompt"] == true);
}
