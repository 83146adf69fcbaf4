#include "checkpoints/variant.hpp"
#include "support/published_sizes.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <span>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

// What is decided for the test transformer under this path, with these files beside it.
VariantChoice decide(const fs::path& path, std::optional<Variant> option = {}) {
    fs::create_directories(path.parent_path());
    fs::copy_file(test::fixture("klein/flux2.safetensors"), path,
                  fs::copy_options::overwrite_existing);
    const Checkpoint checkpoint = Checkpoint::open(path);
    return decide_variant(checkpoint, read_transformer_sizes(checkpoint), option);
}

TEST_CASE("words in names count only as words") {
    CHECK(contains_word("flux-2-klein-base-4b.safetensors", "base"));
    CHECK(contains_word("FLUX.2-klein-BASE4B", "base"));
    CHECK(contains_word("flux-2-klein-9b-kv.safetensors", "kv"));
    CHECK_FALSE(contains_word("database", "base"));
    CHECK_FALSE(contains_word("baseline", "base"));
    CHECK_FALSE(contains_word("mkv_files", "kv"));
}

TEST_CASE("names of file and folder tell base and kv, else it is distilled") {
    const test::TemporaryFolder folder;
    CHECK(decide(folder / "a/flux-2-klein-4b.safetensors").variant == Variant::klein);
    CHECK(decide(folder / "a/flux-2-klein-base-4b.safetensors").variant == Variant::base);
    CHECK(decide(folder / "a/flux-2-klein-9b-kv.safetensors").variant == Variant::kv);
    const VariantChoice by_folder = decide(folder / "FLUX.2-klein-base-4B/model.safetensors");
    CHECK(by_folder.variant == Variant::base);
    CHECK(by_folder.reason.find("folder name contains 'base'") != std::string::npos);
}

TEST_CASE("model_index.json counts more than names, the option more than both") {
    const test::TemporaryFolder folder;
    fs::create_directories(folder / "m-base");
    test::write_file(folder / "m-base/model_index.json",
                     R"({"_class_name": "Flux2KleinPipeline", "is_distilled": true})");
    CHECK(decide(folder / "m-base/transformer/x.safetensors").variant == Variant::klein);
    CHECK(decide(folder / "m-base/transformer/x.safetensors", Variant::kv).variant == Variant::kv);
    test::write_file(folder / "m-base/model_index.json",
                     R"({"_class_name": "Flux2KleinPipeline", "is_distilled": false})");
    CHECK(decide(folder / "m-base/transformer/x.safetensors").variant == Variant::base);
    test::write_file(folder / "m-base/model_index.json",
                     R"({"_class_name": "Flux2KleinKVPipeline"})");
    CHECK(decide(folder / "m-base/transformer/x.safetensors").variant == Variant::kv);
    test::write_file(folder / "m-base/model_index.json", R"({"is_distilled": "maybe"})");
    const auto error = test::error_of([&] { decide(folder / "m-base/transformer/x.safetensors"); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("is_distilled"));
}

// The test transformer with one key in its header.
Checkpoint with_key(const fs::path& path, const std::string& key, const std::string& value) {
    const test::Bytes bytes = test::read_file(test::fixture("klein/flux2.safetensors"));
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    const std::span<const std::byte> rest = std::span(bytes).subspan(sizeof length);
    std::string header(reinterpret_cast<const char*>(rest.data()), length);
    header.insert(1, R"("__metadata__":{")" + key + R"(":")" + value + R"("},)");
    test::write_file(path, test::safetensors(header, rest.subspan(length)));
    return Checkpoint::open(path);
}

TEST_CASE("a key of the file counts more than its name, and must name a variant") {
    const test::TemporaryFolder folder;
    const Checkpoint kv = with_key(folder / "x-base.safetensors", "flux2.variant", "kv");
    CHECK(decide_variant(kv, read_transformer_sizes(kv), {}).variant == Variant::kv);
    const Checkpoint odd = with_key(folder / "x.safetensors", "flux2.variant", "schnell");
    const auto error =
        test::error_of([&] { decide_variant(odd, read_transformer_sizes(odd), {}); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("schnell"));
    CHECK(error.mentions("x.safetensors"));
}

#ifndef _WIN32
TEST_CASE("a path that can no longer be looked at is an error of the file") {
    const test::TemporaryFolder folder;
    const fs::path link = folder / "x.safetensors";
    fs::create_symlink(test::fixture("klein/flux2.safetensors"), link);
    const Checkpoint checkpoint = Checkpoint::open(link);
    fs::remove(link);
    fs::create_symlink(link, link);
    const auto error =
        test::error_of([&] { decide_variant(checkpoint, read_transformer_sizes(checkpoint), {}); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("x.safetensors: cannot be looked at: "));
}
#endif

TEST_CASE("dev without a guidance input is refused") {
    const test::TemporaryFolder folder;
    const auto error = test::error_of([&] { decide(folder / "a/x.safetensors", Variant::dev); });
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(test::error_of([] { parse_variant("schnell"); }).kind == ErrorKind::bad_argument);
}

TEST_CASE("defaults are the reference's") {
    CHECK(sampling_defaults(Variant::klein).steps == 4);
    CHECK(sampling_defaults(Variant::klein).guidance == 1.0f);
    CHECK(sampling_defaults(Variant::kv).distilled);
    CHECK(sampling_defaults(Variant::base).steps == 50);
    CHECK(sampling_defaults(Variant::dev).guidance == 4.0f);
    CHECK_FALSE(sampling_defaults(Variant::base).distilled);
}

TEST_CASE("published sizes have their names") {
    CHECK(display_name(Variant::klein, test::kKlein4b) == "FLUX.2 klein 4B");
    CHECK(display_name(Variant::base, test::kKlein4b) == "FLUX.2 klein base 4B");
}

}  // namespace
}  // namespace flux2
