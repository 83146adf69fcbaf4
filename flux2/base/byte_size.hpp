// Numbers of bytes as people write them.
#pragma once

#include <cstdint>
#include <string>

namespace flux2 {

// "4G", "3500MB", "1.5g", "800000000": powers of 1000. Throws bad_argument, which says that the
// value of the option `name` is not a valid `what`.
uint64_t parse_bytes(const std::string& name, const std::string& text, const char* what);

// "1.25 GB", rounded down: of free memory never more than there is.
std::string gigabytes(uint64_t bytes);

}  // namespace flux2
