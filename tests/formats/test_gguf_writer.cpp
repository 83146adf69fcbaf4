#include "formats/gguf_file.hpp"
#include "formats/gguf_writer.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>
#include <ggml-cpp.h>
#include <ggml.h>
#include <gguf.h>

#include <thread>

namespace fs = std::filesystem;
using namespace flux2;
using namespace flux2::test;

namespace {

Metadata every_type() {
    Metadata metadata;
    metadata.set("general.architecture", std::string("flux2"));
    metadata.set("u8", uint8_t{200});
    metadata.set("i8", int8_t{-100});
    metadata.set("u16", uint16_t{60000});
    metadata.set("i16", int16_t{-30000});
    metadata.set("u32", uint32_t{4000000000u});
    metadata.set("i32", int32_t{-2000000000});
    metadata.set("f32", 1.5f);
    metadata.set("bool", true);
    metadata.set("nothing", std::string());
    metadata.set("u64", ~uint64_t{0});
    metadata.set("i64", -(int64_t{1} << 62));
    metadata.set("f64", 0.1);
    metadata.set("u8s", std::vector<uint8_t>{1, 255});
    metadata.set("i8s", std::vector<int8_t>{-1, 1});
    metadata.set("u16s", std::vector<uint16_t>{1, 65535});
    metadata.set("i16s", std::vector<int16_t>{-1, 1});
    metadata.set("u32s", std::vector<uint32_t>{1, 4000000000u});
    metadata.set("i32s", std::vector<int32_t>{-1, 1});
    metadata.set("f32s", std::vector<float>{0.5f, -0.5f});
    metadata.set("bools", std::vector<bool>{true, false, true});
    metadata.set("texts", std::vector<std::string>{"a", "", "long enough for the heap"});
    metadata.set("u64s", std::vector<uint64_t>{1, ~uint64_t{0}});
    metadata.set("i64s", std::vector<int64_t>{-1, 1});
    metadata.set("f64s", std::vector<double>{0.1, -0.1});
    metadata.set("empty", std::vector<int32_t>{});
    metadata.set("no texts", std::vector<std::string>{});
    return metadata;
}

const std::vector<GgufTensor> kTensors = {
    {"norm.scale", TensorType::f32, {5}},
    {"layer.weight", TensorType::q8_0, {64, 3}},
    {"conv.weight", TensorType::f16, {3, 3, 2, 7}},
    {std::string(127, 'n'), TensorType::bf16, {1, 9}},
    {"last", TensorType::q4_k, {256, 2}},
};

size_t size_of(const GgufTensor& tensor) {
    return data_bytes(tensor.type, tensor.shape.elements());
}

// Different bytes for each tensor.
Bytes content(size_t tensor) {
    Bytes bytes(size_of(kTensors[tensor]));
    for (size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<std::byte>((i * 7 + tensor * 31 + 1) % 251);
    }
    return bytes;
}

void write_example(const fs::path& path, const Metadata& metadata) {
    GgufWriter writer(path, metadata, kTensors);
    for (size_t i = 0; i < kTensors.size(); ++i) {
        writer.write(i, 0, content(i));
    }
    writer.finish(metadata);
}

void check_content(const Bytes& file) {
    const TensorDirectory directory = parse_gguf("written", file);
    REQUIRE(directory.tensors.size() == kTensors.size());
    for (size_t i = 0; i < kTensors.size(); ++i) {
        const TensorInfo& tensor = directory.tensors[i];
        CHECK(tensor.name == kTensors[i].name);
        CHECK(tensor.type == kTensors[i].type);
        CHECK(tensor.shape == kTensors[i].shape);
        CHECK(Bytes(tensor.bytes.begin(), tensor.bytes.end()) == content(i));
    }
}

template <typename T>
std::vector<T> array_of(const gguf_context* gguf, int64_t id) {
    const auto* data = static_cast<const T*>(gguf_get_arr_data(gguf, id));
    return std::vector<T>(data, data + gguf_get_arr_n(gguf, id));
}

}  // namespace

