#include "commands/config.hpp"

#include "base/parse_arguments.hpp"
#include "base/settings_file.hpp"
#include "common/options.hpp"
#include "downloads/hub_settings.hpp"

#include <cxxopts.hpp>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

namespace flux2::cli {
namespace {

std::string all_values(const std::vector<std::string>& values) {
    std::string text;
    for (const std::string& value : values) {
        text += (text.empty() ? "" : ", ") + value;
    }
    return text;
}

void print_places() {
    const std::filesystem::path path = settings_path();
    const SettingsFile file = read_settings_file(path);
    std::cout << "file of settings: " << (path.empty() ? "none" : path.string())
              << (path.empty() || !file.lines.empty() || !file.sections.empty() ? ""
                                                                                : " (not there)")
              << "\n";
    for (const std::string& section : file.sections) {
        if (!section.starts_with("flux2")) {
            std::cout << "preset: " << section << "\n";
        }
    }
    const hub::HubSettings hub = hub::read_hub_settings();
    std::cout << "downloads: from " << hub.endpoint.text() << " to " << hub.cache.string()
              << ", token " << (hub.token.empty() ? "none" : "from " + hub.token_place)
              << (hub.offline_reason.empty() ? "" : ", off: " + hub.offline_reason) << "\n";
}

}  // namespace

int config(int argc, char** argv) {
    cxxopts::Options options(
        "flux2",
        "Prints the options that are set, and where: on the command line, by a\n"
        "variable, by a preset or in the file of settings.\n");
    options.custom_help("config [options]");
    add_model_options(options);
    add_generate_options(options);
    add_settings_options(options);
    const auto args = parse_arguments(options, argc, argv);
    if (args.count("help") > 0) {
        std::cout << help_of(options);
        return 0;
    }
    check_no_leftovers(args);
    print_places();
    for (const OptionSource& source : option_sources(options, argc, argv)) {
        std::cout << source.option << " = " << all_values(source.values) << "    from "
                  << source.place << "\n";
    }
    return 0;
}

}  // namespace flux2::cli
