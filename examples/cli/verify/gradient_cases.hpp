// The operations of training, for op_check.
#pragma once

#include "verify/op_trial.hpp"

#include <vector>

namespace flux2::cli {

void add_gradient_cases(std::vector<Case>& cases);

}  // namespace flux2::cli
