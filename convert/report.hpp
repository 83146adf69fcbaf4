// What flux2-convert prints: tables and one-line results.
#pragma once

#include "convert.hpp"

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace flux2::convert {

// "7.75 GB"
std::string readable_bytes(uint64_t bytes);

// Every tensor with its shape, types, size and measured error, then the total.
void print_table(std::ostream& out, const ConversionPlan& plan);

// A line per type; returns whether all are within their limits.
bool print_errors(std::ostream& out, const std::vector<TypeError>& errors);

}  // namespace flux2::convert
