// Lines for operators on standard error: key=value pairs, one event per line.
#pragma once

#include <flux2/log.hpp>

#include <initializer_list>
#include <string>
#include <utility>

namespace flux2::server {

// time=2026-11-16T18:17:55.123Z level=info event=request id=... status=200
// Values with spaces, quotes or control characters are written as JSON strings. Any thread.
void log_line(LogLevel level, const std::string& event,
              std::initializer_list<std::pair<const char*, std::string>> values);

}  // namespace flux2::server
