// What a job takes in memory, stage by stage, from its real graphs and without loading weights.
#pragma once

#include <flux2/flux2.hpp>
#include "compute/backend.hpp"
#include "pipeline/model.hpp"
#include "pipeline/parts.hpp"
#include "pipeline/request.hpp"

#include <array>
#include <optional>
#include <vector>

namespace flux2 {

// Lays out weights and graphs on a device and on the CPU without allocating them.
class MemoryPlanner {
  public:
    // Borrows both. Starts the device once more, for measuring only. `program_bytes` is what the
    // process takes beside the parts: the files' metadata, libraries, the device's driver.
    MemoryPlanner(const Model& model, const LoadOptions& options, uint64_t program_bytes);

    // The stages of a job when each part is placed so.
    MemoryPlan plan(const Job& job, const std::array<Placement, kParts>& placement);

    // The fastest placement of each part that stays within the limit on device memory: the options'
    // or what the device has free.
    std::array<Placement, kParts> choose(const Job& job);

  private:
    bool may_unpack(Part part) const;
    Backend& backend(Placement placement);
    template <typename Work>
    StageMemory with_autoencoder(Part part, Placement placement, const Work& work);
    StageMemory text_encoder(const Job& job, Placement placement);
    StageMemory transformer(const Job& job, Placement placement);
    StageMemory encode(const Job& job, Part part, Placement placement);
    StageMemory decode(const Job& job, Part part, Placement placement);
    uint64_t autoencoder_bytes(const Job& job, Part part, Placement placement);
    bool previews(const Job& job) const { return job.preview && model_.tiny; }
    std::string name_of(Placement placement);
    uint64_t device_limit() const;

    const Model& model_;
    const LoadOptions& options_;
    uint64_t program_bytes_;
    Backend device_;
    Backend cpu_;
};

}  // namespace flux2
