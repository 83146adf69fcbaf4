// The flux2-rpc-server program: lends devices of this machine to flux2 on others.
#include <flux2/device.hpp>
#include <flux2/log.hpp>
#include "base/guarded_main.hpp"
#include "base/parse_arguments.hpp"
#include "common/options.hpp"
#include "rpc_server/serve_options.hpp"

#include <cxxopts.hpp>

#include <iostream>
#include <string>

namespace flux2::cli {
namespace {

int run(int argc, char** argv) {
    cxxopts::Options options = describe_serve_options();
    const auto args = parse_arguments(options, argc, argv);
    if (args.count("help") > 0) {
        std::cout << options.help();
        return 0;
    }
    check_no_leftovers(args);
    serve_devices(read_serve_options(args));
}

}  // namespace
}  // namespace flux2::cli

int main(int argc, char** argv) {
    flux2::set_log([](flux2::LogLevel level, const std::string& line) {
        if (level >= flux2::LogLevel::warning) {
            std::cerr << "flux2-rpc-server: "
                      << (level == flux2::LogLevel::warning ? "warning: " : "") << line
                      << std::endl;
        }
    });
    return flux2::guarded_main<cxxopts::exceptions::exception>(
        "flux2-rpc-server", flux2::cli::option_of, [&] { return flux2::cli::run(argc, argv); });
}
