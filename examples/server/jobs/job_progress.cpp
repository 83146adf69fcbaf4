#include "jobs/job_progress.hpp"

#include <algorithm>
#include <array>
#include <memory>

namespace flux2::server {
namespace {

// Where each stage begins, as shares of a picture's time: typical values, which only the time left
// depends on. In the order of Stage.
constexpr std::array<double, 6> kBegins = {0, 0.05, 0.1, 0.15, 0.9, 1};
constexpr double kLeastShare = 0.02;  // before that nothing is known about the time left

}  // namespace

double share_of_picture(Stage stage, double share) {
    const auto index = static_cast<size_t>(stage);
    return kBegins[index] + std::clamp(share, 0.0, 1.0) * (kBegins[index + 1] - kBegins[index]);
}

ProgressReport::ProgressReport(Job& job) : job_(job), begun_(std::chrono::steady_clock::now()) {}

void ProgressReport::step(const Step& step) {
    const std::chrono::duration<double> so_far = std::chrono::steady_clock::now() - begun_;
    const auto preview =
        step.preview == nullptr ? nullptr : std::make_shared<const Image>(*step.preview);
    job_.change([&](JobStatus& status) {
        JobProgress& progress = status.progress;
        progress.stage = step.stage;
        if (step.stage == Stage::denoise) {
            progress.step = step.step;
            progress.n_steps = step.n_steps;
        }
        // As if all pictures that are left were made together. Parts are loaded between other
        // stages too; what is done stays done.
        const double finished = static_cast<double>(status.pictures.size()) / job_.request().n;
        const double share = finished + (1 - finished) * share_of_picture(step.stage, step.share);
        progress.share = std::max(progress.share, share);
        if (progress.share >= kLeastShare) {
            progress.seconds_left = so_far.count() * (1 - progress.share) / progress.share;
        }
        if (preview) {
            progress.preview = preview;
            ++progress.n_previews;
        }
    });
}

}  // namespace flux2::server
