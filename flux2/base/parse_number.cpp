#include "base/parse_number.hpp"

#include "base/check.hpp"

#include <charconv>
#include <cmath>
#include <locale>
#include <sstream>
#include <system_error>

namespace flux2 {
namespace {

// By a stream: older libraries for macOS have no std::from_chars of floating-point numbers.
template <typename T>
std::optional<T> number_in(const std::string& text) {
    std::istringstream in(text);
    in.imbue(std::locale::classic());
    T value = 0;
    const bool whole = (in >> value) && in.peek() == std::istringstream::traits_type::eof();
    return whole && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

template <typename T>
T parse_number(const std::string& name, const std::string& text) {
    const std::optional<T> value = number_in<T>(text);
    check(value.has_value(), ErrorKind::bad_argument, name, " takes a number, not '", text, "'");
    return *value;
}

}  // namespace

int parse_int(const std::string& name, const std::string& text) {
    int value = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    check(error == std::errc() && rest == end, ErrorKind::bad_argument, name,
          " takes a whole number, not '", text, "'");
    return value;
}

float parse_float(const std::string& name, const std::string& text) {
    return parse_number<float>(name, text);
}

double parse_double(const std::string& name, const std::string& text) {
    return parse_number<double>(name, text);
}

std::optional<double> double_in(const std::string& text) {
    return number_in<double>(text);
}

}  // namespace flux2
