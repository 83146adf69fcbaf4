// Arguments of our programs. Options that are not given may be set by environment variables, by a
// preset and by the user's file of settings; the first of these that has a value is used.
#pragma once

#include <flux2/error.hpp>
#include "base/check.hpp"
#include "base/letter_case.hpp"
#include "base/settings_file.hpp"

#include <cxxopts.hpp>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace flux2 {

// "FLUX2_ARG_MAX_VRAM": the variable that stands for an option of this name.
inline std::string variable_of(const std::string& option) {
    std::string name = "FLUX2_ARG_" + to_upper(option);
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}

// The values of an option that is set, and where.
struct OptionSource {
    std::string option;
    std::vector<std::string> values;  // of a flag: 1 or 0
    std::string place;                // "the command line", a variable, "flux2.ini:3"
};

constexpr const char* kCommandLine = "the command line";
constexpr const char* kPresetOption = "preset";
constexpr const char* kHubOption = "hf-repo";

namespace detail {

// Versions of cxxopts differ in whether an option has one long name or several.
inline std::vector<std::string> long_names(const std::string& name) {
    return {name};
}
inline std::vector<std::string> long_names(const std::vector<std::string>& names) {
    return names;
}

struct KnownOption {
    std::string name;  // the first of its long names
    bool is_flag;
    char letter = 0;  // its short name; 0: none
};

// Options by each of their long names.
using KnownOptions = std::map<std::string, KnownOption>;

inline KnownOptions known_options(const cxxopts::Options& options) {
    KnownOptions known;
    for (const std::string& group : options.groups()) {
        for (const cxxopts::HelpOptionDetails& option : options.group_help(group).options) {
            const std::vector<std::string> names = long_names(option.l);
            for (const std::string& name : names) {
                known[name] = {names.front(), option.is_boolean,
                               option.s.empty() ? '\0' : option.s.front()};
            }
        }
    }
    known.erase("help");
    return known;
}

// Finds an option by its name with hyphens or underscores.
inline KnownOptions::const_iterator find_option(const KnownOptions& known, std::string name) {
    auto found = known.find(name);
    for (const auto& [from, to] : {std::pair{'-', '_'}, {'_', '-'}}) {
        if (found == known.end()) {
            std::replace(name.begin(), name.end(), from, to);
            found = known.find(name);
        }
    }
    return found;
}

// The argument for a value. Empty for a flag that is off.
inline std::string argument_of(const std::string& option, bool is_flag, const std::string& value,
                               const std::string& place) {
    if (!is_flag) {
        return "--" + option + "=" + value;
    }
    const std::string word = to_lower(value);
    const bool is_on = word == "1" || word == "true" || word == "yes" || word == "on";
    const bool is_off = word == "0" || word == "false" || word == "no" || word == "off";
    check(is_on || is_off, ErrorKind::bad_argument, place, " is '", value, "', expected 1 or 0: --",
          option, " takes no value");
    return is_on ? "--" + option : "";
}

// "flux2" of "flux2 plan".
inline std::string program_of(const cxxopts::Options& options) {
    return options.program().substr(0, options.program().find(' '));
}

inline bool is_program(const std::string& section) {
    return section == "flux2" || section == "flux2-server" || section == "flux2-convert" ||
           section == "flux2-train" || section == "flux2-rpc-server";
}

// Commands read the file of settings if they know presets, programs always do. Others compare,
// measure or repeat something, which settings of the user must not change.
inline bool reads_settings(const cxxopts::Options& options, const KnownOptions& known) {
    return options.program().find(' ') == std::string::npos || known.contains(kPresetOption);
}

// Refuses lines for this program whose option it does not have. Lines before the first section and
// presets are about pictures: flux2 checks them, other programs leave out what they do not have.
inline void check_lines(const SettingsFile& file, const std::string& program,
                        const KnownOptions& known) {
    for (const SettingsLine& line : file.lines) {
        const bool is_ours =
            line.section == program || (program == "flux2" && !is_program(line.section));
        check(!is_ours || find_option(known, line.option) != known.end(), ErrorKind::bad_argument,
              file.place(line), ": ", program, " has no option '", line.option,
              "'; its help lists them, and options of another program go under its name, such as "
              "[flux2-server]");
        const bool is_preset = !line.section.empty() && !is_program(line.section);
        check(!is_ours || !is_preset || line.option != kPresetOption, ErrorKind::bad_argument,
              file.place(line), ": a preset cannot choose another preset");
    }
}

// Values of the file for this program or preset; a section of a program is stronger than lines
// before the first section.
inline std::map<std::string, OptionSource> values_in(const SettingsFile& file,
                                                     const std::vector<std::string>& sections,
                                                     const KnownOptions& known) {
    std::map<std::string, OptionSource> values;
    for (const std::string& section : sections) {
        std::map<std::string, OptionSource> here;
        for (const SettingsLine& line : file.lines) {
            const auto option = find_option(known, line.option);
            if (line.section == section && option != known.end()) {
                OptionSource& source = here[option->second.name];
                source.option = option->second.name;
                source.values.push_back(line.value);
                source.place = file.place(line);
            }
        }
        for (auto& [name, source] : here) {
            values[name] = std::move(source);
        }
    }
    return values;
}

inline const KnownOption* option_of_letter(const KnownOptions& known, char letter) {
    for (const auto& [name, option] : known) {
        if (option.letter == letter) {
            return &option;
        }
    }
    return nullptr;
}

// Whether the argument after this one is its value.
inline bool takes_next(const std::string& argument, const KnownOptions& known) {
    if (argument.starts_with("--")) {
        const auto option = known.find(argument.substr(2));
        return option != known.end() && !option->second.is_flag;
    }
    const KnownOption* option = argument.size() == 2 && argument.front() == '-'
                                    ? option_of_letter(known, argument.back())
                                    : nullptr;
    return option != nullptr && !option->is_flag;
}

// Arguments that cxxopts would not understand, written with long names: -hf, which users of
// llama.cpp type, and values right after a letter (-s-1, -ohouse.png), of which it takes only
// letters and digits.
inline std::vector<std::string> with_long_names(int argc, char** argv, const KnownOptions& known) {
    std::vector<std::string> arguments(argv, argv + argc);
    for (size_t i = 1; i < arguments.size() && arguments[i] != "--"; ++i) {
        std::string& argument = arguments[i];
        if (argument == "-hf" && known.contains(kHubOption)) {
            argument = std::string("--") + kHubOption;
        } else if (argument.size() > 2 && argument.front() == '-' && argument[1] != '-') {
            const KnownOption* option = option_of_letter(known, argument[1]);
            if (option != nullptr && !option->is_flag) {
                argument = "--" + option->name + "=" + argument.substr(2);
            }
        }
        if (takes_next(argument, known)) {
            ++i;
        }
    }
    return arguments;
}

inline cxxopts::ParseResult parse(cxxopts::Options& options,
                                  const std::vector<std::string>& arguments) {
    std::vector<const char*> all;
    for (const std::string& argument : arguments) {
        all.push_back(argument.c_str());
    }
    return options.parse(static_cast<int>(all.size()), all.data());
}

// The value of an option from the command line, else from its variables; empty: neither.
inline std::vector<OptionSource> sources_outside(const cxxopts::ParseResult& given,
                                                 const KnownOptions& known) {
    std::vector<OptionSource> sources;
    for (const auto& [name, option] : known) {
        const char* value = std::getenv(variable_of(name).c_str());
        if (given.count(name) > 0) {
            if (name == option.name) {
                sources.push_back({name, {}, kCommandLine});
            }
        } else if (value != nullptr && *value != '\0') {
            sources.push_back({option.name, {value}, variable_of(name)});
        }
    }
    for (OptionSource& source : sources) {
        if (source.place == kCommandLine) {
            for (const cxxopts::KeyValue& argument : given.arguments()) {
                const auto option = known.find(argument.key());
                if (option != known.end() && option->second.name == source.option) {
                    source.values.push_back(argument.value());
                }
            }
        }
    }
    return sources;
}

// Adds what the preset and the file set.
inline void add_settings(const cxxopts::Options& options, const KnownOptions& known,
                         std::vector<OptionSource>& sources) {
    if (!reads_settings(options, known)) {
        return;
    }
    const SettingsFile file = read_settings_file(settings_path());
    const std::string program = program_of(options);
    check_lines(file, program, known);
    const auto has = [&](const std::string& name) {
        return std::any_of(sources.begin(), sources.end(),
                           [&](const OptionSource& source) { return source.option == name; });
    };
    const auto add_missing = [&](const std::map<std::string, OptionSource>& values) {
        for (const auto& [name, source] : values) {
            if (!has(name)) {
                sources.push_back(source);
            }
        }
    };
    // Lines before the first section are about pictures: options of these names mean something else
    // where models are converted or trained.
    const bool makes_pictures = program != "flux2-convert" && program != "flux2-train";
    const auto plain =
        !makes_pictures ? values_in(file, {program}, known) : values_in(file, {"", program}, known);
    if (!has(kPresetOption) && plain.contains(kPresetOption)) {
        sources.push_back(plain.at(kPresetOption));
    }
    const auto preset = std::find_if(sources.begin(), sources.end(), [](const auto& source) {
        return source.option == kPresetOption;
    });
    if (preset != sources.end() && !preset->values.empty()) {
        const std::string name = preset->values.back();
        std::string presets;
        for (const std::string& section : file.sections) {
            presets += is_program(section) ? "" : (presets.empty() ? "" : ", ") + section;
        }
        const bool is_there =
            !is_program(name) &&
            std::find(file.sections.begin(), file.sections.end(), name) != file.sections.end();
        check(is_there, ErrorKind::bad_argument, "there is no preset '", name, "' in ",
              file.path.empty() ? "any file of settings" : file.path.string(),
              presets.empty() ? "; add a section of this name" : "; it has " + presets);
        add_missing(values_in(file, {name}, known));
    }
    add_missing(plain);
}

}  // namespace detail

