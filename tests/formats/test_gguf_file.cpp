#include "formats/gguf_file.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>
#include <ggml-cpp.h>
#include <ggml.h>
#include <gguf.h>

using namespace flux2;
using namespace flux2::test;

namespace {

// Value types as the format numbers them, written out here on purpose.
enum ValueType : uint32_t {
    kU8 = 0,
    kI8 = 1,
    kU16 = 2,
    kI16 = 3,
    kU32 = 4,
    kI32 = 5,
    kF32 = 6,
    kBool = 7,
    kString = 8,
    kArray = 9,
    kU64 = 10,
    kI64 = 11,
    kF64 = 12,
};

constexpr uint64_t kHuge = uint64_t{1} << 60;

TensorDirectory parse(std::span<const std::byte> bytes) {
    return parse_gguf("model.gguf", bytes);
}

void check_refused(std::span<const std::byte> bytes,
                   std::initializer_list<std::string_view> words = {}) {
    test::check_refused(
        "model.gguf", 1'000'000, [&] { parse(bytes); }, words);
}

ByteWriter header(uint64_t n_tensors, uint64_t n_keys, uint32_t version = 3) {
    ByteWriter file;
    file.raw("GGUF").u32(version).u64(n_tensors).u64(n_keys);
    return file;
}

// A tensor's entry in the directory, right or wrong.
struct Entry {
    std::string name = "layer.weight";
    std::vector<int64_t> shape = {4};
    int32_t type = 0;  // F32
    uint64_t offset = 0;
};

void put(ByteWriter& file, const Entry& entry) {
    file.string(entry.name).u32(static_cast<uint32_t>(entry.shape.size()));
    for (const int64_t size : entry.shape) {
        file.put(size);
    }
    file.put(entry.type).u64(entry.offset);
}

Bytes file_of(const std::vector<Entry>& entries, size_t n_data) {
    ByteWriter file = header(entries.size(), 0);
    for (const Entry& entry : entries) {
        put(file, entry);
    }
    return file.pad(32).raw(Bytes(n_data)).bytes();
}

// A file with one metadata pair and no tensors; `value` is everything after the value type.
Bytes file_with(const std::string& key, uint32_t type, std::span<const std::byte> value) {
    // Room at the end, so that only the claim under test is wrong.
    return header(0, 1).string(key).u32(type).raw(value).raw(Bytes(64)).bytes();
}

// A file with this alignment and one tensor at this offset of the data.
Bytes aligned_file(uint32_t alignment, uint64_t offset) {
    ByteWriter file = header(1, 1);
    file.string("general.alignment").u32(kU32).u32(alignment);
    put(file, {.offset = offset});
    return file.pad(std::max<size_t>(alignment, 1)).raw(Bytes(1024)).bytes();
}

template <typename T>
void check_value(const Metadata& metadata, const std::string& key, const T& expected) {
    CAPTURE(key);
    const MetadataValue* value = metadata.find(key);
    REQUIRE(value != nullptr);
    REQUIRE(std::holds_alternative<T>(*value));
    CHECK(std::get<T>(*value) == expected);
}

void check_every_value(const Metadata& metadata) {
    check_value<uint8_t>(metadata, "u8", 200);
    check_value<int8_t>(metadata, "i8", -100);
    check_value<uint16_t>(metadata, "u16", 60000);
    check_value<int16_t>(metadata, "i16", -30000);
    check_value<uint32_t>(metadata, "u32", 4000000000u);
    check_value<int32_t>(metadata, "i32", -2000000000);
    check_value<float>(metadata, "f32", 1.5f);
    check_value<bool>(metadata, "yes", true);
    check_value<bool>(metadata, "no", false);
    check_value<std::string>(metadata, "text", "some words");
    check_value<std::string>(metadata, "nothing", "");
    check_value<uint64_t>(metadata, "u64", ~uint64_t{0});
    check_value<int64_t>(metadata, "i64", -(int64_t{1} << 62));
    check_value<double>(metadata, "f64", 0.1);
    check_value(metadata, "u8s", std::vector<uint8_t>{1, 255});
    check_value(metadata, "i8s", std::vector<int8_t>{-1, 1});
    check_value(metadata, "u16s", std::vector<uint16_t>{1, 65535});
    check_value(metadata, "i16s", std::vector<int16_t>{-1, 1});
    check_value(metadata, "u32s", std::vector<uint32_t>{1, 4000000000u});
    check_value(metadata, "i32s", std::vector<int32_t>{-1, 1});
    check_value(metadata, "f32s", std::vector<float>{0.5f, -0.5f});
    check_value(metadata, "bools", std::vector<bool>{true, false, true});
    check_value(metadata, "texts", std::vector<std::string>{"a", "", "long enough for the heap"});
    check_value(metadata, "u64s", std::vector<uint64_t>{1, ~uint64_t{0}});
    check_value(metadata, "i64s", std::vector<int64_t>{-1, 1});
    check_value(metadata, "f64s", std::vector<double>{0.1, -0.1});
}

template <typename T>
void put_array(ByteWriter& file, const char* key, uint32_t type, std::vector<T> values) {
    file.string(key).u32(kArray).u32(type).u64(values.size());
    for (const T value : values) {
        file.put(value);
    }
}

// The values of check_every_value, by hand.
void put_every_value(ByteWriter& file) {
    file.string("u8").u32(kU8).put(uint8_t{200});
    file.string("i8").u32(kI8).put(int8_t{-100});
    file.string("u16").u32(kU16).put(uint16_t{60000});
    file.string("i16").u32(kI16).put(int16_t{-30000});
    file.string("u32").u32(kU32).put(uint32_t{4000000000u});
    file.string("i32").u32(kI32).put(int32_t{-2000000000});
    file.string("f32").u32(kF32).put(1.5f);
    file.string("yes").u32(kBool).put(uint8_t{1});
    file.string("no").u32(kBool).put(uint8_t{0});
    file.string("text").u32(kString).string("some words");
    file.string("nothing").u32(kString).string("");
    file.string("u64").u32(kU64).put(~uint64_t{0});
    file.string("i64").u32(kI64).put(-(int64_t{1} << 62));
    file.string("f64").u32(kF64).put(0.1);
    put_array<uint8_t>(file, "u8s", kU8, {1, 255});
    put_array<int8_t>(file, "i8s", kI8, {-1, 1});
    put_array<uint16_t>(file, "u16s", kU16, {1, 65535});
    put_array<int16_t>(file, "i16s", kI16, {-1, 1});
    put_array<uint32_t>(file, "u32s", kU32, {1, 4000000000u});
    put_array<int32_t>(file, "i32s", kI32, {-1, 1});
    put_array<float>(file, "f32s", kF32, {0.5f, -0.5f});
    put_array<uint8_t>(file, "bools", kBool, {1, 0, 1});
    file.string("texts").u32(kArray).u32(kString).u64(3);
    file.string("a").string("").string("long enough for the heap");
    put_array<uint64_t>(file, "u64s", kU64, {1, ~uint64_t{0}});
    put_array<int64_t>(file, "i64s", kI64, {-1, 1});
    put_array<double>(file, "f64s", kF64, {0.1, -0.1});
    put_array<int32_t>(file, "empty", kI32, {});
}
constexpr uint64_t kEveryValue = 27;

// The same values through ggml's own writer, which has undefined behaviour for an empty array.
void set_every_value(gguf_context* gguf) {
    gguf_set_val_u8(gguf, "u8", 200);
    gguf_set_val_i8(gguf, "i8", -100);
    gguf_set_val_u16(gguf, "u16", 60000);
    gguf_set_val_i16(gguf, "i16", -30000);
    gguf_set_val_u32(gguf, "u32", 4000000000u);
    gguf_set_val_i32(gguf, "i32", -2000000000);
    gguf_set_val_f32(gguf, "f32", 1.5f);
    gguf_set_val_bool(gguf, "yes", true);
    gguf_set_val_bool(gguf, "no", false);
    gguf_set_val_str(gguf, "text", "some words");
    gguf_set_val_str(gguf, "nothing", "");
    gguf_set_val_u64(gguf, "u64", ~uint64_t{0});
    gguf_set_val_i64(gguf, "i64", -(int64_t{1} << 62));
    gguf_set_val_f64(gguf, "f64", 0.1);
    const auto array = [&]<typename T>(const char* key, gguf_type type, std::vector<T> values) {
        gguf_set_arr_data(gguf, key, type, values.data(), values.size());
    };
    array.operator()<uint8_t>("u8s", GGUF_TYPE_UINT8, {1, 255});
    array.operator()<int8_t>("i8s", GGUF_TYPE_INT8, {-1, 1});
    array.operator()<uint16_t>("u16s", GGUF_TYPE_UINT16, {1, 65535});
    array.operator()<int16_t>("i16s", GGUF_TYPE_INT16, {-1, 1});
    array.operator()<uint32_t>("u32s", GGUF_TYPE_UINT32, {1, 4000000000u});
    array.operator()<int32_t>("i32s", GGUF_TYPE_INT32, {-1, 1});
    array.operator()<float>("f32s", GGUF_TYPE_FLOAT32, {0.5f, -0.5f});
    array.operator()<int8_t>("bools", GGUF_TYPE_BOOL, {1, 0, 1});
    std::vector<const char*> texts = {"a", "", "long enough for the heap"};
    gguf_set_arr_str(gguf, "texts", texts.data(), texts.size());
    array.operator()<uint64_t>("u64s", GGUF_TYPE_UINT64, {1, ~uint64_t{0}});
    array.operator()<int64_t>("i64s", GGUF_TYPE_INT64, {-1, 1});
    array.operator()<double>("f64s", GGUF_TYPE_FLOAT64, {0.1, -0.1});
}

}  // namespace

