#include "formats/safetensors.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

using namespace flux2;
using namespace flux2::test;

namespace {

TensorDirectory parse(std::span<const std::byte> bytes) {
    return parse_safetensors("weights.safetensors", bytes);
}

void check_refused(std::span<const std::byte> bytes,
                   std::initializer_list<std::string_view> words = {}) {
    test::check_refused(
        "weights.safetensors", 1'000'000 + 2 * bytes.size(), [&] { parse(bytes); }, words);
}

void check_header_refused(std::string_view header,
                          std::initializer_list<std::string_view> words = {}, size_t n_data = 0) {
    CAPTURE(header.substr(0, 200));
    check_refused(safetensors(header, Bytes(n_data)), words);
}

// A tensor of two F32 values at the start of the data, with one of its fields replaced.
std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
    return "\"" + name + "\":{\"dtype\":" + dtype + ",\"shape\":" + shape +
           ",\"data_offsets\":" + offsets + "}";
}

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return "{" + entry("layer.weight", dtype, shape, offsets) + "}";
}

}  // namespace

TEST_CASE("a good file gives its tensors, in ggml's order of dimensions") {
    const std::string header =
        R"({"__metadata__":{"format":"pt","empty":""},)"
        R"("matrix":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
        R"("conv":{"shape":[1,2,3,1],"data_offsets":[24,36],"dtype":"BF16"},)"
        R"("scalar":{"dtype":"I64","shape":[],"data_offsets":[36,44]},)"
        R"("nothing":{"dtype":"F16","shape":[4,0],"data_offsets":[44,44]},)"
        R"("codes":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[44,47]}}   )";
    Bytes data;
    for (int i = 0; i < 47; ++i) {
        data.push_back(static_cast<std::byte>(i));
    }
    const Bytes file = safetensors(header, data);
    const TensorDirectory directory = parse(file);

    REQUIRE(directory.tensors.size() == 5);
    const TensorInfo& matrix = directory.tensors[0];
    check_tensor(matrix, "matrix", TensorType::f32, {3, 2}, 24);
    CHECK(matrix.bytes.data() == file.data() + 8 + header.size());

    const TensorInfo& conv = directory.tensors[1];
    CHECK(conv.type == TensorType::bf16);
    CHECK(conv.shape.n_dims == 4);
    CHECK(conv.shape.ne == std::array<int64_t, 4>{1, 3, 2, 1});
    CHECK(conv.bytes.front() == std::byte{24});

    const TensorInfo& scalar = directory.tensors[2];
    CHECK(scalar.type == TensorType::i64);
    CHECK(scalar.shape.n_dims == 0);
    CHECK(scalar.shape.elements() == 1);
    CHECK(scalar.bytes.size() == 8);

    const TensorInfo& nothing = directory.tensors[3];
    CHECK(nothing.shape.ne == std::array<int64_t, 4>{0, 4, 1, 1});
    CHECK(nothing.shape.elements() == 0);
    CHECK(nothing.bytes.empty());

    CHECK(directory.tensors[4].type == TensorType::f8_e4m3);
    CHECK(directory.tensors[4].bytes.back() == std::byte{46});

    CHECK(directory.metadata.entries().size() == 2);
    CHECK(directory.metadata.get_string("format") == "pt");
    CHECK(directory.metadata.get_string("empty") == "");
}

TEST_CASE("a file without tensors is read") {
    CHECK(parse(safetensors("{}")).tensors.empty());
    CHECK(parse(safetensors(R"({"__metadata__":{}})")).tensors.empty());
}

TEST_CASE("metadata may stand between tensors") {
    const Bytes file = safetensors("{" + entry("a", "\"U8\"", "[1]", "[0,1]") +
                                       R"(,"__metadata__":{"dtype":"x"},)" +
                                       entry("b", "\"U8\"", "[1]", "[1,2]") + "}",
                                   Bytes(2));
    const TensorDirectory directory = parse(file);
    CHECK(directory.tensors.size() == 2);
    CHECK(directory.metadata.get_string("dtype") == "x");
}

