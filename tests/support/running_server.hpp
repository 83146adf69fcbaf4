// A server inside the test program, on a free port, with the bundled model.
#pragma once

#include "http/http_server.hpp"
#include "http/server_options.hpp"
#include "http/service.hpp"

#include <httplib.h>
#include <nlohmann/json.hpp>

#include <string>

namespace flux2::test {

// Options for tests: the bundled model on a CPU without a cache, quiet, any free port.
server::ServerOptions test_options();

class TestServer {
  public:
    explicit TestServer(const server::ServerOptions& options = test_options());

    server::Service& service() { return service_; }
    server::HttpServer& http() { return http_; }
    int port() const { return http_.port(); }
    // A client with a generous timeout.
    httplib::Client client() const;

    // Posts JSON and returns the answer, which must be JSON.
    struct Answer {
        int status = 0;
        httplib::Headers headers;
        nlohmann::json body;
    };
    Answer post(const std::string& path, const nlohmann::json& body) const;
    Answer get(const std::string& path) const;

  private:
    server::Service service_;
    server::HttpServer http_;
};

}  // namespace flux2::test
