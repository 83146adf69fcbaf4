// Devices, and what ggml says beside its work.
#include "compute/backend.hpp"

#include <flux2/log.hpp>

#include <doctest/doctest.h>
#include <ggml.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace flux2 {
namespace {

// ggml's log as somebody set it.
struct GgmlLog {
    ggml_log_callback callback = nullptr;
    void* data = nullptr;
};

GgmlLog current_log() {
    GgmlLog log;
    ggml_log_get(&log.callback, &log.data);
    return log;
}

void other_callback(ggml_log_level, const char*, void*) {}

TEST_CASE("ggml's log is taken once, so that a program may take it for itself") {
    list_devices();
    const GgmlLog ours = current_log();
    ggml_log_set(other_callback, nullptr);
    list_devices();
    const Backend backend("CPU");
    CHECK((current_log().callback == other_callback));
    ggml_log_set(ours.callback, ours.data);
}

TEST_CASE("ggml's warnings and errors come out of our log, the rest does not") {
    list_devices();
    const GgmlLog ggml = current_log();
    std::vector<std::string> lines;
    set_log([&](LogLevel level, const std::string& line) {
        lines.push_back((level == LogLevel::error ? "error " : "warning ") + line);
    });
    ggml.callback(GGML_LOG_LEVEL_INFO, "chatter\n", ggml.data);
    ggml.callback(GGML_LOG_LEVEL_WARN, "slow\n", ggml.data);
    ggml.callback(GGML_LOG_LEVEL_ERROR, "broken\n\n", ggml.data);
    set_log({});
    CHECK(lines == std::vector<std::string>{"warning slow", "error broken"});
}

TEST_CASE("what a log throws does not reach ggml") {
    list_devices();
    const GgmlLog ggml = current_log();
    set_log([](LogLevel, const std::string&) { throw std::runtime_error("full"); });
    CHECK_NOTHROW(ggml.callback(GGML_LOG_LEVEL_ERROR, "broken\n", ggml.data));
    set_log({});
}

}  // namespace
}  // namespace flux2
