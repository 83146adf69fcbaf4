// Messages of the library: a callback that gets a level and a line, which is UTF-8.
#pragma once

#include <flux2/export.h>

#include <functional>
#include <string>

namespace flux2 {

enum class LogLevel { debug, info, warning, error };

using LogSink = std::function<void(LogLevel, const std::string& line)>;

// Replaces the sink, of which the process has one, and waits until running calls of the former one
// have returned. An empty sink, the initial state, drops all messages. Any thread may call this,
// but not a sink. The sink is called from the threads that use the library and from those they
// start, one at a time.
FLUX2_API void set_log(LogSink sink);

}  // namespace flux2
