#include "http/access.hpp"

#include "base/letter_case.hpp"
#include "http/base64.hpp"

#include <algorithm>

namespace flux2::server {
namespace {

bool contains(const std::vector<std::string>& list, const std::string& item) {
    return std::find(list.begin(), list.end(), item) != list.end();
}

// "localhost:8080" -> "localhost", "[::1]:8080" -> "[::1]"
std::string without_port(const std::string& host) {
    if (host.starts_with("[")) {
        return host.substr(0, host.find(']') + 1);
    }
    return host.substr(0, host.find(':'));
}

// An address needs no name service that somebody could control.
bool is_address(const std::string& host) {
    return host.starts_with("[") ||
           (!host.empty() && host.find_first_not_of("0123456789.") == std::string::npos);
}

bool is_local_name(const std::string& host) {
    return host == "localhost" || host.ends_with(".localhost") || host == "127.0.0.1" ||
           host == "[::1]";
}

// "https://example.org:81" -> "example.org:81"
std::string host_of_origin(const std::string& origin) {
    const size_t slashes = origin.find("://");
    return slashes == std::string::npos ? "" : origin.substr(slashes + 3);
}

// Also for A1111's clients, which send the key as the password of HTTP Basic.
std::vector<std::string> keys_sent(const httplib::Request& request) {
    std::vector<std::string> keys = {request.get_header_value("X-Api-Key")};
    const std::string authorization = request.get_header_value("Authorization");
    constexpr std::string_view kBearer = "bearer ", kBasic = "basic ";
    const std::string kind = to_lower(authorization.substr(0, authorization.find(' ') + 1));
    if (kind == kBearer) {
        keys.push_back(authorization.substr(kBearer.size()));
    } else if (kind == kBasic) {
        const std::string user = from_base64(authorization.substr(kBasic.size())).value_or("");
        keys.push_back(user.substr(user.find(':') + 1));
    }
    return keys;
}

}  // namespace

bool equal_in_constant_time(std::string_view a, std::string_view b) {
    size_t difference = a.size() ^ b.size();
    for (size_t i = 0; i < a.size(); ++i) {
        const char other = b.empty() ? '\0' : b[i % b.size()];
        difference |= static_cast<unsigned char>(a[i] ^ other);
    }
    return difference == 0;
}

Access::Access(const ServerOptions& options)
    : keys_(options.api_keys),
      origins_(options.cors_origins),
      hosts_(options.allowed_hosts),
      is_local_socket_(options.host.ends_with(".sock")) {
    hosts_.push_back(to_lower(options.host));
}

std::optional<HttpError> Access::refusal(const httplib::Request& request, bool is_public) const {
    if (!host_is_allowed(request)) {
        return HttpError{403, "permission_error", "host_not_allowed", "",
                         "the server is not known under this Host; start it with --allowed-hosts "
                         "and the name in the address"};
    }
    if (!origin_is_allowed(request)) {
        return HttpError{403, "permission_error", "origin_not_allowed", "",
                         "web pages of this Origin may not use the server; start it with "
                         "--cors-origins and the page's origin"};
    }
    if (!is_public && !has_key(request)) {
        return HttpError{401, "authentication_error", "invalid_api_key", "",
                         "no valid key; send one in the header Authorization: Bearer KEY"};
    }
    return std::nullopt;
}

bool Access::host_is_allowed(const httplib::Request& request) const {
    const std::string host = to_lower(without_port(request.get_header_value("Host")));
    // Browsers always send one; health checks by HTTP/1.0 do not.
    return is_local_socket_ || !request.has_header("Host") || is_address(host) ||
           is_local_name(host) || contains(hosts_, host) || contains(hosts_, "*");
}

bool Access::origin_is_allowed(const httplib::Request& request) const {
    const std::string origin = request.get_header_value("Origin");
    const std::string host = host_of_origin(origin);
    return !request.has_header("Origin") || contains(origins_, "*") || contains(origins_, origin) ||
           (!host.empty() && host == request.get_header_value("Host")) ||
           (contains(origins_, "localhost") && is_local_name(without_port(host)));
}

bool Access::has_key(const httplib::Request& request) const {
    bool found = keys_.empty();
    for (const std::string& sent : keys_sent(request)) {
        for (const std::string& key : keys_) {
            found = equal_in_constant_time(sent, key) || found;
        }
    }
    return found;
}

void Access::allow_origin(const httplib::Request& request, httplib::Response& response) const {
    if (!request.has_header("Origin")) {
        return;
    }
    response.set_header("Access-Control-Allow-Origin", request.get_header_value("Origin"));
    response.set_header("Vary", "Origin");
    response.set_header("Access-Control-Expose-Headers",
                        "x-request-id, retry-after, x-should-retry");
    if (request.method == "OPTIONS") {
        response.set_header("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
        response.set_header("Access-Control-Allow-Headers",
                            "authorization, content-type, x-api-key, last-event-id");
        response.set_header("Access-Control-Max-Age", "600");
    }
}

}  // namespace flux2::server