TEST_CASE("tensors may lie in another order than they are named, and with gaps") {
    const Bytes file = safetensors("{" + entry("a", "\"U8\"", "[2]", "[4,6]") + "," +
                                       entry("b", "\"U8\"", "[2]", "[1,3]") + "}",
                                   Bytes(8));
    const TensorDirectory directory = parse(file);
    CHECK(directory.tensors[0].name == "a");
    CHECK(directory.tensors[0].bytes.data() - directory.tensors[1].bytes.data() == 3);
}

TEST_CASE("a safetensors file shorter than its length field is refused") {
    const Bytes file = safetensors("{}");
    for (size_t n = 0; n < file.size(); ++n) {
        CAPTURE(n);
        check_refused(std::span(file).first(n));
    }
}

TEST_CASE("a header length beyond the file is refused") {
    for (const uint64_t length : {uint64_t{3}, uint64_t{100'000'000}, uint64_t{1} << 62,
                                  uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{7}}) {
        CAPTURE(length);
        check_refused(ByteWriter().u64(length).raw("{}").bytes(), {std::to_string(length)});
    }
}

TEST_CASE("a header above 100 MB is refused though the file holds it") {
    constexpr size_t kLength = 100'000'001;
    Bytes file(8 + kLength, std::byte{' '});
    const uint64_t length = kLength;
    std::memcpy(file.data(), &length, sizeof(length));
    file[8] = std::byte{'{'};
    file.back() = std::byte{'}'};
    const AllocationWatch watch;
    CHECK(error_of([&] { parse(file); }).mentions("100000001"));
    CHECK(watch.largest() < 1'000'000);
}

TEST_CASE("a header that is not JSON is refused") {
    for (const char* header :
         {"", " ", "{", "}", "{]", "hello", "{\"a\"}", "{\"a\":}", "{a:1}", "{'a':1}", "{,}",
          "{\"a\":{\"dtype\":\"F32\",}}", "{\"a", "\xff\xfe", "{\"\xff\":1}", "// {}"}) {
        check_header_refused(header, {"JSON"});
    }
}

TEST_CASE("anything after the JSON is refused") {
    check_header_refused("{}x", {"JSON"});
    check_header_refused("{}{}", {"JSON"});
    check_header_refused("{} ]", {"JSON"});
    check_header_refused(std::string_view("{}\0garbage", 10));
}

TEST_CASE("a header that is no object is refused") {
    for (const char* header : {"[]", "null", "true", "5", "-5", "0.5", "\"text\"", "[{}]"}) {
        check_header_refused(header);
    }
}

