// What both fuzz targets do with a directory that parsed: read what it points at.
#pragma once

#include "formats/tensor_directory.hpp"

namespace flux2::fuzz {

// Reads the first and the last byte of every tensor and converts up to 256 elements of each, in
// whole blocks. Under the address sanitizer a span that leaves the file ends the run.
void touch_tensors(const TensorDirectory& directory);

}  // namespace flux2::fuzz
