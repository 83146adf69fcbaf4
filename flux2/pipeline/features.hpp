// Text features of prompts: from memory, from the cache on disk, or from the text encoder.
#pragma once

#include <flux2/flux2.hpp>
#include "base/host_tensor.hpp"
#include "pipeline/model.hpp"
#include "pipeline/parts.hpp"
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

    bool operator==(const PromptKey&) const = default;
};

// Borrows everything it is given.
class FeatureStore {
  public:
    FeatureStore(const Model& model, const LoadOptions& options, Parts& parts,
                 const TensorCache& cache);

    // Makes the features of all these prompts available, loading the text encoder at most once.
    // Returns whether it was needed. Warns about prompts that are too long.
    bool prepare(const std::vector<PromptKey>& prompts);
    // Of a prompt that was prepared.
    const HostTensor& get(const PromptKey& prompt) const;

    // How many prompts are held in memory: eight, each with a negative one.
    static constexpr size_t kHeld = 16;

  private:
    struct Entry {
        PromptKey prompt;
        HostTensor features;
    };

    bool keep(const PromptKey& prompt);
    void add(const PromptKey& prompt, HostTensor features);
    std::string cache_key(const PromptKey& prompt) const;
    void encode(const std::vector<PromptKey>& prompts);

    const Model& model_;
    const LoadOptions& options_;
    Parts& parts_;
    const TensorCache& cache_;
    std::deque<Entry> entries_;  // the newest last
};

}  // namespace flux2
