// The memory of a pipeline's jobs: where the parts of the model go for a job, how many pictures are
// made in one pass, what is refused.
#pragma once

#include <flux2/flux2.hpp>
#include "pipeline/loaded_model.hpp"
#include "pipeline/machine_speed.hpp"
#include "pipeline/memory_plan.hpp"
#include "pipeline/model.hpp"
#include "pipeline/request.hpp"
#include "pipeline/tensor_cache.hpp"

#include <atomic>
#include <cstdint>
#include <optional>

namespace flux2 {

class JobMemory {
  public:
    // Borrows all. To be made before anything is loaded.
    JobMemory(const Model& model, const LoadOptions& options, const TensorCache& cache,
              LoadedModel& loaded_model);

    // Decides where parts are placed and whether they stay loaded, and tells the loaded model.
    // Throws bad_argument or out_of_memory for a job that does not fit.
    void prepare(const Job& job);

    // Takes fewer pictures at a time when all would make the transformer slower or exceed the RAM,
    // and logs that.
    void limit_pictures(Job& job);

    // Forgets what was measured, after LoadedModel::restart().
    void restart() {
        planner_.reset();
        machine_speed_.reset();
    }

    // What prepare would choose, with the seconds it takes. Throws cancelled once *cancel is true.
    MemoryPlan plan(const Job& job, const std::atomic<bool>* cancel = nullptr);

  private:
    MemoryLimits limits() const;
    MemoryChoice choose(const Job& job, const MemoryLimits& limits);
    void check_sides(const Job& job, const MemoryLimits& limits);
    void check_fits(const Job& job, const MemoryPlan& plan, const MemoryLimits& limits) const;

    const Model& model_;
    const LoadOptions& options_;
    const TensorCache& cache_;
    LoadedModel& loaded_model_;
    uint64_t program_bytes_;  // before anything is loaded
    std::optional<MemoryPlanner> planner_;
    std::optional<MachineSpeed> machine_speed_;
};

}  // namespace flux2
