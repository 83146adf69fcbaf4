#include "verify/limits.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>

namespace flux2::cli {
namespace {

// The largest errors of the recordings in tests/fixtures with weights of a type, and the smallest
// PSNR: what docs/numerics.md lists.
struct Measured {
    std::string_view type;  // its name
    double stage, text, first_step, run, psnr;
};

constexpr std::array<Measured, 13> kMeasured = {{
    {"Q6_K", 2.9e-2, 2.1e-2, 4.9e-3, 0.11, 37.8},
    {"Q5_K", 4.4e-2, 3.8e-2, 9.1e-3, 0.24, 32.0},
    {"Q5_1", 0.10, 0.25, 1.2e-2, 0.21, 35.0},
    {"Q5_0", 0.11, 0.22, 1.2e-2, 0.38, 27.1},
    {"Q4_K", 9.8e-2, 9.2e-2, 2.0e-2, 0.47, 28.8},
    {"Q4_1", 0.20, 0.40, 2.4e-2, 0.43, 28.3},
    {"Q4_0", 0.22, 0.35, 2.5e-2, 0.47, 27.3},
    {"IQ4_NL", 0.19, 0.43, 2.1e-2, 0.38, 27.6},
    {"IQ4_XS", 8.5e-2, 8.1e-2, 2.0e-2, 0.37, 26.2},
    {"NVFP4", 0.25, 0.44, 2.8e-2, 0.53, 26.1},
    {"MXFP4", 0.28, 0.52, 3.4e-2, 0.80, 21.9},
    {"IQ3_S", 0.23, 0.17, 4.9e-2, 0.76, 23.7},
    {"Q3_K", 0.18, 0.15, 3.5e-2, 0.79, 22.7},
}};

// A multiply may round its inputs in another way than those that were measured.
constexpr double kMargin = 1.5;
// Less than the error of zeros.
constexpr double kLargestLimit = 0.95;

double limit_of(double measured) {
    return std::min(kMargin * measured, kLargestLimit);
}

}  // namespace

Limits limits_for(const Backend& backend, TensorType type) {
    if (type == TensorType::f32 && backend.is_cpu()) {
        return {};
    }
    if (!is_quantized(type)) {
        return {.stage = 1e-2,
                .autoencoder = 1e-2,
                .text = 1e-2,
                .first_step = 1e-2,
                .run = 5e-2,
                .psnr = 45};
    }
    if (type == TensorType::q8_0) {
        return {.stage = 3e-2,
                .autoencoder = 1e-2,
                .text = 6e-2,
                .first_step = 1e-2,
                .run = 0.15,
                .psnr = 32};
    }
    const std::string name = type_name(type);
    const auto* const row =
        std::find_if(kMeasured.begin(), kMeasured.end(),
                     [&](const Measured& measured) { return measured.type == name; });
    check(row != kMeasured.end(), ErrorKind::bad_argument, "recordings cannot judge weights in ",
          name,
          ": with them the recorded models' results are as far off as those of another prompt; use "
          "Q3_K, IQ3_S or a more precise type");
    return {.stage = limit_of(row->stage),
            .autoencoder = 1e-2,
            .text = limit_of(row->text),
            .first_step = limit_of(row->first_step),
            .run = limit_of(row->run),
            .psnr = row->psnr - 20 * std::log10(kMargin)};
}

}  // namespace flux2::cli
