// Building an error message and throwing it, in one line.
#pragma once

#include <flux2/error.hpp>

#include <sstream>
#include <utility>

namespace flux2 {

// As messages name it: "`type`". worded() finds it there again.
std::ostream& operator<<(std::ostream& out, Setting setting);

// Joins the parts as operator<< prints them.
template <typename... Parts>
std::string concat(const Parts&... parts) {
    std::ostringstream out;
    (out << ... << parts);
    return out.str();
}

template <typename... Parts>
[[noreturn]] void fail(ErrorKind kind, const Parts&... parts) {
    throw Error(kind, concat(parts...));
}

// Throws unless the condition holds. The message is built only on failure, but its parts are
// evaluated always: in inner loops write an if and fail().
template <typename... Parts>
void check(bool condition, ErrorKind kind, const Parts&... parts) {
    if (!condition) {
        fail(kind, parts...);
    }
}

}  // namespace flux2
