#include "pipeline/tensor_cache.hpp"

#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "formats/safetensors.hpp"
#include "formats/tensor_source.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

HostTensor filled(float value, int64_t n = 1000) {
    HostTensor tensor({n, 2, 1, 1});
    tensor.data.assign(tensor.data.size(), value);
    return tensor;
}

constexpr std::array<int64_t, 4> kShape = {1000, 2, 1, 1};

// Counts the lines of the log while it lives.
class LineCount {
  public:
    int n = 0;
    std::string last;

  private:
    ScopedLog log_{[this](LogLevel, const std::string& line) {
        ++n;
        last = line;
    }};
};

TEST_CASE("what is stored is found by its whole key, bit for bit") {
    const test::TemporaryFolder folder;
    const TensorCache cache(folder / "cache", 1'000'000);
    CHECK(!cache.find("a", kShape));
    cache.store("a", filled(0.1f));
    const auto found = TensorCache(folder / "cache", 1'000'000).find("a", kShape);
    REQUIRE(found);
    CHECK(found->value.ne == kShape);
    CHECK(found->value.data == filled(0.1f).data);
    CHECK(found->note.empty());
    cache.store("b", filled(0.2f), "a \xc3\xa9 note");
    CHECK(cache.find("b", kShape)->note == "a \xc3\xa9 note");
    CHECK(!cache.find("a ", kShape));
    CHECK(!cache.find("", kShape));
}

