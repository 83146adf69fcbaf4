#include "pipeline/features.hpp"

#include "base/check.hpp"
#include "base/log.hpp"
#include "base/system.hpp"
#include "pipeline/prompt.hpp"

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>

namespace flux2 {

FeatureStore::FeatureStore(const Model& model, const LoadOptions& options, Parts& parts,
                           const TensorCache& cache)
    : model_(model), options_(options), parts_(parts), cache_(cache) {}

const HostTensor& FeatureStore::get(const PromptKey& prompt) const {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.prompt == prompt; });
    check(found != entries_.end(), ErrorKind::internal, "features of a prompt were not prepared");
    return found->features;
}

// Moves the prompt's entry, if there is one, to the end of those that make room.
bool FeatureStore::keep(const PromptKey& prompt) {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.prompt == prompt; });
    if (found == entries_.end()) {
        return false;
    }
    std::rotate(found, found + 1, entries_.end());
    return true;
}

void FeatureStore::add(const PromptKey& prompt, HostTensor features) {
    entries_.push_back({prompt, std::move(features)});
    if (entries_.size() > kHeld) {
        entries_.pop_front();
    }
}

// Everything that decides the features, to the last bit: devices and types round differently.
std::string FeatureStore::cache_key(const PromptKey& prompt) const {
    std::ostringstream key;
    const bool klein = model_.text.family == TextFamily::qwen3;
    key << "features of " << (klein ? "klein" : "dev") << "'s template\n"
        << version() << "\n"
        << identity(model_.text_encoder->source()) << parts_.backend(Part::text_encoder).name()
        << " " << options_.type << "\nlayers";
    for (const int64_t layer : model_.text.layers) {
        key << " " << layer;
    }
    key << "\ntokens " << prompt.length << "\n" << prompt.prompt;
    return key.str();
}

bool FeatureStore::prepare(const std::vector<PromptKey>& prompts) {
    std::vector<PromptKey> missing;
    for (const PromptKey& prompt : prompts) {
        if (keep(prompt) || std::find(missing.begin(), missing.end(), prompt) != missing.end()) {
            continue;
        }
        if (auto cached = cache_.find(cache_key(prompt))) {
            add(prompt, std::move(*cached));
        } else {
            missing.push_back(prompt);
        }
    }
    if (missing.empty()) {
        return false;
    }
    encode(missing);
    return true;
}

void FeatureStore::encode(const std::vector<PromptKey>& prompts) {
    std::optional<Tokenizer> tokenizer = load_tokenizer(*model_.text_encoder);
    for (const PromptKey& prompt : prompts) {
        PromptFeatures result = parts_.run(Part::text_encoder, [&] {
            return encode_prompt_features(*tokenizer, parts_.text_encoder(), prompt.prompt,
                                          prompt.length);
        });
        if (!result.encoded.cut_text.empty()) {
            constexpr size_t kShown = 300;
            std::string cut = result.encoded.cut_text;
            if (cut.size() > kShown) {
                cut = cut.substr(0, kShown) + " ...";
            }
            log(LogLevel::warning, concat("the prompt is longer than ", prompt.length,
                                          " tokens; this end of it is not used: \"", cut, "\""));
        }
        cache_.store(cache_key(prompt), result.features);
        add(prompt, std::move(result.features));
    }
    tokenizer.reset();
    return_unused_memory();  // a vocabulary is a million small pieces
}

}  // namespace flux2
