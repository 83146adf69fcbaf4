// The flux2 program: picks the subcommand, maps errors to exit codes.
#include <flux2/device.hpp>
#include <flux2/error.hpp>
#include <flux2/version.hpp>
#include "base/check.hpp"
#include "base/guarded_main.hpp"
#include "base/log.hpp"
#include "base/parse_arguments.hpp"
#include "base/system.hpp"
#include "commands/config.hpp"
#include "commands/generate.hpp"
#include "commands/inspect.hpp"
#include "commands/library.hpp"
#include "commands/models.hpp"
#include "commands/plan.hpp"
#include "commands/pull.hpp"
#include "common/cancel.hpp"
#include "common/options.hpp"
#include "measure/bench.hpp"
#include "verify/selftest.hpp"

#include <cxxopts.hpp>

#include <iostream>
#include <string>

namespace flux2::cli {
namespace {

// For commands without options.
void check_alone(int argc, char** argv) {
    check(argc <= 2, ErrorKind::bad_argument, argv[1], " takes no '", argc > 2 ? argv[2] : "",
          "'; flux2 help lists the commands");
}

int devices(int argc, char** argv) {
    cxxopts::Options options("flux2 devices", "Lists what can be computed on.\n");
    options.add_options()  //
        ("rpc", "list the devices of these servers too, HOST:PORT with commas between them",
         cxxopts::value<std::string>())  //
        ("h,help", "print this help");
    const auto args = parse_arguments(options, argc, argv);
    if (args.count("help") > 0) {
        std::cout << options.help();
        return 0;
    }
    check(args.unmatched().empty(), ErrorKind::bad_argument, "devices takes no '",
          args.unmatched().empty() ? "" : args.unmatched().front(),
          "'; flux2 help lists the commands");
    if (args.count("rpc") > 0) {
        add_servers(args["rpc"].as<std::string>());
    }
    for (const DeviceInfo& device : list_devices()) {
        const int n_cores = physical_cores();
        std::cout << device.name << ": " << device.description << ", "
                  << (device.name == "CPU" ? concat(n_cores, n_cores == 1 ? " core, " : " cores, ")
                                           : "")
                  << device.free_bytes / 1000000 << " of " << device.total_bytes / 1000000
                  << " MB free"
                  << (device.is_software ? "; software, used only when --device names it" : "")
                  << std::endl;
    }
    return 0;
}

int usage(int code) {
    (code == 0 ? std::cout : std::cerr)
        << "usage: flux2 -m MODEL -p PROMPT -o PICTURE [options]  (flux2 --help: options)\n"
           "       flux2 COMMAND [options]\n"
           "  info       say what models, LoRAs and pictures are, and which fit together\n"
           "  library    list the named references of a folder, and problems with them\n"
           "  models     list the models that can be named: what is here, what exists\n"
           "  pull       fetch a model from the Hugging Face Hub\n"
           "  rm         delete a fetched model\n"
           "  config     print which settings hold, and where they come from\n"
           "  redo       make a picture again from the settings stored in it\n"
           "  plan       tell what a picture would take in memory\n"
           "  selftest   compare every network with recorded results of the reference\n"
           "  bench      time the networks of model files on random inputs\n"
           "  devices    list what this machine and build can compute on\n"
           "  version    print the version\n"
           "flux2 COMMAND --help tells more.\n";
    return code;
}

int run(int argc, char** argv) {
    const std::string command = argc > 1 ? argv[1] : "";
    if (command == "selftest") {
        return selftest(argc - 1, argv + 1);
    }
    if (command == "bench") {
        return bench(argc - 1, argv + 1);
    }
    if (command == "devices") {
        return devices(argc - 1, argv + 1);
    }
    if (command == "version" || command == "--version") {
        check_alone(argc, argv);
        std::cout << "flux2 " << version() << std::endl;
        return 0;
    }
    if (command == "info") {
        return info(argc - 1, argv + 1);
    }
    if (command == "library") {
        return library(argc - 1, argv + 1);
    }
    if (command == "models") {
        return models(argc - 1, argv + 1);
    }
    if (command == "pull") {
        return pull(argc - 1, argv + 1);
    }
    if (command == "rm") {
        return remove_models(argc - 1, argv + 1);
    }
    if (command == "config") {
        return config(argc - 1, argv + 1);
    }
    if (command == "plan") {
        return plan(argc - 1, argv + 1);
    }
    if (command == "redo") {
        return redo(argc - 1, argv + 1);
    }
    if (command == "help") {
        check_alone(argc, argv);
        return usage(0);
    }
    check(argc < 2 || command.starts_with("-"), ErrorKind::bad_argument, "there is no command '",
          command, "'; flux2 help lists them");
    return generate(argc, argv);
}

}  // namespace
}  // namespace flux2::cli

int main(int argc, char** argv) {
    flux2::cli::end_on_signals();
    flux2::set_log([](flux2::LogLevel level, const std::string& line) {
        if (level >= flux2::LogLevel::warning) {
            std::cerr << "flux2: " << (level == flux2::LogLevel::warning ? "warning: " : "")
                      << flux2::cli::in_options(line) << std::endl;
        }
    });
    return flux2::guarded_main<cxxopts::exceptions::exception>(
        "flux2", flux2::cli::option_of, [&] { return flux2::cli::run(argc, argv); });
}
