#include "base/log.hpp"

#include "base/utf8.hpp"

#include <mutex>
#include <utility>

namespace flux2 {
namespace {

// Recursive, because a sink may call functions that log.
struct SharedSink {
    std::recursive_mutex mutex;
    LogSink sink;
};

SharedSink& shared() {
    static SharedSink instance;
    return instance;
}

LogSink exchange_sink(LogSink sink) {
    const std::lock_guard lock(shared().mutex);
    return std::exchange(shared().sink, std::move(sink));
}

}  // namespace

void set_log(LogSink sink) {
    exchange_sink(std::move(sink));
}

void log(LogLevel level, const std::string& line) {
    const std::lock_guard lock(shared().mutex);
    if (shared().sink) {
        shared().sink(level, as_utf8(line));
    }
}

ScopedLog::ScopedLog(LogSink sink) : before_(exchange_sink(std::move(sink))) {}

ScopedLog::~ScopedLog() {
    exchange_sink(std::move(before_));
}

}  // namespace flux2
