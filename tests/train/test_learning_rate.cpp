// Learning rates at steps where they are known by hand.
#include "support/support.hpp"
#include "train/learning_rate.hpp"

#include <doctest/doctest.h>

namespace flux2 {
namespace {

TEST_CASE("a constant rate rises during warm-up and stays") {
    const LearningRate rate = {.peak = 2, .warmup_steps = 4};
    CHECK(rate_of_step(rate, 0, 10) == doctest::Approx(0.5));
    CHECK(rate_of_step(rate, 1, 10) == doctest::Approx(1));
    CHECK(rate_of_step(rate, 3, 10) == doctest::Approx(2));
    CHECK(rate_of_step(rate, 9, 10) == doctest::Approx(2));
}

TEST_CASE("linear and cosine fall to zero, or to the share that is left") {
    LearningRate rate = {.peak = 1, .schedule = RateSchedule::linear, .warmup_steps = 20};
    CHECK(rate_of_step(rate, 19, 120) == doctest::Approx(1));
    CHECK(rate_of_step(rate, 20, 120) == doctest::Approx(1));
    CHECK(rate_of_step(rate, 45, 120) == doctest::Approx(0.75));
    CHECK(rate_of_step(rate, 119, 120) == doctest::Approx(0.01));
    rate.schedule = RateSchedule::cosine;
    CHECK(rate_of_step(rate, 20, 120) == doctest::Approx(1));
    CHECK(rate_of_step(rate, 70, 120) == doctest::Approx(0.5));
    CHECK(rate_of_step(rate, 95, 120) == doctest::Approx(0.1464466));
    rate.min_ratio = 0.1;
    CHECK(rate_of_step(rate, 70, 120) == doctest::Approx(0.55));
}

TEST_CASE("schedules are known by musubi-tuner's names") {
    CHECK(parse_rate_schedule("constant") == RateSchedule::constant);
    CHECK(parse_rate_schedule("constant_with_warmup") == RateSchedule::constant);
    CHECK(parse_rate_schedule("linear") == RateSchedule::linear);
    CHECK(parse_rate_schedule("cosine") == RateSchedule::cosine);
    CHECK(test::error_of([] { parse_rate_schedule("rex"); }).mentions("lr_scheduler rex"));
}

}  // namespace
}  // namespace flux2
