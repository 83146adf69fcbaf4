// The one way the library speaks: a callback that gets a level and a line.
#pragma once

#include <functional>
#include <string>

namespace flux2 {

enum class LogLevel { debug, info, warning, error };

using LogSink = std::function<void(LogLevel, const std::string& line)>;

// Replaces the sink; an empty one silences the library. The default drops everything.
// Not to be called while other threads use the library.
void set_log(LogSink sink);

}  // namespace flux2
