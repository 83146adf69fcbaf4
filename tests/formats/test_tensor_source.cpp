#include "formats/gguf_writer.hpp"
#include "formats/tensor_source.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

namespace fs = std::filesystem;
using namespace flux2;
using namespace flux2::test;

namespace {

Bytes file_with(const std::vector<std::string>& names) {
    std::vector<TestTensor> tensors;
    for (const std::string& name : names) {
        tensors.push_back(counting_tensor(name, {2}));
    }
    return safetensors_of(tensors);
}

std::string index_of(const std::vector<std::pair<std::string, std::string>>& shard_of) {
    std::string map;
    for (const auto& [name, shard] : shard_of) {
        map += map.empty() ? "" : ",";
        map += "\"" + name + "\":\"" + shard + "\"";
    }
    return "{\"metadata\":{\"total_size\":16},\"weight_map\":{" + map + "}}";
}

CaughtError refused(const fs::path& path) {
    const auto error = error_of([&] { TensorSource::open(path); });
    CHECK(error.kind == ErrorKind::bad_file);
    return error;
}

void check_pair(const TensorSource& source) {
    CHECK(source.tensors().size() == 2);
    for (const char* name : {"a", "b"}) {
        REQUIRE(source.find(name) != nullptr);
        CHECK(source.find(name)->name == name);
        CHECK(source.find(name)->bytes.size() == 8);
    }
    CHECK(source.find("c") == nullptr);
}

}  // namespace

TEST_CASE("a single safetensors file is opened") {
    const TemporaryFolder folder;
    write_file(folder / "model.safetensors", file_with({"a", "b"}));
    const TensorSource source = TensorSource::open(folder / "model.safetensors");
    check_pair(source);
    CHECK(source.format() == FileFormat::safetensors);
    CHECK(source.path() == folder / "model.safetensors");
    CHECK(source.files().size() == 1);
}

TEST_CASE("a source may move; its tensors stay valid") {
    const TemporaryFolder folder;
    write_file(folder / "model.safetensors", file_with({"a", "b"}));
    TensorSource source = TensorSource::open(folder / "model.safetensors");
    const std::byte* bytes = source.find("b")->bytes.data();
    const TensorSource moved = std::move(source);
    check_pair(moved);
    CHECK(moved.find("b")->bytes.data() == bytes);
}

TEST_CASE("a GGUF file is known by its content, whatever it is called") {
    const TemporaryFolder folder;
    const Bytes gguf = gguf_of({counting_tensor("a", {2}), counting_tensor("b", {2})});
    for (const char* name : {"model.gguf", "model.safetensors", "model"}) {
        CAPTURE(std::string(name));
        write_file(folder / name, gguf);
        const TensorSource source = TensorSource::open(folder / name);
        check_pair(source);
        CHECK(source.format() == FileFormat::gguf);
    }
}

TEST_CASE("a safetensors file may be called anything") {
    const TemporaryFolder folder;
    write_file(folder / "model.gguf", file_with({"a", "b"}));
    const TensorSource source = TensorSource::open(folder / "model.gguf");
    check_pair(source);
    CHECK(source.format() == FileFormat::safetensors);
}

TEST_CASE("metadata of a single file is kept") {
    const TemporaryFolder folder;
    write_file(folder / "model.safetensors", safetensors(R"({"__metadata__":{"license":"free"}})"));
    const TensorSource source = TensorSource::open(folder / "model.safetensors");
    CHECK(source.metadata().get_string("license") == "free");
}

TEST_CASE("an index opens all its shards") {
    const TemporaryFolder folder;
    write_file(folder / "one.safetensors", file_with({"a"}));
    write_file(folder / "two.safetensors", file_with({"b", "not in the index"}));
    const fs::path index = folder / "model.safetensors.index.json";
    write_file(index, index_of({{"a", "one.safetensors"}, {"b", "two.safetensors"}}));
    const TensorSource source = TensorSource::open(index);
    check_pair(source);
    CHECK(source.files().size() == 2);
    CHECK(source.path() == index);
}

TEST_CASE("a shard that the index names and the folder lacks is named") {
    const TemporaryFolder folder;
    write_file(folder / "one.safetensors", file_with({"a"}));
    const fs::path index = folder / "model.safetensors.index.json";
    write_file(index, index_of({{"a", "one.safetensors"}, {"b", "two.safetensors"}}));
    const auto error = refused(index);
    CHECK(error.mentions("two.safetensors"));
    CHECK(error.mentions(index.string()));
}

