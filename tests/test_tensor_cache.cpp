#include "pipeline/tensor_cache.hpp"
#include "support.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

HostTensor filled(float value, int64_t n = 1000) {
    HostTensor tensor({n, 2, 1, 1});
    tensor.data.assign(tensor.data.size(), value);
    return tensor;
}

TEST_CASE("what is stored is found by its whole key, bit for bit") {
    const test::TemporaryFolder folder;
    const TensorCache cache(folder / "cache", 1'000'000);
    CHECK(!cache.find("a"));
    cache.store("a", filled(0.1f));
    const auto found = TensorCache(folder / "cache", 1'000'000).find("a");
    REQUIRE(found);
    CHECK(found->ne == std::array<int64_t, 4>{1000, 2, 1, 1});
    CHECK(found->data == filled(0.1f).data);
    CHECK(!cache.find("a "));
    CHECK(!cache.find(""));
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
    CHECK(cache.find("first"));  // used just now
    cache.store("third", filled(3));
    CHECK(cache.find("first"));
    CHECK(!cache.find("second"));
    CHECK(cache.find("third"));
    uint64_t bytes = 0;
    for (const std::string& name : folder.names()) {
        bytes += fs::file_size(folder / name);
    }
    CHECK(bytes <= 25'000);
    // What is larger than the whole cache is not kept.
    cache.store("huge", filled(4, 100'000));
    CHECK(!cache.find("huge"));
}

TEST_CASE("broken entries, other files and unusable folders do no harm") {
    const test::TemporaryFolder folder;
    const TensorCache cache(folder / "cache", 1'000'000);
    cache.store("a", filled(1));
    for (const fs::directory_entry& file : fs::directory_iterator(folder / "cache")) {
        test::write_file(file.path(), "no safetensors");
    }
    CHECK(!cache.find("a"));
    cache.store("a", filled(2));
    CHECK(cache.find("a"));

    test::write_file(folder / "cache/notes.txt", "kept");
    const TensorCache tiny(folder / "cache", 13'000);
    tiny.store("b", filled(3));
    CHECK(fs::exists(folder / "cache/notes.txt"));

    test::write_file(folder / "file", "");
    const TensorCache impossible(folder / "file/cache", 1'000'000);
    impossible.store("a", filled(1));
    CHECK(!impossible.find("a"));
    const TensorCache none("", 1'000'000);
    none.store("a", filled(1));
    CHECK(!none.find("a"));
}

}  // namespace
}  // namespace flux2
