// What flux2-convert prints: tables and one-line results.
#pragma once

#include "convert.hpp"
#include "extract_lora.hpp"

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

// What an extracted LoRA leaves of the difference: a line per kind of module, then one for all.
void print_errors(std::ostream& out, const Extracted& extracted);

}  // namespace flux2::convert
