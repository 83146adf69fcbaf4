// Files of a Hub that answers rightly and wrongly: each ends in the right file or the right
// sentence.
#include "downloads/fetch_file.hpp"
#include "support/hub_imitation.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace flux2::hub {
namespace {

namespace fs = std::filesystem;
using test::has;
using test::read_text;
using test::TestHub;

constexpr const char* kRepository = "owner/model";
constexpr const char* kFile = "sub/weights.bin";

// A hub with one file, and a folder for the cache.
struct Case {
    test::TemporaryFolder folder;
    TestHub hub;
    std::string bytes = test::random_bytes(1'000'003);
    HubSettings settings = hub.settings(folder.path());

    Case() { hub.add(kRepository, kFile, bytes); }

    fs::path fetch(const std::string& path = kFile, const std::string& revision = "main") {
        HubClient client(settings);
        return fetch_file(client, {kRepository, path, revision}, [](const FileProgress&) {});
    }
    std::string error(const std::string& path = kFile, const std::string& revision = "main") {
        const test::CaughtError caught = test::error_of([&] { fetch(path, revision); });
        CHECK(caught.kind == ErrorKind::bad_file);
        return caught.message;
    }
    fs::path partial() const {
        return folder / "models--owner--model/blobs" / (test::sha256_of(bytes) + ".incomplete");
    }
};

// Every path below a folder, links with their targets.
std::vector<std::string> listing(const fs::path& folder) {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
        const std::string name = entry.path().lexically_relative(folder).generic_string();
        if (entry.is_symlink()) {
            names.push_back(name + " -> " + fs::read_symlink(entry.path()).generic_string());
        } else if (!entry.is_directory()) {
            names.push_back(name);
        }
    }
    std::sort(names.begin(), names.end());
    return names;
}

}  // namespace

TEST_CASE("a file is fetched into the layout that huggingface_hub has") {
    Case c;
    c.hub.add_small(kRepository, "config.json", "{}\n");
    CHECK(read_text(c.fetch()) == c.bytes);
    CHECK(read_text(c.fetch("config.json")) == "{}\n");
    // The blob of a small file is named by git: git hash-object of "{}\n".
    const std::string small = "0967ef424bce6791893e9a57bb952f80fd536e93";
    const std::string large = test::sha256_of(c.bytes);
    const std::string snapshot =
        "models--owner--model/snapshots/" + std::string(TestHub::kCommit) + "/";
    CHECK(listing(c.folder.path()) == std::vector<std::string>{
                                          ".locks/models--owner--model/" + small + ".lock",
                                          ".locks/models--owner--model/" + large + ".lock",
                                          "models--owner--model/blobs/" + small,
                                          "models--owner--model/blobs/" + large,
                                          "models--owner--model/refs/main",
                                          snapshot + "config.json -> ../../blobs/" + small,
                                          snapshot + "sub/weights.bin -> ../../../blobs/" + large,
                                      });
    CHECK(read_text(c.folder / "models--owner--model/refs/main") == TestHub::kCommit);
}

TEST_CASE("a file that is in the cache is used without a request") {
    const test::TemporaryFolder folder;
    const fs::path repository = folder / "models--owner--model";
    fs::create_directories(repository / "blobs");
    fs::create_directories(repository / "refs");
    fs::create_directories(repository / "snapshots/abc/sub");
    test::write_file(repository / "blobs/123", "contents");
    test::write_file(repository / "refs/main", "abc");
    fs::create_symlink("../../../blobs/123", repository / "snapshots/abc" / kFile);
    const TestHub hub;
    HubClient client(hub.settings(folder.path()));
    const fs::path file = fetch_file(client, {kRepository, kFile}, [](const FileProgress&) {});
    CHECK(read_text(file) == "contents");
    CHECK(hub.requests().empty());
}

TEST_CASE("contents that are here under another commit are not fetched again") {
    Case c;
    c.fetch();
    const uint64_t sent = c.hub.bytes_sent();
    fs::remove_all(c.folder / "models--owner--model/snapshots");
    CHECK(read_text(c.fetch()) == c.bytes);
    CHECK(c.hub.bytes_sent() == sent);
}

