#include "pipeline/features.hpp"

#include "base/check.hpp"
#include "base/log.hpp"
#include "base/text_stream.hpp"
#include "base/utf8.hpp"
#include "pipeline/prompt.hpp"

#include <algorithm>
#include <iomanip>
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

std::string encoder_facts(const Model& model, LoadedModel& loaded_model) {
    const Checkpoint& checkpoint = *model.text_encoder;
    const TextEncoderSizes sizes = read_text_encoder_sizes(checkpoint);
    TextStream facts;
    facts << std::setprecision(17);
    facts << "features by flux2 " << version() << "\n"
          << identity(checkpoint.source()) << "template of "
          << (model.text.family == TextFamily::qwen3 ? "klein" : "dev") << "\ntokenizer "
          << model.tokenizer->hash(checkpoint) << "\nheads " << sizes.n_head << " "
          << sizes.n_head_kv << " of " << sizes.head_dim << "\nRoPE theta " << model.text.rope_theta
          << "\neps " << model.text.eps << "\nlayers";
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

std::deque<FeatureStore::Entry>::iterator FeatureStore::find(const PromptKey& prompt) {
    return std::find_if(entries_.begin(), entries_.end(),
                        [&](const Entry& entry) { return entry.prompt == prompt; });
}

SharedTensor FeatureStore::get(const PromptKey& prompt) {
    const auto found = find(prompt);
    check(found != entries_.end(), ErrorKind::internal, "features of a prompt were not prepared");
    found->is_ahead = false;
    SharedTensor features = found->features;
    drop_used();
    return features;
}

// Of those that are not held ahead, the first entries.
void FeatureStore::drop_used() {
    const auto is_used = [](const Entry& entry) { return !entry.is_ahead; };
    auto n_used = std::count_if(entries_.begin(), entries_.end(), is_used);
    for (; n_used > static_cast<std::ptrdiff_t>(kHeld); --n_used) {
        entries_.erase(std::find_if(entries_.begin(), entries_.end(), is_used));
    }
}

// Moves the prompt's entry, if there is one, to the end: the first entries are dropped first.
bool FeatureStore::keep(const PromptKey& prompt, bool ahead) {
    const auto found = find(prompt);
    if (found == entries_.end()) {
        return false;
    }
    warn_if_cut(prompt, found->cut_text);
    found->is_ahead |= ahead;
    std::rotate(found, found + 1, entries_.end());
    return true;
}

void FeatureStore::add(Entry entry) {
    warn_if_cut(entry.prompt, entry.cut_text);
    entries_.push_back(std::move(entry));
    drop_used();
}

bool FeatureStore::find_cached(const PromptKey& prompt, bool ahead, const std::string& facts) {
    auto cached =
        cache_.find(cache_key(facts, prompt), {model_.sizes.text_width, prompt.length, 1, 1});
    if (!cached) {
        return false;
    }
    add({prompt, share(std::move(cached->value)), std::move(cached->note), ahead});
    return true;
}

size_t FeatureStore::prepare(const std::vector<PromptKey>& prompts) {
    check(prompts.size() <= kHeld, ErrorKind::internal, prompts.size(),
          " prompts are prepared at once");
    return make(prompts, false, {});
}

size_t FeatureStore::prepare_ahead(const std::vector<PromptKey>& prompts, const OnReady& on_ready) {
    for (Entry& entry : entries_) {
        entry.is_ahead = false;
    }
    return make(prompts, true, on_ready);
}

size_t FeatureStore::make(const std::vector<PromptKey>& prompts, bool ahead,
                          const OnReady& on_ready) {
    std::vector<PromptKey> missing;
    std::string facts;
    const auto tell = [&](const PromptKey& prompt) {
        if (on_ready) {
            on_ready(prompt);
        }
    };
    for (const PromptKey& prompt : prompts) {
        if (std::find(missing.begin(), missing.end(), prompt) != missing.end()) {
            continue;
        }
        if (keep(prompt, ahead)) {
            tell(prompt);
            continue;
        }
        if (cache_.is_used() && facts.empty()) {
            facts = encoder_facts(model_, loaded_model_);
        }
        if (find_cached(prompt, ahead, facts)) {
            tell(prompt);
        } else {
            missing.push_back(prompt);
        }
    }
    for (const PromptKey& prompt : missing) {
        encode(prompt, ahead);
        tell(prompt);
    }
    return missing.size();
}

void FeatureStore::encode(const PromptKey& prompt, bool ahead) {
    // Before the text encoder is loaded: there may be none.
    const Tokenizer& tokenizer = model_.tokenizer->get(*model_.text_encoder);
    PromptFeatures result = loaded_model_.run(Part::text_encoder, [&] {
        return encode_prompt_features(tokenizer, loaded_model_.text_encoder(), prompt.prompt,
                                      prompt.length);
    });
    if (cache_.is_used()) {
        // As it is loaded now: with less free memory than expected it may have another layout.
        const std::string facts = encoder_facts(model_, loaded_model_);
        cache_.store_result_of(model_.text_encoder->source(), cache_key(facts, prompt),
                               result.features, result.encoded.cut_text);
    }
    add({prompt, share(std::move(result.features)), std::move(result.encoded.cut_text), ahead});
}

}  // namespace flux2
