#include "pipeline/model_tokenizer.hpp"

#include "base/system.hpp"
#include "pipeline/prompt.hpp"

namespace flux2 {

ModelTokenizer::ModelTokenizer() = default;
ModelTokenizer::~ModelTokenizer() = default;

const Tokenizer& ModelTokenizer::get(const Checkpoint& text_encoder) {
    const std::lock_guard lock(mutex_);
    if (!tokenizer_) {
        do {  // again when its files were replaced meanwhile: the hash is of what was built
            hash_ = tokenizer_hash(text_encoder);
            tokenizer_ = std::make_unique<const Tokenizer>(load_tokenizer(text_encoder));
        } while (tokenizer_hash(text_encoder) != hash_);
        return_unused_memory();  // what was read of a vocabulary is a million small allocations
    }
    return *tokenizer_;
}

std::string ModelTokenizer::hash(const Checkpoint& text_encoder) {
    const std::lock_guard lock(mutex_);
    if (hash_.empty()) {
        hash_ = tokenizer_hash(text_encoder);
    }
    return hash_;
}

}  // namespace flux2
