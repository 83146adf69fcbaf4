// Numbers as users type them, with errors that name what they were for.
#pragma once

#include <string>

namespace flux2 {

// The whole text as a value of what `name` names ("steps"). Throw bad_argument: its name, what
// was found and what is expected.
int parse_int(const std::string& name, const std::string& text);
float parse_float(const std::string& name, const std::string& text);

}  // namespace flux2
