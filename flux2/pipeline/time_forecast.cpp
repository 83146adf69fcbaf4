#include "pipeline/time_forecast.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <tuple>

namespace flux2 {
namespace {

// A computation of n tokens takes a fixed time and one for each token, so the seconds per work are
// a straight line over 1 / n. Beyond what was measured it is followed within limits.
double seconds_per_work(const Speeds& speeds, size_t kind, int64_t size) {
    constexpr double kLeast = 0.5;  // of the last that was measured
    constexpr double kMost = 1.25;
    const auto per_work = [&](size_t i) { return speeds[i].seconds_per[kind]; };
    const auto inverse = [](int64_t n) { return 1 / static_cast<double>(n); };
    const size_t last = speeds.size() - 1;
    if (last == 0 || size <= speeds.front().size) {
        return per_work(0);
    }
    size_t above = 1;  // the upper end of the line's part
    while (above < last && speeds[above].size < size) {
        ++above;
    }
    const size_t below = above - 1;
    const double share = (inverse(size) - inverse(speeds[above].size)) /
                         (inverse(speeds[below].size) - inverse(speeds[above].size));
    const double followed = per_work(above) + share * (per_work(below) - per_work(above));
    return share >= 0 ? followed
                      : std::clamp(followed, kLeast * per_work(last), kMost * per_work(last));
}

}  // namespace

double forecast_seconds(const WorkAmounts& work, int64_t size, const NetworkSpeeds& speeds) {
    double seconds = 0;
    for (size_t kind = 0; kind < kWorkKinds; ++kind) {
        const bool alone =
            kind == static_cast<size_t>(WorkKind::attention) && !speeds.attention.empty();
        const Speeds& used = alone ? speeds.attention : speeds.network;
        seconds += used.empty() ? 0 : work[kind] * seconds_per_work(used, kind, size);
    }
    return seconds;
}

void forecast(MemoryPlan& plan, const StageComputations& stages, MachineSpeed& machine,
              const std::function<void()>& before_measuring) {
    using Network = std::tuple<Part, Placement, std::string>;
    std::map<Network, int64_t> largest;
    for (const auto& stage : stages) {
        for (const Computation& c : stage) {
            int64_t& size = largest[{c.part, c.placement, c.device}];
            size = std::max(size, c.size);
        }
    }
    std::map<Network, NetworkSpeeds> speeds;
    for (const auto& [network, size] : largest) {
        const auto& [part, placement, device] = network;
        speeds[network] = machine.of(part, placement, device, size, before_measuring);
    }
    bool all_known = true;
    plan.seconds = 0;
    for (size_t i = 0; i < stages.size(); ++i) {
        double seconds = 0;
        bool known = !stages[i].empty();
        for (const Computation& c : stages[i]) {
            const NetworkSpeeds& of_part = speeds.at({c.part, c.placement, c.device});
            known = known && !of_part.network.empty();
            seconds += c.times * forecast_seconds(c.work, c.size, of_part);
        }
        plan.stages[i].seconds = known ? seconds : 0;
        plan.seconds += seconds;
        all_known = all_known && known;
    }
    plan.seconds = all_known ? plan.seconds : 0;
}

}  // namespace flux2