TEST_CASE("several caches may share a folder: what one removes, another misses without a word") {
    const test::TemporaryFolder folder;
    const LineCount lines;
    const auto work = [&] {
        const TensorCache cache(folder.path(), 40'000);  // three entries
        for (int i = 0; i < 100; ++i) {
            const std::string key = std::to_string(i % 8);
            if (!cache.find(key, kShape)) {
                cache.store(key, filled(1));
            }
        }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back(work);
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    CHECK(lines.n == 0);
    CHECK(lines.last == "");
}

TEST_CASE("the entries used longest ago make room") {
    const test::TemporaryFolder folder;
    // An entry of 2000 values takes some 8 kB and 4 kB of reserve.
    const TensorCache cache(folder.path(), 25'000);
    cache.store("first", filled(1));
    cache.store("second", filled(2));
    const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
    for (const std::string& name : folder.names()) {
        fs::last_write_time(folder / name, long_ago);
    }
    CHECK(cache.find("first", kShape));  // used just now
    cache.store("third", filled(3));
    CHECK(cache.find("first", kShape));
    CHECK(!cache.find("second", kShape));
    CHECK(cache.find("third", kShape));
    uint64_t bytes = 0;
    for (const std::string& name : folder.names()) {
        bytes += fs::file_size(folder / name);
    }
    CHECK(bytes <= 25'000);
    // What is larger than the whole cache is not kept.
    cache.store("huge", filled(4, 100'000));
    CHECK(!cache.find("huge", kShape));
}

TEST_CASE(
    "unfinished files count while they are written, and are deleted when their writer is gone") {
    const test::TemporaryFolder folder;
    const std::string left = "0.cache.safetensors.partial-0000000a";
    test::write_file(folder / left, std::string(100'000, 'x'));
    test::write_file(folder / "notes.partial-0000000a", "of nobody here");
    const TensorCache cache(folder.path(), 25'000);
    CHECK(folder.names() == std::vector<std::string>{"notes.partial-0000000a"});

    AtomicFile living(folder / "1.cache.safetensors");
    living.extend_to(10'000);
    cache.store("first", filled(1));
    CHECK(cache.find("first", kShape));
    cache.store("second", filled(2));  // no room for three
    CHECK(!cache.find("first", kShape));
    CHECK(cache.find("second", kShape));
    CHECK(fs::exists(living.temporary_path()));

    test::write_file(folder / left, "x");
    cache.store("second", filled(2));
    CHECK(!fs::exists(folder / left));
}

TEST_CASE("an entry with a flipped bit is removed with one line, wherever the bit is") {
    const test::TemporaryFolder folder;
    const TensorCache cache(folder.path(), 1'000'000);
    cache.store("a", filled(0.1f), "note");
    const fs::path file = folder / folder.names().at(0);
    const test::Bytes whole = test::read_file(file);
    // Every place of the header and the small tensors, and some of the values.
    for (size_t at = 0; at < whole.size(); at += at < 2000 ? 1 : 97) {
        test::Bytes flipped = whole;
        flipped[at] ^= std::byte{1};
        test::write_file(file, flipped);
        const LineCount told;
        const auto found = cache.find("a", kShape);
        CAPTURE(at);
        CHECK(!found);
        CHECK(told.n == 1);
        CHECK(told.last.find(file.string()) != std::string::npos);
        CHECK(!fs::exists(file));
    }
    test::write_file(file, whole);
    CHECK(cache.find("a", kShape));
}

TEST_CASE("an entry of another shape is removed") {
    const test::TemporaryFolder folder;
    const TensorCache cache(folder.path(), 1'000'000);
    cache.store("a", filled(0.1f));
    const LineCount told;
    CHECK(!cache.find("a", {2, 1000, 1, 1}));
    CHECK(told.n == 1);
    CHECK(told.last.find("its shape is [1000, 2, 1, 1], expected [2, 1000, 1, 1]") !=
          std::string::npos);
    CHECK(folder.names().empty());
}

TEST_CASE("an entry of values that are not finite is removed, though its checksum is right") {
    const test::TemporaryFolder folder;
    const TensorCache cache(folder.path(), 1'000'000);
    cache.store("a", filled(0.1f));
    const fs::path file = folder / folder.names().at(0);
    // The same entry with another value, as a faulty program could have made it.
    const auto write_with = [&](float value) {
        const HostTensor key = read_tensor(TensorSource::open(file), "key");
        const HostTensor tensor = filled(value);
        const std::string checksum = Hash()
                                         .add(std::string(key.data.begin(), key.data.end()))
                                         .add(std::string())
                                         .add(std::as_bytes(std::span(tensor.ne)))
                                         .add(std::as_bytes(std::span(tensor.data)))
                                         .hex();
        const auto n_key = static_cast<int64_t>(key.data.size());
        const auto n_checksum = static_cast<int64_t>(checksum.size());
        write_safetensors(
            file,
            {{"key", {n_key}, key.data},
             {"value", {1, 1, 2, 1000}, tensor.data},
             {"checksum", {n_checksum}, std::vector<float>(checksum.begin(), checksum.end())}});
    };
    write_with(0.2f);
    const auto found = cache.find("a", kShape);
    REQUIRE(found);
    CHECK(found->value.data == filled(0.2f).data);
    write_with(std::numeric_limits<float>::quiet_NaN());
    const LineCount told;
    CHECK(!cache.find("a", kShape));
    CHECK(told.n == 1);
    CHECK(told.last.find("not finite") != std::string::npos);
    CHECK(folder.names().empty());
}

TEST_CASE("values that are not finite are not kept") {
    const test::TemporaryFolder folder;
    const TensorCache cache(folder.path(), 1'000'000);
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        HostTensor tensor = filled(0.1f);
        tensor.data[1234] = bad;
        cache.store("a", tensor);
        CHECK(folder.names().empty());
        CHECK(!cache.find("a", kShape));
    }
}

TEST_CASE("broken entries, other files and unusable folders do no harm") {
    const test::TemporaryFolder folder;
    const TensorCache cache(folder / "cache", 1'000'000);
    cache.store("a", filled(1));
    for (const fs::directory_entry& file : fs::directory_iterator(folder / "cache")) {
        test::write_file(file.path(), "no safetensors");
    }
    CHECK(!cache.find("a", kShape));
    cache.store("a", filled(2));
    CHECK(cache.find("a", kShape));

    test::write_file(folder / "cache/notes.txt", "kept");
    const TensorCache tiny(folder / "cache", 13'000);
    tiny.store("b", filled(3));
    CHECK(fs::exists(folder / "cache/notes.txt"));

    test::write_file(folder / "file", "");
    const TensorCache impossible(folder / "file/cache", 1'000'000);
    impossible.store("a", filled(1));
    CHECK(!impossible.find("a", kShape));
    const TensorCache none("", 1'000'000);
    none.store("a", filled(1));
    CHECK(!none.find("a", kShape));
}

}  // namespace
}  // namespace flux2
