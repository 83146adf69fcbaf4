// Sends lines to the callback of flux2/log.hpp.
#pragma once

#include <flux2/log.hpp>

#include <string>

namespace flux2 {

void log(LogLevel level, const std::string& line);

// Sends lines to `sink` while the object exists; the destructor restores the previous sink.
class ScopedLog {
  public:
    explicit ScopedLog(LogSink sink);
    ~ScopedLog();
    ScopedLog(const ScopedLog&) = delete;
    ScopedLog& operator=(const ScopedLog&) = delete;

  private:
    LogSink before_;
};

}  // namespace flux2
