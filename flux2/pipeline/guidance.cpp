#include "pipeline/guidance.hpp"

#include "base/check.hpp"
#include "base/log.hpp"

#include <cmath>

namespace flux2 {
namespace {

constexpr float kMaxGuidance = 100.0f;

bool in_range(float guidance) {
    return std::isfinite(guidance) && guidance >= 0.0f && guidance <= kMaxGuidance;
}

void check_ranges(const Request& request, const Model& model) {
    const float guidance = request.guidance.value_or(model.defaults.guidance);
    check(in_range(guidance), ErrorKind::bad_argument, "a guidance of ", guidance,
          " is out of range; use 0 to ", kMaxGuidance, " (", model.info.name, " wants ",
          model.defaults.guidance, ")");
    const float scale = request.cfg_scale.value_or(1.0f);
    check(in_range(scale), ErrorKind::bad_argument, Setting::cfg_scale, " ", scale,
          " is out of range; use 0 to ", kMaxGuidance, ", above 1 for two passes per step");
    const GuidanceInterval& interval = request.guidance_interval;
    check(interval.from >= 0.0f && interval.from < interval.until && interval.until <= 1.0f,
          ErrorKind::bad_argument, "guidance from ", interval.from, " until ", interval.until,
          " is no share of the steps; use two numbers from 0 to 1, the smaller one first, such as "
          "0 and 0.5");
}

// Guided by two passes and nothing else: guidance and cfg_scale are the same.
bool is_base(const Model& model) {
    return !model.sizes.guidance && !model.defaults.distilled;
}

float base_guidance(const Request& request, const Model& model) {
    const float guidance = request.guidance.value_or(model.defaults.guidance);
    const float scale = request.cfg_scale.value_or(guidance);
    check(!request.guidance || scale == guidance, ErrorKind::bad_argument, "a guidance of ",
          guidance, " and ", Setting::cfg_scale, " ", scale, " are given, which are the same for ",
          model.info.name, "; leave out one of them");
    return scale;
}

// Chooses the steps; without any there is one pass in each.
void resolve_passes(const Request& request, const Model& model, Job& job) {
    const auto& [from, until] = request.guidance_interval;
    job.guided_steps = steps_within(from, until, static_cast<size_t>(job.steps));
    const bool wanted = job.cfg_scale > 1.0f;
    job.two_passes = wanted && job.guided_steps.size() > 0;
    if (!job.two_passes) {
        job.cfg_scale = 1.0f;
    }
    if (wanted && !job.two_passes) {
        log(LogLevel::warning, concat("none of the ", job.steps, " steps begins from ", from,
                                      " until ", until, ": there is no guidance by two passes"));
    } else if (!wanted && (from > 0.0f || until < 1.0f)) {
        log(LogLevel::warning, concat("guidance from ", from, " until ", until,
                                      " has no effect with one pass per step; use a ",
                                      Setting::cfg_scale, " above 1"));
    }
    if (job.two_passes && !is_base(model)) {
        log(LogLevel::warning,
            concat(Setting::cfg_scale, " ", job.cfg_scale,
                   " makes two passes per step, which takes about twice as long"));
    }
}

void warn_of_negative_prompt(const Model& model, const Job& job) {
    if (is_base(model)) {
        log(LogLevel::warning, concat("the negative prompt has no effect at guidance ",
                                      job.guidance, "; use more than 1"));
        return;
    }
    log(LogLevel::warning,
        concat(model.info.name,
               model.sizes.guidance ? " has its guidance built in" : " is distilled",
               ": the negative prompt has no effect; a ", Setting::cfg_scale,
               " above 1 makes a second pass with it"));
}

}  // namespace

void resolve_guidance(const Request& request, const Model& model, Job& job) {
    check_ranges(request, model);
    job.guidance = is_base(model) ? base_guidance(request, model)
                                  : request.guidance.value_or(model.defaults.guidance);
    job.cfg_scale = is_base(model) ? job.guidance : request.cfg_scale.value_or(1.0f);
    if (!model.sizes.guidance && model.defaults.distilled && job.guidance != 1.0f) {
        log(LogLevel::warning, concat(model.info.name, " is distilled and takes no guidance: ",
                                      job.guidance, " has no effect"));
        job.guidance = 1.0f;
    }
    const bool wants_two_passes = job.cfg_scale > 1.0f;
    resolve_passes(request, model, job);
    if (!request.negative_prompt.empty() && !wants_two_passes) {
        warn_of_negative_prompt(model, job);
    }
}

}  // namespace flux2
