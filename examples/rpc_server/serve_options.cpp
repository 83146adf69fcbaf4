#include "rpc_server/serve_options.hpp"

#include "base/check.hpp"
#include "common/option_values.hpp"
#include "common/user_folders.hpp"

#include <algorithm>
#include <filesystem>
#include <string>

namespace flux2::cli {

cxxopts::Options describe_serve_options() {
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

ServeOptions read_serve_options(const cxxopts::ParseResult& args) {
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

}  // namespace flux2::cli
