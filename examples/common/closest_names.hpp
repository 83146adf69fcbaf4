// Names to suggest when a user's name is unknown.
#pragma once

#include <string>
#include <vector>

namespace flux2::cli {

// "; it has a, b", or "; the closest are a, b, ..." when there are many names, by the letters to
// change. There must be at least one name.
std::string closest_names(const std::string& name, const std::vector<std::string>& known);

}  // namespace flux2::cli
