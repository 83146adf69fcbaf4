#include "downloads/hub_settings.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/letter_case.hpp"

#include <cstdlib>
#include <initializer_list>
#include <system_error>

namespace flux2::hub {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxTokenBytes = 4096;

// The first of the variables that is set and not empty.
std::string first_of(const Variables& variables, std::initializer_list<const char*> names) {
    for (const char* name : names) {
        const char* value = variables(name);
        if (value != nullptr && *value != '\0') {
            return value;
        }
    }
    return "";
}

fs::path with_home(const std::string& text, const fs::path& home) {
    const bool is_in_home = text == "~" || text.starts_with("~/");
    return is_in_home && !home.empty() ? home / text.substr(std::min<size_t>(2, text.size()))
                                       : fs::path(text);
}

std::string trimmed(const std::string& text) {
    constexpr const char* kSpaces = " \t\r\n";
    const size_t begin = text.find_first_not_of(kSpaces);
    return begin == std::string::npos
               ? ""
               : text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

bool is_on(const std::string& value) {
    const std::string word = to_lower(value);
    return word == "1" || word == "on" || word == "yes" || word == "true";
}

// The folder of huggingface_hub's own files; empty when there is none.
fs::path hub_home(const Variables& variables, const fs::path& home) {
    const std::string named = first_of(variables, {"HF_HOME"});
    if (!named.empty()) {
        return with_home(named, home);
    }
    const std::string caches = first_of(variables, {"XDG_CACHE_HOME"});
    if (!caches.empty()) {
        return with_home(caches, home) / "huggingface";
    }
    return home.empty() ? fs::path() : home / ".cache" / "huggingface";
}

void read_token(const Variables& variables, const fs::path& home, const fs::path& hub_folder,
                HubSettings& settings) {
    for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
        settings.token = trimmed(first_of(variables, {name}));
        if (!settings.token.empty()) {
            settings.token_place = name;
            return;
        }
    }
    const std::string named = first_of(variables, {"HF_TOKEN_PATH"});
    const fs::path file = named.empty() ? hub_folder / "token" : with_home(named, home);
    settings.token_place = file.string();
    std::error_code ignored;
    if (fs::is_regular_file(file, ignored)) {
        settings.token = trimmed(read_text_file(file, kMaxTokenBytes));
    }
}

}  // namespace

HubSettings read_hub_settings(const Variables& variables) {
    HubSettings settings;
    const std::string endpoint = first_of(variables, {"MODEL_ENDPOINT", "HF_ENDPOINT"});
    settings.endpoint =
        parse_url("HF_ENDPOINT", endpoint.empty() ? "https://huggingface.co" : endpoint);
    while (settings.endpoint.target.ends_with('/')) {
        settings.endpoint.target.pop_back();
    }
    const fs::path home = first_of(variables, {"HOME", "USERPROFILE"});
    const fs::path hub_folder = hub_home(variables, home);
    read_token(variables, home, hub_folder, settings);
    const std::string cache = first_of(variables, {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"});
    if (!cache.empty()) {
        settings.cache = with_home(cache, home);
    } else if (!hub_folder.empty()) {
        settings.cache = hub_folder / "hub";
    }
    for (const char* name : {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}) {
        if (settings.offline_reason.empty() && is_on(first_of(variables, {name}))) {
            settings.offline_reason = std::string(name) + " is set";
        }
    }
    HttpSettings& http = settings.http;
    // The upper-case HTTP_PROXY is not read: servers set it to what a client sends (CGI).
    http.http_proxy = first_of(variables, {"http_proxy", "all_proxy", "ALL_PROXY"});
    http.https_proxy =
        first_of(variables, {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"});
    http.no_proxy = first_of(variables, {"no_proxy", "NO_PROXY"});
    http.ca_file = first_of(variables, {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"});
    return settings;
}

HubSettings read_hub_settings() {
    return read_hub_settings([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace flux2::hub
