// A short training with the bundled model and its blueprints.
#pragma once

#include "support/cli.hpp"
#include "support/folders.hpp"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace flux2::test {

inline const std::filesystem::path kBundledModel = tiny_model();
inline const std::filesystem::path kBlueprints = kBundledModel / "blueprint-dataset";

bool says(const ProgramResult& result, const std::string& piece);

// A run in a folder of its own with a cache that its runs share.
struct TrainCase {
    TemporaryFolder folder;

    std::string command(const Arguments& arguments) const;
    ProgramResult run(const Arguments& arguments) const;
    std::string in(const std::string& name) const { return (folder / name).string(); }

    // Four of the blueprints with their captions.
    std::string few_pictures() const;
    // A short run on them, at a size that takes little time.
    Arguments short_run(const std::string& output) const;
};

std::vector<nlohmann::json> metrics_in(const std::filesystem::path& file);
std::vector<double> validation_losses(const std::filesystem::path& file);

}  // namespace flux2::test
