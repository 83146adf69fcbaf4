// What flux2-train shows while it works: a bar on a terminal, else lines.
#pragma once

#include "base/terminal_line.hpp"
#include "train/training_log.hpp"

#include <chrono>
#include <cstdint>
#include <string>

namespace flux2::cli {

class TrainDisplay {
  public:
    explicit TrainDisplay(bool quiet) : quiet_(quiet) {}

    void say(const std::string& line);
    // Of encoding the dataset.
    void show_encoding(double share);
    // Steps are counted from here on, for the time that is left.
    void start(int64_t n_done, int64_t n_steps);
    void show_step(const StepResult& step, const TrainingLog& log);

  private:
    double seconds() const;

    bool quiet_;
    int64_t first_ = 0, n_steps_ = 1;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    TerminalLine line_;
};

// "1.05", or "-" where there is no value.
std::string loss_text(const std::optional<double>& loss);

}  // namespace flux2::cli
