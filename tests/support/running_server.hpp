// A server inside the test program, on a free port, with the bundled model.
#pragma once

#include <flux2/image.hpp>
#include "http/http_server.hpp"
#include "http/server_options.hpp"
#include "http/service.hpp"

#include <httplib.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

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
    Answer post_form(const std::string& path, const httplib::UploadFormDataItems& items) const;

  private:
    server::Service service_;
    server::HttpServer http_;
};

// An event of a text/event-stream.
struct Event {
    std::string name;
    nlohmann::json data;
};
// All events of a stream; comments are left out.
std::vector<Event> events_of(const std::string& stream);

// A picture of stripes in PNG.
std::string striped_png(int width, int height);
// The picture in a base64 text.
Image picture_from_base64(const std::string& text);
// A PNG of black pixels, those with x < `until` transparent.
std::string half_transparent_png(int width, int height, int until);

}  // namespace flux2::test
