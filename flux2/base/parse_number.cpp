#include "base/parse_number.hpp"

#include "base/check.hpp"

#include <charconv>
#include <cmath>
#include <exception>
#include <system_error>

namespace flux2 {

int parse_int(const std::string& name, const std::string& text) {
    int value = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    check(error == std::errc() && rest == end, ErrorKind::bad_argument, name,
          " takes a whole number, not '", text, "'");
    return value;
}

float parse_float(const std::string& name, const std::string& text) {
    size_t used = 0;
    float value = 0;
    try {
        value = std::stof(text, &used);
    } catch (const std::exception&) {
        used = 0;
    }
    check(used > 0 && used == text.size() && std::isfinite(value), ErrorKind::bad_argument, name,
          " takes a number, not '", text, "'");
    return value;
}

}  // namespace flux2