TEST_CASE("a partial file is continued by a range") {
    Case c;
    fs::create_directories(c.partial().parent_path());
    test::write_file(c.partial(), c.bytes.substr(0, 400'000));
    CHECK(read_text(c.fetch()) == c.bytes);
    CHECK(c.hub.bytes_sent() == c.bytes.size() - 400'000);
    CHECK(c.hub.requests().back().range == "bytes=400000-");
    CHECK_FALSE(fs::exists(c.partial()));
}

TEST_CASE("a partial file of something else is noticed by its hash and fetched again") {
    Case c;
    fs::create_directories(c.partial().parent_path());
    test::write_file(c.partial(), test::random_bytes(400'000, 7));
    CHECK(read_text(c.fetch()) == c.bytes);
    // One that is longer than the file too.
    fs::remove_all(c.folder / "models--owner--model");
    fs::create_directories(c.partial().parent_path());
    test::write_file(c.partial(), test::random_bytes(2'000'000, 7));
    CHECK(read_text(c.fetch()) == c.bytes);
}

TEST_CASE("a server that ignores ranges makes a download start over") {
    Case c;
    c.hub.ignores_ranges = true;
    fs::create_directories(c.partial().parent_path());
    test::write_file(c.partial(), c.bytes.substr(0, 400'000));
    CHECK(read_text(c.fetch()) == c.bytes);
    // Over several connections too.
    fs::remove_all(c.folder / "models--owner--model");
    c.settings.connections = 4;
    c.settings.chunk_bytes = 100'000;
    CHECK(read_text(c.fetch()) == c.bytes);
}

TEST_CASE("dropped connections are continued where they ended") {
    Case c;
    c.hub.drops = 7;
    c.hub.drop_after = 100'000;
    CHECK(read_text(c.fetch()) == c.bytes);
    CHECK(c.hub.bytes_sent() == c.bytes.size());
    CHECK(c.hub.n_requests("bytes") == 8);
}

TEST_CASE("connections that never bring a byte end in a sentence, and the partial file stays") {
    Case c;
    fs::create_directories(c.partial().parent_path());
    test::write_file(c.partial(), c.bytes.substr(0, 400'000));
    c.hub.drops = 1000;
    CHECK(has(c.error(), "the connection to 127.0.0.1 ended early"));
    CHECK(c.hub.n_requests("bytes") == 5);
    CHECK(fs::file_size(c.partial()) == 400'000);
}

TEST_CASE("a server that falls silent is left after a time and asked for the rest") {
    Case c;
    c.settings.http.read_timeout = std::chrono::milliseconds(250);
    c.hub.stalls = 1;
    c.hub.stall_after = 300'000;
    CHECK(read_text(c.fetch()) == c.bytes);
    CHECK(c.hub.stalls == 0);
    // On a busy machine an answer that is only late is left too, so these are limits.
    CHECK(c.hub.n_requests("bytes") >= 2);
    CHECK(c.hub.bytes_sent() < c.bytes.size() + 300'000);
    // Over several connections too.
    fs::remove_all(c.folder / "models--owner--model");
    c.settings.connections = 4;
    c.settings.chunk_bytes = 100'000;
    c.hub.stalls = 2;
    c.hub.stall_after = 3'000;  // less than any chunk
    const size_t n_before = c.hub.n_requests("bytes");
    CHECK(read_text(c.fetch()) == c.bytes);
    CHECK(c.hub.stalls == 0);
    CHECK(c.hub.n_requests("bytes") >= n_before + 11 + 2);
}

TEST_CASE("a server that stays silent ends in a sentence, and the partial file stays") {
    Case c;
    c.settings.http.read_timeout = std::chrono::milliseconds(100);
    c.settings.attempts = 3;
    fs::create_directories(c.partial().parent_path());
    test::write_file(c.partial(), c.bytes.substr(0, 400'000));
    c.hub.stalls = 1000;
    const std::string error = c.error();
    CHECK(has(error, "the connection to 127.0.0.1 ended early (nothing arrived for 0.1 seconds)"));
    CHECK(has(error, "run it again to continue"));
    CHECK(c.hub.n_requests("bytes") == 3);
    CHECK(fs::file_size(c.partial()) == 400'000);
}

TEST_CASE("a connection that is fast enough stays the only one, and others join a slower one") {
    Case c;
    c.bytes = test::random_bytes(3'000'001);
    c.hub.add(kRepository, kFile, c.bytes);
    c.settings.connections = 4;
    c.settings.chunk_bytes = 100'000;
    c.settings.enough_rate = 1;
    CHECK(read_text(c.fetch()) == c.bytes);
    std::vector<std::string> ranges;
    for (const test::HubRequest& request : c.hub.requests()) {
        if (request.server == "bytes") {
            ranges.push_back(request.range);
        }
    }
    // 256 KiB, then eight chunks at a time as long as more than two are left.
    CHECK(ranges == std::vector<std::string>{"bytes=0-262143", "bytes=262144-1062143",
                                             "bytes=1062144-1862143", "bytes=1862144-2662143",
                                             "bytes=2662144-3000000"});
    CHECK(c.hub.bytes_sent() == c.bytes.size());

    fs::remove_all(c.folder / "models--owner--model");
    c.settings.enough_rate = 1e18;
    CHECK(read_text(c.fetch()) == c.bytes);
    CHECK(c.hub.bytes_sent() == 2 * c.bytes.size());
    CHECK(c.hub.n_requests("bytes") == 5 + 1 + 28);  // 28 chunks after the first 256 KiB
}

TEST_CASE("several connections fetch a file byte for byte") {
    Case c;
    c.settings.connections = 4;
    c.settings.chunk_bytes = 70'000;
    c.hub.drops = 5;
    c.hub.drop_after = 3'000;  // less than any chunk has left, also after all drops
    CHECK(read_text(c.fetch()) == c.bytes);
    CHECK(c.hub.bytes_sent() == c.bytes.size());
    CHECK(c.hub.n_requests("bytes") == 15 + 5);
}

TEST_CASE("429 and 5xx are asked again, as long as they say") {
    Case c;
    c.hub.failures = 3;
    c.hub.hub_failures = 3;
    CHECK(read_text(c.fetch()) == c.bytes);
    c.hub.hub_failures = 1000;
    c.hub.failure_status = 429;
    c.hub.retry_after = "3";  // longer than the longest pause of the settings
    CHECK(has(c.error("other.bin"), "too many requests"));
    c.hub.hub_failures = 1000;
    c.hub.failure_status = 500;
    CHECK(has(c.error("other.bin"), "127.0.0.1 answers 500 for owner/model: other.bin"));
}

TEST_CASE("an address that has expired is asked for again") {
    Case c;
    c.hub.failures = 1;
    c.hub.failure_status = 403;
    CHECK(read_text(c.fetch()) == c.bytes);
    CHECK(c.hub.n_requests("hub") == 2);
}

TEST_CASE("wrong bytes are refused and deleted") {
    Case c;
    c.hub.falsify(kFile, test::random_bytes(c.bytes.size(), 9));
    CHECK(has(c.error(), "do not have the hash " + test::sha256_of(c.bytes)));
    CHECK(fs::file_size(c.partial()) == 0);
    CHECK_FALSE(fs::exists(c.folder / "models--owner--model/snapshots"));
    // Fewer than promised.
    c.hub.falsify(kFile, c.bytes.substr(0, 1000));
    CHECK(has(c.error(), "sends 1000 bytes, 1000003 are expected"));
    // A small file that is not what git's hash says.
    c.hub.add_small(kRepository, "config.json", "{}\n");
    c.hub.falsify("config.json", "[]\n");
    CHECK(has(c.error("config.json"), "do not have the hash 0967ef424bce"));
}

TEST_CASE("a web page instead of a file is told") {
    Case c;
    c.hub.sends_web_page = true;
    CHECK(has(c.error(), "answers with a web page instead of owner/model: sub/weights.bin"));
}

TEST_CASE("names that do not exist are told by what is missing") {
    Case c;
    CHECK(has(c.error("other.bin"), "owner/model has no file other.bin"));
    CHECK(has(c.error(kFile, "v2"), "owner/model has no revision v2"));
    HubClient client(c.settings);
    const test::CaughtError error = test::error_of([&] {
        fetch_file(client, {"owner/nothing", kFile}, [](const FileProgress&) {});
    });
    CHECK(error.mentions("there is no repository owner/nothing"));
    CHECK(error.mentions("HF_TOKEN"));
}

TEST_CASE("a gated repository is explained, without a token and with one") {
    Case c;
    c.hub.gated = kRepository;
    c.hub.good_token = "hf_good";
    std::string message = c.error();
    CHECK(has(message, "accept its licence at " + c.hub.endpoint() + "/owner/model"));
    CHECK(has(message, "HF_TOKEN"));
    c.settings.token = "hf_other";
    message = c.error();
    CHECK(has(message, "the account of the token in HF_TOKEN has no access"));
    CHECK_FALSE(has(message, "hf_other"));
    c.hub.knows_tokens = false;
    CHECK(has(c.error(), "refuses the token in HF_TOKEN"));
}

TEST_CASE("the token never reaches the server of the bytes") {
    Case c;
    c.hub.gated = kRepository;
    c.hub.good_token = "hf_good";
    c.settings.token = "hf_good";
    CHECK(read_text(c.fetch()) == c.bytes);
    for (const test::HubRequest& request : c.hub.requests()) {
        CHECK(request.token == (request.server == "hub" ? "Bearer hf_good" : ""));
    }
    CHECK(c.hub.n_requests("bytes") > 0);
}

TEST_CASE("a renamed repository is followed") {
    Case c;
    c.hub.rename("old/name", kRepository);
    HubClient client(c.settings);
    CHECK(read_text(fetch_file(client, {"old/name", kFile}, [](const FileProgress&) {})) ==
          c.bytes);
}

TEST_CASE("offline a file that is not here is refused without a request") {
    Case c;
    c.settings.offline_reason = "HF_HUB_OFFLINE is set";
    const std::string message = c.error();
    CHECK(has(message, "is not in the cache"));
    CHECK(has(message, "HF_HUB_OFFLINE is set"));
    CHECK(c.hub.requests().empty());
}

TEST_CASE("a server that cannot be reached is told") {
    Case c;
    c.settings.endpoint.port = 1;
    CHECK(has(c.error(), "127.0.0.1 cannot be reached"));
}

TEST_CASE("cancelling keeps the partial file, also over several connections") {
    for (const int connections : {1, 4}) {
        CAPTURE(connections);
        Case c;
        std::atomic<bool> cancel = false;
        c.settings.http.cancel = &cancel;
        c.settings.connections = connections;
        c.settings.chunk_bytes = 100'000;
        c.hub.pause_us = 10'000;
        HubClient client(c.settings);
        const test::CaughtError error = test::error_of([&] {
            fetch_file(client, {kRepository, kFile},
                       [&](const FileProgress& progress) { cancel = progress.done > 100'000; });
        });
        CHECK(error.kind == ErrorKind::cancelled);
        const std::string kept = read_text(c.partial());
        CHECK(kept.size() > 100'000);
        CHECK(kept == c.bytes.substr(0, kept.size()));
        cancel = false;
        c.hub.pause_us = 0;
        CHECK(read_text(c.fetch()) == c.bytes);
    }
}

TEST_CASE("of several that fetch the same file at once, one does") {
    Case c;
    c.hub.pause_us = 5'000;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] { c.fetch(); });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    CHECK(read_text(c.fetch()) == c.bytes);
    CHECK(c.hub.bytes_sent() == c.bytes.size());
}

TEST_CASE("a disk without room is noticed before the download") {
    Case c;
    RemoteFile remote;
    remote.name = {kRepository, kFile, "main"};
    remote.etag = test::sha256_of(c.bytes);
    remote.size = uint64_t{1} << 60;
    HubClient client(c.settings);
    const test::CaughtError error = test::error_of(
        [&] { download(client, remote, c.folder / "partial", [](const FileProgress&) {}); });
    CHECK(error.kind == ErrorKind::out_of_disk);
    CHECK(c.hub.requests().empty());
}

TEST_CASE("paths that leave a repository are refused") {
    Case c;
    for (const char* path : {"../x", "a/../../x", "/etc/passwd", ""}) {
        CHECK(test::error_of([&] { c.fetch(path); }).kind == ErrorKind::bad_argument);
    }
    CHECK(c.hub.requests().empty());
}

TEST_CASE("a removed file frees its contents, unless another name has them") {
    Case c;
    c.hub.add(kRepository, "copy.bin", c.bytes);
    c.fetch();
    c.fetch("copy.bin");
    const HubCache cache(c.folder.path());
    CHECK(cache.remove({kRepository, kFile}) == 0);
    CHECK(read_text(cache.find({kRepository, "copy.bin"})) == c.bytes);
    CHECK(cache.remove({kRepository, "copy.bin"}) == c.bytes.size());
    CHECK_FALSE(fs::exists(c.folder / "models--owner--model"));
}

}  // namespace flux2::hub
