#include "commands/display.hpp"

#include "base/check.hpp"
#include "base/progress_bar.hpp"

#include <nlohmann/json.hpp>

#include <iostream>

namespace flux2::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::string stage_name(const Step& step) {
    return step.what.empty() ? to_string(step.stage)
                             : std::string(to_string(step.stage)) + " the " + step.what;
}

const char* level_name(LogLevel level) {
    return level == LogLevel::error     ? "error"
           : level == LogLevel::warning ? "warning"
           : level == LogLevel::info    ? "info"
                                        : "debug";
}

nlohmann::json to_json(const Timings& t) {
    return {{"load", t.load},
            {"encode_prompt", t.encode_prompt},
            {"encode_references", t.encode_references},
            {"denoise", t.denoise},
            {"decode", t.decode}};
}

double total(const Timings& t) {
    return t.load + t.encode_prompt + t.encode_references + t.denoise + t.decode;
}

}  // namespace

std::string bar_line(const Step& step, const std::string& count, double seconds) {
    const std::string label = (count.empty() ? "" : count + "  ") + stage_name(step);
    if (step.stage == Stage::load) {
        return label + " ...";
    }
    const std::string steps = step.n_steps > 0 ? concat(step.step, "/", step.n_steps) : "";
    return progress_bar(label, step.share, steps, seconds);
}

Display::Display(OutputStyle style, bool verbose) : style_(style), verbose_(verbose) {}

void Display::event(const nlohmann::json& event) const {
    // Prompts may contain any bytes; invalid UTF-8 is replaced.
    std::cout << event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
}

void Display::step(const Step& step, const std::string& count) {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    if (step.stage != stage_ || step.what != what_ || stage_start_ == Clock::time_point()) {
        stage_ = step.stage;
        what_ = step.what;
        stage_start_ = now;
        steps_told_ = 0;
        bar_.hurry();
        if (style_ == OutputStyle::text && !bar_.on_terminal()) {
            std::cerr << (count.empty() ? "" : count + "  ") << stage_name(step) << std::endl;
        }
    }
    const double seconds = std::chrono::duration<double>(now - stage_start_).count();
    if (style_ == OutputStyle::json) {
        event({{"event", "progress"},
               {"stage", to_string(step.stage)},
               {"what", step.what},
               {"share", step.share},
               {"step", step.step},
               {"steps", step.n_steps},
               {"seconds", seconds}});
    } else if (style_ == OutputStyle::text && bar_.on_terminal()) {
        bar_.show([&] { return bar_line(step, count, seconds); });
    } else if (style_ == OutputStyle::text) {
        plain_step(step, seconds);
    }
}

void Display::plain_step(const Step& step, double seconds) {
    if (step.step > steps_told_) {
        steps_told_ = step.step;
        std::cerr << "  step " << step.step << "/" << step.n_steps << "  "
                  << readable_seconds(seconds) << std::endl;
    }
}

void Display::picture(const std::filesystem::path& file, const Result& result,
                      const nlohmann::json& facts) {
    const std::lock_guard lock(mutex_);
    bar_.clear();
    stage_start_ = {};
    if (style_ == OutputStyle::json) {
        nlohmann::json done = facts;
        done["event"] = "picture";
        done["file"] = file.string();
        done["seconds"] = to_json(result.timings);
        done["prompt_cached"] = result.prompt_cached;
        done["references_cached"] = result.references_cached;
        done["device_peak_bytes"] = result.device_peak;
        done["host_peak_bytes"] = result.host_peak;
        event(done);
        return;
    }
    if (style_ == OutputStyle::quiet) {
        return;
    }
    const Timings& t = result.timings;
    std::cout << file.string() << ": " << result.image.width << "x" << result.image.height
              << ", seed " << result.seed << ", " << result.steps << " steps, "
              << readable_seconds(total(t)) << " (load " << readable_seconds(t.load) << ", prompt "
              << (result.prompt_cached ? "cached" : readable_seconds(t.encode_prompt));
    if (result.references_cached > 0 && result.references_encoded == 0) {
        std::cout << ", references cached";
    } else if (t.encode_references > 0.01) {
        std::cout << ", references " << readable_seconds(t.encode_references);
    }
    std::cout << ", denoise " << readable_seconds(t.denoise) << ", decode "
              << readable_seconds(t.decode) << ")" << std::endl;
}

void Display::message(LogLevel level, const std::string& line) {
    const std::lock_guard lock(mutex_);
    if (level == LogLevel::debug || (level == LogLevel::info && !verbose_) ||
        (level == LogLevel::warning && !warned_.insert(line).second)) {
        return;
    }
    tell(level, line);
}

void Display::note(const std::string& line) {
    const std::lock_guard lock(mutex_);
    tell(LogLevel::info, line);
}

void Display::tell(LogLevel level, const std::string& line) {
    if (style_ == OutputStyle::json) {
        event({{"event", "message"}, {"level", level_name(level)}, {"text", line}});
        return;
    }
    if (style_ == OutputStyle::quiet && level != LogLevel::error) {
        return;
    }
    bar_.clear();
    std::cerr << "flux2: " << (level == LogLevel::info ? "" : level_name(level))
              << (level == LogLevel::info ? "" : ": ") << line << std::endl;
}

void Display::error(int code, const std::string& line) {
    const std::lock_guard lock(mutex_);
    bar_.clear();
    if (style_ == OutputStyle::json) {
        event({{"event", "error"}, {"code", code}, {"text", line}});
    }
}

}  // namespace flux2::cli
