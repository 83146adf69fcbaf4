// The options of flux2-convert.
#pragma once

#include "convert.hpp"
#include "extract_lora.hpp"

#include <cxxopts.hpp>

#include <filesystem>
#include <vector>

namespace flux2::convert {

cxxopts::Options describe_convert_options();
// These throw bad_argument. The flag that cancels is not set.
ConvertOptions read_convert_options(const cxxopts::ParseResult& args);
// The options that have a meaning with --extract-lora; others are refused.
ExtractOptions read_extract_options(const cxxopts::ParseResult& args);
// What is converted; refuses arguments without an input or an output.
std::vector<std::filesystem::path> read_inputs(const cxxopts::ParseResult& args);

}  // namespace flux2::convert
