#include "train/train_display.hpp"

#include "base/check.hpp"
#include "base/progress_bar.hpp"
#include "base/text_stream.hpp"

#include <algorithm>
#include <iomanip>
#include <iostream>

namespace flux2::cli {

std::string loss_text(const std::optional<double>& loss) {
    TextStream text;
    if (loss) {
        text << std::fixed << std::setprecision(4) << *loss;
    } else {
        text << "-";
    }
    return text.str();
}

void TrainDisplay::say(const std::string& line) {
    if (!quiet_) {
        line_.clear();
        std::cerr << line << std::endl;
    }
}

double TrainDisplay::seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void TrainDisplay::show_encoding(double share) {
    if (!quiet_) {
        line_.show([&] { return progress_bar("encoding the dataset", share, "", seconds()); });
    }
}

void TrainDisplay::start(int64_t n_done, int64_t n_steps) {
    line_.clear();
    first_ = n_done;
    n_steps_ = n_steps;
    start_ = std::chrono::steady_clock::now();
}

void TrainDisplay::show_step(const StepResult& step, const TrainingLog& log) {
    if (quiet_) {
        return;
    }
    const double done = static_cast<double>(step.step - first_);
    const double all = static_cast<double>(n_steps_ - first_);
    std::string detail = concat(step.step, "/", n_steps_, "  loss ", loss_text(log.loss()), " (t");
    for (size_t band = 0; band < TrainingLog::kBands; ++band) {
        detail += concat(" <", 100 * (band + 1) / TrainingLog::kBands,
                         "%: ", loss_text(log.loss_of_band(band)));
    }
    detail += ")";
    if (line_.on_terminal()) {
        line_.show([&] { return progress_bar("training", done / all, detail, seconds()); });
        return;
    }
    // A line at the first and last step and twenty between them.
    const int64_t between = std::max<int64_t>((n_steps_ - first_) / 20, 1);
    if (step.step == first_ + 1 || step.step == n_steps_ || step.step % between == 0) {
        const double left = seconds() * (all - done) / done;
        std::cerr << concat("step ", detail, "  ", readable_seconds(left), " left") << std::endl;
    }
}

}  // namespace flux2::cli
