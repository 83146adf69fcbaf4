#include "formats/metadata.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <limits>

using namespace flux2;
using namespace flux2::test;

namespace {

Metadata example() {
    Metadata metadata("model.gguf");
    metadata.set("text", std::string("words"));
    metadata.set("number", uint32_t{7});
    metadata.set("fraction", 0.5f);
    metadata.set("flag", true);
    metadata.set("numbers", std::vector<int32_t>{-1, 2});
    metadata.set("texts", std::vector<std::string>{"a", ""});
    return metadata;
}

void check_wrong_type(const std::function<void()>& get, const char* key) {
    const auto error = error_of(get);
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("model.gguf"));
    CHECK(error.mentions(key));
}

}  // namespace

TEST_CASE("getters return what was set") {
    const Metadata metadata = example();
    CHECK(metadata.get_string("text") == "words");
    CHECK(metadata.get_int("number") == 7);
    CHECK(metadata.get_float("fraction") == 0.5);
    CHECK(metadata.get_bool("flag") == true);
    CHECK(metadata.get_ints("numbers") == std::vector<int64_t>{-1, 2});
    REQUIRE(metadata.get_strings("texts") != nullptr);
    CHECK(*metadata.get_strings("texts") == std::vector<std::string>{"a", ""});
}

TEST_CASE("absent keys give nothing") {
    const Metadata metadata = example();
    CHECK_FALSE(metadata.contains("absent"));
    CHECK(metadata.find("absent") == nullptr);
    CHECK_FALSE(metadata.get_string("absent").has_value());
    CHECK_FALSE(metadata.get_int("absent").has_value());
    CHECK_FALSE(metadata.get_float("absent").has_value());
    CHECK_FALSE(metadata.get_bool("absent").has_value());
    CHECK_FALSE(metadata.get_ints("absent").has_value());
    CHECK(metadata.get_strings("absent") == nullptr);
}

TEST_CASE_TEMPLATE("any integer type serves as an integer", T, uint8_t, int8_t, uint16_t, int16_t,
                   uint32_t, int32_t, uint64_t, int64_t) {
    Metadata metadata("model.gguf");
    metadata.set("one", T{100});
    metadata.set("some", std::vector<T>{1, 127});
    metadata.set("least", std::numeric_limits<T>::lowest());
    CHECK(metadata.get_int("one") == 100);
    CHECK(metadata.get_float("one") == 100.0);
    CHECK(metadata.get_ints("some") == std::vector<int64_t>{1, 127});
    CHECK(metadata.get_int("least") == static_cast<int64_t>(std::numeric_limits<T>::lowest()));
}

TEST_CASE("a number above 2^63 - 1 is refused as an integer") {
    Metadata metadata("model.gguf");
    metadata.set("most", uint64_t{std::numeric_limits<int64_t>::max()});
    metadata.set("more", uint64_t{1} << 63);
    metadata.set("many", std::vector<uint64_t>{1, uint64_t{1} << 63});
    CHECK(metadata.get_int("most") == std::numeric_limits<int64_t>::max());
    check_wrong_type([&] { metadata.get_int("more"); }, "more");
    check_wrong_type([&] { metadata.get_ints("many"); }, "many");
    CHECK(metadata.get_float("more") == 9223372036854775808.0);
}

TEST_CASE("both float types serve as a number") {
    Metadata metadata("model.gguf");
    metadata.set("single", 1e-6f);
    metadata.set("double", 1e-6);
    CHECK(metadata.get_float("single") == static_cast<double>(1e-6f));
    CHECK(metadata.get_float("double") == 1e-6);
}

TEST_CASE("a value of another type is refused with file and key") {
    const Metadata metadata = example();
    for (const char* key : {"number", "fraction", "flag", "numbers", "texts"}) {
        check_wrong_type([&] { metadata.get_string(key); }, key);
    }
    for (const char* key : {"text", "fraction", "flag", "numbers", "texts"}) {
        check_wrong_type([&] { metadata.get_int(key); }, key);
    }
    for (const char* key : {"text", "flag", "numbers", "texts"}) {
        check_wrong_type([&] { metadata.get_float(key); }, key);
    }
    for (const char* key : {"text", "number", "fraction", "numbers", "texts"}) {
        check_wrong_type([&] { metadata.get_bool(key); }, key);
    }
    for (const char* key : {"text", "number", "fraction", "flag", "texts"}) {
        check_wrong_type([&] { metadata.get_ints(key); }, key);
    }
    for (const char* key : {"text", "number", "fraction", "flag", "numbers"}) {
        check_wrong_type([&] { metadata.get_strings(key); }, key);
    }
}

TEST_CASE("arrays of floats and flags are no arrays of integers") {
    Metadata metadata("model.gguf");
    metadata.set("floats", std::vector<float>{1.0f});
    metadata.set("flags", std::vector<bool>{true});
    check_wrong_type([&] { metadata.get_ints("floats"); }, "floats");
    check_wrong_type([&] { metadata.get_ints("flags"); }, "flags");
}

TEST_CASE("setting a key again replaces its value, also by another type") {
    Metadata metadata = example();
    metadata.set("number", std::string("seven"));
    CHECK(metadata.get_string("number") == "seven");
    CHECK(metadata.entries().size() == 6);
    CHECK(metadata.entries()[1].first == "number");
}

TEST_CASE("entries keep the order in which they were set") {
    Metadata metadata;
    std::vector<std::string> keys;
    for (int i = 0; i < 100; ++i) {
        keys.push_back("key" + std::to_string((i * 37) % 100));
        metadata.set(keys.back(), int32_t{i});
    }
    REQUIRE(metadata.entries().size() == keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
        CHECK(metadata.entries()[i].first == keys[i]);
        CHECK(metadata.get_int(keys[i]) == static_cast<int64_t>(i));
    }
}
