// The losses of a training run as a picture.
#pragma once

#include "train/training_log.hpp"

#include <string>

namespace flux2 {

// An SVG file: the smoothed loss as a line, validation losses as a line with dots, axes with
// numbers.
std::string loss_curve_svg(const std::vector<LossPoint>& losses,
                           const std::vector<LossPoint>& validation);

}  // namespace flux2
