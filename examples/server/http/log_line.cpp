#include "http/log_line.hpp"

#include "base/check.hpp"
#include "base/system.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>

namespace flux2::server {
namespace {

std::string time_now() {
    const auto now = std::chrono::system_clock::now();
    const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
    const auto milliseconds =
        std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() %
        1000;
    const std::chrono::sys_days day = std::chrono::floor<std::chrono::days>(now);
    const std::chrono::year_month_day date(day);
    const std::chrono::hh_mm_ss time(std::chrono::sys_seconds(std::chrono::seconds(seconds)) - day);
    std::array<char, 40> text{};
    std::snprintf(text.data(), text.size(), "%04d-%02u-%02uT%02d:%02d:%02d.%03dZ",
                  static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                  static_cast<unsigned>(date.day()), static_cast<int>(time.hours().count()),
                  static_cast<int>(time.minutes().count()),
                  static_cast<int>(time.seconds().count()), static_cast<int>(milliseconds));
    return text.data();
}

const char* name_of(LogLevel level) {
    constexpr std::array kNames = {"debug", "info", "warning", "error"};
    return kNames[static_cast<size_t>(level)];
}

std::string value_of(const std::string& text) {
    const bool is_plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
        return c > ' ' && c < 127 && c != '"' && c != '\\';
    });
    return is_plain
               ? text
               : nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void log_line(LogLevel level, const std::string& event,
              std::initializer_list<std::pair<const char*, std::string>> values) {
    std::string line = concat("time=", time_now(), " level=", name_of(level), " event=", event);
    for (const auto& [key, value] : values) {
        line += concat(" ", key, "=", value_of(value));
    }
    // In one piece; on a terminal in place of the bar of a download, which is drawn again below.
    write_to_stderr((stderr_is_terminal() ? "\r\033[K" : "") + line + "\n");
}

}  // namespace flux2::server