TEST_CASE("a shard name longer than any file name is refused") {
    const TemporaryFolder folder;
    const fs::path index = folder / "model.safetensors.index.json";
    write_file(index, index_of({{"a", std::string(300, 's')}}));
    CHECK(refused(index).mentions(index.string()));
}

TEST_CASE("a tensor that its shard lacks is named") {
    const TemporaryFolder folder;
    write_file(folder / "one.safetensors", file_with({"a"}));
    write_file(folder / "two.safetensors", file_with({"b"}));
    const fs::path index = folder / "model.safetensors.index.json";
    write_file(
        index,
        index_of({{"a", "one.safetensors"}, {"b", "one.safetensors"}, {"c", "two.safetensors"}}));
    const auto error = refused(index);
    CHECK(error.mentions("tensor b"));
    CHECK(error.mentions("one.safetensors"));
}

TEST_CASE("any shard opens its siblings") {
    const TemporaryFolder folder;
    write_file(folder / "model-00001-of-00002.safetensors", file_with({"a"}));
    write_file(folder / "model-00002-of-00002.safetensors", file_with({"b"}));
    for (const char* name :
         {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}) {
        const TensorSource source = TensorSource::open(folder / name);
        check_pair(source);
        CHECK(source.files().size() == 2);
    }
}

TEST_CASE("a missing sibling shard is named") {
    const TemporaryFolder folder;
    write_file(folder / "model-00001-of-00003.safetensors", file_with({"a"}));
    write_file(folder / "model-00003-of-00003.safetensors", file_with({"b"}));
    const auto error = refused(folder / "model-00001-of-00003.safetensors");
    CHECK(error.mentions("model-00002-of-00003.safetensors"));
    CHECK(error.mentions("2 of 3"));
}

TEST_CASE("a shard of none is refused") {
    const TemporaryFolder folder;
    write_file(folder / "model-00001-of-00000.safetensors", file_with({"a"}));
    refused(folder / "model-00001-of-00000.safetensors");
}

TEST_CASE("a tensor in two shards is named") {
    const TemporaryFolder folder;
    write_file(folder / "model-00001-of-00002.safetensors", file_with({"a", "shared"}));
    write_file(folder / "model-00002-of-00002.safetensors", file_with({"b", "shared"}));
    CHECK(refused(folder / "model-00001-of-00002.safetensors").mentions("tensor shared"));
}

TEST_CASE("names that only resemble shards are single files") {
    const TemporaryFolder folder;
    for (const char* name : {"model-0001-of-0002.safetensors", "-00001-of-00002.safetensors",
                             "model-00001-of-0000x.safetensors"}) {
        write_file(folder / name, file_with({"a", "b"}));
        check_pair(TensorSource::open(folder / name));
    }
}

TEST_CASE("a folder with one file opens it") {
    const TemporaryFolder folder;
    write_file(folder / "config.json", "{}");
    write_file(folder / "model.safetensors", file_with({"a", "b"}));
    check_pair(TensorSource::open(folder.path()));
}

TEST_CASE("a folder with an index opens what it names") {
    const TemporaryFolder folder;
    write_file(folder / "model-00001-of-00002.safetensors", file_with({"a"}));
    write_file(folder / "model-00002-of-00002.safetensors", file_with({"b"}));
    write_file(folder / "model.safetensors.index.json",
               index_of({{"a", "model-00001-of-00002.safetensors"},
                         {"b", "model-00002-of-00002.safetensors"}}));
    const TensorSource source = TensorSource::open(folder.path());
    check_pair(source);
    CHECK(source.path() == folder / "model.safetensors.index.json");
}

TEST_CASE("a folder with shards and no index opens all of them") {
    const TemporaryFolder folder;
    write_file(folder / "model-00001-of-00003.safetensors", file_with({"a"}));
    write_file(folder / "model-00002-of-00003.safetensors", file_with({"b"}));
    write_file(folder / "model-00003-of-00003.safetensors", file_with({}));
    check_pair(TensorSource::open(folder.path()));
}

TEST_CASE("a folder that lacks a shard names it") {
    const TemporaryFolder folder;
    SUBCASE("the last") {
        write_file(folder / "model-00001-of-00003.safetensors", file_with({"a"}));
        write_file(folder / "model-00002-of-00003.safetensors", file_with({"b"}));
        CHECK(refused(folder.path()).mentions("model-00003-of-00003.safetensors"));
    }
    SUBCASE("the first, with one left") {
        write_file(folder / "model-00002-of-00002.safetensors", file_with({"b"}));
        CHECK(refused(folder.path()).mentions("model-00001-of-00002.safetensors"));
    }
    SUBCASE("the first, with several left") {
        write_file(folder / "model-00002-of-00003.safetensors", file_with({"a"}));
        write_file(folder / "model-00003-of-00003.safetensors", file_with({"b"}));
        CHECK(refused(folder.path()).mentions("model-00001-of-00003.safetensors"));
    }
}

