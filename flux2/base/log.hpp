// Speaking through the callback of flux2/log.hpp.
#pragma once

#include <flux2/log.hpp>

#include <string>

namespace flux2 {

void log(LogLevel level, const std::string& line);

}  // namespace flux2