TEST_CASE("a GGUF file is known by its first four bytes") {
    CHECK(is_gguf(bytes_of("GGUF")));
    CHECK(is_gguf(bytes_of("GGUF and more")));
    CHECK_FALSE(is_gguf(bytes_of("GGU")));
    CHECK_FALSE(is_gguf(bytes_of("")));
    CHECK_FALSE(is_gguf(bytes_of("gguf")));
    CHECK_FALSE(is_gguf(bytes_of("FUGG")));
}

TEST_CASE("a good GGUF file gives its metadata and tensors") {
    ByteWriter file = header(3, kEveryValue);
    put_every_value(file);
    put(file, {.name = "matrix", .shape = {3, 2}, .type = 0, .offset = 0});
    put(file, {.name = "blocks", .shape = {64, 2}, .type = 8, .offset = 32});  // Q8_0
    put(file, {.name = "scalar", .shape = {}, .type = 30, .offset = 192});     // BF16
    file.pad(32);
    const size_t data_start = file.bytes().size();
    Bytes data(194);
    data[0] = std::byte{11};
    data[32] = std::byte{22};
    data[193] = std::byte{33};
    file.raw(data);

    const TensorDirectory directory = parse(file.bytes());
    CHECK(directory.metadata.entries().size() == kEveryValue);
    CHECK(directory.metadata.entries().front().first == "u8");
    CHECK(directory.metadata.entries().back().first == "empty");
    check_every_value(directory.metadata);
    check_value(directory.metadata, "empty", std::vector<int32_t>{});

    REQUIRE(directory.tensors.size() == 3);
    const TensorInfo& matrix = directory.tensors[0];
    check_tensor(matrix, "matrix", TensorType::f32, {3, 2}, 24);
    CHECK(matrix.bytes.data() == file.bytes().data() + data_start);
    const TensorInfo& blocks = directory.tensors[1];
    CHECK(blocks.type == TensorType::q8_0);
    CHECK(blocks.bytes.size() == 4 * 34);
    CHECK(blocks.bytes.front() == std::byte{22});
    const TensorInfo& scalar = directory.tensors[2];
    CHECK(scalar.type == TensorType::bf16);
    CHECK(scalar.shape.n_dims == 0);
    CHECK(scalar.bytes.size() == 2);
    CHECK(scalar.bytes.back() == std::byte{33});
}

