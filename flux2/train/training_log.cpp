#include "train/training_log.hpp"

#include "base/file.hpp"
#include "base/growing_file.hpp"
#include "formats/json_file.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <span>
#include <string>

namespace flux2 {
namespace {

using nlohmann::json;

constexpr double kKeep = 0.98;

size_t band_of(double time) {
    const auto band = static_cast<size_t>(time * static_cast<double>(TrainingLog::kBands));
    return std::min(band, TrainingLog::kBands - 1);
}

bool has_number(const json& object, const char* key) {
    return object.contains(key) && object[key].is_number();
}

std::vector<ExampleLoss> examples_in(const json& line) {
    std::vector<ExampleLoss> examples;
    if (line.contains("t") && line.contains("losses")) {
        const auto times = line["t"].get<std::vector<double>>();
        const auto losses = line["losses"].get<std::vector<double>>();
        for (size_t i = 0; i < std::min(times.size(), losses.size()); ++i) {
            examples.push_back({times[i], losses[i]});
        }
    }
    return examples;
}

}  // namespace

void SmoothedValue::add(double value) {
    sum_ = kKeep * sum_ + value;
    weight_ = kKeep * weight_ + 1;
}

std::optional<double> SmoothedValue::value() const {
    return weight_ > 0 ? std::optional(sum_ / weight_) : std::nullopt;
}

TrainingLog::TrainingLog(std::filesystem::path file, int64_t n_done) : file_(std::move(file)) {
    std::string kept;
    std::ifstream lines(file_);
    for (std::string text; n_done > 0 && std::getline(lines, text);) {
        const json line = parse_json(text);
        // The last line may have been cut off.
        if (!line.is_object() || !has_number(line, "step") ||
            line["step"].get<int64_t>() > n_done) {
            continue;
        }
        kept += text + "\n";
        const auto step = line["step"].get<int64_t>();
        if (has_number(line, "loss")) {
            count_step(step, line["loss"].get<double>(), examples_in(line));
        } else if (has_number(line, "validation_loss")) {
            validation_.push_back({step, line["validation_loss"].get<double>()});
        }
    }
    lines.close();
    write_whole_file(file_, std::as_bytes(std::span(kept)));
}

void TrainingLog::count_step(int64_t step, double loss, const std::vector<ExampleLoss>& examples) {
    loss_.add(loss);
    for (const ExampleLoss& example : examples) {
        bands_[band_of(example.time)].add(example.loss);
    }
    losses_.push_back({step, *loss_.value()});
}

void TrainingLog::append(const std::string& line) const {
    GrowingFile file(file_);
    file.append(std::as_bytes(std::span(line)));
}

void TrainingLog::add_step(const StepResult& step, double seconds) {
    count_step(step.step, step.loss, step.examples);
    json line = {{"step", step.step},        {"epoch", step.epoch},
                 {"loss", step.loss},        {"smoothed_loss", *loss_.value()},
                 {"lr", step.learning_rate}, {"grad_norm", step.gradient_norm},
                 {"seconds", seconds}};
    for (const ExampleLoss& example : step.examples) {
        line["t"].push_back(example.time);
        line["losses"].push_back(example.loss);
    }
    append(line.dump() + "\n");
}

void TrainingLog::add_validation(int64_t step, double loss) {
    validation_.push_back({step, loss});
    append(json({{"step", step}, {"validation_loss", loss}}).dump() + "\n");
}

}  // namespace flux2
