// Numbers typed by users, with errors that name the option.
#pragma once

#include <string>

namespace flux2 {

// The whole text as the value of the option `name` ("steps"). Throw bad_argument with the name, the
// text and what is expected.
int parse_int(const std::string& name, const std::string& text);
float parse_float(const std::string& name, const std::string& text);

}  // namespace flux2