TEST_CASE("a file written by ggml is read as it was written") {
    const TemporaryFolder folder;
    const gguf_context_ptr gguf(gguf_init_empty());
    set_every_value(gguf.get());
    const ggml_context_ptr ggml(
        ggml_init({.mem_size = 1 << 20, .mem_buffer = nullptr, .no_alloc = false}));
    ggml_tensor* a = ggml_new_tensor_3d(ggml.get(), GGML_TYPE_F32, 5, 3, 2);
    ggml_set_name(a, "a");
    for (int i = 0; i < 30; ++i) {
        static_cast<float*>(a->data)[i] = static_cast<float>(i);
    }
    ggml_tensor* b = ggml_new_tensor_2d(ggml.get(), GGML_TYPE_Q4_K, 256, 2);
    ggml_set_name(b, "b");
    std::memset(b->data, 7, ggml_nbytes(b));
    gguf_add_tensor(gguf.get(), a);
    gguf_add_tensor(gguf.get(), b);
    const std::string path = (folder / "model").string();
    REQUIRE(gguf_write_to_file(gguf.get(), path.c_str(), /*only_meta=*/false));

    const Bytes file = read_file(path);
    const TensorDirectory directory = parse(file);
    check_every_value(directory.metadata);
    REQUIRE(directory.tensors.size() == 2);
    CHECK(directory.tensors[0].name == "a");
    CHECK(directory.tensors[0].shape == Shape{5, 3, 2});
    REQUIRE(directory.tensors[0].bytes.size() == ggml_nbytes(a));
    CHECK(std::memcmp(directory.tensors[0].bytes.data(), a->data, ggml_nbytes(a)) == 0);
    CHECK(directory.tensors[1].type == TensorType::q4_k);
    REQUIRE(directory.tensors[1].bytes.size() == ggml_nbytes(b));
    CHECK(std::memcmp(directory.tensors[1].bytes.data(), b->data, ggml_nbytes(b)) == 0);
}

