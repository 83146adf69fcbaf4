// Arguments of our programs: options that are not given may be set by environment variables.
#pragma once

#include <flux2/error.hpp>
#include "base/check.hpp"
#include "base/letter_case.hpp"

#include <cxxopts.hpp>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace flux2 {

// "FLUX2_ARG_MAX_VRAM": the variable that stands for an option of this name.
inline std::string variable_of(const std::string& option) {
    std::string name = "FLUX2_ARG_" + to_upper(option);
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}

namespace detail {

// Versions of cxxopts differ in whether an option has one long name or several.
inline std::vector<std::string> long_names(const std::string& name) {
    return {name};
}
inline std::vector<std::string> long_names(const std::vector<std::string>& names) {
    return names;
}

// The argument for a variable's value. Empty for a flag that is off.
inline std::string argument_of(const std::string& option, bool is_flag, const std::string& value) {
    if (!is_flag) {
        return "--" + option + "=" + value;
    }
    const std::string word = to_lower(value);
    const bool is_on = word == "1" || word == "true" || word == "yes" || word == "on";
    const bool is_off = word == "0" || word == "false" || word == "no" || word == "off";
    check(is_on || is_off, ErrorKind::bad_argument, variable_of(option), " is '", value,
          "', expected 1 or 0: --", option, " takes no value");
    return is_on ? "--" + option : "";
}

}  // namespace detail

// Parses the arguments as cxxopts does. An option that is not among them is taken from its variable
// (variable_of) if that is set and not empty; a flag is on with 1, true, yes or on. Throws
// bad_argument for another value of a flag.
inline cxxopts::ParseResult parse_arguments(cxxopts::Options& options, int argc, char** argv) {
    const cxxopts::ParseResult given = options.parse(argc, argv);
    std::vector<std::string> more;
    for (const std::string& group : options.groups()) {
        for (const cxxopts::HelpOptionDetails& option : options.group_help(group).options) {
            for (const std::string& name : detail::long_names(option.l)) {
                const char* value = std::getenv(variable_of(name).c_str());
                const bool is_set = value != nullptr && *value != '\0' && name != "help";
                if (is_set && given.count(name) == 0) {
                    more.push_back(detail::argument_of(name, option.is_boolean, value));
                }
            }
        }
    }
    std::erase(more, "");
    if (more.empty()) {
        return given;
    }
    std::vector<const char*> all = {argv[0]};  // the variables' first: what follows -- is no option
    for (const std::string& argument : more) {
        all.push_back(argument.c_str());
    }
    all.insert(all.end(), argv + 1, argv + argc);
    return options.parse(static_cast<int>(all.size()), all.data());
}

}  // namespace flux2
