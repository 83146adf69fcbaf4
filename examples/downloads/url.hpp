// Addresses of the web.
#pragma once

#include <string>

namespace flux2::hub {

// "https://host:8443/path?query" in its pieces.
struct Url {
    std::string scheme;  // "http" or "https"
    std::string host;
    int port = 0;
    std::string target = "/";  // path and query, already encoded

    // "https://host:8443", without the port where it is the scheme's own.
    std::string origin() const;
    std::string text() const { return origin() + target; }
    bool same_origin(const Url& other) const {
        return scheme == other.scheme && host == other.host && port == other.port;
    }
};

// Throws bad_argument when the text is no address of this kind; `name` says where it comes from.
Url parse_url(const std::string& name, const std::string& text);

// Where a redirect leads from `base`: another address, or a path of the same server.
Url redirected(const Url& base, const std::string& location);

// With everything but letters, digits and "-_.~" as %XX; slashes stay when `keep_slashes`.
std::string encoded(const std::string& text, bool keep_slashes);

}  // namespace flux2::hub