TEST_CASE("versions 2 and 3 are read") {
    CHECK(parse(header(0, 0, 2).bytes()).tensors.empty());
    CHECK(parse(header(0, 0, 3).bytes()).tensors.empty());
}

TEST_CASE("other versions are refused") {
    for (const uint32_t version : {0u, 1u, 4u, 99u, 0xFFFFFFFFu}) {
        check_refused(header(0, 0, version).bytes(), {"version", std::to_string(version)});
    }
}

TEST_CASE("a big-endian file is refused as such") {
    check_refused(header(0, 0, 0x03000000u).bytes(), {"big-endian"});
    check_refused(header(0, 0, 0x02000000u).bytes(), {"big-endian"});
}

TEST_CASE("a wrong magic is refused") {
    check_refused(bytes_of("GGML1234"), {"GGUF"});
    check_refused(Bytes(100), {"GGUF"});
    check_refused({}, {"GGUF"});
}

TEST_CASE("a huge tensor count is refused at once") {
    for (const uint64_t n : {kHuge, ~uint64_t{0}, uint64_t{1} << 32, uint64_t{5}}) {
        check_refused(header(n, 0).raw(Bytes(100)).bytes(), {"tensor", std::to_string(n)});
    }
}

TEST_CASE("a huge metadata count is refused at once") {
    for (const uint64_t n : {kHuge, ~uint64_t{0}, uint64_t{1} << 32, uint64_t{8}}) {
        check_refused(header(0, n).raw(Bytes(100)).bytes(), {"metadata", std::to_string(n)});
    }
}

