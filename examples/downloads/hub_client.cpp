#include "downloads/hub_client.hpp"

#include "base/check.hpp"
#include "formats/json_file.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <thread>

namespace flux2::hub {
namespace {

using Trouble = HttpAnswer::Trouble;

constexpr int kMaxRedirects = 10;

bool is_redirect(int status) {
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// An entity tag without its quotes.
std::string plain_tag(std::string tag) {
    if (tag.starts_with("W/")) {
        tag = tag.substr(2);
    }
    std::erase(tag, '"');
    return tag;
}

bool is_file_name(const std::string& text) {
    return !text.empty() && text.size() <= 128 && text[0] != '.' &&
           std::all_of(text.begin(), text.end(), [](char c) {
               return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                      c == '-' || c == '_' || c == '.';
           });
}

std::optional<uint64_t> parse_size(const std::string& text) {
    constexpr size_t kMaxDigits = 18;
    if (text.empty() || text.size() > kMaxDigits ||
        text.find_first_not_of("0123456789") != std::string::npos) {
        return std::nullopt;
    }
    return std::stoull(text);
}

// The address that a Link header names as the next page; empty when there is none.
std::string next_page(const std::string& link) {
    const size_t mark = link.find("rel=\"next\"");
    const size_t begin = link.rfind('<', mark);
    const size_t end = link.find('>', begin);
    return mark == std::string::npos || begin == std::string::npos || end == std::string::npos
               ? ""
               : link.substr(begin + 1, end - begin - 1);
}

std::string page_of(const FileName& file, const HubSettings& settings) {
    return settings.endpoint.text() + "/" + file.repository;
}

std::string without_access(const FileName& file, const HubSettings& settings) {
    const std::string page = page_of(file, settings);
    if (settings.token.empty()) {
        return concat(file.repository, " is gated: accept its licence at ", page,
                      ", then give a token of your account (made at ", settings.endpoint.text(),
                      "/settings/tokens) in HF_TOKEN, or in the file ", settings.token_place);
    }
    return concat(
        file.repository, " is gated, and the account of the token in ", settings.token_place,
        " has no access: accept the licence at ", page,
        " with that account; a fine-grained token also needs the permission to read gated "
        "repositories");
}

std::string refused(const HttpAnswer& answer, const FileName& file, const Url& address,
                    const HubSettings& settings) {
    const std::string code = answer.header("x-error-code");
    const std::string said = answer.header("x-error-message");
    const std::string quote = said.empty() ? "" : " (" + said + ")";
    if (code == "GatedRepo") {
        return without_access(file, settings);
    }
    if (code == "RevisionNotFound") {
        return concat(file.repository, " has no revision ", file.revision, " at ",
                      settings.endpoint.text(), "; leave it out for the newest files");
    }
    if (code == "EntryNotFound") {
        return concat(file.repository, " has no file ", file.path, " at ", settings.endpoint.text(),
                      "; its files are listed at ", page_of(file, settings), "/tree/",
                      file.revision);
    }
    if (code == "RepoNotFound" || answer.status == 404) {
        return concat(
            "there is no repository ", file.repository, " at ", settings.endpoint.text(),
            ", or it is private", quote, "; check its name",
            settings.token.empty() ? ", and give a token in HF_TOKEN if it is private" : "");
    }
    if (answer.status == 401 && !settings.token.empty()) {
        return concat(address.host, " refuses the token in ", settings.token_place, quote,
                      "; make another at ", settings.endpoint.text(), "/settings/tokens");
    }
    if (answer.status == 401 || answer.status == 403) {
        return concat(address.host, " gives no access to ", to_string(file), quote,
                      settings.token.empty() ? "; give a token in HF_TOKEN" : "");
    }
    if (answer.status == 429) {
        return concat(address.host, " asks for a pause, it got too many requests", quote,
                      "; try again in some minutes",
                      settings.token.empty() ? ", or give a token in HF_TOKEN" : "");
    }
    return concat(address.host, " answers ", answer.status, " for ", to_string(file), quote,
                  answer.status >= 500 ? "; try again later" : "");
}

std::string unreachable(const HttpAnswer& answer, const Url& address, const HubSettings& settings) {
    const std::string reason = answer.reason.empty() ? "" : " (" + answer.reason + ")";
    switch (answer.trouble) {
        case Trouble::certificate:
            return concat("the certificate of ", address.host, " is not trusted", reason,
                          "; if a proxy of your network replaces certificates, name the file with "
                          "its own in SSL_CERT_FILE");
        case Trouble::proxy:
            return concat("the proxy ",
                          settings.http.https_proxy.empty() ? settings.http.http_proxy
                                                            : settings.http.https_proxy,
                          " cannot be used", reason, "; correct https_proxy");
        case Trouble::unreachable:
            return concat(address.host, " cannot be reached", reason,
                          "; check the network, or HF_ENDPOINT and https_proxy");
        default:
            return concat("the connection to ", address.host, " ended early", reason,
                          "; run it again to continue");
    }
}

}  // namespace

std::string to_string(const FileName& file) {
    return file.repository + ": " + file.path;
}

bool may_pass(const HttpAnswer& answer) {
    return answer.trouble == Trouble::dropped || answer.trouble == Trouble::unreachable ||
           answer.status == 408 || answer.status == 429 || answer.status >= 500;
}

void wait_before(int attempt, const HttpAnswer& answer, const HubSettings& settings) {
    using std::chrono::milliseconds;
    milliseconds pause = settings.first_wait * (1 << std::min(attempt, 10));
    if (const auto seconds = parse_size(answer.header("retry-after"))) {
        pause = milliseconds(1000) * std::min<uint64_t>(*seconds, 3600);
    }
    const auto end = std::chrono::steady_clock::now() + std::min(pause, settings.longest_wait);
    while (std::chrono::steady_clock::now() < end) {
        check(!settings.http.is_cancelled(), ErrorKind::cancelled, "cancelled");
        std::this_thread::sleep_for(std::min(milliseconds(50), settings.first_wait));
    }
}

void fail_with(const HttpAnswer& answer, const FileName& file, const Url& address,
               const HubSettings& settings) {
    check(answer.trouble != Trouble::cancelled && !settings.http.is_cancelled(),
          ErrorKind::cancelled, "cancelled");
    fail(ErrorKind::bad_file, answer.status == 0 || answer.trouble != Trouble::none
                                  ? unreachable(answer, address, settings)
                                  : refused(answer, file, address, settings));
}

HubClient::HubClient(const HubSettings& settings) : settings_(settings) {}

HttpHeaders HubClient::headers_for(const Url& address) const {
    HttpHeaders headers;
    if (!settings_.token.empty() && address.same_origin(settings_.endpoint)) {
        headers["Authorization"] = "Bearer " + settings_.token;
    }
    return headers;
}

Url HubClient::address_of(const FileName& file) const {
    Url address = settings_.endpoint;
    address.target += "/" + encoded(file.repository, true) + "/resolve/" +
                      encoded(file.revision, false) + "/" + encoded(file.path, true);
    return address;
}

// One request, repeated as long as it may pass.
HttpAnswer HubClient::ask(const std::string& method, const Url& address, const std::string& what) {
    check(settings_.offline_reason.empty(), ErrorKind::bad_file, what, " is not in the cache ",
          settings_.cache.string(), ", and ", settings_.offline_reason,
          "; leave that out once to download it");
    HttpConnection connection(address, settings_.http);
    HttpAnswer answer;
    for (int attempt = 0; attempt < settings_.attempts; ++attempt) {
        answer = method == "HEAD" ? connection.head(address.target, headers_for(address))
                                  : connection.get(address.target, headers_for(address));
        if (!may_pass(answer) || attempt + 1 == settings_.attempts) {
            break;
        }
        wait_before(attempt, answer, settings_);
    }
    return answer;
}

RemoteFile HubClient::look_up(const FileName& file) {
    RemoteFile found;
    found.name = file;
    Url address = address_of(file);
    for (int i = 0; i < kMaxRedirects; ++i) {
        const HttpAnswer answer = ask("HEAD", address, to_string(file));
        if (answer.trouble != Trouble::none || answer.status >= 400 || answer.status < 200) {
            fail_with(answer, file, address, settings_);
        }
        const std::string location = answer.header("location");
        const bool redirects = is_redirect(answer.status) && !location.empty();
        const Url target = redirects ? redirected(address, location) : address;
        if (redirects && target.same_origin(address) && answer.header("x-linked-etag").empty()) {
            address = target;  // a repository that was renamed
            continue;
        }
        const std::string linked_tag = answer.header("x-linked-etag");
        const std::string linked_size = answer.header("x-linked-size");
        found.etag = plain_tag(linked_tag.empty() ? answer.header("etag") : linked_tag);
        found.commit = answer.header("x-repo-commit");
        found.size = parse_size(!linked_size.empty() ? linked_size
                                : redirects          ? ""
                                                     : answer.header("content-length"));
        found.address = target;
        check(is_file_name(found.etag) && is_file_name(found.commit), ErrorKind::bad_file,
              address.host, " does not answer as the Hugging Face Hub does (",
              found.commit.empty() ? "no X-Repo-Commit" : "no ETag", ") for ", to_string(file),
              "; check HF_ENDPOINT, and whether a login page of your network answers instead");
        return found;
    }
    fail(ErrorKind::bad_file, settings_.endpoint.host, " redirects more than ", kMaxRedirects,
         " times for ", to_string(file), "; check HF_ENDPOINT");
}

std::vector<ListedFile> HubClient::list(const std::string& repository,
                                        const std::string& revision) {
    std::vector<ListedFile> files;
    const FileName name = {repository, "", revision};
    Url address = settings_.endpoint;
    address.target += "/api/models/" + encoded(repository, true) + "/tree/" +
                      encoded(revision, false) + "?recursive=true";
    constexpr int kMaxPages = 100;
    for (int page = 0; page < kMaxPages; ++page) {
        HttpAnswer answer = ask("GET", address, "the list of files of " + repository);
        for (int i = 0; i < kMaxRedirects && is_redirect(answer.status); ++i) {
            address = redirected(address, answer.header("location"));
            answer = ask("GET", address, "the list of files of " + repository);
        }
        if (answer.trouble != Trouble::none || answer.status != 200) {
            fail_with(answer, name, address, settings_);
        }
        const nlohmann::json entries = parse_json(answer.body);
        check(entries.is_array(), ErrorKind::bad_file, address.host,
              " does not answer as the Hugging Face Hub does: the list of files of ", repository,
              " is no JSON; check HF_ENDPOINT");
        for (const nlohmann::json& entry : entries) {
            if (entry.is_object() && entry.value("type", "") == "file") {
                const nlohmann::json lfs = entry.value("lfs", nlohmann::json::object());
                files.push_back({entry.value("path", ""), entry.value("size", uint64_t{0}),
                                 lfs.is_object() ? lfs.value("oid", "") : ""});
            }
        }
        const std::string next = next_page(answer.header("link"));
        if (next.empty()) {
            break;
        }
        address = redirected(address, next);
    }
    return files;
}

}  // namespace flux2::hub
