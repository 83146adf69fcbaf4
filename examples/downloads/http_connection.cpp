#include "downloads/http_connection.hpp"

#include <flux2/version.hpp>
#include "base/check.hpp"
#include "base/letter_case.hpp"

#include <httplib.h>
#include <openssl/ssl.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace flux2::hub {
namespace {

using Trouble = HttpAnswer::Trouble;

constexpr size_t kMaxBodyBytes = 64 << 20;  // of answers that are kept in memory

Trouble trouble_of(httplib::Error error) {
    switch (error) {
        case httplib::Error::Success:
            return Trouble::none;
        case httplib::Error::SSLConnection:
        case httplib::Error::SSLLoadingCerts:
        case httplib::Error::SSLServerVerification:
        case httplib::Error::SSLServerHostnameVerification:
            return Trouble::certificate;
        case httplib::Error::ProxyConnection:
            return Trouble::proxy;
        case httplib::Error::Connection:
        case httplib::Error::ConnectionTimeout:
            return Trouble::unreachable;
        default:
            return Trouble::dropped;
    }
}

void take_headers(const httplib::Response& response, HttpAnswer& answer) {
    answer.status = response.status;
    for (const auto& [name, value] : response.headers) {
        answer.headers[to_lower(name)] = value;
    }
}

httplib::Headers to_library(const HttpHeaders& headers) {
    httplib::Headers all = {{"Accept-Encoding", "identity"},
                            {"User-Agent", std::string("flux2/") + version()}};
    for (const auto& [name, value] : headers) {
        all.emplace(name, value);
    }
    return all;
}

std::vector<std::string> split_at_commas(const std::string& text) {
    std::vector<std::string> items;
    std::string item;
    for (const char c : text + ",") {
        if (c != ',') {
            item += c == ' ' ? "" : std::string(1, c);
        } else if (!item.empty()) {
            items.push_back(std::exchange(item, ""));
        }
    }
    return items;
}

void set_proxy(httplib::Client& client, const std::string& text, const std::string& exceptions) {
    const std::string full = text.find("://") == std::string::npos ? "http://" + text : text;
    const Url proxy = parse_url("the proxy", full);
    client.set_proxy(proxy.host, proxy.port);
    const size_t begin = full.find("://") + 3;
    const size_t at = full.rfind('@');
    if (at != std::string::npos) {
        const std::string login = full.substr(begin, at - begin);
        const size_t colon = login.find(':');
        client.set_proxy_basic_auth(login.substr(0, colon),
                                    colon == std::string::npos ? "" : login.substr(colon + 1));
    }
    client.set_no_proxy(split_at_commas(exceptions));
}

// Of the ciphers of TLS 1.3 that the system allows, AES with keys of 128 bits is asked for first:
// it takes less time than OpenSSL's first choice, 256 bits.
void prefer_short_keys(httplib::Client& client) {
    SSL_CTX* context = static_cast<SSL_CTX*>(client.tls_context());
    const STACK_OF(SSL_CIPHER)* allowed = SSL_CTX_get_ciphers(context);
    std::string names;
    for (int i = 0; i < sk_SSL_CIPHER_num(allowed); ++i) {
        const SSL_CIPHER* cipher = sk_SSL_CIPHER_value(allowed, i);
        const std::string name = SSL_CIPHER_get_name(cipher);
        if (SSL_CIPHER_get_version(cipher) == std::string("TLSv1.3")) {
            names = name == "TLS_AES_128_GCM_SHA256" ? name + ":" + names : names + name + ":";
        }
    }
    if (!names.empty()) {
        names.pop_back();
        SSL_CTX_set_ciphersuites(context, names.c_str());
    }
}

// While it exists, a raised flag closes the client's connection.
class CancelWatch {
  public:
    CancelWatch(httplib::Client& client, const std::atomic<bool>* flag) {
        if (flag != nullptr) {
            thread_ = std::thread([this, &client, flag] {
                std::unique_lock lock(mutex_);
                while (!changed_.wait_for(lock, std::chrono::milliseconds(50),
                                          [&] { return is_over_; })) {
                    if (*flag) {
                        client.stop();
                    }
                }
            });
        }
    }
    ~CancelWatch() {
        {
            const std::lock_guard lock(mutex_);
            is_over_ = true;
        }
        changed_.notify_all();
        if (thread_.joinable()) {
            thread_.join();
        }
    }
    CancelWatch(const CancelWatch&) = delete;
    CancelWatch& operator=(const CancelWatch&) = delete;

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool is_over_ = false;
    std::thread thread_;
};

}  // namespace

