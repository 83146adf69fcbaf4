// The flux2-rpc-server program: lends devices of this machine to flux2 on others.
#include <flux2/device.hpp>
#include <flux2/log.hpp>
#include "base/check.hpp"
#include "base/guarded_main.hpp"
#include "base/parse_arguments.hpp"
#include "common/option_values.hpp"
#include "common/options.hpp"
#include "common/user_folders.hpp"

#include <cxxopts.hpp>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string>

namespace flux2::cli {
namespace {

cxxopts::Options describe_options() {
    cxxopts::Options options(
        "flux2-rpc-server",
        "Lends devices of this machine to flux2 on others, one client at a "
        "time.\nThere is neither a password nor encryption: docs/devices.md.\n");
    options.custom_help("[options]");
    options.add_options()                                                                     //
        ("host", "IPv4 address to listen on (default 127.0.0.1: this machine only)", text())  //
        ("port", "port (default 50052)", text())                                              //
        ("device", "devices to lend, with commas between them (default: all GPUs, else the CPU)",
         text())                                                               //
        ("t,threads", "CPU threads (default: one per physical core)", text())  //
        ("cache", "folder for large tensors that clients send (default: the user's own)",
         text())                                                                     //
        ("no-cache", "keep nothing on disk: tensors are sent again by each client")  //
        ("h,help", "print this help");
    return options;
}

ServeOptions read_options(const cxxopts::ParseResult& args) {
    ServeOptions serve;
    read_text(args, "host", serve.host);
    read_int(args, "port", serve.port);
    check(serve.port >= 1 && serve.port <= 65535, ErrorKind::bad_argument, "--port ", serve.port,
          " is out of range; use 1 to 65535");
    read_int(args, "threads", serve.threads);
    check(serve.threads >= 0 && serve.threads <= 512, ErrorKind::bad_argument, "--threads ",
          serve.threads, " is out of range; 1 to 512 make sense");
    if (args.count("device") > 0) {
        const std::string list = given(args, "device");
        for (size_t begin = 0; begin <= list.size();) {
            const size_t end = std::min(list.find(',', begin), list.size());
            serve.devices.push_back(list.substr(begin, end - begin));
            begin = end + 1;
        }
    }
    check(args.count("cache") == 0 || args.count("no-cache") == 0, ErrorKind::bad_argument,
          "--cache and --no-cache contradict each other; leave out one of them");
    if (args.count("no-cache") == 0) {
        const std::filesystem::path own = default_cache_folder();
        serve.cache_folder = own.empty() ? own : own / "rpc";
        read_path(args, "cache", serve.cache_folder);
    }
    if (!serve.cache_folder.empty()) {
        std::error_code error;
        std::filesystem::create_directories(serve.cache_folder, error);
        check(!error, ErrorKind::bad_file, serve.cache_folder.string(),
              ": the folder cannot be made (", error.message(),
              "); use --cache FOLDER or --no-cache");
    }
    return serve;
}

int run(int argc, char** argv) {
    cxxopts::Options options = describe_options();
    const auto args = parse_arguments(options, argc, argv);
    if (args.count("help") > 0) {
        std::cout << options.help();
        return 0;
    }
    check_no_leftovers(args);
    serve_devices(read_options(args));
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
