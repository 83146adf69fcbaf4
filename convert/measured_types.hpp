// Types by measured error: the options --target-size and --max-error.
#pragma once

#include "convert.hpp"

#include <cstddef>
#include <vector>

namespace flux2::convert {

// Measures the error of each candidate type for the matrices with these indices in the plan
// (output_error), chooses types (type_search), and writes types, errors and mean error to the plan.
// Throws bad_argument when the limit cannot be met.
void choose_by_error(ConversionPlan& plan, const std::vector<size_t>& open,
                     const ConvertOptions& options);

}  // namespace flux2::convert
