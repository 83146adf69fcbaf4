// The flux2-train program: trains a LoRA on pictures with captions.
#include <flux2/log.hpp>
#include <flux2/version.hpp>
#include "base/guarded_main.hpp"
#include "base/parse_arguments.hpp"
#include "common/cancel.hpp"
#include "common/options.hpp"
#include "train/train_options.hpp"
#include "train/train_run.hpp"

#include <cxxopts.hpp>

#include <iostream>
#include <string>
#include <vector>

namespace flux2::cli {
namespace {

int run(int argc, char** argv) {
    cxxopts::Options options = describe_train_options();
    std::vector<std::string> arguments = with_known_spelling(options, argc, argv);
    std::vector<char*> pointers;
    for (std::string& argument : arguments) {
        pointers.push_back(argument.data());
    }
    const auto args = parse_arguments(options, argc, pointers.data());
    if (args.count("help") > 0) {
        std::cout << options.help({"Model", "Data", "LoRA", "Training", "Output"});
        return 0;
    }
    if (args.count("version") > 0) {
        std::cout << "flux2-train " << version() << "\n";
        return 0;
    }
    check_no_leftovers(args);
    TrainOptions o =
        naming_places(options, argc, pointers.data(), [&] { return read_train_options(args); });
    cancel_on_signals();
    train(std::move(o));
    return 0;
}

}  // namespace
}  // namespace flux2::cli

int main(int argc, char** argv) {
    flux2::set_log([](flux2::LogLevel level, const std::string& line) {
        if (level >= flux2::LogLevel::warning) {
            std::cerr << "flux2-train: " << (level == flux2::LogLevel::warning ? "warning: " : "")
                      << flux2::cli::in_options(line) << std::endl;
        }
    });
    return flux2::guarded_main<cxxopts::exceptions::exception>(
        "flux2-train", flux2::cli::option_of, [&] { return flux2::cli::run(argc, argv); });
}
