// The options of flux2-rpc-server.
#pragma once

#include <flux2/device.hpp>

#include <cxxopts.hpp>

namespace flux2::cli {

cxxopts::Options describe_serve_options();
// Throws bad_argument, and bad_file when the folder for tensors cannot be made.
ServeOptions read_serve_options(const cxxopts::ParseResult& args);

}  // namespace flux2::cli
