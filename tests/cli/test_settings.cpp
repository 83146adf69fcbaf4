// For every option of flux2: what is typed is stronger than a variable, that than a preset, that
// than the file of settings.
#include "base/parse_arguments.hpp"
#include "common/options.hpp"
#include "support/program.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace flux2::cli {
namespace {

// Sets a variable while it exists.
class Variable {
  public:
    Variable(std::string name, const std::string& value) : name_(std::move(name)) {
        setenv(name_.c_str(), value.c_str(), 1);
    }
    ~Variable() {
        if (name_ == "FLUX2_CONFIG") {
            setenv("FLUX2_CONFIG", "", 1);
        } else {
            unsetenv(name_.c_str());
        }
    }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

  private:
    std::string name_;
};

cxxopts::Options table(const std::string& program = "flux2") {
    cxxopts::Options options(program);
    add_model_options(options);
    add_generate_options(options);
    add_settings_options(options);
    return options;
}

struct Arguments {
    std::vector<std::string> texts;
    std::vector<char*> pointers;

    explicit Arguments(std::vector<std::string> all) : texts(std::move(all)) {
        texts.insert(texts.begin(), "flux2");
        for (std::string& text : texts) {
            pointers.push_back(text.data());
        }
    }
    int argc() const { return static_cast<int>(pointers.size()); }
    char** argv() { return pointers.data(); }
};

// The value of an option and where it comes from; empty when it is not set.
OptionSource source_of(const std::string& option, const std::vector<std::string>& given) {
    cxxopts::Options options = table();
    Arguments arguments(given);
    for (const OptionSource& source : option_sources(options, arguments.argc(), arguments.argv())) {
        if (source.option == option) {
            return source;
        }
    }
    return {};
}

size_t count(const std::string& option, const std::vector<std::string>& given) {
    cxxopts::Options options = table();
    Arguments arguments(given);
    return parse_arguments(options, arguments.argc(), arguments.argv()).count(option);
}

test::CaughtError refused(const std::string& text, const std::vector<std::string>& given = {}) {
    const test::TemporaryFolder folder;
    test::write_file(folder / "flux2.ini", text);
    const Variable config("FLUX2_CONFIG", (folder / "flux2.ini").string());
    return test::error_of([&] { count("width", given); });
}

}  // namespace

TEST_CASE("every option is taken from the strongest place that sets it") {
    const test::TemporaryFolder folder;
    const std::string file = (folder / "flux2.ini").string();
    const Variable config("FLUX2_CONFIG", file);
    cxxopts::Options options = table();
    size_t n_options = 0;
    for (const std::string& group : options.groups()) {
        for (const cxxopts::HelpOptionDetails& option : options.group_help(group).options) {
            const std::string name = detail::long_names(option.l).front();
            if (name == "help" || name == "preset") {
                continue;
            }
            CAPTURE(name);
            ++n_options;
            const bool is_flag = option.is_boolean;
            const auto value = [&](const char* text) { return is_flag ? "1" : text; };
            // Its default: not set.
            test::write_file(file, "");
            CHECK(source_of(name, {}).place.empty());
            CHECK(count(name, {}) == 0);
            // The file, for all programs and for this one.
            test::write_file(file, name + " = " + value("all"));
            CHECK(source_of(name, {}).values == std::vector<std::string>{value("all")});
            CHECK(source_of(name, {}).place == file + ":1");
            CHECK(count(name, {}) == 1);
            test::write_file(file, name + "=" + value("all") + "\n[flux2]\n" + name + "=" +
                                       value("program") + "\n[one]\n" + name + "=" +
                                       value("preset"));
            CHECK(source_of(name, {}).values == std::vector<std::string>{value("program")});
            CHECK(source_of(name, {}).place == file + ":3");
            // A preset.
            const OptionSource preset = source_of(name, {"--preset", "one"});
            CHECK(preset.values == std::vector<std::string>{value("preset")});
            CHECK(preset.place == file + ":5");
            // The variable.
            const Variable variable(variable_of(name), value("variable"));
            const OptionSource set = source_of(name, {"--preset", "one"});
            CHECK(set.values == std::vector<std::string>{value("variable")});
            CHECK(set.place == variable_of(name));
            // The command line.
            const std::vector<std::string> given = {
                "--preset=one", "--" + name + (is_flag ? "" : std::string("=typed"))};
            CHECK(source_of(name, given).place == "the command line");
            CHECK(count(name, given) == 1);
            if (!is_flag) {
                CHECK(source_of(name, given).values == std::vector<std::string>{"typed"});
            }
        }
    }
    CHECK(n_options > 50);
}

