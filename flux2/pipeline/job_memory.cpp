#include "pipeline/job_memory.hpp"

#include "base/byte_size.hpp"
#include "base/check.hpp"
#include "base/image_limits.hpp"
#include "base/log.hpp"
#include "base/ram.hpp"
#include "base/system.hpp"
#include "pipeline/time_forecast.hpp"

#include <algorithm>
#include <limits>
#include <string>

namespace flux2 {
namespace {

const StageMemory& largest_stage(const MemoryPlan& plan) {
    const auto total = [](const StageMemory& s) {
        return s.device_weights + s.device_compute + s.host_weights + s.host_compute;
    };
    return *std::max_element(
        plan.stages.begin(), plan.stages.end(),
        [&](const StageMemory& a, const StageMemory& b) { return total(a) < total(b); });
}

std::string need(const MemoryPlan& plan) {
    return concat("it would need ", gigabytes(std::max(plan.host_peak, plan.device_peak)), " (",
                  largest_stage(plan).stage, ")");
}

// Why the plan exceeds the RAM.
std::string misfit(const Job& job, const MemoryPlan& plan, const MemoryLimits& limits) {
    return concat("a picture of ", job.width, "x", job.height, " does not fit: ", need(plan),
                  " and ", limits.why_host, "; make it smaller, or use a smaller ", Setting::type);
}

// While it exists, the flag stops the measuring.
class MeasuringCancel {
  public:
    MeasuringCancel(MachineSpeed& machine, const std::atomic<bool>* flag) : machine_(machine) {
        machine_.set_cancel(flag);
    }
    ~MeasuringCancel() { machine_.set_cancel(nullptr); }
    MeasuringCancel(const MeasuringCancel&) = delete;
    MeasuringCancel& operator=(const MeasuringCancel&) = delete;

  private:
    MachineSpeed& machine_;
};

}  // namespace

JobMemory::JobMemory(const Model& model, const LoadOptions& options, const TensorCache& cache,
                     LoadedModel& loaded_model)
    : model_(model),
      options_(options),
      cache_(cache),
      loaded_model_(loaded_model),
      program_bytes_(own_memory_bytes()) {}

// Device memory of our own parts counts as free, since they are freed when necessary.
MemoryLimits JobMemory::limits() const {
    constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();
    const Ram ram = process_ram();
    MemoryLimits limits;
    limits.host = ram.most > 0 ? ram.most : kUnknown;
    limits.why_host = ram.why_most;
    limits.free_host = ram.available > 0
                           ? usable_ram_bytes(ram.available + loaded_model_.memory().host)
                           : kUnknown;
    for (const Backend* device : loaded_model_.devices()) {
        limits.devices[device->name()] = usable_bytes(
            device->device(), loaded_model_.device_bytes(*device), options_.max_device_bytes);
    }
    return limits;
}

MemoryChoice JobMemory::choose(const Job& job, const MemoryLimits& limits) {
    if (!planner_) {
        planner_.emplace(model_, options_, program_bytes_);
    }
    check_sides(job, limits);
    return planner_->choose(job, limits);
}

// Laying out graphs for a huge picture would itself take gigabytes, so its needs are extrapolated
// from the largest allowed size.
void JobMemory::check_sides(const Job& job, const MemoryLimits& limits) {
    Job largest = job;
    largest.width = std::min(job.width, kMaxSide);
    largest.height = std::min(job.height, kMaxSide);
    if (largest.width == job.width && largest.height == job.height) {
        return;
    }
    const MemoryPlan plan = planner_->choose(largest, limits).plan;
    const double times = 1.0 * job.width * job.height / largest.width / largest.height;
    const auto peak = static_cast<double>(std::max(plan.host_peak, plan.device_peak));
    throw Error(ErrorKind::bad_argument,
                concat("a picture of ", job.width, "x", job.height, " is over the limit of ",
                       kMaxSide, " pixels a side; it would need about ",
                       gigabytes(static_cast<uint64_t>(peak * times)), " (",
                       largest_stage(plan).stage, ")"));
}

void JobMemory::check_fits(const Job& job, const MemoryPlan& plan,
                           const MemoryLimits& limits) const {
    check(job.references.size() <= kMaxReferences, ErrorKind::bad_argument, job.references.size(),
          " references are over the limit of ", kMaxReferences, "; ", need(plan));
    check(plan.host_peak <= limits.host, ErrorKind::out_of_memory, misfit(job, plan, limits));
}

void JobMemory::prepare(const Job& job) {
    const MemoryLimits now = limits();
    const MemoryChoice choice = choose(job, now);
    check_fits(job, choice.plan, now);
    if (loaded_model_.keeps_loaded() && !choice.keep_loaded) {
        log(LogLevel::info, choice.why_in_turn);
    }
    loaded_model_.set_keeps_loaded(choice.keep_loaded);
    if (choice.maps != loaded_model_.map_memories() && choice.maps.decode != MapMemory::whole) {
        log(LogLevel::info,
            "pictures of this size are decoded some rows at a time, to save memory");
    }
    loaded_model_.set_map_memories(choice.maps);
    for (const Part part : kAllParts) {
        const Placement chosen = choice.placement[static_cast<size_t>(part)];
        if (chosen != loaded_model_.placement(part)) {
            loaded_model_.set_placement(part, chosen);
            log(LogLevel::info,
                concat("the ", to_string(part), " is ",
                       chosen == Placement::unpacked   ? "held in BF16 on "
                       : chosen == Placement::device   ? "held on "
                       : chosen == Placement::streamed ? "streamed from RAM to "
                                                       : "run on the CPU, as it does not fit ",
                       loaded_model_.device(part).name()));
        }
    }
}

void JobMemory::limit_pictures(Job& job) {
    const int wanted = job.n_pictures;
    const auto transformer = static_cast<size_t>(Part::transformer);
    job.n_pictures = 1;
    const MemoryLimits now = limits();
    const Placement best = choose(job, now).placement[transformer];
    const auto suits = [&](int n_pictures) {
        job.n_pictures = n_pictures;
        const MemoryChoice choice = choose(job, now);
        return choice.placement[transformer] == best && choice.plan.host_peak <= now.host;
    };
    job.n_pictures = largest_suitable(wanted, suits);
    if (job.n_pictures < wanted) {
        log(LogLevel::warning, concat("there is memory for ", job.n_pictures, " of ", wanted,
                                      " pictures at a time: they are made in several passes"));
    }
}

MemoryPlan JobMemory::plan(const Job& job, const std::atomic<bool>* cancel) {
    const MemoryLimits now = limits();
    MemoryChoice choice = choose(job, now);
    if (choice.plan.host_peak > now.host) {
        log(LogLevel::warning, misfit(job, choice.plan, now));
        return choice.plan;
    }
    if (!machine_speed_) {
        machine_speed_.emplace(model_, options_, cache_);
    }
    const MeasuringCancel watch(*machine_speed_, cancel);
    forecast(choice.plan, planner_->computations(job, choice), *machine_speed_, [&] {
        for (const Backend* device : loaded_model_.devices()) {
            if (!device->is_cpu()) {
                loaded_model_.free_all();
            }
        }
    });
    return_unused_memory();
    return choice.plan;
}

}  // namespace flux2
