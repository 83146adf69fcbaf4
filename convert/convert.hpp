// From opened checkpoints to GGUF files: plan first, then write, then verify if asked.
#pragma once

#include "adapters/adapter_set.hpp"
#include "checkpoints/checkpoint.hpp"
#include "checkpoints/variant.hpp"
#include "metadata.hpp"
#include "quantize.hpp"
#include "type_choice.hpp"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace flux2::convert {

struct ConvertOptions {
    TypeRequest types;
    std::optional<Variant> variant;
    DefaultOptions defaults;
    TextEncoderOptions text_encoder;
    std::vector<UsedAdapter> adapters;  // merged in this order, each into the parts it is for
    bool allow_requantize = false;
    int n_threads = 1;
    const std::atomic<bool>* cancel = nullptr;  // stops the measuring of errors; may be null
};

// Everything that will be written, decided before writing starts.
struct ConversionPlan {
    const Checkpoint* checkpoint = nullptr;  // borrowed
    std::filesystem::path output;
    std::string name;  // of the network, for messages
    Metadata metadata;
    std::vector<PlannedTensor> tensors;
    AdapterSet adapters;       // what is merged into this part
    std::string summary;       // what the input is, in one line
    std::string type_summary;  // which types were chosen by error; empty when none were
    std::vector<std::string> warnings;

    // Properties in which the parts of a model must agree.
    int64_t text_width = 0;       // of a transformer or a text encoder
    int64_t latent_channels = 0;  // of a transformer or an autoencoder

    std::vector<GgufTensor> targets() const;
    uint64_t output_bytes() const;
};

// Throws bad_file for a checkpoint that is incomplete and for adapters that do not fit it,
// bad_argument for options that cannot work, such as a target size that is too small.
ConversionPlan make_plan(const Checkpoint& checkpoint, const std::filesystem::path& output,
                         const ConvertOptions& options);

// Throws bad_file for an adapter that changes none of the plans, unless its strength is 0.
void check_adapters_used(const std::vector<ConversionPlan>& plans,
                         const std::vector<UsedAdapter>& adapters);

// Throws bad_argument for a --tensor-type that matches no matrix of any plan.
void check_overrides_match(const std::vector<ConversionPlan>& plans, const TypeRequest& types);

// Throws bad_file when two parts do not belong to one model, or one is given twice.
void check_parts_fit(const std::vector<ConversionPlan>& plans);

using ProgressCallback = std::function<void(uint64_t done_bytes)>;

// Writes the file; on failure nothing is changed.
void write_plan(const ConversionPlan& plan, int n_threads, const std::atomic<bool>& cancel,
                const ProgressCallback& progress);

std::vector<TypeError> verify_plan(const ConversionPlan& plan, int n_threads,
                                   const std::atomic<bool>& cancel,
                                   const ProgressCallback& progress);

}  // namespace flux2::convert
