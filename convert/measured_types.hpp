// Types by measured error: what --target-size and --max-error ask for.
#pragma once

#include "convert.hpp"

#include <cstddef>
#include <vector>

namespace flux2::convert {

// Measures what each candidate type costs the matrices with these numbers in the plan
// (output_error), searches (type_search), and enters types, errors and score into the plan. Throws
// bad_argument when a limit cannot be kept.
void choose_by_error(ConversionPlan& plan, const std::vector<size_t>& open,
                     const ConvertOptions& options);

}  // namespace flux2::convert
