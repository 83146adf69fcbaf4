// The pictures and captions of a training run as the transformer takes them, in memory. They are
// encoded once; results are kept on disk under what they depend on and found there by later runs.
#pragma once

#include "base/host_tensor.hpp"
#include "pipeline/loaded_model.hpp"
#include "pipeline/model.hpp"
#include "train/dataset.hpp"
#include "train/training_pass.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace flux2 {

struct EncodedPicture {
    LatentGrid latents;
    std::optional<LatentGrid> mirrored;
    std::vector<LatentGrid> references;
    SharedTensor txt;
};

struct EncodingOptions {
    std::string trigger_word;            // put before captions that do not contain it
    bool mirrored = false;               // encode mirror images too
    bool without_caption = false;        // encode the empty caption too
    std::filesystem::path cache_folder;  // for sources that name none; empty: nothing is kept
};

// The caption that is trained.
std::string with_trigger_word(const std::string& caption, const std::string& trigger_word);

struct TrainingData {
    std::vector<EncodedPicture> pictures;  // in the order of the dataset
    SharedTensor no_caption;               // null unless it was asked for
    size_t n_encoded = 0;                  // pictures and captions that were not found on disk

    uint64_t bytes() const;
};

// Bytes that encode_dataset would hold.
uint64_t encoded_bytes(const Model& model, const std::vector<DatasetPicture>& pictures,
                       const EncodingOptions& options);

// Called with what is done, 0..1.
using OnEncoded = std::function<void(double share)>;

// Throws out_of_memory, before anything is encoded, when RAM does not suffice; cancelled as the
// loaded model does.
TrainingData encode_dataset(const Model& model, LoadedModel& loaded_model,
                            const std::vector<DatasetSource>& sources,
                            const std::vector<DatasetPicture>& pictures,
                            const EncodingOptions& options, const OnEncoded& on_encoded = {});

}  // namespace flux2
