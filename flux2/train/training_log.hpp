// What a training run reports: losses smoothed over steps and by noise level, as values and as
// lines of a file, metrics.jsonl, which a resumed run continues.
#pragma once

#include "train/trainer.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

namespace flux2 {

// The mean of the last values, each with 0.98 of the weight of the next.
class SmoothedValue {
  public:
    void add(double value);
    // Nothing before the first value.
    std::optional<double> value() const;

  private:
    double sum_ = 0, weight_ = 0;
};

struct LossPoint {
    int64_t step = 0;
    double loss = 0;
};

class TrainingLog {
  public:
    static constexpr size_t kBands = 4;  // of noise levels, of equal width

    // Continues the file: lines of later steps than n_done are removed, and the values of the
    // others are counted. With n_done 0 the file begins anew. Throws bad_file and out_of_disk.
    TrainingLog(std::filesystem::path file, int64_t n_done);

    void add_step(const StepResult& step, double seconds);
    void add_validation(int64_t step, double loss);

    std::optional<double> loss() const { return loss_.value(); }
    std::optional<double> loss_of_band(size_t band) const { return bands_[band].value(); }
    // Smoothed, one per step, and those of validation.
    const std::vector<LossPoint>& losses() const { return losses_; }
    const std::vector<LossPoint>& validation_losses() const { return validation_; }

  private:
    void count_step(int64_t step, double loss, const std::vector<ExampleLoss>& examples);
    void append(const std::string& line) const;

    std::filesystem::path file_;
    SmoothedValue loss_;
    std::array<SmoothedValue, kBands> bands_;
    std::vector<LossPoint> losses_, validation_;
};

}  // namespace flux2
