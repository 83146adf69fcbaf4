#include "base/log.hpp"

#include <utility>

namespace flux2 {
namespace {

LogSink& sink() {
    static LogSink instance;
    return instance;
}

}  // namespace

void set_log(LogSink new_sink) {
    sink() = std::move(new_sink);
}

void log(LogLevel level, const std::string& line) {
    if (sink()) {
        sink()(level, line);
    }
}

}  // namespace flux2
