#include "base/parse_arguments.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <initializer_list>
#include <string>
#include <vector>

namespace flux2 {
namespace {

// Sets variables while it exists.
class Environment {
  public:
    Environment(std::initializer_list<std::pair<const char*, const char*>> values) {
        for (const auto& [name, value] : values) {
            setenv(name, value, 1);
            names_.push_back(name);
        }
    }
    ~Environment() {
        for (const std::string& name : names_) {
            unsetenv(name.c_str());
        }
    }
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;

  private:
    std::vector<std::string> names_;
};

struct Parsed {
    std::string size;
    bool fast = false;
    size_t n_unmatched = 0;
};

Parsed parse(std::vector<std::string> arguments) {
    cxxopts::Options options("program");
    options.add_options()("m,max-size", "", cxxopts::value<std::string>())("f,fast", "")(
        "files", "", cxxopts::value<std::vector<std::string>>());
    options.parse_positional({"files"});
    std::vector<char*> argv;
    arguments.insert(arguments.begin(), "program");
    for (std::string& argument : arguments) {
        argv.push_back(argument.data());
    }
    const auto args = parse_arguments(options, static_cast<int>(argv.size()), argv.data());
    return {args.count("max-size") > 0 ? args["max-size"].as<std::string>() : "",
            args.count("fast") > 0, args.count("files")};
}

}  // namespace

TEST_CASE("a value may follow its option's letter at once, or be an argument of its own") {
    for (const std::string value : {"4", "4.5G", "-1", "out/a b.png", "=4"}) {
        CHECK(parse({"-m" + value}).size == value);
        CHECK(parse({"-f", "-m" + value, "a"}).n_unmatched == 1);
        CHECK(parse({"--max-size=" + value}).size == value);
    }
    // What looks like options is a value after an option that takes one, and a file after --.
    for (const std::string value : {"-mx", "-f", "-hf"}) {
        CHECK(parse({"-m", value}).size == value);
        CHECK(parse({"--max-size", value}).size == value);
        CHECK_FALSE(parse({"--max-size", value}).fast);
        CHECK(parse({"--", value}).n_unmatched == 1);
    }
}

TEST_CASE("an option that is not given is taken from its environment variable") {
    const Environment environment = {{"FLUX2_ARG_MAX_SIZE", "4G"}, {"FLUX2_ARG_FAST", "1"}};
    const Parsed parsed = parse({"a", "b"});
    CHECK(parsed.size == "4G");
    CHECK(parsed.fast);
    CHECK(parsed.n_unmatched == 2);
}

TEST_CASE("an option that is given is stronger than its variable") {
    const Environment environment = {{"FLUX2_ARG_MAX_SIZE", "4G"}};
    CHECK(parse({"--max-size", "2G"}).size == "2G");
}

TEST_CASE("a flag can be off in its variable, and another value is refused") {
    {
        const Environment environment = {{"FLUX2_ARG_FAST", "0"}};
        CHECK_FALSE(parse({}).fast);
    }
    const Environment environment = {{"FLUX2_ARG_FAST", "perhaps"}};
    const test::CaughtError error = test::error_of([] { parse({}); });
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("FLUX2_ARG_FAST"));
}

TEST_CASE("a value of a variable may look like an option or begin with a dash") {
    const Environment environment = {{"FLUX2_ARG_MAX_SIZE", "--fast"}};
    const Parsed parsed = parse({"--", "--no-option"});
    CHECK(parsed.size == "--fast");
    CHECK_FALSE(parsed.fast);
}

}  // namespace flux2
