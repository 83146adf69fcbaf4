#include "train/learning_rate.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace flux2 {

RateSchedule parse_rate_schedule(const std::string& name) {
    if (name == "constant" || name == "constant_with_warmup") {
        return RateSchedule::constant;
    }
    if (name == "linear") {
        return RateSchedule::linear;
    }
    check(name == "cosine", ErrorKind::bad_argument, "lr_scheduler ", name,
          " is unknown; use constant, constant_with_warmup, linear or cosine");
    return RateSchedule::cosine;
}

const char* to_string(RateSchedule schedule) {
    switch (schedule) {
        case RateSchedule::linear:
            return "linear";
        case RateSchedule::cosine:
            return "cosine";
        case RateSchedule::constant:
            break;
    }
    return "constant";
}

double rate_of_step(const LearningRate& rate, int64_t step, int64_t n_steps) {
    if (step < rate.warmup_steps) {
        return rate.peak * static_cast<double>(step + 1) / static_cast<double>(rate.warmup_steps);
    }
    const double left = static_cast<double>(std::max<int64_t>(n_steps - rate.warmup_steps, 1));
    const double share = static_cast<double>(step - rate.warmup_steps) / left;
    double factor = 1;
    if (rate.schedule == RateSchedule::linear) {
        factor = 1 - share;
    } else if (rate.schedule == RateSchedule::cosine) {
        factor = 0.5 * (1 + std::cos(std::numbers::pi * share));
    }
    return rate.peak * (rate.min_ratio + (1 - rate.min_ratio) * factor);
}

}  // namespace flux2
