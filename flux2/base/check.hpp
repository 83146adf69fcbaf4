// Building an error message and throwing it, in one line.
#pragma once

#include <flux2/error.hpp>
#include "base/text_stream.hpp"

#include <ostream>
#include <string>
#include <utility>

namespace flux2 {

// Prints a setting as messages name it: "`type`". worded() recognises it by the backquotes.
std::ostream& operator<<(std::ostream& out, Setting setting);

// Joins the values as operator<< prints them, in every locale alike.
template <typename... Values>
std::string concat(const Values&... values) {
    TextStream out;
    (out << ... << values);
    return out.str();
}

template <typename... Values>
[[noreturn]] void fail(ErrorKind kind, const Values&... values) {
    throw Error(kind, concat(values...));
}

// Throws unless the condition holds. The message is built only on failure, but its values are
// always evaluated: in inner loops use an if and fail().
template <typename... Values>
void check(bool condition, ErrorKind kind, const Values&... values) {
    if (!condition) {
        fail(kind, values...);
    }
}

}  // namespace flux2
