#include "support/hub_imitation.hpp"

#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <nlohmann/json.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <random>
#include <utility>

namespace flux2::test {
namespace {

std::string digest_of(const std::string& bytes, const EVP_MD* kind) {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned n = 0;
    EVP_Digest(bytes.data(), bytes.size(), digest.data(), &n, kind, nullptr);
    std::string text;
    for (unsigned i = 0; i < n; ++i) {
        constexpr const char* kDigits = "0123456789abcdef";
        text += kDigits[digest[i] >> 4];
        text += kDigits[digest[i] & 15];
    }
    return text;
}

void refuse(httplib::Response& response, int status, const char* code, const char* message) {
    response.status = status;
    if (*code != '\0') {
        response.set_header("X-Error-Code", code);
    }
    response.set_header("X-Error-Message", message);
}

}  // namespace

std::string random_bytes(size_t n, unsigned seed) {
    std::mt19937_64 generator(seed);
    std::string bytes(n, '\0');
    for (size_t i = 0; i < n; i += 8) {
        const uint64_t value = generator();
        for (size_t j = 0; j < 8 && i + j < n; ++j) {
            bytes[i + j] = static_cast<char>(value >> (8 * j));
        }
    }
    return bytes;
}

std::string sha256_of(const std::string& bytes) {
    return digest_of(bytes, EVP_sha256());
}

std::string git_hash_of(const std::string& bytes) {
    return digest_of("blob " + std::to_string(bytes.size()) + std::string(1, '\0') + bytes,
                     EVP_sha1());
}

TestHub::TestHub(const std::filesystem::path& certificate, const std::filesystem::path& key)
    : certificate_(certificate), key_(key), hub_(make_server()), bytes_(make_server()) {
    serve_hub(*hub_);
    serve_bytes(*bytes_);
    hub_port_ = hub_->bind_to_any_port("127.0.0.1");
    bytes_port_ = bytes_->bind_to_any_port("127.0.0.1");
    hub_thread_ = std::thread([this] { hub_->listen_after_bind(); });
    bytes_thread_ = std::thread([this] { bytes_->listen_after_bind(); });
    hub_->wait_until_ready();
    bytes_->wait_until_ready();
}

TestHub::~TestHub() {
    hub_->stop();
    bytes_->stop();
    hub_thread_.join();
    bytes_thread_.join();
}

std::unique_ptr<httplib::Server> TestHub::make_server() const {
    std::unique_ptr<httplib::Server> server;
    if (certificate_.empty()) {
        server = std::make_unique<httplib::Server>();
    } else {
        server = std::make_unique<httplib::SSLServer>(certificate_.string().c_str(),
                                                      key_.string().c_str());
    }
    server->new_task_queue = [] { return new httplib::ThreadPool(16); };
    server->set_keep_alive_timeout(1);
    return server;
}

void TestHub::add_file(File file) {
    const std::lock_guard lock(mutex_);
    file.size = file.bytes.size();
    const std::string path = file.path;
    files_[path] = std::make_shared<File>(std::move(file));
}

void TestHub::add(const std::string& repository, const std::string& path,
                  const std::string& bytes) {
    add_file({repository, path, bytes, sha256_of(bytes), 0, true});
}

void TestHub::add_small(const std::string& repository, const std::string& path,
                        const std::string& bytes) {
    add_file({repository, path, bytes, git_hash_of(bytes), 0, false});
}

void TestHub::falsify(const std::string& path, const std::string& bytes) {
    files_.at(path)->bytes = bytes;
}

void TestHub::forget_hash(const std::string& path) {
    files_.at(path)->etag = "without-a-hash";
}

void TestHub::rename(const std::string& from, const std::string& to) {
    renamed_[from] = to;
}

std::string TestHub::endpoint() const {
    return (certificate_.empty() ? "http" : "https") + std::string("://127.0.0.1:") +
           std::to_string(hub_port_);
}

hub::HubSettings TestHub::settings(const std::filesystem::path& cache) const {
    hub::HubSettings settings;
    settings.endpoint = hub::parse_url("test", endpoint());
    settings.endpoint.target = "";
    settings.token_place = "HF_TOKEN";
    settings.cache = cache;
    settings.connections = 1;
    settings.enough_rate = 0;
    settings.first_wait = std::chrono::milliseconds(2);
    settings.longest_wait = std::chrono::milliseconds(50);
    return settings;
}

std::vector<HubRequest> TestHub::requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
}

size_t TestHub::n_requests(const std::string& server) const {
    size_t n = 0;
    for (const HubRequest& request : requests()) {
        n += request.server == server ? 1 : 0;
    }
    return n;
}

void TestHub::note(const char* server, const httplib::Request& request) {
    const auto* tls = static_cast<const SSL*>(request.ssl);
    const std::lock_guard lock(mutex_);
    requests_.push_back(
        {server, request.method, request.target, request.get_header_value("Authorization"),
         request.get_header_value("Range"), tls == nullptr ? "" : SSL_get_cipher_name(tls)});
}

const TestHub::File* TestHub::find(const std::string& repository, const std::string& path) const {
    const auto found = files_.find(path);
    return found == files_.end() || found->second->repository != repository ? nullptr
                                                                            : found->second.get();
}

