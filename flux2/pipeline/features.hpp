// Text features of prompts: from memory, from the cache on disk, or from the text encoder.
#pragma once

#include <flux2/flux2.hpp>
#include "base/host_tensor.hpp"
#include "pipeline/loaded_model.hpp"
#include "pipeline/model.hpp"
#include "pipeline/tensor_cache.hpp"

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace flux2 {

struct PromptKey {
    std::string prompt;
    int64_t length = 0;
    std::string adapters = {};  // the identity of those of the text encoder

    bool operator==(const PromptKey&) const = default;
};

// Everything that the features of a prompt depend on, to the last bit: contents of the tokenizer,
// by their hash, configuration, files of the text encoder, where it computes, type and layout of
// its weights.
std::string encoder_facts(const Model& model, LoadedModel& loaded_model,
                          const std::string& tokenizer);

// Borrows everything it is given.
class FeatureStore {
  public:
    FeatureStore(const Model& model, LoadedModel& loaded_model, const TensorCache& cache);

    // Makes the features of all these prompts available, loading the text encoder at most once.
    // Returns whether it was needed. Warns about prompts that are too long, also when their
    // features are cached.
    bool prepare(const std::vector<PromptKey>& prompts);
    // Of a prompt that was prepared.
    SharedTensor get(const PromptKey& prompt) const;

    // How many prompts are held in memory: eight, each with a negative one.
    static constexpr size_t kHeld = 16;

  private:
    struct Entry {
        PromptKey prompt;
        SharedTensor features;
        std::string cut_text;  // the end of the prompt that is not used
    };

    bool keep(const PromptKey& prompt);
    void add(Entry entry);
    bool find_cached(const PromptKey& prompt, const std::string& facts);
    void encode(const std::vector<PromptKey>& prompts);

    const Model& model_;
    LoadedModel& loaded_model_;
    const TensorCache& cache_;
    std::deque<Entry> entries_;  // the newest last
};

}  // namespace flux2
