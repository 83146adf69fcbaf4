#include "support/running_server.hpp"

#include "dialects/all_routes.hpp"
#include "http/base64.hpp"
#include "support/folders.hpp"
#include "support/png_builder.hpp"

#include <doctest/doctest.h>

#include <sstream>

namespace flux2::test {
namespace {

TestServer::Answer answer_of(const httplib::Result& result) {
    REQUIRE(result);
    nlohmann::json body = nlohmann::json::parse(result->body, nullptr, false);
    INFO(result->body.substr(0, 300));
    REQUIRE_FALSE(body.is_discarded());
    return {result->status, result->headers, std::move(body)};
}

}  // namespace

server::ServerOptions test_options() {
    server::ServerOptions options;
    options.model.folder = tiny_model();
    options.model.load.device = "CPU";
    options.model.load.keep_loaded = true;
    options.port = 0;
    options.quiet = true;
    return options;
}

TestServer::TestServer(const server::ServerOptions& options) : service_(options), http_(service_) {
    server::add_all_routes(http_.routes(), service_);
    http_.listen();
    service_.start();
}

httplib::Client TestServer::client() const {
    httplib::Client client("127.0.0.1", port());
    client.set_read_timeout(std::chrono::minutes(5));
    return client;
}

TestServer::Answer TestServer::post(const std::string& path, const nlohmann::json& body) const {
    return answer_of(client().Post(path, body.dump(), "application/json"));
}

TestServer::Answer TestServer::get(const std::string& path) const {
    return answer_of(client().Get(path));
}

TestServer::Answer TestServer::post_form(const std::string& path,
                                         const httplib::UploadFormDataItems& items) const {
    return answer_of(client().Post(path, items));
}

std::vector<Event> events_of(const std::string& stream) {
    std::vector<Event> events;
    std::istringstream in(stream);
    std::string name;
    for (std::string line; std::getline(in, line);) {
        if (line.starts_with("event: ")) {
            name = line.substr(7);
        } else if (line.starts_with("data: ")) {
            events.push_back({name, nlohmann::json::parse(line.substr(6))});
        }
    }
    return events;
}

std::string striped_png(int width, int height) {
    Image picture{width, height, {}};
    for (int i = 0; i < width * height; ++i) {
        for (const int value : {i % 251, i / width * 2 % 256, 90}) {
            picture.rgb.push_back(static_cast<uint8_t>(value));
        }
    }
    const std::vector<std::byte> bytes = encode_image(picture);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Image picture_from_base64(const std::string& text) {
    const auto bytes = server::from_base64(text);
    REQUIRE(bytes.has_value());
    return decode_image(std::as_bytes(std::span(*bytes)));
}

std::string half_transparent_png(int width, int height, int until) {
    Bytes rows;
    for (int y = 0; y < height; ++y) {
        rows.push_back(std::byte{0});
        for (int x = 0; x < width; ++x) {
            rows.insert(rows.end(), 3, std::byte{0});
            rows.push_back(x < until ? std::byte{0} : std::byte{255});
        }
    }
    const Bytes file =
        png(static_cast<uint32_t>(width), static_cast<uint32_t>(height), 8, rgb_alpha, rows);
    return {reinterpret_cast<const char*>(file.data()), file.size()};
}

}  // namespace flux2::test
