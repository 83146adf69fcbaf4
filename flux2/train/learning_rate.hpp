// The learning rate of each step: a linear rise, then constant or falling.
#pragma once

#include <cstdint>
#include <string>

namespace flux2 {

enum class RateSchedule { constant, linear, cosine };

// "constant", "constant_with_warmup", "linear", "cosine". Throws bad_argument.
RateSchedule parse_rate_schedule(const std::string& name);
const char* to_string(RateSchedule schedule);

struct LearningRate {
    double peak = 1e-4;
    RateSchedule schedule = RateSchedule::constant;
    int64_t warmup_steps = 0;
    double min_ratio = 0;  // of the peak, at the end of a falling schedule
};

// Of step 0, 1, ... of n_steps. Step i of the rise has (i + 1) / warmup_steps of the peak.
double rate_of_step(const LearningRate& rate, int64_t step, int64_t n_steps);

}  // namespace flux2