TEST_CASE("a wrong line of the file is told with file and line") {
    test::CaughtError error = refused("device = CPU\nwidht = 768\n");
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("flux2.ini:2: flux2 has no option 'widht'"));
    error = refused("[portrait]\nwidht = 768\n");
    CHECK(error.mentions("flux2.ini:2: flux2 has no option 'widht'"));
    error = refused("overwrite = perhaps\n");
    CHECK(error.mentions("flux2.ini:1 is 'perhaps', expected 1 or 0"));
    error = refused("[portrait]\nwidth = 768\n[flux2]\n", {"--preset", "portrat"});
    CHECK(error.mentions("there is no preset 'portrat'"));
    CHECK(error.mentions("it has portrait"));
    error = refused("[portrait]\npreset = other\n");
    CHECK(error.mentions("flux2.ini:2: a preset cannot choose another preset"));
}

TEST_CASE("a wrong value says where it is set") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "flux2.ini", "\nwidth = many\n[wide]\nheight = 5x\n");
    const std::string file = (folder / "flux2.ini").string();
    const auto run = [&](const std::string& more) {
        return test::run_program("FLUX2_CONFIG=" + file + " " + more + " < /dev/null");
    };
    const std::string flux2 = test::flux2_path() + " plan ";
    auto result = run(flux2);
    CHECK(result.exit_code == 2);
    CHECK(result.err.find("(--width is set in " + file + ":2)") != std::string::npos);
    result = run(flux2 + "-W 64 --preset wide");
    CHECK(result.err.find("(--height is set in " + file + ":4)") != std::string::npos);
    result = run("FLUX2_ARG_STEPS=x " + flux2 + "-W 64");
    CHECK(result.err.find("(--steps is set in FLUX2_ARG_STEPS)") != std::string::npos);
    result = run(flux2 + "-W x");
    CHECK(result.err.find("is set in") == std::string::npos);
    // What others measure or repeat does not depend on it.
    CHECK(run(test::flux2_path() + " devices").exit_code == 0);
    CHECK(run(test::flux2_path() + " info --help").exit_code == 0);
}

TEST_CASE("flux2 config prints what holds and from where") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "flux2.ini", "width = 512\n[tall]\nheight = 768\nlora = a\nlora = b");
    const std::string file = (folder / "flux2.ini").string();
    const auto result =
        test::run_program("FLUX2_CONFIG=" + file + " FLUX2_ARG_STEPS=8 " + test::flux2_path() +
                          " config --preset tall -s 7 < /dev/null");
    CHECK(result.exit_code == 0);
    for (const std::string& line :
         {"file of settings: " + file, std::string("preset: tall"),
          "width = 512    from " + file + ":1", "height = 768    from " + file + ":3",
          "lora = a, b    from " + file + ":5", std::string("steps = 8    from FLUX2_ARG_STEPS"),
          std::string("seed = 7    from the command line")}) {
        CAPTURE(line);
        CHECK(result.out.find(line + "\n") != std::string::npos);
    }
}

TEST_CASE("the converter reads its own section only") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "flux2.ini", "type = Q8_0\n[flux2-convert]\nverify = yes\n");
    const Variable config("FLUX2_CONFIG", (folder / "flux2.ini").string());
    cxxopts::Options options("flux2-convert");
    options.add_options()("type", "", cxxopts::value<std::string>())("verify", "");
    Arguments arguments({});
    const auto args = parse_arguments(options, arguments.argc(), arguments.argv());
    CHECK(args.count("type") == 0);
    CHECK(args.count("verify") == 1);
}

TEST_CASE("-hf is one option, also among others of one letter") {
    CHECK(source_of("hf-repo", {"-hf", "a/b:Q4_0", "-s", "7"}).values ==
          std::vector<std::string>{"a/b:Q4_0"});
    CHECK(source_of("seed", {"-hf", "a/b:Q4_0", "-s", "7"}).values ==
          std::vector<std::string>{"7"});
}

}  // namespace flux2::cli
