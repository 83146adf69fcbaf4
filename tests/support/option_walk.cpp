#include "support/option_walk.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace flux2::test {
namespace {

using Texts = std::vector<std::string>;

// The arguments as the program hands them to parse_arguments.
struct Arguments {
    Texts texts;
    std::vector<char*> pointers;

    Arguments(const OptionProgram& program, const cxxopts::Options& options, const Texts& given) {
        texts = given;
        texts.insert(texts.begin(), options.program());
        point();
        if (program.respell) {
            texts = program.respell(options, argc(), argv());
            point();
        }
    }
    void point() {
        pointers.clear();
        for (std::string& text : texts) {
            pointers.push_back(text.data());
        }
    }
    int argc() const { return static_cast<int>(pointers.size()); }
    char** argv() { return pointers.data(); }
};

// "network-dim" for "network_dim", and the other way round.
std::string spelled_otherwise(std::string name) {
    for (char& c : name) {
        c = c == '-' ? '_' : c == '_' ? '-' : c;
    }
    return name;
}

struct Walk {
    const OptionProgram& program;
    std::string section;  // of the program
    std::string file;     // of settings
    bool has_presets;

    void check_option(const std::string& name, bool is_flag) const;
    // That the option has this value, from this place.
    void check_value(const std::string& name, bool is_flag, const std::string& value,
                     const std::string& place, const Texts& given = {}) const {
        CAPTURE(place);
        const OptionSource source = program.source_of(name, given);
        CHECK(source.place == place);
        CHECK(source.values == Texts{is_flag && place == kCommandLine ? "true" : value});
        CHECK(program.values_of(name, given) == Texts{is_flag ? "true" : value});
    }
};

void Walk::check_option(const std::string& name, bool is_flag) const {
    const auto value = [&](const char* text) { return std::string(is_flag ? "1" : text); };
    const auto line = [&](const char* text) { return name + " = " + value(text) + "\n"; };
    // Its default: not set.
    write_file(file, "");
    CHECK(program.source_of(name, {}).place.empty());
    CHECK(program.values_of(name, {}).empty());
    // The file, for all programs and for this one.
    if (program.takes_common_lines) {
        write_file(file, line("all"));
        check_value(name, is_flag, value("all"), file + ":1");
    }
    write_file(file, line("all") + section + line("program"));
    check_value(name, is_flag, value("program"), file + ":3");
    write_file(file, section + spelled_otherwise(name) + "=" + value("program"));
    check_value(name, is_flag, value("program"), file + ":2");
    // A preset.
    write_file(file, line("all") + section + line("program") + "[one]\n" + line("preset"));
    const Texts chosen = has_presets ? Texts{"--preset=one"} : Texts{};
    if (has_presets) {
        check_value(name, is_flag, value("preset"), file + ":5", chosen);
    }
    // The variable, which can also turn a flag off.
    {
        const Variable variable(variable_of(name), value("variable"));
        check_value(name, is_flag, value("variable"), variable_of(name), chosen);
    }
    const Variable variable(variable_of(name), is_flag ? "0" : "variable");
    CHECK(program.values_of(name, chosen) == (is_flag ? Texts{} : Texts{"variable"}));
    // The command line.
    Texts given = chosen;
    given.push_back("--" + name + (is_flag ? "" : "=typed"));
    check_value(name, is_flag, "typed", kCommandLine, given);
}

}  // namespace

Variable::Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    setenv(name_.c_str(), value.c_str(), 1);
}

Variable::~Variable() {
    if (name_ == "FLUX2_CONFIG") {
        setenv("FLUX2_CONFIG", "", 1);  // tests do not read the user's file
    } else {
        unsetenv(name_.c_str());
    }
}

OptionSource OptionProgram::source_of(const std::string& option, const Texts& given) const {
    cxxopts::Options options = describe();
    Arguments arguments(*this, options, given);
    for (const OptionSource& source : option_sources(options, arguments.argc(), arguments.argv())) {
        if (source.option == option) {
            return source;
        }
    }
    return {};
}

Texts OptionProgram::values_of(const std::string& option, const Texts& given) const {
    cxxopts::Options options = describe();
    Arguments arguments(*this, options, given);
    const auto args = parse_arguments(options, arguments.argc(), arguments.argv());
    Texts values;
    for (const cxxopts::KeyValue& argument : args.arguments()) {
        if (argument.key() == option) {
            values.push_back(argument.value());
        }
    }
    return values;
}

CaughtError OptionProgram::refused(const std::string& text, const Texts& given) const {
    const TemporaryFolder folder;
    write_file(folder / "flux2.ini", text);
    const Variable config("FLUX2_CONFIG", (folder / "flux2.ini").string());
    return error_of([&] { values_of("", given); });
}

size_t check_every_option(const OptionProgram& program) {
    const TemporaryFolder folder;
    const std::string file = (folder / "flux2.ini").string();
    write_file(file, "");
    const Variable config("FLUX2_CONFIG", file);
    const cxxopts::Options options = program.describe();
    const Walk walk = {program, "[" + options.program() + "]\n", file,
                       detail::known_options(options).contains(kPresetOption)};
    size_t n_options = 0;
    for (const std::string& group : options.groups()) {
        for (const cxxopts::HelpOptionDetails& option : options.group_help(group).options) {
            const std::string name = detail::long_names(option.l).front();
            if (name != "help" && name != kPresetOption) {
                CAPTURE(name);
                walk.check_option(name, option.is_boolean);
                ++n_options;
            }
        }
    }
    return n_options;
}

void check_wrong_lines(const OptionProgram& program, const std::string& flag) {
    const std::string name = program.describe().program();
    const std::string section = "# settings\n[" + name + "]\n";
    CaughtError error = program.refused(section + flag + " = yes\nwidht = 768\n");
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("flux2.ini:4: " + name + " has no option 'widht'"));
    error = program.refused(section + flag + " = perhaps\n");
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("flux2.ini:3 is 'perhaps', expected 1 or 0"));
    error = program.refused(section + "widht\n");
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("flux2.ini:3: 'widht' is no setting"));
}

}  // namespace flux2::test
