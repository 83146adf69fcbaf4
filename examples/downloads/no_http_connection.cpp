// What is built instead of http_connection.cpp without an HTTP library.
#include "downloads/http_connection.hpp"

#include "base/check.hpp"

namespace flux2::hub {

struct HttpConnection::Impl {};

std::string HttpAnswer::header(const std::string&) const {
    return "";
}

HttpConnection::HttpConnection(const Url& server, const HttpSettings&) : server_(server) {
    fail(ErrorKind::unsupported, "this build of flux2 does not download (", server.host,
         "); build it with -DFLUX2_BUILD_DOWNLOADS=ON, or fetch the files with another program");
}

HttpConnection::~HttpConnection() = default;

HttpAnswer HttpConnection::head(const std::string&, const HttpHeaders&) {
    return {};
}

HttpAnswer HttpConnection::get(const std::string&, const HttpHeaders&, const HttpReceiver*) {
    return {};
}

}  // namespace flux2::hub
