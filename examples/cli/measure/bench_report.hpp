// What flux2 bench found out about a stage, for people and for programs.
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
    // Of the best run, the part that the stage's matrix multiplies alone would take at raw speed.
    std::optional<double> raw_share;
    uint64_t weights_bytes = 0;  // on the device, mapped files not counted
    uint64_t buffer_bytes = 0;   // for computing
    bool finite = false;         // no infinity and nothing that is not a number in the result
};

// One aligned line without its end.
std::string to_text(const StageResult& stage);
nlohmann::json to_json(const StageResult& stage);

}  // namespace flux2::cli
