// How much memory a job takes, by stage, computed from its real graphs without loading weights.
#pragma once

#include <flux2/flux2.hpp>
#include "compute/backend.hpp"
#include "pipeline/loaded_model.hpp"
#include "pipeline/memory_limits.hpp"
#include "pipeline/model.hpp"
#include "pipeline/request.hpp"
#include "pipeline/time_forecast.hpp"

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace flux2 {

// Where the parts of a model go for a job, whether they stay loaded together, and what that takes.
struct MemoryChoice {
    Placements placement = {};
    MapMemories maps;
    bool keep_loaded = false;
    std::string why_in_turn;  // a log line, set when parts that should stay loaded do not fit
    MemoryPlan plan;
};

// Measures weights and graphs on the devices and on the CPU without allocating them.
class MemoryPlanner {
  public:
    // Borrows both. Opens the devices a second time, only for measuring. `program_bytes` is the
    // memory of the process without the parts: the files' metadata, libraries, the device's driver.
    MemoryPlanner(const Model& model, const LoadOptions& options, uint64_t program_bytes);

    // The fastest placement of each part that stays within the limits, with maps in bands where
    // that is necessary. Parts that are to stay loaded but exceed a limit together are loaded in
    // turn. The caller must check the limit of the host.
    MemoryChoice choose(const Job& job, const MemoryLimits& limits);

    // The stages of a job with what was chosen.
    MemoryPlan plan(const Job& job, const MemoryChoice& choice);
    // What these stages compute, in the same order.
    StageComputations computations(const Job& job, const MemoryChoice& choice);

    // How many graphs have been measured so far; known shapes are not measured again.
    size_t n_measured() const { return n_measured_; }

  private:
    struct DeviceWork {
        std::string device;  // one of several; empty: the part's
        WorkAmounts work = {};
    };
    // One of the graphs of a part in a stage; with several devices theirs together.
    struct GraphCost {
        int64_t size = 0;  // tokens, or pixels of autoencoders
        std::vector<DeviceWork> work;
    };
    // A part that computes in a stage.
    struct Work {
        Part part = Part::transformer;
        std::vector<DevicePeak> devices;  // where it computes, without the CPU
        WeightMemory weights;
        MemoryUse graph;
        uint64_t passing = 0;  // temporary host memory of the stage
        std::vector<GraphCost> graphs;
        std::vector<BlockPlace> blocks;
        std::vector<StepTraffic> traffic;
    };
    // What a measurement depends on.
    struct Key {
        Stage stage;
        Part part;
        Placement placement;
        std::vector<int64_t> shape;
        std::string adapters;  // their identity

        auto operator<=>(const Key&) const = default;
    };
    struct PlannedStage {
        Stage stage;
        const char* name = "";
        bool in_bands = false;
        std::vector<Work> works;  // the first determines the placement that is shown
    };

    static uint64_t device_bytes(const Work& work);
    // What loading takes beyond the memory of the graph, which is allocated only after it.
    static uint64_t beyond_graph(const Work& work);
    static uint64_t host_bytes(const Work& work);
    bool may_unpack(Part part);
    Backend& backend(Part part, Placement placement);
    std::vector<DevicePeak> on_device(Part part, Placement placement, const WeightMemory& weights,
                                      const MemoryUse& graph);
    std::unique_ptr<Autoencoder> autoencoder(Part part, Placement placement);
    template <typename Measure>
    Work known(Key key, const Measure& measure);
    Work text_encoder(const Job& job, Placement placement);
    Work transformer(const Job& job, Placement placement);
    Work encode(const Job& job, Part part, Placement placement, MapMemory maps);
    Work decode(const Job& job, Part part, Placement placement, MapMemory maps);
    Work measure_text_encoder(const Job& job, Placement placement);
    Work measure_transformer(const Job& job, Placement placement);
    Work measure_encode(const Job& job, Part part, Placement placement, MapMemory maps);
    Work measure_decode(const Job& job, Part part, Placement placement, MapMemory maps);
    bool computes_in_bands(Part part, Placement placement);
    uint64_t autoencoder_bytes(const Job& job, Part part, Placement placement);
    template <typename WorkWith>
    MapMemory fastest_maps(Part part, Placement placement, MapMemory least,
                           const MemoryLimits& limits, const WorkWith& work_with);
    MapMemories choose_maps(const Job& job, const Placements& placement, MapMemory least,
                            const MemoryLimits& limits);
    bool previews(const Job& job) const { return job.preview && model_.tiny; }
    std::string name_of(Part part, Placement placement);
    Placements place(const Job& job, const MemoryLimits& limits, bool keep_loaded);
    std::vector<PlannedStage> stages_of(const Job& job, const MemoryChoice& choice);
    uint64_t common_bytes(const Job& job) const;
    MemoryPlan peaks_in_turn(const std::vector<PlannedStage>& stages) const;
    MemoryPlan peaks_together(const std::vector<PlannedStage>& stages) const;

    const Model& model_;
    const LoadOptions& options_;
    uint64_t program_bytes_;
    PartBackends backends_;
    std::map<Key, Work> works_;
    std::map<std::pair<Part, Placement>, bool> computes_in_bands_;  // of autoencoders
    size_t n_measured_ = 0;
};

}  // namespace flux2
