// Results of flux2 bench for a stage, as text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace flux2::cli {

struct StageResult {
    std::string name;
    double first_seconds = 0;  // builds the graph as well
    double seconds = 0;        // best run
    double flops = 0;
    // Time of the stage's matrix multiplies alone at raw speed, as a share of the best run.
    std::optional<double> raw_share;
    uint64_t weights_bytes = 0;  // on the device, mapped files not counted
    uint64_t buffer_bytes = 0;   // for computing
    bool finite = false;         // the result has no infinity and no NaN
};

// One aligned line without its end.
std::string to_text(const StageResult& stage);
nlohmann::json to_json(const StageResult& stage);

}  // namespace flux2::cli
