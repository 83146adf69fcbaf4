// Datasets: what is found, and everything that is wrong in one report.
#include "support/support.hpp"
#include "train/data_order.hpp"
#include "train/dataset.hpp"
#include "train/training_data.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

Image plain_picture(int width, int height, uint8_t grey = 128) {
    return {width, height, std::vector<uint8_t>(static_cast<size_t>(width * height * 3), grey)};
}

void add_pair(const fs::path& folder, const std::string& name, int width, int height,
              const std::string& caption) {
    save_image(folder / (name + ".png"), plain_picture(width, height));
    test::write_file(folder / (name + ".txt"), caption);
}

DatasetSource folder_source(const fs::path& folder) {
    DatasetSource source;
    source.name = folder.string();
    source.image_directory = folder;
    source.bucket = {.width = 64, .height = 64};
    return source;
}

bool has_line(const Problems& problems, std::initializer_list<std::string_view> words) {
    return std::any_of(problems.lines().begin(), problems.lines().end(), [&](const auto& line) {
        return std::all_of(words.begin(), words.end(), [&](std::string_view word) {
            return line.find(word) != std::string::npos;
        });
    });
}

TEST_CASE("a folder gives its pictures in order of names, with captions and sizes") {
    const TemporaryFolder folder;
    add_pair(folder.path(), "b", 64, 64, "a boat \r\n");
    add_pair(folder.path(), "a", 100, 50, "\xef\xbb\xbf  a house");
    save_image(folder / "c.jpg", plain_picture(32, 96));
    test::write_file(folder / "c.txt", "");
    test::write_file(folder / "notes.md", "no picture");
    fs::create_directory(folder / "d.png");
    Problems problems;
    const auto pictures = find_pictures({folder_source(folder.path())}, 2, problems);
    CHECK(problems.empty());
    REQUIRE(pictures.size() == 3);
    CHECK(pictures[0].file == folder / "a.png");
    CHECK(pictures[0].caption == "a house");
    CHECK(pictures[0].size.width == 100);
    CHECK(pictures[0].trained.width > pictures[0].trained.height);
    CHECK(pictures[1].caption == "a boat");
    CHECK(pictures[1].trained.width == 64);
    CHECK(pictures[2].caption.empty());
    CHECK(pictures[2].trained.height > pictures[2].trained.width);
    CHECK(pictures[0].content != pictures[1].content);
    const Image trained = load_trained(pictures[0]);
    CHECK(trained.width == pictures[0].trained.width);
    CHECK(trained.height == pictures[0].trained.height);
}

