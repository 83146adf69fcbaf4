// Output while pictures are made: progress bars on a terminal, plain lines elsewhere, or JSON
// events for programs.
#pragma once

#include <flux2/flux2.hpp>
#include "base/terminal_line.hpp"
#include "common/options.hpp"

#include <nlohmann/json_fwd.hpp>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <set>
#include <string>

namespace flux2::cli {

// Any thread may call it.
class Display {
  public:
    Display(OutputStyle style, bool verbose);

    // A step of the current picture. `count` is "2/10" when there are several.
    void step(const Step& step, const std::string& count);
    // A picture has been written; `facts` is the metadata stored with it.
    void picture(const std::filesystem::path& file, const Result& result,
                 const nlohmann::json& facts);
    // A line of the library's log; the same warning is shown once.
    void message(LogLevel level, const std::string& line);
    // A line that is shown unless --quiet is given.
    void note(const std::string& line);
    void error(int code, const std::string& line);

    bool quiet() const { return style_ != OutputStyle::text; }

  private:
    void tell(LogLevel level, const std::string& line);
    void event(const nlohmann::json& event) const;
    void plain_step(const Step& step, double seconds);

    std::mutex mutex_;
    OutputStyle style_;
    bool verbose_;
    TerminalLine bar_;
    Stage stage_ = Stage::load;
    std::string what_;
    std::set<std::string> warned_;
    int steps_told_ = 0;
    std::chrono::steady_clock::time_point stage_start_;
};

// "denoising  [============            ] 2/4  12.0 s left"
std::string bar_line(const Step& step, const std::string& count, double seconds);

}  // namespace flux2::cli
