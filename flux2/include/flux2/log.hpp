// The one way the library speaks: a callback that gets a level and a line.
#pragma once

#include <flux2/export.h>

#include <functional>
#include <string>

namespace flux2 {

enum class LogLevel { debug, info, warning, error };

using LogSink = std::function<void(LogLevel, const std::string& line)>;

// Replaces the sink, which is one for the whole process, and waits until the former one is left; an
// empty one silences the library, as in the beginning. Any thread may call this, but not a sink.
// The sink is called from the threads that use the library and from those they start, one at a
// time.
FLUX2_API void set_log(LogSink sink);

}  // namespace flux2
