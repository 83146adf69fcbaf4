#include "pipeline/features.hpp"

#include "base/check.hpp"
#include "base/log.hpp"
#include "base/system.hpp"
#include "base/utf8.hpp"
#include "pipeline/prompt.hpp"

#include <algorithm>
#include <iomanip>
#include <optional>
#include <sstream>
#include <utility>

namespace flux2 {
namespace {

std::string cache_key(const std::string& facts, const PromptKey& prompt) {
    return concat(facts, prompt.adapters.empty() ? "" : "adapters " + prompt.adapters, "tokens ",
                  prompt.length, "\n", prompt.prompt);
}

void warn_if_cut(const PromptKey& prompt, const std::string& cut_text) {
    constexpr size_t kShown = 300;
    if (!cut_text.empty()) {
        log(LogLevel::warning,
            concat("the prompt is longer than ", prompt.length,
                   " tokens; this end of it is not used: \"", utf8_start(cut_text, kShown),
                   cut_text.size() > kShown ? " ..." : "", "\""));
    }
}

}  // namespace

std::string encoder_facts(const Model& model, LoadedModel& loaded_model,
                          const std::string& tokenizer) {
    const Checkpoint& checkpoint = *model.text_encoder;
    const TextEncoderSizes sizes = read_text_encoder_sizes(checkpoint);
    std::ostringstream facts;
    facts << std::setprecision(17);
    facts << "features by flux2 " << version() << "\n"
          << identity(checkpoint.source()) << "template of "
          << (model.text.family == TextFamily::qwen3 ? "klein" : "dev") << "\ntokenizer "
          << tokenizer << "\nheads " << sizes.n_head << " " << sizes.n_head_kv << " of "
          << sizes.head_dim << "\nRoPE theta " << model.text.rope_theta << "\neps "
          << model.text.eps << "\nlayers";
    for (const int64_t layer : model.text.layers) {
        facts << " " << layer;
    }
    facts << "\n"
          << loaded_model.compute_facts(Part::text_encoder) << "layout "
          << loaded_model.text_encoder_layout() << "\n";
    return facts.str();
}

FeatureStore::FeatureStore(const Model& model, LoadedModel& loaded_model, const TensorCache& cache)
    : model_(model), loaded_model_(loaded_model), cache_(cache) {}

SharedTensor FeatureStore::get(const PromptKey& prompt) const {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.prompt == prompt; });
    check(found != entries_.end(), ErrorKind::internal, "features of a prompt were not prepared");
    return found->features;
}

// Moves the prompt's entry, if there is one, to the end: the first entries are dropped first.
bool FeatureStore::keep(const PromptKey& prompt) {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.prompt == prompt; });
    if (found == entries_.end()) {
        return false;
    }
    warn_if_cut(prompt, found->cut_text);
    std::rotate(found, found + 1, entries_.end());
    return true;
}

void FeatureStore::add(Entry entry) {
    warn_if_cut(entry.prompt, entry.cut_text);
    entries_.push_back(std::move(entry));
    if (entries_.size() > kHeld) {
        entries_.pop_front();
    }
}

bool FeatureStore::find_cached(const PromptKey& prompt, const std::string& facts) {
    auto cached =
        cache_.find(cache_key(facts, prompt), {model_.sizes.text_width, prompt.length, 1, 1});
    if (!cached) {
        return false;
    }
    add({prompt, share(std::move(cached->value)), std::move(cached->note)});
    return true;
}

bool FeatureStore::prepare(const std::vector<PromptKey>& prompts) {
    std::vector<PromptKey> missing;
    std::string facts;
    for (const PromptKey& prompt : prompts) {
        if (keep(prompt) || std::find(missing.begin(), missing.end(), prompt) != missing.end()) {
            continue;
        }
        if (cache_.is_used() && facts.empty()) {
            facts = encoder_facts(model_, loaded_model_, tokenizer_hash(*model_.text_encoder));
        }
        if (!find_cached(prompt, facts)) {
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
    // Of the same contents as the one that is loaded, should its files be replaced right now.
    const std::string before = cache_.is_used() ? tokenizer_hash(*model_.text_encoder) : "";
    std::optional<Tokenizer> tokenizer = load_tokenizer(*model_.text_encoder);
    const bool is_stored = cache_.is_used() && tokenizer_hash(*model_.text_encoder) == before;
    for (const PromptKey& prompt : prompts) {
        PromptFeatures result = loaded_model_.run(Part::text_encoder, [&] {
            return encode_prompt_features(*tokenizer, loaded_model_.text_encoder(), prompt.prompt,
                                          prompt.length);
        });
        if (is_stored) {
            // As it is loaded now: with less free memory than expected it may have another layout.
            const std::string facts = encoder_facts(model_, loaded_model_, before);
            cache_.store_result_of(model_.text_encoder->source(), cache_key(facts, prompt),
                                   result.features, result.encoded.cut_text);
        }
        add({prompt, share(std::move(result.features)), std::move(result.encoded.cut_text)});
    }
    tokenizer.reset();
    return_unused_memory();  // a vocabulary consists of a million small allocations
}

}  // namespace flux2