TEST_CASE("what is written is read back by our reader") {
    const TemporaryFolder folder;
    write_example(folder / "out.gguf", every_type());
    const Bytes file = read_file(folder / "out.gguf");
    check_content(file);
    const Metadata metadata = parse_gguf("written", file).metadata;
    CHECK(metadata.entries() == every_type().entries());
    CHECK(folder.names() == std::vector<std::string>{"out.gguf"});
}

TEST_CASE("what is written is read back by ggml") {
    const TemporaryFolder folder;
    const std::string path = (folder / "out.gguf").string();
    write_example(path, every_type());

    ggml_context* tensors = nullptr;
    const gguf_context_ptr owner(
        gguf_init_from_file(path.c_str(), {.no_alloc = false, .ctx = &tensors}));
    const gguf_context* gguf = owner.get();
    const ggml_context_ptr ggml(tensors);
    REQUIRE(gguf != nullptr);
    CHECK(gguf_get_version(gguf) == 3);
    const Bytes file = read_file(path);
    REQUIRE(gguf_get_n_tensors(gguf) == static_cast<int64_t>(kTensors.size()));
    for (size_t i = 0; i < kTensors.size(); ++i) {
        const auto id = static_cast<int64_t>(i);
        CHECK(gguf_get_tensor_name(gguf, id) == kTensors[i].name);
        CHECK(gguf_get_tensor_type(gguf, id) == static_cast<ggml_type>(kTensors[i].type));
        const ggml_tensor* tensor = ggml_get_tensor(tensors, kTensors[i].name.c_str());
        REQUIRE(tensor != nullptr);
        CHECK(std::equal(tensor->ne, tensor->ne + 4, kTensors[i].shape.ne.begin()));
        const size_t offset = gguf_get_data_offset(gguf) + gguf_get_tensor_offset(gguf, id);
        const Bytes expected = content(i);
        REQUIRE(gguf_get_tensor_size(gguf, id) == expected.size());
        REQUIRE(offset + expected.size() <= file.size());
        CHECK(std::memcmp(file.data() + offset, expected.data(), expected.size()) == 0);
        CHECK(std::memcmp(tensor->data, expected.data(), expected.size()) == 0);
    }

    const auto id = [&](const char* key) { return gguf_find_key(gguf, key); };
    CHECK(gguf_get_n_kv(gguf) == static_cast<int64_t>(every_type().entries().size()));
    CHECK(gguf_get_val_str(gguf, id("general.architecture")) == std::string("flux2"));
    CHECK(gguf_get_val_u8(gguf, id("u8")) == 200);
    CHECK(gguf_get_val_i8(gguf, id("i8")) == -100);
    CHECK(gguf_get_val_u16(gguf, id("u16")) == 60000);
    CHECK(gguf_get_val_i16(gguf, id("i16")) == -30000);
    CHECK(gguf_get_val_u32(gguf, id("u32")) == 4000000000u);
    CHECK(gguf_get_val_i32(gguf, id("i32")) == -2000000000);
    CHECK(gguf_get_val_f32(gguf, id("f32")) == 1.5f);
    CHECK(gguf_get_val_bool(gguf, id("bool")));
    CHECK(gguf_get_val_str(gguf, id("nothing")) == std::string());
    CHECK(gguf_get_val_u64(gguf, id("u64")) == ~uint64_t{0});
    CHECK(gguf_get_val_i64(gguf, id("i64")) == -(int64_t{1} << 62));
    CHECK(gguf_get_val_f64(gguf, id("f64")) == 0.1);
    CHECK(array_of<uint8_t>(gguf, id("u8s")) == std::vector<uint8_t>{1, 255});
    CHECK(array_of<int8_t>(gguf, id("i8s")) == std::vector<int8_t>{-1, 1});
    CHECK(array_of<uint16_t>(gguf, id("u16s")) == std::vector<uint16_t>{1, 65535});
    CHECK(array_of<int16_t>(gguf, id("i16s")) == std::vector<int16_t>{-1, 1});
    CHECK(array_of<uint32_t>(gguf, id("u32s")) == std::vector<uint32_t>{1, 4000000000u});
    CHECK(array_of<int32_t>(gguf, id("i32s")) == std::vector<int32_t>{-1, 1});
    CHECK(array_of<float>(gguf, id("f32s")) == std::vector<float>{0.5f, -0.5f});
    CHECK(gguf_get_arr_type(gguf, id("bools")) == GGUF_TYPE_BOOL);
    CHECK(array_of<int8_t>(gguf, id("bools")) == std::vector<int8_t>{1, 0, 1});
    CHECK(array_of<uint64_t>(gguf, id("u64s")) == std::vector<uint64_t>{1, ~uint64_t{0}});
    CHECK(array_of<int64_t>(gguf, id("i64s")) == std::vector<int64_t>{-1, 1});
    CHECK(array_of<double>(gguf, id("f64s")) == std::vector<double>{0.1, -0.1});
    CHECK(gguf_get_arr_n(gguf, id("empty")) == 0);
    CHECK(gguf_get_arr_n(gguf, id("no texts")) == 0);
    REQUIRE(gguf_get_arr_n(gguf, id("texts")) == 3);
    CHECK(gguf_get_arr_str(gguf, id("texts"), 0) == std::string("a"));
    CHECK(gguf_get_arr_str(gguf, id("texts"), 1) == std::string());
    CHECK(gguf_get_arr_str(gguf, id("texts"), 2) == std::string("long enough for the heap"));
}

