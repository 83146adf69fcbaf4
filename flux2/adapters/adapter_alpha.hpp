// What scales adapters: alpha in tensors, in the metadata or in a configuration beside the file.
#pragma once

#include "adapters/adapter_module.hpp"
#include "formats/tensor_source.hpp"

#include <map>
#include <optional>
#include <string>

namespace flux2 {

// A configuration as peft writes it.
struct PeftConfig {
    std::optional<double> alpha, rank;
    // Other values for single modules, by their names or what these end in.
    std::map<std::string, double> alpha_pattern, rank_pattern;
    bool rank_stabilised = false;  // alpha / sqrt(rank) instead of alpha / rank
};

class AlphaRules {
  public:
    // Reads the metadata and, if there is one, adapter_config.json in the same folder. Throws
    // bad_file for values that are not what they should be.
    explicit AlphaRules(const TensorSource& source);

    // Sets factor and constraint of a module that has all else: by its own alpha, else the
    // metadata, else the configuration, else 1. Throws bad_file for an alpha that is no number.
    void apply(AdapterModule& module) const;

  private:
    double factor_by_configs(const AdapterModule& module) const;

    std::string file_;
    std::optional<double> gguf_alpha_;       // of all modules
    std::map<Part, PeftConfig> metadata_;    // diffusers' key lora_adapter_metadata
    std::optional<PeftConfig> folder_file_;  // adapter_config.json
};

}  // namespace flux2