std::string HttpAnswer::header(const std::string& lower_case_name) const {
    const auto found = headers.find(lower_case_name);
    return found == headers.end() ? "" : found->second;
}

struct HttpConnection::Impl {
    explicit Impl(const std::string& origin) : client(origin) {}

    httplib::Client client;
};

HttpConnection::HttpConnection(const Url& server, const HttpSettings& settings)
    : server_(server), settings_(settings), impl_(std::make_unique<Impl>(server.origin())) {
    httplib::Client& client = impl_->client;
    client.set_keep_alive(true);
    client.set_follow_location(false);
    client.set_path_encode(false);  // signed addresses must stay as they are
    client.set_decompress(false);
    client.set_connection_timeout(settings.connect_timeout);
    client.set_read_timeout(settings.read_timeout);
    client.set_write_timeout(settings.read_timeout);
    const bool is_tls = server.scheme == "https";
    if (is_tls) {
        prefer_short_keys(client);
    }
    if (is_tls && !settings.ca_file.empty()) {
        client.set_ca_cert_path(settings.ca_file.string());
    }
    const std::string& proxy = is_tls ? settings.https_proxy : settings.http_proxy;
    if (!proxy.empty()) {
        set_proxy(client, proxy, settings.no_proxy);
    }
}

HttpConnection::~HttpConnection() = default;

namespace {

using Clock = std::chrono::steady_clock;

// `last` is when the request began or its last bytes came.
HttpAnswer finish(const httplib::Result& result, HttpAnswer answer, bool was_stopped,
                  const HttpSettings& settings, Clock::time_point last) {
    if (result) {
        take_headers(*result, answer);
    } else if (settings.is_cancelled()) {
        answer.trouble = Trouble::cancelled;
    } else if (!was_stopped) {
        answer.trouble = trouble_of(result.error());
        const bool is_silent =
            answer.trouble == Trouble::dropped && Clock::now() - last >= settings.read_timeout;
        answer.reason =
            is_silent
                ? concat("nothing arrived for ",
                         std::chrono::duration<double>(settings.read_timeout).count(), " seconds")
                : httplib::to_string(result.error());
    }
    return answer;
}

}  // namespace

HttpAnswer HttpConnection::head(const std::string& target, const HttpHeaders& headers) {
    const CancelWatch watch(impl_->client, settings_.cancel);
    const Clock::time_point start = Clock::now();
    const httplib::Result result = impl_->client.Head(target, to_library(headers));
    return finish(result, {}, false, settings_, start);
}

HttpAnswer HttpConnection::get(const std::string& target, const HttpHeaders& headers,
                               const HttpReceiver* receiver) {
    const CancelWatch watch(impl_->client, settings_.cancel);
    HttpAnswer answer;
    bool was_stopped = false;
    Clock::time_point last = Clock::now();
    const auto on_headers = [&](const httplib::Response& response) {
        take_headers(response, answer);
        was_stopped = receiver != nullptr && !receiver->headers(answer);
        return !was_stopped;
    };
    const auto on_bytes = [&](const char* data, size_t size) {
        last = Clock::now();
        if (receiver == nullptr) {
            answer.body.append(data, size);
            return answer.body.size() <= kMaxBodyBytes;
        }
        was_stopped =
            settings_.is_cancelled() || !receiver->bytes(std::as_bytes(std::span(data, size)));
        return !was_stopped;
    };
    const httplib::Result result =
        impl_->client.Get(target, to_library(headers), on_headers, on_bytes);
    return finish(result, std::move(answer), was_stopped, settings_, last);
}

}  // namespace flux2::hub
