// Text features of prompts: from memory, from the cache on disk, or from the text encoder.
#pragma once

#include <flux2/flux2.hpp>
#include "base/host_tensor.hpp"
#include "pipeline/loaded_model.hpp"
#include "pipeline/model.hpp"
#include "pipeline/tensor_cache.hpp"

#include <cstdint>
#include <deque>
#include <functional>
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
std::string encoder_facts(const Model& model, LoadedModel& loaded_model);

// Borrows everything it is given.
class FeatureStore {
  public:
    FeatureStore(const Model& model, LoadedModel& loaded_model, const TensorCache& cache);

    // Called with each prompt once its features are there.
    using OnReady = std::function<void(const PromptKey&)>;

    // Makes the features of at most kHeld prompts available, loading the text encoder at most once.
    // Returns how many it encoded. Warns about prompts that are too long, also when their features
    // are cached.
    size_t prepare(const std::vector<PromptKey>& prompts);
    // The same for any number of prompts: each is held until it is got, or until the next call.
    size_t prepare_ahead(const std::vector<PromptKey>& prompts, const OnReady& on_ready = {});
    // Of a prompt that was prepared.
    SharedTensor get(const PromptKey& prompt);

    // How many prompts that were used are held, the last ones.
    static constexpr size_t kHeld = 16;

  private:
    struct Entry {
        PromptKey prompt;
        SharedTensor features;
        std::string cut_text;   // the end of the prompt that is not used
        bool is_ahead = false;  // held until it is got
    };

    bool keep(const PromptKey& prompt, bool ahead);
    void add(Entry entry);
    bool find_cached(const PromptKey& prompt, bool ahead, const std::string& facts);
    size_t make(const std::vector<PromptKey>& prompts, bool ahead, const OnReady& on_ready);
    void encode(const PromptKey& prompt, bool ahead);
    void drop_used();
    std::deque<Entry>::iterator find(const PromptKey& prompt);

    const Model& model_;
    LoadedModel& loaded_model_;
    const TensorCache& cache_;
    std::deque<Entry> entries_;  // the newest last
};

}  // namespace flux2