TEST_CASE("the layout matches the file that is written") {
    const TemporaryFolder folder;
    const GgufLayout layout = lay_out_gguf(every_type(), kTensors);
    write_example(folder / "out.gguf", every_type());
    const Bytes file = read_file(folder / "out.gguf");
    CHECK(file.size() == layout.file_bytes);
    const TensorDirectory directory = parse_gguf("written", file);
    for (size_t i = 0; i < kTensors.size(); ++i) {
        CHECK(directory.tensors[i].bytes.data() - file.data() ==
              static_cast<ptrdiff_t>(layout.tensor_offsets[i]));
        CHECK(layout.tensor_offsets[i] % 32 == 0);
    }
    CHECK(std::equal(layout.header.begin(), layout.header.end(), file.begin()));
}

TEST_CASE("the file size is a multiple of the alignment") {
    const TemporaryFolder folder;
    write_example(folder / "out.gguf", every_type());
    CHECK(read_file(folder / "out.gguf").size() % 32 == 0);
}

TEST_CASE("metadata that names another alignment is refused") {
    // ggml uses its default alignment for offsets; the file would contradict itself.
    const TemporaryFolder folder;
    Metadata metadata = every_type();
    metadata.set("general.alignment", uint32_t{64});
    const auto error = error_of([&] { GgufWriter(folder / "out.gguf", metadata, kTensors); });
    CHECK(error.kind == ErrorKind::internal);
    CHECK(error.mentions("general.alignment"));
}

TEST_CASE("a file of one byte of data is padded too") {
    const TemporaryFolder folder;
    {
        GgufWriter writer(folder / "out.gguf", {}, {{"tiny", TensorType::i8, {1}}});
        writer.write(0, 0, Bytes(1, std::byte{5}));
        writer.finish({});
    }
    const Bytes file = read_file(folder / "out.gguf");
    CHECK(file.size() % 32 == 0);
    CHECK(parse_gguf("written", file).tensors[0].bytes[0] == std::byte{5});
}

