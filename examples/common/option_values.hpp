// Values of options as the structs of programs hold them; an option that is not given leaves its
// value as it is.
#pragma once

#include "base/check.hpp"
#include "base/parse_number.hpp"

#include <cxxopts.hpp>

#include <filesystem>
#include <memory>
#include <string>

namespace flux2::cli {

inline std::string given(const cxxopts::ParseResult& args, const char* name) {
    return args[name].as<std::string>();
}

template <typename Target>
void read_text(const cxxopts::ParseResult& args, const char* name, Target& target) {
    if (args.count(name) > 0) {
        target = given(args, name);
    }
}

inline void read_path(const cxxopts::ParseResult& args, const char* name,
                      std::filesystem::path& target) {
    if (args.count(name) > 0) {
        target = given(args, name);
        check(!target.empty(), ErrorKind::bad_argument, "--", name,
              " is given an empty name; name a file or leave it out");
    }
}

template <typename Target>
void read_int(const cxxopts::ParseResult& args, const char* name, Target& target) {
    if (args.count(name) > 0) {
        target = parse_int(concat("--", name), given(args, name));
    }
}

template <typename Target>
void read_float(const cxxopts::ParseResult& args, const char* name, Target& target) {
    if (args.count(name) > 0) {
        target = parse_float(concat("--", name), given(args, name));
    }
}

// Also for numbers: cxxopts would accept "4x" as 4, and its errors do not name the option.
inline std::shared_ptr<cxxopts::Value> text() {
    return cxxopts::value<std::string>();
}

}  // namespace flux2::cli
