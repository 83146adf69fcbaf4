// The HTTP server: its limits, checks and log lines around the routes of the dialects.
#pragma once

#include "http/access.hpp"
#include "http/routes.hpp"
#include "http/server_options.hpp"
#include "http/service.hpp"

#include <httplib.h>

#include <memory>
#include <string>
#include <thread>

namespace flux2::server {

class HttpServer {
  public:
    // The service must outlive it. Throws bad_file for TLS files that cannot be used.
    explicit HttpServer(Service& service);
    // Stops listening and waits for the answers that are under way.
    ~HttpServer();
    HttpServer(const HttpServer&) = delete;
    HttpServer& operator=(const HttpServer&) = delete;

    // Where dialects register; before listen().
    Routes& routes() { return routes_; }

    // Begins to listen, in a thread of its own. Throws bad_argument when the address cannot be
    // used.
    void listen();
    // Takes no new connections. Answers that are under way are finished.
    void stop();

    int port() const { return port_; }
    // "http://127.0.0.1:8080"
    std::string address() const;

  private:
    void set_limits();
    void set_handlers();
    httplib::Server::HandlerResponse before_routing(const httplib::Request& request,
                                                    httplib::Response& response);
    void complete_error(const httplib::Request& request, httplib::Response& response);
    void log_answer(const httplib::Request& request, const httplib::Response& response);

    Service& service_;
    Access access_;
    std::unique_ptr<httplib::Server> server_;
    Routes routes_;
    int port_ = 0;
    std::thread thread_;
};

}  // namespace flux2::server