TEST_CASE("a file without tensors is written") {
    const TemporaryFolder folder;
    {
        GgufWriter writer(folder / "out.gguf", every_type(), {});
        writer.finish(every_type());
    }
    const Bytes file = read_file(folder / "out.gguf");
    CHECK(parse_gguf("written", file).metadata.entries() == every_type().entries());
}

TEST_CASE("several threads write in any order") {
    const TemporaryFolder folder;
    {
        GgufWriter writer(folder / "out.gguf", every_type(), kTensors);
        std::vector<std::thread> threads;
        for (size_t n = kTensors.size(); n-- > 0;) {
            threads.emplace_back([&writer, n] {
                // The second half first, then the first.
                const Bytes bytes = content(n);
                const auto span = std::span(bytes);
                const size_t half = bytes.size() / 2;
                writer.write(n, half, span.subspan(half));
                writer.write(n, 0, span.first(half));
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
        writer.finish(every_type());
    }
    check_content(read_file(folder / "out.gguf"));
}

TEST_CASE("finishing with other values of the same size replaces them") {
    const TemporaryFolder folder;
    Metadata before = every_type();
    before.set("hash", std::string(64, '0'));
    Metadata after = every_type();
    after.set("hash", std::string(64, 'f'));
    {
        GgufWriter writer(folder / "out.gguf", before, kTensors);
        for (size_t i = 0; i < kTensors.size(); ++i) {
            writer.write(i, 0, content(i));
        }
        writer.finish(after);
    }
    const Bytes file = read_file(folder / "out.gguf");
    check_content(file);
    CHECK(parse_gguf("written", file).metadata.get_string("hash") == std::string(64, 'f'));
}

TEST_CASE("finishing with metadata of another size is refused") {
    const TemporaryFolder folder;
    Metadata larger = every_type();
    larger.set("more", std::string(1000, 'x'));
    {
        GgufWriter writer(folder / "out.gguf", every_type(), kTensors);
        CHECK(error_of([&] { writer.finish(larger); }).kind == ErrorKind::internal);
    }
    CHECK(folder.names().empty());
}

TEST_CASE("a writer that is not finished leaves the old file and no temporary") {
    const TemporaryFolder folder;
    write_file(folder / "out.gguf", "old");
    {
        GgufWriter writer(folder / "out.gguf", every_type(), kTensors);
        writer.write(0, 0, content(0));
        CHECK(folder.names().size() == 2);
    }
    CHECK(read_file(folder / "out.gguf") == bytes_of("old"));
    CHECK(folder.names() == std::vector<std::string>{"out.gguf"});
}

TEST_CASE("writing past the end of a tensor is refused by name") {
    const TemporaryFolder folder;
    GgufWriter writer(folder / "out.gguf", every_type(), kTensors);
    const size_t size = size_of(kTensors[1]);
    const Bytes bytes(size + 1);
    const auto refused = [&](uint64_t offset, size_t n) {
        CAPTURE(offset);
        const auto error = error_of([&] { writer.write(1, offset, std::span(bytes).first(n)); });
        CHECK(error.kind == ErrorKind::internal);
        CHECK(error.mentions("layer.weight"));
    };
    refused(0, size + 1);
    refused(1, size);
    refused(size, 1);
    refused(size + 1, 0);
    refused(~uint64_t{0} - 1, 3);
    CHECK_NOTHROW(writer.write(1, size, {}));
}

TEST_CASE("a file that fits on no disk is refused before it is begun") {
    const TemporaryFolder folder;
    const auto error = error_of([&] {
        GgufWriter(folder / "out.gguf", {}, {{"big", TensorType::f32, {1 << 30, 1 << 26}}});
    });
    CHECK(error.kind == ErrorKind::out_of_disk);
    CHECK(folder.names().empty());
}

TEST_CASE("writing a file into a missing folder is refused") {
    const TemporaryFolder folder;
    const auto error = error_of([&] { GgufWriter(folder / "absent/out.gguf", {}, kTensors); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("absent"));
}