TEST_CASE("a deeply nested header is refused without deep recursion") {
    const std::string brackets(100'000, '[');
    std::string objects;
    for (int i = 0; i < 100'000; ++i) {
        objects += "{\"a\":";
    }
    check_header_refused(brackets);
    check_header_refused(objects);
    check_header_refused("{\"layer.weight\":" + brackets, {"layer.weight"});
    check_header_refused("{\"layer.weight\":{\"shape\":" + brackets, {"layer.weight"});
    check_header_refused("{\"__metadata__\":" + objects);
}

TEST_CASE("a tensor named twice is refused") {
    check_header_refused("{" + entry("layer.weight", "\"U8\"", "[1]", "[0,1]") + "," +
                             entry("layer.weight", "\"U8\"", "[1]", "[1,2]") + "}",
                         {"layer.weight", "twice"}, 2);
}

TEST_CASE("metadata given twice is refused") {
    check_header_refused(R"({"__metadata__":{},"__metadata__":{}})", {"__metadata__"});
    check_header_refused(R"({"__metadata__":{"key":"a","key":"b"}})", {"key", "twice"});
}

TEST_CASE("a field given twice is refused") {
    check_header_refused(
        R"({"layer.weight":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"shape":[1]}})",
        {"layer.weight", "shape"}, 1);
    check_header_refused(
        R"({"layer.weight":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
        {"layer.weight", "dtype"}, 1);
}

TEST_CASE("an unknown field is refused") {
    check_header_refused(
        R"({"layer.weight":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"stride":[1]}})",
        {"layer.weight", "stride"}, 1);
}

TEST_CASE("a missing field is refused") {
    check_header_refused(R"({"layer.weight":{}})", {"layer.weight"}, 1);
    check_header_refused(R"({"layer.weight":{"shape":[1],"data_offsets":[0,1]}})",
                         {"layer.weight", "dtype"}, 1);
    check_header_refused(R"({"layer.weight":{"dtype":"U8","data_offsets":[0,1]}})",
                         {"layer.weight", "shape"}, 1);
    check_header_refused(R"({"layer.weight":{"dtype":"U8","shape":[1]}})",
                         {"layer.weight", "data_offsets"}, 1);
}

TEST_CASE("fields of the wrong kind are refused") {
    const std::string dtype = "\"F32\"";
    for (const char* wrong : {"null", "5", "[]", "{}", "true", "[\"F32\"]"}) {
        check_header_refused(one(wrong, "[2]", "[0,8]"), {"layer.weight"}, 8);
    }
    for (const char* wrong : {"null", "2", "\"2\"", "{}", "[[2]]", "[\"2\"]", "[null]", "[true]"}) {
        check_header_refused(one(dtype, wrong, "[0,8]"), {"layer.weight"}, 8);
    }
    for (const char* wrong : {"null", "8", "\"8\"", "{}", "[]", "[8]", "[0,8,8]", "[[0],8]",
                              "[0,\"8\"]", "[0,8.0]", "[-1,7]", "[0,null]"}) {
        check_header_refused(one(dtype, "[2]", wrong), {"layer.weight"}, 8);
    }
    for (const char* wrong : {"null", "5", "-5", "0.5", "[]", "\"F32\"", "true"}) {
        check_header_refused("{\"layer.weight\":" + std::string(wrong) + "}", {"layer.weight"});
    }
}

TEST_CASE("an unknown type is refused") {
    for (const char* wrong : {"\"\"", "\"f32\"", "\"Q8_0\"", "\"F4\"", "\"C64\""}) {
        check_header_refused(one(wrong, "[2]", "[0,8]"), {"layer.weight"}, 8);
    }
    check_header_refused(one("\"F8_E3M4\"", "[8]", "[0,8]"), {"layer.weight", "F8_E3M4"}, 8);
}

TEST_CASE("dimensions that are no counts are refused") {
    const std::string dtype = "\"F32\"";
    check_header_refused(one(dtype, "[-2]", "[0,8]"), {"layer.weight", "-2"}, 8);
    check_header_refused(one(dtype, "[2.0]", "[0,8]"), {"layer.weight", "2.0"}, 8);
    check_header_refused(one(dtype, "[2e0]", "[0,8]"), {"layer.weight"}, 8);
    check_header_refused(one(dtype, "[9223372036854775807]", "[0,8]"), {"layer.weight"}, 8);
    check_header_refused(one(dtype, "[9223372036854775808]", "[0,8]"),
                         {"layer.weight", "9223372036854775808"}, 8);
    check_header_refused(one(dtype, "[18446744073709551618]", "[0,8]"), {"layer.weight"}, 8);
    check_header_refused(one(dtype, "[1e999]", "[0,8]"), {}, 8);
}

TEST_CASE("a product of dimensions that overflows is refused") {
    const std::string dtype = "\"F32\"";
    // 2^32 * 2^32 is 0 and (2^63 + 1) * 2 is 2 in 64 bits.
    check_header_refused(one(dtype, "[4294967296,4294967296]", "[0,0]"), {"layer.weight"});
    check_header_refused(one(dtype, "[2147483648,2147483648,2,2]", "[0,0]"), {"layer.weight"});
    check_header_refused(one(dtype, "[4611686018427387905,4]", "[0,16]"), {"layer.weight"}, 16);
    check_header_refused(one(dtype, "[0,4294967296,4294967296]", "[0,0]"), {"layer.weight"});
    check_header_refused(one("\"F64\"", "[2305843009213693952]", "[0,0]"), {"layer.weight"});
}

TEST_CASE("a safetensors tensor of five dimensions is refused") {
    check_header_refused(one("\"F32\"", "[1,1,1,1,2]", "[0,8]"), {"layer.weight", "5"}, 8);
    std::string many = "[1";
    for (int i = 0; i < 10'000; ++i) {
        many += ",1";
    }
    check_header_refused(one("\"F32\"", many + "]", "[0,8]"), {"layer.weight"}, 8);
}

TEST_CASE("offsets outside the file are refused") {
    const std::string dtype = "\"F32\"";
    check_header_refused(one(dtype, "[2]", "[0,8]"), {"layer.weight", "truncated"}, 7);
    check_header_refused(one(dtype, "[2]", "[8,16]"), {"layer.weight"}, 8);
    check_header_refused(one(dtype, "[2]", "[1,9]"), {"layer.weight"}, 8);
    check_header_refused(one(dtype, "[2]", "[18446744073709551612,18446744073709551615]"),
                         {"layer.weight"}, 8);
    check_header_refused(one(dtype, "[2]", "[18446744073709551612,4]"), {"layer.weight"}, 8);
    check_header_refused(one(dtype, "[0]", "[9,9]"), {"layer.weight"}, 8);
}

TEST_CASE("offsets the wrong way round are refused") {
    check_header_refused(one("\"F32\"", "[2]", "[8,0]"), {"layer.weight"}, 8);
    check_header_refused(one("\"F32\"", "[0]", "[8,0]"), {"layer.weight"}, 8);
}

TEST_CASE("a size that does not fit type and shape is refused") {
    const std::string dtype = "\"F32\"";
    check_header_refused(one(dtype, "[2]", "[0,7]"), {"layer.weight", "7", "8"}, 16);
    check_header_refused(one(dtype, "[2]", "[0,9]"), {"layer.weight"}, 16);
    check_header_refused(one(dtype, "[2]", "[0,0]"), {"layer.weight"}, 16);
    check_header_refused(one(dtype, "[]", "[0,8]"), {"layer.weight"}, 16);
    check_header_refused(one(dtype, "[0]", "[0,4]"), {"layer.weight"}, 16);
    check_header_refused(one("\"BF16\"", "[2]", "[0,8]"), {"layer.weight"}, 16);
}

TEST_CASE("tensors that share bytes are refused") {
    const std::string a = entry("first", "\"U8\"", "[4]", "[0,4]");
    check_header_refused("{" + a + "," + entry("second", "\"U8\"", "[4]", "[3,7]") + "}",
                         {"first", "second", "overlap"}, 8);
    check_header_refused("{" + a + "," + entry("second", "\"U8\"", "[4]", "[0,4]") + "}",
                         {"first", "second"}, 8);
    check_header_refused("{" + a + "," + entry("second", "\"U8\"", "[1]", "[1,2]") + "}",
                         {"first", "second"}, 8);
    // A tensor inside the first, before one that overlaps the first but not the one between.
    check_header_refused("{" + entry("first", "\"U8\"", "[8]", "[0,8]") + "," +
                             entry("second", "\"U8\"", "[1]", "[1,2]") + "," +
                             entry("third", "\"U8\"", "[1]", "[4,5]") + "}",
                         {"first", "second"}, 8);
}

TEST_CASE("every cut of a good file is refused") {
    const Bytes file = safetensors_of({counting_tensor("a", {2, 3}), counting_tensor("b", {4})});
    CHECK(parse(file).tensors.size() == 2);
    for (size_t n = 0; n < file.size(); ++n) {
        CAPTURE(n);
        check_refused(std::span(file).first(n));
    }
}

TEST_CASE("names of no or too many bytes are refused") {
    check_header_refused("{" + entry("", "\"U8\"", "[1]", "[0,1]") + "}", {}, 1);
    const std::string longest(127, 'n');
    CHECK(parse(safetensors("{" + entry(longest, "\"U8\"", "[1]", "[0,1]") + "}", Bytes(1)))
              .tensors[0]
              .name == longest);
    check_header_refused("{" + entry(longest + "n", "\"U8\"", "[1]", "[0,1]") + "}",
                         {longest, "128"}, 1);
    check_header_refused("{" + entry("a\\u0000b", "\"U8\"", "[1]", "[0,1]") + "}", {}, 1);
}

TEST_CASE("metadata of anything but strings is refused") {
    for (const char* wrong : {"1", "-1", "0.5", "null", "true", "[]", "[\"a\"]", "{}"}) {
        check_header_refused("{\"__metadata__\":{\"key\":" + std::string(wrong) + "}}");
    }
    for (const char* wrong : {"1", "-1", "0.5", "null", "true", "[]", "[\"a\"]", "\"text\""}) {
        check_header_refused("{\"__metadata__\":" + std::string(wrong) + "}");
    }
}

namespace {

std::map<std::string, std::string> index_from(std::string_view text) {
    const TemporaryFolder folder;
    write_file(folder / "model.safetensors.index.json", text);
    return read_shard_index(folder / "model.safetensors.index.json");
}

void check_index_refused(std::string_view text,
                         std::initializer_list<std::string_view> words = {}) {
    CAPTURE(text.substr(0, 200));
    const auto error = error_of([&] { index_from(text); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("model.safetensors.index.json"));
    for (const std::string_view word : words) {
        CHECK_MESSAGE(error.mentions(word), error.message << " should mention " << word);
    }
}

}  // namespace

TEST_CASE("an index gives the shard of each tensor") {
    const auto shards =
        index_from(R"({"metadata":{"total_size":123,"nested":{"list":[1,"x",null]},"name":"a/b"},)"
                   R"("weight_map":{"b":"two.safetensors","a":"one.safetensors"},"after":"../c"})");
    CHECK(shards ==
          std::map<std::string, std::string>{{"a", "one.safetensors"}, {"b", "two.safetensors"}});
}

TEST_CASE("an index that is not JSON is refused") {
    check_index_refused("");
    check_index_refused(R"({"weight_map":{"a":"one.safetensors"})", {"JSON"});
    check_index_refused(R"({"weight_map":{"a":"one.safetensors"}} x)", {"JSON"});
    check_index_refused(std::string(100'000, '['));
}

TEST_CASE("an index without a weight map is refused") {
    for (const char* text : {"{}", "[]", "null", R"({"weight_map":{}})", R"({"weight_map":[]})",
                             R"({"weight_map":"a"})", R"({"metadata":{"a":"one.safetensors"}})",
                             R"({"metadata":{"weight_map":{"a":"one.safetensors"}}})"}) {
        check_index_refused(text, {"weight_map"});
    }
}

TEST_CASE("an index whose shards leave the folder is refused") {
    for (const char* shard : {"../one.safetensors", "a/one.safetensors", "/one.safetensors",
                              "a\\\\one.safetensors", "C:one.safetensors", "..", ".", ""}) {
        check_index_refused("{\"weight_map\":{\"layer\":\"" + std::string(shard) + "\"}}",
                            {"layer"});
    }
}

TEST_CASE("an index that names a tensor twice is refused") {
    check_index_refused(R"({"weight_map":{"layer":"one.safetensors","layer":"one.safetensors"}})",
                        {"layer", "twice"});
}

TEST_CASE("an index with anything but file names is refused") {
    for (const char* wrong :
         {"1", "-1", "0.5", "null", "true", "[\"one\"]", "{}", "{\"inner\":\"one\"}"}) {
        check_index_refused(
            "{\"weight_map\":{\"fine\":\"one.safetensors\",\"layer\":" + std::string(wrong) + "}}",
            {"layer"});
    }
}
