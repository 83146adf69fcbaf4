#include "support/small_mistral.hpp"
#include "support/support.hpp"
#include "text/tekken.hpp"
#include "text/tokenizer.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace flux2 {
namespace {

using Ids = std::vector<int32_t>;
using nlohmann::json;

TEST_CASE("a tekken.json has special tokens first, then tokens by rank") {
    const Vocabulary vocabulary =
        read_tekken_json(test::small_tekken_file({"ab", "abc", "bc"}), "x");
    REQUIRE(vocabulary.tokens.size() == 20 + 256 + 3);
    CHECK(vocabulary.split == Split::tekken);
    CHECK(vocabulary.special.size() == 20);
    CHECK(vocabulary.tokens[1] == "<s>");
    CHECK(vocabulary.tokens[11] == "<pad>");
    CHECK(vocabulary.tokens[18] == "[/SYSTEM_PROMPT]");
    CHECK(vocabulary.tokens[20 + 'a'] == "a");
    CHECK(vocabulary.tokens[20 + ' '] == "\u0120");
    CHECK(vocabulary.tokens[20 + 256] == "ab");
    // Each token in every way that two others make it: by its own rank, then those of the two.
    CHECK(vocabulary.merges == std::vector<std::string>{"a b", "a bc", "ab c", "b c"});
}

TEST_CASE("a tekken.json reads text as its ranks say") {
    const Tokenizer tokenizer(read_tekken_json(test::small_tekken_file({"ab", "abc", "bc"}), "x"));
    CHECK(tokenizer.encode("abc") == Ids{20 + 257});
    CHECK(tokenizer.encode("xabcd") == Ids{20 + 'x', 20 + 257, 20 + 'd'});
    CHECK(tokenizer.encode("bcb") == Ids{20 + 258, 20 + 'b'});
    CHECK(tokenizer.encode("<s>[INST]\u00e9[/INST]") == Ids{1, 3, 20 + 0xC3, 20 + 0xA9, 4});
    CHECK(tokenizer.pad_id() == 11);
}

TEST_CASE("tokens above the size that a tekken.json names are left out") {
    json changed = json::parse(test::small_tekken_file({"ab", "abc", "bc"}));
    changed["config"]["default_vocab_size"] = 20 + 256 + 1;
    CHECK(read_tekken_json(changed.dump(), "x").tokens.size() == 20 + 256 + 1);
}

TEST_CASE("a tekken.json may leave the names of special tokens to its version") {
    json changed = json::parse(test::small_tekken_file({}));
    changed.erase("special_tokens");
    const Vocabulary vocabulary = read_tekken_json(changed.dump(), "x");
    CHECK(vocabulary.tokens[3] == "[INST]");
    CHECK(vocabulary.tokens[17] == "[SYSTEM_PROMPT]");
}

TEST_CASE("a broken tekken.json is refused by name") {
    const json whole = json::parse(test::small_tekken_file({"ab"}));
    const auto refused = [](const json& changed) {
        return test::error_of([&] { read_tekken_json(changed.dump(), "x.safetensors"); });
    };
    std::vector<json> broken(6, whole);
    broken[0].erase("config");
    broken[1]["vocab"][5]["token_bytes"] = "a*b=";
    broken[2]["vocab"][5]["rank"] = 6;
    broken[3]["special_tokens"][0]["rank"] = 20;
    broken[4]["config"]["default_num_special_tokens"] = 1000000;
    broken[5]["vocab"] = {1, 2};
    for (const json& changed : broken) {
        const auto error = refused(changed);
        CHECK(error.kind == ErrorKind::bad_file);
        CHECK(error.mentions("x.safetensors"));
    }
    json other = whole;
    other["config"]["pattern"] = "\\w+";
    CHECK(refused(other).kind == ErrorKind::unsupported);
    CHECK(test::error_of([] { read_tekken_json("{", "x"); }).kind == ErrorKind::bad_file);
}

}  // namespace
}  // namespace flux2