bool TestHub::grants(const std::string& repository, const httplib::Request& request,
                     httplib::Response& response) const {
    const std::string token = request.get_header_value("Authorization");
    if (!token.empty() && !knows_tokens) {
        refuse(response, 401, "", "Invalid credentials in Authorization header");
        return false;
    }
    if (repository == gated && token != "Bearer " + good_token) {
        refuse(response, token.empty() ? 401 : 403, "GatedRepo",
               "Access to this model is restricted");
        return false;
    }
    for (const auto& [path, file] : files_) {
        if (file->repository == repository) {
            return true;
        }
    }
    refuse(response, 404, "RepoNotFound", "Repository not found");
    return false;
}

void TestHub::serve_hub(httplib::Server& server) {
    server.Get(R"(/api/models/([^/]+/[^/]+)/tree/([^/]+))", [this](const httplib::Request& request,
                                                                   httplib::Response& response) {
        note("hub", request);
        const std::string repository = request.matches[1];
        if (!grants(repository, request, response)) {
            return;
        }
        nlohmann::json list = nlohmann::json::array();
        for (const auto& [path, file] : files_) {
            if (file->repository == repository) {
                nlohmann::json entry = {{"type", "file"}, {"path", path}, {"size", file->size}};
                if (file->is_large) {
                    entry["lfs"] = {{"oid", file->etag}};
                }
                list.push_back(entry);
            }
        }
        response.set_content(list.dump(), "application/json");
    });
    server.Get(R"(/([^/]+/[^/]+)/resolve/([^/]+)/(.+))",
               [this](const httplib::Request& request, httplib::Response& response) {
                   note("hub", request);
                   const std::string repository = request.matches[1];
                   const std::string revision = request.matches[2];
                   const std::string path = request.matches[3];
                   if (hub_failures > 0) {
                       --hub_failures;
                       response.status = failure_status;
                       if (!retry_after.empty()) {
                           response.set_header("Retry-After", retry_after);
                       }
                       return;
                   }
                   if (const auto renamed = renamed_.find(repository); renamed != renamed_.end()) {
                       response.status = 307;
                       response.set_header(
                           "Location", "/" + renamed->second + "/resolve/" + revision + "/" + path);
                       return;
                   }
                   if (!grants(repository, request, response)) {
                       return;
                   }
                   if (revision != "main" && revision != kCommit) {
                       return refuse(response, 404, "RevisionNotFound", "Invalid rev id");
                   }
                   const File* file = find(repository, path);
                   if (file == nullptr) {
                       return refuse(response, 404, "EntryNotFound", "Entry not found");
                   }
                   response.set_header("X-Repo-Commit", kCommit);
                   if (file->is_large) {
                       response.status = 302;
                       response.set_header("ETag", "\"of-the-pointer\"");
                       response.set_header("X-Linked-Etag", "\"" + file->etag + "\"");
                       response.set_header("X-Linked-Size", std::to_string(file->size));
                       response.set_header("Location", (certificate_.empty() ? "http" : "https") +
                                                           std::string("://127.0.0.1:") +
                                                           std::to_string(bytes_port_) + "/bytes/" +
                                                           path + "?signature=a%2Bb%3D");
                       return;
                   }
                   response.set_header("ETag", "W/\"" + file->etag + "\"");
                   send(*file, request, response);
               });
}

void TestHub::serve_bytes(httplib::Server& server) {
    server.Get(R"(/bytes/(.+))",
               [this](const httplib::Request& request, httplib::Response& response) {
                   note("bytes", request);
                   if (request.target.find("signature=a%2Bb%3D") == std::string::npos) {
                       response.status = 403;
                       return;
                   }
                   if (failures > 0) {
                       --failures;
                       response.status = failure_status;
                       if (!retry_after.empty()) {
                           response.set_header("Retry-After", retry_after);
                       }
                       return;
                   }
                   send(*files_.at(request.matches[1]), request, response);
               });
}

void TestHub::send(const File& file, const httplib::Request&, httplib::Response& response) {
    if (sends_web_page) {
        response.set_content("<html>Please log in</html>", "text/html; charset=utf-8");
        return;
    }
    if (ignores_ranges) {
        response.status = 200;
    }
    // How many answers of a kind are left, less this one.
    const auto is_one_of = [](std::atomic<int>& left) {
        int n = left;
        while (n > 0 && !left.compare_exchange_weak(n, n - 1)) {
        }
        return n > 0;
    };
    const bool stalls_this = is_one_of(stalls);
    const bool drops_this = !stalls_this && is_one_of(drops);
    const uint64_t most = stalls_this  ? stall_after.load()
                          : drops_this ? drop_after.load()
                                       : UINT64_MAX;
    auto sent = std::make_shared<uint64_t>(0);
    response.set_content_provider(
        file.bytes.size(), "application/octet-stream",
        [this, &file, stalls_this, most, sent](size_t offset, size_t length,
                                               httplib::DataSink& sink) {
            // Large ones where nothing waits between them: each costs calls of the system.
            const size_t step = pause_us > 0 ? 64 << 10 : 1 << 20;
            size_t n = std::min(step, length);
            if (*sent >= most) {
                while (stalls_this && sink.is_writable()) {
                    std::this_thread::sleep_for(std::chrono::milliseconds(2));
                }
                return false;
            }
            n = static_cast<size_t>(std::min<uint64_t>(n, most - *sent));
            if (pause_us > 0) {
                std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
            }
            *sent += n;
            bytes_sent_ += n;
            return sink.write(file.bytes.data() + offset, n);
        });
}

}  // namespace flux2::test