// Where the options that are set come from, in the order of their names.
inline std::vector<OptionSource> option_sources(cxxopts::Options& options, int argc, char** argv) {
    const detail::KnownOptions known = detail::known_options(options);
    const cxxopts::ParseResult given =
        detail::parse(options, detail::with_long_names(argc, argv, known));
    std::vector<OptionSource> sources = detail::sources_outside(given, known);
    detail::add_settings(options, known, sources);
    std::sort(sources.begin(), sources.end(),
              [](const auto& a, const auto& b) { return a.option < b.option; });
    return sources;
}

// Parses the arguments as cxxopts does. An option that is not among them is taken from its variable
// (variable_of) if that is set and not empty, else from the preset that is chosen, else from
// the file of settings; a flag is on with 1, true, yes or on. Throws bad_argument for another value
// of a flag, and for a wrong line of the file, with its number.
inline cxxopts::ParseResult parse_arguments(cxxopts::Options& options, int argc, char** argv) {
    const detail::KnownOptions known = detail::known_options(options);
    const std::vector<std::string> arguments = detail::with_long_names(argc, argv, known);
    std::vector<std::string> all = {arguments.front()};
    // The others' first: what follows -- is no option.
    for (const OptionSource& source : option_sources(options, argc, argv)) {
        for (const std::string& value : source.values) {
            if (source.place != kCommandLine) {
                all.push_back(detail::argument_of(source.option, known.at(source.option).is_flag,
                                                  value, source.place));
            }
        }
    }
    std::erase(all, "");
    all.insert(all.end(), arguments.begin() + 1, arguments.end());
    return detail::parse(options, all);
}

// Runs what reads the values of options. An error about one that is not from the command line says
// where it is set.
template <typename Body>
auto naming_places(cxxopts::Options& options, int argc, char** argv, const Body& body) {
    try {
        return body();
    } catch (const Error& error) {
        const std::string message = error.what();
        for (const OptionSource& source : option_sources(options, argc, argv)) {
            const std::string name = "--" + source.option;
            const size_t at = message.find(name);
            const size_t end = at + name.size();
            const auto is_of_name = [](char c) {
                return c == '-' || c == '_' || (c >= 'a' && c <= 'z');
            };
            const bool is_named =
                at != std::string::npos && (end == message.size() || !is_of_name(message[end]));
            if (is_named && source.place != kCommandLine) {
                throw Error(error.kind(),
                            concat(message, " (", name, " is set in ", source.place, ")"));
            }
        }
        throw;
    }
}

}  // namespace flux2
