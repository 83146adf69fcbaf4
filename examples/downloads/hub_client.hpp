// Requests to the Hub: what a file is and where its bytes are, and what a repository holds.
#pragma once

#include "downloads/hub_settings.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace flux2::hub {

// A file of a repository.
struct FileName {
    std::string repository;  // "owner/name"
    std::string path;        // in it, with slashes
    std::string revision = "main";
};

// "owner/name: path", for messages.
std::string to_string(const FileName& file);

// What the Hub says about a file.
struct RemoteFile {
    FileName name;
    std::string commit;
    std::string etag;              // its name in the cache; a SHA-256 or a git hash
    std::optional<uint64_t> size;  // in bytes; none: the Hub does not tell
    Url address;                   // of its bytes; may be of another server
};

struct ListedFile {
    std::string path;
    uint64_t size = 0;
    std::string sha256;  // empty for small files
};

// Asks again after answers and failures that may pass (429, 5xx, a dropped connection), with longer
// and longer pauses. Throws bad_file with a sentence that says what to do: accept a licence, give a
// token, correct a name, check the network; cancelled when the flag is raised. Nothing that is sent
// to another server than the endpoint contains the token.
class HubClient {
  public:
    explicit HubClient(const HubSettings& settings);

    // Throws also when requests are forbidden.
    RemoteFile look_up(const FileName& file);
    // All files of a repository.
    std::vector<ListedFile> list(const std::string& repository, const std::string& revision);

    // Headers of requests to this address.
    HttpHeaders headers_for(const Url& address) const;
    const HubSettings& settings() const { return settings_; }

  private:
    Url address_of(const FileName& file) const;
    HttpAnswer ask(const std::string& method, const Url& address, const std::string& what);

    HubSettings settings_;
};

// Waits between two attempts, as long as the answer asks for or `attempt`, from 0 on, tells. Throws
// cancelled.
void wait_before(int attempt, const HttpAnswer& answer, const HubSettings& settings);
// Whether the same request may succeed later.
bool may_pass(const HttpAnswer& answer);
// Throws bad_file with a sentence about an answer that is not as expected; cancelled if it was.
[[noreturn]] void fail_with(const HttpAnswer& answer, const FileName& file, const Url& address,
                            const HubSettings& settings);

}  // namespace flux2::hub
