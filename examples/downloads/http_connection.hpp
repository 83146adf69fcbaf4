// One HTTP connection to one server: the only place that knows the HTTP library.
#pragma once

#include "downloads/url.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

namespace flux2::hub {

// How servers are reached.
struct HttpSettings {
    std::string http_proxy, https_proxy;  // "http://user:password@host:port"; empty: none
    std::string no_proxy;                 // hosts that are reached directly, with commas between
    std::filesystem::path ca_file;        // certificates to trust; empty: the system's
    std::chrono::milliseconds connect_timeout{10'000};
    std::chrono::milliseconds read_timeout{30'000};
    const std::atomic<bool>* cancel = nullptr;

    bool is_cancelled() const { return cancel != nullptr && *cancel; }
};

using HttpHeaders = std::map<std::string, std::string>;  // names in lower case

struct HttpAnswer {
    enum class Trouble { none, unreachable, dropped, certificate, proxy, cancelled };

    int status = 0;  // 0: no answer
    HttpHeaders headers;
    std::string body;  // of requests without a receiver
    Trouble trouble = Trouble::none;
    std::string reason;  // of the trouble

    // Empty when there is no such header.
    std::string header(const std::string& lower_case_name) const;
};

// What happens to an answer while it arrives. Returning false ends the transfer.
struct HttpReceiver {
    std::function<bool(const HttpAnswer&)> headers;  // status and headers are known
    std::function<bool(std::span<const std::byte>)> bytes;
};

// Keeps its connection between requests. Redirects are returned as answers. One thread at a time.
class HttpConnection {
  public:
    // Throws unsupported when this build has no HTTP or no TLS, bad_argument for a wrong proxy.
    HttpConnection(const Url& server, const HttpSettings& settings);
    ~HttpConnection();
    HttpConnection(const HttpConnection&) = delete;
    HttpConnection& operator=(const HttpConnection&) = delete;

    const Url& server() const { return server_; }

    // `target` is encoded already. With a settings flag `cancel` that is raised meanwhile the
    // transfer ends at once, with the trouble cancelled.
    HttpAnswer head(const std::string& target, const HttpHeaders& headers);
    HttpAnswer get(const std::string& target, const HttpHeaders& headers,
                   const HttpReceiver* receiver = nullptr);

  private:
    struct Impl;

    Url server_;
    HttpSettings settings_;
    std::unique_ptr<Impl> impl_;
};

}  // namespace flux2::hub
