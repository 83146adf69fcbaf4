// What a training run needs to continue as if it had never stopped, in one file.
#pragma once

#include "train/adamw.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace flux2 {

// What a run's result depends on, by name: options, files, data.
using RunSettings = std::map<std::string, std::string>;

struct TrainingState {
    int64_t n_steps = 0;  // that are done
    RunSettings settings;
    std::vector<float> parameters;
    AdamW::State optimiser;
    std::vector<float> average;  // of parameters, decaying; empty: not computed
};

// The same where it lies, to be written.
struct TrainingStateView {
    int64_t n_steps;
    const RunSettings& settings;
    std::span<const float> parameters;
    const AdamW::State& optimiser;
    std::span<const float> average;
};
TrainingStateView view_of(const TrainingState& state);

// Written atomically, with a checksum, from where it lies. Bytes of settings that are not UTF-8
// become U+FFFD. Throws out_of_disk and bad_file.
void write_state(const std::filesystem::path& file, const TrainingStateView& state);
// Throws bad_file for another file or a damaged one.
TrainingState read_state(const std::filesystem::path& file);

// Throws bad_argument, naming each setting with both values, when they differ as a file holds them.
void check_same_settings(const RunSettings& stored, const RunSettings& given,
                         const std::filesystem::path& file);

// The names of files of a run: "NAME-step00000100.safetensors" and "NAME-step00000100.state".
std::filesystem::path adapter_file(const std::filesystem::path& folder, const std::string& name,
                                   int64_t step);
std::filesystem::path state_file(const std::filesystem::path& folder, const std::string& name,
                                 int64_t step);
// Steps of which the folder has a state, ascending.
std::vector<int64_t> stored_steps(const std::filesystem::path& folder, const std::string& name);

}  // namespace flux2
