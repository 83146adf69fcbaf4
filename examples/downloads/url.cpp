#include "downloads/url.hpp"

#include "base/check.hpp"
#include "base/letter_case.hpp"

#include <algorithm>
#include <cctype>

namespace flux2::hub {
namespace {

int default_port(const std::string& scheme) {
    return scheme == "https" ? 443 : 80;
}

}  // namespace

std::string Url::origin() const {
    const bool is_ipv6 = host.find(':') != std::string::npos;
    return scheme + "://" + (is_ipv6 ? "[" + host + "]" : host) +
           (port == default_port(scheme) ? "" : ":" + std::to_string(port));
}

Url parse_url(const std::string& name, const std::string& text) {
    const auto refuse = [&] {
        fail(ErrorKind::bad_argument, name, " is '", text,
             "', expected an address such as https://huggingface.co");
    };
    const size_t colon = text.find("://");
    Url url;
    url.scheme = to_lower(text.substr(0, colon));
    if (colon == std::string::npos || (url.scheme != "http" && url.scheme != "https")) {
        refuse();
    }
    const size_t begin = colon + 3;
    const size_t end = std::min(text.find_first_of("/?#", begin), text.size());
    std::string authority = text.substr(begin, end - begin);
    authority = authority.substr(authority.rfind('@') + 1);  // also when there is none
    const size_t bracket = authority.rfind(']');
    const size_t port = authority.find(':', bracket == std::string::npos ? 0 : bracket);
    url.host = to_lower(authority.substr(0, port));
    if (url.host.starts_with('[') && url.host.ends_with(']')) {
        url.host = url.host.substr(1, url.host.size() - 2);
    }
    url.port = default_port(url.scheme);
    if (port != std::string::npos) {
        const std::string digits = authority.substr(port + 1);
        if (digits.empty() || digits.size() > 5 ||
            digits.find_first_not_of("0123456789") != std::string::npos ||
            std::stoi(digits) > 65535) {
            refuse();
        }
        url.port = std::stoi(digits);
    }
    if (url.host.empty()) {
        refuse();
    }
    const std::string target = text.substr(end, text.find('#', end) - end);
    url.target = target.starts_with('/') ? target : "/" + target;
    return url;
}

Url redirected(const Url& base, const std::string& location) {
    if (location.find("://") != std::string::npos) {
        return parse_url("a redirect of " + base.host, location);
    }
    if (location.starts_with("//")) {
        return parse_url("a redirect of " + base.host, base.scheme + ":" + location);
    }
    Url url = base;
    if (location.starts_with('/')) {
        url.target = location;
    } else {
        url.target = base.target.substr(0, base.target.find('?'));
        url.target = url.target.substr(0, url.target.rfind('/') + 1) + location;
    }
    return url;
}

std::string encoded(const std::string& text, bool keep_slashes) {
    constexpr const char* kDigits = "0123456789ABCDEF";
    std::string out;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        const bool is_plain = (byte < 128 && std::isalnum(byte) != 0) || c == '-' || c == '_' ||
                              c == '.' || c == '~' || (c == '/' && keep_slashes);
        if (is_plain) {
            out += c;
        } else {
            out += '%';
            out += kDigits[byte >> 4];
            out += kDigits[byte & 15];
        }
    }
    return out;
}

}  // namespace flux2::hub
