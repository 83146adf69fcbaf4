#include "http/http_server.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "http/connection_threads.hpp"
#include "http/log_line.hpp"
#include "http/page.hpp"

#include <chrono>
#include <filesystem>

namespace flux2::server {
namespace {

using HandlerResponse = httplib::Server::HandlerResponse;

constexpr const char* kRequestId = "x-request-id";
constexpr const char* kCurlForm = "application/x-www-form-urlencoded";
constexpr size_t kWaitingConnections = 512;

std::unique_ptr<httplib::Server> make_server(const ServerOptions& options) {
    if (options.tls_certificate.empty()) {
        return std::make_unique<httplib::Server>();
    }
    for (const std::filesystem::path& file : {options.tls_certificate, options.tls_key}) {
        check(file_exists(file), ErrorKind::bad_file, file.string(), ": no such file");
    }
    auto server = std::make_unique<httplib::SSLServer>(options.tls_certificate.string().c_str(),
                                                       options.tls_key.string().c_str());
    check(server->is_valid(), ErrorKind::bad_file, options.tls_certificate.string(), " and ",
          options.tls_key.string(), " are no PEM certificate with its key");
    return server;
}

bool is_unix_socket(const std::string& host) {
    return host.ends_with(".sock");
}

// The file of the page that is asked for; null when it is something else, or there is no page.
const PageFile* page_file(const ServerOptions& options, const httplib::Request& request) {
    return options.page ? find_page_file(request) : nullptr;
}

double seconds_since_start(const httplib::Request& request) {
    const std::chrono::duration<double> passed =
        std::chrono::steady_clock::now() - request.start_time_;
    return passed.count();
}

}  // namespace

HttpServer::HttpServer(Service& service)
    : service_(service),
      access_(service.options()),
      server_(make_server(service.options())),
      routes_(*server_,
              [&service](const std::string& code) { service.metrics().count_refusal(code); }) {
    set_limits();
    set_handlers();
}

HttpServer::~HttpServer() {
    stop();
}

void HttpServer::set_limits() {
    const ServerOptions& options = service_.options();
    const auto threads =
        static_cast<size_t>(options.http_threads > 0 ? options.http_threads
                                                     : static_cast<int>(options.queue_size) + 32);
    server_->new_task_queue = [threads] {
        return new ConnectionThreads(threads, kWaitingConnections);
    };
    server_->set_read_timeout(options.timeout);
    server_->set_write_timeout(options.timeout);
    server_->set_payload_max_length(options.max_body_bytes);
    server_->set_keep_alive_max_count(1'000'000);
    // By default several servers could listen on one port without noticing each other.
    server_->set_socket_options(
        [](socket_t socket) { httplib::set_socket_opt(socket, SOL_SOCKET, SO_REUSEADDR, 1); });
}

void HttpServer::set_handlers() {
    server_->set_pre_routing_handler(
        [this](const auto& request, auto& response) { return before_routing(request, response); });
    server_->set_error_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
            complete_error(request, response);
            return HandlerResponse::Handled;
        });
    server_->set_logger(
        [this](const auto& request, const auto& response) { log_answer(request, response); });
}

HandlerResponse HttpServer::before_routing(const httplib::Request& request,
                                           httplib::Response& response) {
    response.set_header(kRequestId, "req_" + new_id());
    const bool is_health = request.path == "/health" || request.path == "/v1/health";
    const PageFile* file = page_file(service_.options(), request);
    const bool is_public = is_health || request.method == "OPTIONS" || file != nullptr;
    if (const auto refusal = access_.refusal(request, is_public)) {
        service_.metrics().count_refusal(refusal->code);
        answer_error(response, *refusal, openai_error(*refusal));
        return HandlerResponse::Handled;
    }
    access_.allow_origin(request, response);
    if (request.method == "OPTIONS") {
        response.status = 204;
        response.set_header("Allow", routes_.methods_of(request.path));
        return HandlerResponse::Handled;
    }
    if (file != nullptr) {
        answer_page_file(*file, request, response);
        return HandlerResponse::Handled;
    }
    if (!is_health && !service_.is_ready()) {
        const HttpError loading = {
            503, "unavailable_error", "loading", "", "the model is being loaded; try again", 1};
        answer_error(response, loading, openai_error(loading));
        return HandlerResponse::Handled;
    }
    return HandlerResponse::Unhandled;
}

// Errors that no handler answered.
void HttpServer::complete_error(const httplib::Request& request, httplib::Response& response) {
    if (!response.body.empty()) {
        return;
    }
    HttpError error = http_error(response.status);
    const std::string methods = error.status == 404 ? routes_.methods_of(request.path) : "";
    if (!methods.empty()) {
        error = {405, "invalid_request_error", "method_not_allowed", "",
                 concat(request.path, " takes ", methods, ", not ", request.method)};
        response.set_header("Allow", methods);
    }
    // The HTTP library reads little of what curl -d sends without a header.
    if (error.status == 413 && request.get_header_value("Content-Type") == kCurlForm) {
        error.message = "the body is too large for its type; send Content-Type: application/json";
    }
    if (!response.has_header(kRequestId)) {
        response.set_header(kRequestId, "req_" + new_id());
    }
    answer_error(response, error, openai_error(error));
}

void HttpServer::log_answer(const httplib::Request& request, const httplib::Response& response) {
    const bool is_page = page_file(service_.options(), request) != nullptr;
    const std::string route = is_page                         ? "page"
                              : request.matched_route.empty() ? "none"
                                                              : request.matched_route;
    service_.metrics().count_request(route, response.status);
    if (service_.options().quiet) {
        return;
    }
    log_line(LogLevel::info, "request",
             {{"id", response.get_header_value(kRequestId)},
              {"client", request.remote_addr},
              {"method", request.method},
              {"path", request.path},
              {"status", std::to_string(response.status)},
              {"bytes", std::to_string(response.body.size())},
              {"seconds", concat(seconds_since_start(request))}});
}

void HttpServer::listen() {
    const ServerOptions& options = service_.options();
    bool bound = false;
    if (is_unix_socket(options.host)) {
        std::error_code ignored;
        if (std::filesystem::is_socket(options.host, ignored)) {
            std::filesystem::remove(options.host, ignored);  // of a server that is gone
        }
        server_->set_address_family(AF_UNIX);
        bound = server_->bind_to_port(options.host, 80);
    } else if (options.port == 0) {
        port_ = server_->bind_to_any_port(options.host);
        bound = port_ > 0;
    } else {
        port_ = options.port;
        bound = server_->bind_to_port(options.host, options.port);
    }
    check(bound, ErrorKind::bad_argument, "cannot listen on ", address(),
          "; another program may use it: choose another --port or --host");
    thread_ = std::thread([this] { server_->listen_after_bind(); });
    server_->wait_until_ready();
}

void HttpServer::stop() {
    server_->stop();
    if (thread_.joinable()) {
        thread_.join();
    }
}

std::string HttpServer::address() const {
    const ServerOptions& options = service_.options();
    if (is_unix_socket(options.host)) {
        return options.host;
    }
    const bool is_ipv6 = options.host.find(':') != std::string::npos;
    return concat(options.tls_certificate.empty() ? "http://" : "https://", is_ipv6 ? "[" : "",
                  options.host, is_ipv6 ? "]" : "", ":", port_);
}

}  // namespace flux2::server