TEST_CASE("a huge string length is refused at once") {
    for (const uint64_t n : {kHuge, ~uint64_t{0}, uint64_t{1} << 31, uint64_t{101}}) {
        CAPTURE(n);
        // As a key, as a value, inside an array, as a tensor name.
        check_refused(header(0, 1).u64(n).raw(Bytes(100)).bytes(), {std::to_string(n)});
        check_refused(file_with("key", kString, ByteWriter().u64(n).bytes()), {std::to_string(n)});
        check_refused(file_with("key", kArray, ByteWriter().u32(kString).u64(1).u64(n).bytes()),
                      {std::to_string(n)});
        check_refused(header(1, 0).u64(n).raw(Bytes(100)).bytes(), {std::to_string(n)});
    }
}

TEST_CASE("a huge array count is refused at once") {
    for (const uint32_t type :
         {kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kU64, kI64, kF64}) {
        for (const uint64_t n : {kHuge, ~uint64_t{0}, uint64_t{1} << 31, uint64_t{65}}) {
            CAPTURE(type);
            check_refused(file_with("key", kArray, ByteWriter().u32(type).u64(n).bytes()),
                          {std::to_string(n)});
        }
    }
}

TEST_CASE("an array of arrays is refused") {
    check_refused(file_with("key", kArray, ByteWriter().u32(kArray).u64(1).bytes()),
                  {"key", "type 9"});
}

