// A server inside the test program that answers as the Hugging Face Hub does, and a second one, on
// another port, that holds the bytes of large files. Both can be told to fail in many ways.
#pragma once

#include "downloads/hub_settings.hpp"

#include <httplib.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace flux2::test {

// What a server was asked.
struct HubRequest {
    std::string server;  // "hub" or "bytes"
    std::string method;
    std::string target;
    std::string token;  // the Authorization header
    std::string range;
    std::string cipher;  // of TLS
};

class TestHub {
  public:
    static constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

    // With a certificate and its key (PEM files) both servers speak TLS.
    explicit TestHub(const std::filesystem::path& certificate = {},
                     const std::filesystem::path& key = {});
    ~TestHub();
    TestHub(const TestHub&) = delete;
    TestHub& operator=(const TestHub&) = delete;

    // A large file, whose bytes are on the other server. Its etag is their SHA-256.
    void add(const std::string& repository, const std::string& path, const std::string& bytes);
    // A small one, which the Hub holds itself; its etag is the hash that git gives it.
    void add_small(const std::string& repository, const std::string& path,
                   const std::string& bytes);
    // Replaces the bytes that are sent; hash and size stay.
    void falsify(const std::string& path, const std::string& bytes);
    // Its etag becomes one that is no hash.
    void forget_hash(const std::string& path);
    // Requests for the repository are redirected to another name.
    void rename(const std::string& from, const std::string& to);

    std::string endpoint() const;
    // Settings for this hub, with short pauses.
    hub::HubSettings settings(const std::filesystem::path& cache) const;

    std::vector<HubRequest> requests() const;
    // Those to one of the servers, "hub" or "bytes".
    size_t n_requests(const std::string& server) const;
    uint64_t bytes_sent() const { return bytes_sent_; }

    // How it fails. The next answers of the server of bytes, or of the hub:
    std::atomic<int> failures = 0;  // so many are `failure_status`
    std::atomic<int> hub_failures = 0;
    std::atomic<int> failure_status = 503;
    std::string retry_after;
    std::atomic<int> drops = 0;            // so many end early,
    std::atomic<uint64_t> drop_after = 0;  // after so many bytes
    std::atomic<int> stalls = 0;           // so many stay silent until the client gives up,
    std::atomic<uint64_t> stall_after = 0;
    std::atomic<bool> ignores_ranges = false;
    std::atomic<bool> sends_web_page = false;
    std::atomic<int> pause_us = 0;  // before each 64 KiB
    std::string gated;              // a repository that needs `good_token`
    std::string good_token;
    bool knows_tokens = true;  // else every token is refused

  private:
    struct File {
        std::string repository, path, bytes, etag;
        uint64_t size = 0;
        bool is_large = false;
    };

    void add_file(File file);
    std::unique_ptr<httplib::Server> make_server() const;
    void serve_hub(httplib::Server& server);
    void serve_bytes(httplib::Server& server);
    void note(const char* server, const httplib::Request& request);
    const File* find(const std::string& repository, const std::string& path) const;
    // Sets an error if the repository may not be read; returns whether it may.
    bool grants(const std::string& repository, const httplib::Request& request,
                httplib::Response& response) const;
    void send(const File& file, const httplib::Request& request, httplib::Response& response);

    std::filesystem::path certificate_, key_;
    std::map<std::string, std::shared_ptr<File>> files_;  // by path
    std::map<std::string, std::string> renamed_;
    mutable std::mutex mutex_;
    std::vector<HubRequest> requests_;
    std::atomic<uint64_t> bytes_sent_ = 0;
    std::unique_ptr<httplib::Server> hub_, bytes_;
    int hub_port_ = 0, bytes_port_ = 0;
    std::thread hub_thread_, bytes_thread_;
};

// Bytes that differ everywhere, by a fixed seed.
std::string random_bytes(size_t n, unsigned seed = 1);
// The SHA-256 and git's hash of bytes, computed by OpenSSL at once.
std::string sha256_of(const std::string& bytes);
std::string git_hash_of(const std::string& bytes);

}  // namespace flux2::test
