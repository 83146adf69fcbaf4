#include "jobs/result_store.hpp"
#include "jobs/thumbnail.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <new>
#include <optional>
#include <set>
#include <string>

using namespace flux2;
using namespace flux2::server;
using nlohmann::json;

namespace {

Image plain(int width, int height, uint8_t value) {
    const size_t n = static_cast<size_t>(width) * static_cast<size_t>(height) * 3;
    return {width, height, std::vector<uint8_t>(n, value)};
}

// What picture_texts() reads of a picture's facts.
json facts(const std::string& prompt) {
    const json file = {{"file", "model.gguf"}, {"sha256", "0123456789abcdef"}};
    return {{"prompt", prompt},
            {"negative_prompt", ""},
            {"steps", 4},
            {"guidance", 1.0},
            {"seed", 1},
            {"width", 8},
            {"height", 8},
            {"init_img", ""},
            {"strength", 1},
            {"version", "0"},
            {"model", {{"transformer", file}}}};
}

}  // namespace

TEST_CASE("a store holds as many pictures as it may, and the oldest leave") {
    const test::TemporaryFolder folder;
    ResultStore store(folder.path(), {.pictures = 3});
    std::vector<std::string> ids;
    for (uint8_t i = 0; i < 5; ++i) {
        ids.push_back(store.add(plain(8, 8, i), facts("picture " + std::to_string(i))));
    }
    CHECK(store.size() == 3);
    CHECK(std::set<std::string>(ids.begin(), ids.end()).size() == 5);
    int n_left = 0;
    for (const std::string& id : ids) {
        n_left += store.png(id) ? 1 : 0;
        CHECK(store.png(id).has_value() == store.facts(id).has_value());
    }
    CHECK(n_left == 3);
    CHECK(store.png(ids.back()).has_value());
    CHECK(folder.names().size() == 6);
}

TEST_CASE("a stored picture is read whole or not at all where memory is lacking") {
    const test::TemporaryFolder folder;
    ResultStore store(folder.path(), {.pictures = 3});
    const std::string id = store.add(plain(64, 64, 7), facts(std::string(3000, 'x')));
    const std::string whole = store.png(id).value();
    bool made = false;
    int n_failed = 0;
    for (size_t fails = 0; !made; ++fails) {
        REQUIRE(fails < 100);
        std::optional<std::string> bytes;
        try {
            const test::AllocationHook hook(1, size_t{1} << 30, [fails](size_t n) {
                if (n == fails) {
                    throw std::bad_alloc();
                }
            });
            bytes = store.png(id);
            made = true;
        } catch (const std::bad_alloc&) {
            ++n_failed;
        }
        CHECK((!bytes || *bytes == whole));
    }
    CHECK(n_failed >= 2);
}

TEST_CASE("later ids are larger, also within a millisecond") {
    std::string last = new_id();
    for (int i = 0; i < 10000; ++i) {
        const std::string id = new_id();
        REQUIRE(id > last);
        last = id;
    }
}

TEST_CASE("a store holds as many bytes as it may, but always the newest picture") {
    const test::TemporaryFolder folder;
    ResultStore store(folder.path(), {.bytes = 1});
    store.add(plain(8, 8, 1), facts("one"));
    const std::string last = store.add(plain(8, 8, 2), facts("two"));
    CHECK(store.size() == 1);
    CHECK(store.png(last).has_value());
}

TEST_CASE("pictures in a folder are there after a restart, and for another server") {
    const test::TemporaryFolder folder;
    ResultStore other(folder.path(), {});
    std::string id;
    {
        ResultStore store(folder.path(), {});
        id = store.add(plain(8, 8, 1), facts("one"));
    }
    const ResultStore again(folder.path(), {});
    REQUIRE(again.page("", 10).size() == 1);
    CHECK(again.page("", 10)[0].id == id);
    CHECK(other.png(id).has_value());
    CHECK(other.page("", 10).size() == 1);
}

TEST_CASE("without a folder a store has one of its own, which it removes") {
    std::string id;
    std::filesystem::path file;
    {
        ResultStore store({}, {});
        id = store.add(plain(8, 8, 1), facts("one"));
        // Only the folders themselves: files of other programs come and go.
        const auto temporary = std::filesystem::temp_directory_path();
        for (const auto& entry : std::filesystem::directory_iterator(temporary)) {
            if (std::error_code error;
                std::filesystem::exists(entry.path() / (id + ".png"), error)) {
                file = entry.path() / (id + ".png");
            }
        }
        CHECK_FALSE(file.empty());
    }
    CHECK_FALSE(std::filesystem::exists(file.parent_path()));
}

TEST_CASE("only ids name files of a store") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "secret.png", "x");
    std::filesystem::create_directory(folder / "results");
    ResultStore store(folder / "results", {});
    for (const char* id : {"../secret", "", ".", "secret", "0123456789abcdef012", "/etc/passwd",
                           "0123456789ABCDEF0123", "0123456789abcdef01/3"}) {
        CHECK_FALSE(store.png(id).has_value());
        CHECK_FALSE(store.facts(id).has_value());
        CHECK_FALSE(store.thumbnail(id).has_value());
        CHECK_FALSE(store.remove(id));
    }
}

TEST_CASE("a small version has the means of the pixels") {
    Image image = plain(4, 2, 0);
    image.rgb[0] = 100;  // red of the first pixel
    const Image small = shrink(image, 2);
    CHECK(small.width == 2);
    CHECK(small.height == 1);
    CHECK(small.rgb == std::vector<uint8_t>{25, 0, 0, 0, 0, 0});
    CHECK(shrink(image, 4).rgb == image.rgb);
    CHECK(shrink(plain(1000, 2, 7), 10).height == 1);
}
