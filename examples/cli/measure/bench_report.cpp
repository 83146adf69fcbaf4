#include "measure/bench_report.hpp"

#include "base/text_stream.hpp"

#include <nlohmann/json.hpp>

#include <iomanip>

namespace flux2::cli {
namespace {

double flops_per_second(const StageResult& stage) {
    return stage.flops / stage.seconds;
}

double megabytes(uint64_t bytes) {
    return static_cast<double>(bytes) / 1e6;
}

}  // namespace

std::string to_text(const StageResult& stage) {
    TextStream out;
    const auto number = [&](double value, int digits, int width) -> std::ostream& {
        return out << std::setprecision(digits) << std::setw(width) << value;
    };
    out << std::left << std::setw(12) << stage.name << std::right << std::fixed << "  best ";
    number(stage.seconds, 4, 9) << " s  first ";
    number(stage.first_seconds, 4, 9) << " s  ";
    const bool tera = flops_per_second(stage) >= 1e12;
    number(flops_per_second(stage) / (tera ? 1e12 : 1e9), 1, 6)
        << (tera ? " TFLOP/s  " : " GFLOP/s  ");
    if (stage.raw_share) {
        number(100 * *stage.raw_share, 1, 5) << " % of raw  weights ";
    } else {
        out << "    - % of raw  weights ";
    }
    number(megabytes(stage.weights_bytes), 1, 8) << " MB  buffer ";
    number(megabytes(stage.buffer_bytes), 1, 8) << " MB" << (stage.finite ? "" : "  NOT FINITE");
    return out.str();
}

nlohmann::json to_json(const StageResult& stage) {
    nlohmann::json share;  // null when the raw speed is not known
    if (stage.raw_share) {
        share = *stage.raw_share;
    }
    return {{"name", stage.name},
            {"first_seconds", stage.first_seconds},
            {"seconds", stage.seconds},
            {"tflop", stage.flops / 1e12},
            {"gflops", flops_per_second(stage) / 1e9},
            {"raw_share", share},
            {"weights_bytes", stage.weights_bytes},
            {"buffer_bytes", stage.buffer_bytes},
            {"finite", stage.finite}};
}

}  // namespace flux2::cli
