#include "support/running_server.hpp"

#include "dialects/all_routes.hpp"

#include <doctest/doctest.h>

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
    options.model.folder = FLUX2_TINY_MODEL;
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

}  // namespace flux2::test
