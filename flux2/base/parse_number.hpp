// Numbers in texts, read the same in every locale of the host program; those typed by users with
// errors that name the option.
#pragma once

#include <optional>
#include <string>

namespace flux2 {

// The whole text as the value of the option `name` ("steps"). Throw bad_argument with the name, the
// text and what is expected.
int parse_int(const std::string& name, const std::string& text);
float parse_float(const std::string& name, const std::string& text);
double parse_double(const std::string& name, const std::string& text);

// The whole text as a decimal number such as "-1.5e3", with a point in every locale. Nothing for
// any other text and for numbers out of range.
std::optional<double> double_in(const std::string& text);

}  // namespace flux2
