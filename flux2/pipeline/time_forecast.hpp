// How long the stages of a job take, from their work and the speed of this machine.
#pragma once

#include <flux2/flux2.hpp>
#include "compute/graph_work.hpp"
#include "networks/part.hpp"
#include "pipeline/loaded_model.hpp"
#include "pipeline/machine_speed.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace flux2 {

// A graph of a job, and how often it is computed.
struct Computation {
    Part part = Part::transformer;
    Placement placement = Placement::device;
    std::string device = {};  // one of several of the part; empty: the part's
    int64_t size = 0;         // tokens, or pixels of autoencoders
    WorkAmounts work = {};
    double times = 1;
};
// Those of each stage.
using StageComputations = std::vector<std::vector<Computation>>;

// Seconds of this work at a size; 0 when nothing is known.
double forecast_seconds(const WorkAmounts& work, int64_t size, const NetworkSpeeds& speeds);

// Sets the seconds of a plan with these stages, and their sum: 0 where they could not be measured.
void forecast(MemoryPlan& plan, const StageComputations& stages, MachineSpeed& machine,
              const std::function<void()>& before_measuring = {});

}  // namespace flux2