TEST_CASE("an unknown value type is refused") {
    for (const uint32_t type : {13u, 100u, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
        check_refused(file_with("key", type, {}), {"key"});
        check_refused(file_with("key", kArray, ByteWriter().u32(type).u64(1).bytes()), {"key"});
    }
}

TEST_CASE("a key given twice is refused") {
    ByteWriter file = header(0, 2);
    file.string("key").u32(kU8).put(uint8_t{1}).string("key").u32(kU8).put(uint8_t{1});
    check_refused(file.bytes(), {"key", "twice"});
}

TEST_CASE("an empty key is refused") {
    check_refused(file_with("", kU8, {}), {"empty"});
}

TEST_CASE("a key with a zero byte is refused") {
    // It could not be written back: ggml takes keys as C strings and aborts on an empty one.
    check_refused(file_with(std::string("\0key", 4), kU8, {}));
}

TEST_CASE("a GGUF tensor named twice is refused") {
    check_refused(file_of({{.offset = 0}, {.offset = 32}}, 64), {"layer.weight", "twice"});
}

TEST_CASE("a GGUF tensor name of no or too many bytes is refused") {
    check_refused(file_of({{.name = ""}}, 64));
    const std::string longest(127, 'n');
    CHECK(parse(file_of({{.name = longest}}, 64)).tensors[0].name == longest);
    check_refused(file_of({{.name = longest + "n"}}, 64), {longest, "128"});
    check_refused(file_of({{.name = std::string("a\0b", 3)}}, 64));
}

TEST_CASE("a GGUF tensor of five dimensions is refused") {
    check_refused(file_of({{.shape = {4, 1, 1, 1, 1}}}, 64), {"layer.weight", "5"});
    ByteWriter many = header(1, 0);
    many.string("layer.weight").u32(0xFFFFFFFFu).raw(Bytes(64));
    check_refused(many.bytes(), {"layer.weight", "4294967295"});
}

TEST_CASE("a negative dimension is refused") {
    check_refused(file_of({{.shape = {-4}}}, 64), {"layer.weight", "-4"});
    check_refused(file_of({{.shape = {4, -1}}}, 64), {"layer.weight", "-1"});
    check_refused(file_of({{.shape = {-2, -2}}}, 64), {"layer.weight"});
}

TEST_CASE("a GGUF tensor whose size overflows is refused") {
    constexpr int64_t k31 = int64_t{1} << 31;
    constexpr int64_t k32 = int64_t{1} << 32;
    check_refused(file_of({{.shape = {k32, k32}}}, 64), {"layer.weight"});
    check_refused(file_of({{.shape = {k31, k31, 2, 2}}}, 64), {"layer.weight"});
    check_refused(file_of({{.shape = {0, k32, k32}}}, 64), {"layer.weight"});
    check_refused(file_of({{.shape = {(int64_t{1} << 62) + 1, 4}}}, 64), {"layer.weight"});
    check_refused(file_of({{.shape = {std::numeric_limits<int64_t>::max()}}}, 64),
                  {"layer.weight"});
    check_refused(file_of({{.shape = {int64_t{1} << 58}}}, 64), {"layer.weight"});
}

TEST_CASE("an unknown tensor type is refused") {
    for (const int32_t type :
         {4, 5, 31, 32, 33, 36, 37, 38, static_cast<int32_t>(GGML_TYPE_COUNT), 1000, 1001, -1,
          std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
        check_refused(file_of({{.shape = {256}, .type = type}}, 1024),
                      {"layer.weight", "type " + std::to_string(type)});
    }
}

TEST_CASE("a row that splits a block is refused") {
    check_refused(file_of({{.shape = {33}, .type = 8}}, 1024), {"layer.weight", "33", "32"});
    check_refused(file_of({{.shape = {128, 2}, .type = 12}}, 1024), {"layer.weight", "256"});
    check_refused(file_of({{.shape = {}, .type = 8}}, 1024), {"layer.weight"});
}

TEST_CASE("a misaligned offset is refused") {
    check_refused(file_of({{.offset = 4}}, 1024), {"layer.weight", "32"});
    check_refused(file_of({{.offset = 31}}, 1024), {"layer.weight"});
    check_refused(aligned_file(64, 32), {"layer.weight", "64"});
    CHECK(parse(aligned_file(64, 64)).tensors.size() == 1);
    CHECK(parse(aligned_file(8, 8)).tensors.size() == 1);
    CHECK(parse(aligned_file(1, 3)).tensors.size() == 1);
}

TEST_CASE("an offset outside the file is refused") {
    for (const uint64_t offset : {uint64_t{64}, uint64_t{96}, kHuge, ~uint64_t{31}}) {
        check_refused(file_of({{.offset = offset}}, 64), {"layer.weight"});
    }
}

TEST_CASE("overlapping tensors are refused") {
    check_refused(file_of({{.name = "first", .shape = {9}}, {.name = "second", .offset = 32}}, 128),
                  {"first", "second", "overlap"});
    check_refused(file_of({{.name = "first"}, {.name = "second"}}, 128), {"first", "second"});
}

TEST_CASE("truncated data is refused") {
    CHECK(parse(file_of({{}}, 16)).tensors.size() == 1);
    check_refused(file_of({{}}, 15), {"layer.weight", "truncated"});
    check_refused(file_of({{}}, 0), {"layer.weight", "truncated"});
}

TEST_CASE("every cut of a good GGUF file is refused") {
    ByteWriter file = header(2, kEveryValue);
    put_every_value(file);
    put(file, {.name = "a", .shape = {3, 2}});
    put(file, {.name = "b", .shape = {32}, .type = 8, .offset = 32});
    file.pad(32).raw(Bytes(32 + 34));
    CHECK(parse(file.bytes()).tensors.size() == 2);
    for (size_t n = 0; n < file.bytes().size(); ++n) {
        CAPTURE(n);
        check_refused(std::span(file.bytes()).first(n));
    }
}

TEST_CASE("an alignment that is no power of two is refused") {
    for (const uint32_t alignment : {0u, 3u, 24u, 33u, 0xFFFFFFFFu, 0x80000000u}) {
        check_refused(file_with("general.alignment", kU32, ByteWriter().u32(alignment).bytes()),
                      {"general.alignment", std::to_string(alignment)});
    }
    check_refused(file_with("general.alignment", kI32, ByteWriter().put(int32_t{-32}).bytes()),
                  {"general.alignment"});
}

TEST_CASE("an alignment of the wrong type is refused") {
    check_refused(file_with("general.alignment", kString, ByteWriter().string("32").bytes()),
                  {"general.alignment"});
    check_refused(file_with("general.alignment", kF32, ByteWriter().put(32.0f).bytes()),
                  {"general.alignment"});
    check_refused(
        file_with("general.alignment", kArray, ByteWriter().u32(kU32).u64(1).u32(32).bytes()),
        {"general.alignment"});
}