TEST_CASE("everything that is wrong is in one report") {
    const TemporaryFolder folder;
    add_pair(folder.path(), "fine", 64, 64, "fine");
    save_image(folder / "alone.png", plain_picture(64, 64));
    add_pair(folder.path(), "small", 15, 64, "small");
    add_pair(folder.path(), "cut", 64, 64, "cut");
    test::Bytes bytes = test::read_file(folder / "cut.png");
    bytes.resize(60);
    test::write_file(folder / "cut.png", bytes);
    test::write_file(folder / "text.jpg", "no picture");
    test::write_file(folder / "text.txt", "text");
    const TemporaryFolder empty;
    Problems problems;
    find_pictures({folder_source(folder.path()), folder_source(empty.path()),
                   folder_source(empty / "absent")},
                  2, problems);
    CHECK(problems.lines().size() == 6);
    CHECK(has_line(problems, {"alone.png", "alone.txt"}));
    CHECK(has_line(problems, {"small.png", "15x64", "16x16"}));
    CHECK(has_line(problems, {"cut.png", "truncated"}));
    CHECK(has_line(problems, {"text.jpg", "neither"}));
    CHECK(has_line(problems, {empty.path().string() + ": there are no pictures"}));
    CHECK(has_line(problems, {"absent", "cannot be read"}));
    const auto error = test::error_of([&] { problems.throw_if_any(); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("6 problems"));
    CHECK(error.mentions("small.png"));
}

TEST_CASE("a default caption stands for missing files") {
    const TemporaryFolder folder;
    save_image(folder / "a.png", plain_picture(64, 64));
    DatasetSource source = folder_source(folder.path());
    source.default_caption = "a photo";
    Problems problems;
    const auto pictures = find_pictures({source}, 1, problems);
    CHECK(problems.empty());
    REQUIRE(pictures.size() == 1);
    CHECK(pictures[0].caption == "a photo");
    CHECK(with_trigger_word("a photo", "") == "a photo");
    CHECK(with_trigger_word("a photo", "sks") == "sks, a photo");
    CHECK(with_trigger_word("a photo of sks", "sks") == "a photo of sks");
    CHECK(with_trigger_word("", "sks") == "sks");
}

TEST_CASE("lists of pictures are read line by line, wrong lines by their number") {
    const TemporaryFolder folder;
    save_image(folder / "a.png", plain_picture(64, 64));
    save_image(folder / "before.png", plain_picture(128, 64));
    test::write_file(folder / "list.jsonl",
                     "{\"image_path\": \"a.png\", \"caption\": \"after\", \"control_path_0\": "
                     "\"before.png\", \"control_path_1\": \"a.png\"}\n\n"
                     "{\"image_path\": \"a.png\"}\n"
                     "not json\n"
                     "{\"image_path\": \"gone.png\", \"caption\": \"x\"}\n");
    DatasetSource source = folder_source({});
    source.image_jsonl_file = folder / "list.jsonl";
    Problems problems;
    const auto pictures = find_pictures({source}, 1, problems);
    CHECK(problems.lines().size() == 3);
    CHECK(has_line(problems, {"list.jsonl:3", "caption"}));
    CHECK(has_line(problems, {"list.jsonl:4"}));
    CHECK(has_line(problems, {"gone.png"}));
    REQUIRE(pictures.size() == 2);
    REQUIRE(pictures[0].controls.size() == 2);
    CHECK(pictures[0].controls[0] == folder / "before.png");
    // By default controls take the size of the picture.
    Image control = load_control(pictures[0], 0, source);
    CHECK(control.width == 64);
    CHECK(control.height == 64);
    source.no_resize_control = true;
    control = load_control(pictures[0], 0, source);
    CHECK(control.width == 128);
    CHECK(control.height == 64);
    source.no_resize_control = false;
    source.control_resolution = ImageSize{128, 128};
    control = load_control(pictures[0], 0, source);
    CHECK(control.width * control.height > 64 * 64 * 3);
}

TEST_CASE("controls are found by name and number") {
    const TemporaryFolder folder;
    fs::create_directory(folder / "control");
    add_pair(folder.path(), "cat", 64, 64, "a cat");
    add_pair(folder.path(), "dog", 64, 64, "a dog");
    add_pair(folder.path(), "cow", 64, 64, "a cow");
    for (const char* name : {"cat_1.png", "cat_0.png", "cat_10.png", "catalogue.png", "dog.png"}) {
        save_image(folder / (std::string("control/") + name), plain_picture(64, 64));
    }
    DatasetSource source = folder_source(folder.path());
    source.control_directory = folder / "control";
    Problems problems;
    const auto pictures = find_pictures({source}, 1, problems);
    REQUIRE(pictures.size() == 3);
    REQUIRE(pictures[0].controls.size() == 3);
    CHECK(pictures[0].controls[0].filename() == "cat_0.png");
    CHECK(pictures[0].controls[1].filename() == "cat_1.png");
    CHECK(pictures[0].controls[2].filename() == "cat_10.png");
    CHECK(pictures[2].controls.size() == 1);
    CHECK(problems.lines().size() == 1);
    CHECK(has_line(problems, {"cow.png", "no picture named cow"}));
}

TEST_CASE("a mirror image has its columns in reverse") {
    const Image image = {2, 2, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}};
    CHECK(flipped(image).rgb == std::vector<uint8_t>{4, 5, 6, 1, 2, 3, 10, 11, 12, 7, 8, 9});
}

TEST_CASE("an epoch shows every picture as often as it is repeated, in batches of one size") {
    std::vector<DatasetSource> sources(2);
    sources[0].batch_size = 4;
    sources[1].batch_size = 2;
    sources[1].num_repeats = 3;
    std::vector<DatasetPicture> pictures(12);
    for (size_t i = 0; i < pictures.size(); ++i) {
        pictures[i].source = i < 10 ? 0 : 1;
        pictures[i].trained = i % 2 == 0 ? ImageSize{64, 64} : ImageSize{96, 48};
    }
    DataOrder order(sources, pictures, 1);
    // Two groups of 5 in batches of 4, two of 1 * 3 in batches of 2.
    REQUIRE(order.batches_per_epoch() == 8);
    std::map<size_t, int> shown;
    for (int64_t i = 0; i < 8; ++i) {
        const std::vector<size_t> batch = order.batch(i);
        CHECK(batch.size() <= static_cast<size_t>(sources[pictures[batch[0]].source].batch_size));
        for (const size_t picture : batch) {
            ++shown[picture];
            CHECK(pictures[picture].trained.width == pictures[batch[0]].trained.width);
            CHECK(pictures[picture].source == pictures[batch[0]].source);
        }
    }
    for (size_t i = 0; i < pictures.size(); ++i) {
        CHECK(shown[i] == (i < 10 ? 1 : 3));
    }
}

TEST_CASE("the order follows from seed and number alone, and epochs differ") {
    const std::vector<DatasetSource> sources(1);
    const std::vector<DatasetPicture> pictures(20);
    const auto epoch = [&](DataOrder& order, int64_t number) {
        std::vector<size_t> shown;
        for (int64_t i = 0; i < 20; ++i) {
            shown.push_back(order.batch(number * 20 + i).front());
        }
        return shown;
    };
    DataOrder first(sources, pictures, 1), again(sources, pictures, 1), other(sources, pictures, 2);
    const auto third = epoch(first, 2);
    CHECK(epoch(first, 0) != third);
    CHECK(epoch(again, 2) == third);
    CHECK(epoch(first, 2) == third);
    CHECK(epoch(other, 2) != third);
}

}  // namespace
}  // namespace flux2