TEST_CASE("a folder with several models is refused and names them") {
    const TemporaryFolder folder;
    write_file(folder / "first.safetensors", file_with({"a"}));
    write_file(folder / "second.gguf", gguf_of({counting_tensor("b", {2})}));
    const auto error = refused(folder.path());
    CHECK(error.mentions("first.safetensors"));
    CHECK(error.mentions("second.gguf"));
    CHECK(error.mentions(folder.path().string()));
}

TEST_CASE("a folder without a model is refused") {
    const TemporaryFolder folder;
    write_file(folder / "config.json", "{}");
    CHECK(refused(folder.path()).mentions(folder.path().string()));
}

TEST_CASE("a missing or empty model file is refused by name") {
    const TemporaryFolder folder;
    CHECK(refused(folder / "absent.safetensors").mentions("absent.safetensors"));
    write_file(folder / "empty.safetensors", "");
    CHECK(refused(folder / "empty.safetensors").mentions("empty.safetensors"));
}

TEST_CASE("a path longer than any file name is refused") {
    const TemporaryFolder folder;
    refused(folder / (std::string(300, 'p') + ".safetensors"));
}

TEST_CASE("a broken shard is named") {
    const TemporaryFolder folder;
    write_file(folder / "model-00001-of-00002.safetensors", file_with({"a"}));
    write_file(folder / "model-00002-of-00002.safetensors", "not a safetensors file");
    CHECK(refused(folder.path()).mentions("model-00002-of-00002.safetensors"));
}

namespace {

// A part of a GGUF as llama.cpp's gguf-split writes it.
void write_part(const fs::path& path, uint16_t no, uint16_t count, int32_t n_tensors,
                const std::vector<std::string>& names) {
    Metadata metadata;
    if (no == 0) {
        metadata.set("general.architecture", std::string("test"));
    }
    metadata.set("split.no", no);
    metadata.set("split.count", count);
    metadata.set("split.tensors.count", n_tensors);
    std::vector<GgufTensor> tensors;
    for (const std::string& name : names) {
        tensors.push_back({name, TensorType::f32, Shape{2}});
    }
    GgufWriter writer(path, metadata, tensors);
    for (size_t i = 0; i < names.size(); ++i) {
        const std::vector<float> values = {static_cast<float>(names[i][0]), 1.0f};
        writer.write(i, 0, std::as_bytes(std::span(values)));
    }
    writer.finish(metadata);
}

}  // namespace

TEST_CASE("a GGUF in llama.cpp's parts is joined, whichever part is named") {
    const TemporaryFolder folder;
    write_part(folder / "model-00001-of-00003.gguf", 0, 3, 2, {"a"});
    write_part(folder / "model-00002-of-00003.gguf", 1, 3, 2, {});
    write_part(folder / "model-00003-of-00003.gguf", 2, 3, 2, {"b"});
    for (const char* name : {"model-00001-of-00003.gguf", "model-00003-of-00003.gguf", ""}) {
        CAPTURE(std::string(name));
        const TensorSource source = TensorSource::open(folder / name);
        check_pair(source);
        CHECK(source.format() == FileFormat::gguf);
        CHECK(source.files().size() == 3);
        // The first part's metadata, without what is about the parts.
        CHECK(source.metadata().get_string("general.architecture") == "test");
        CHECK_FALSE(source.metadata().contains("split.count"));
        CHECK(read_tensor(source, "b").data[0] == static_cast<float>('b'));
    }
    CHECK(checkpoints_in(folder.path()) ==
          std::vector<fs::path>{folder / "model-00001-of-00003.gguf"});
}

TEST_CASE("parts of a GGUF that are missing, renamed or of another file are refused") {
    const TemporaryFolder folder;
    write_part(folder / "model-00001-of-00002.gguf", 0, 2, 2, {"a"});
    CHECK(refused(folder / "model-00001-of-00002.gguf").mentions("missing shard 2 of 2"));
    write_part(folder / "model-00002-of-00002.gguf", 0, 2, 2, {"b"});
    CHECK(refused(folder / "model-00001-of-00002.gguf")
              .mentions("says that it is part 1 of 2, its name says 2 of 2"));
    write_part(folder / "model-00002-of-00002.gguf", 1, 2, 2, {"b", "c"});
    CHECK(refused(folder / "model-00001-of-00002.gguf")
              .mentions("its 2 parts hold 3 tensors, 2 are expected"));
}
