// Where a program puts what it tells its user beside its results.
#pragma once

#include <functional>
#include <iostream>
#include <string>

namespace flux2::cli {

// Takes a line without its end. Empty: nothing is told.
using LineSink = std::function<void(const std::string&)>;

inline LineSink lines_on_stderr(bool quiet) {
    if (quiet) {
        return nullptr;
    }
    return [](const std::string& line) { std::cerr << line << std::endl; };
}

}  // namespace flux2::cli
