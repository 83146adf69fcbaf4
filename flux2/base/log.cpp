#include "base/log.hpp"

#include <mutex>
#include <utility>

namespace flux2 {
namespace {

// Recursive: a sink may call what logs.
struct SharedSink {
    std::recursive_mutex mutex;
    LogSink sink;
};

SharedSink& shared() {
    static SharedSink instance;
    return instance;
}

}  // namespace

void set_log(LogSink new_sink) {
    const std::lock_guard lock(shared().mutex);
    shared().sink = std::move(new_sink);
}

void log(LogLevel level, const std::string& line) {
    const std::lock_guard lock(shared().mutex);
    if (shared().sink) {
        shared().sink(level, line);
    }
}

ScopedLog::ScopedLog(LogSink new_sink) : before_(std::exchange(sink(), std::move(new_sink))) {}

ScopedLog::~ScopedLog() {
    sink() = std::move(before_);
}

}  // namespace flux2
