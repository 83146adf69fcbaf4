// The tokenizer of an opened text encoder: built at its first use and then held, since building one
// from a real vocabulary takes about as long as encoding a prompt on a GPU many times over.
#pragma once

#include "checkpoints/checkpoint.hpp"

#include <memory>
#include <mutex>
#include <string>

namespace flux2 {

class Tokenizer;

// Any thread may call both. `text_encoder` must be the same checkpoint in every call.
class ModelTokenizer {
  public:
    ModelTokenizer();
    ~ModelTokenizer();
    ModelTokenizer(const ModelTokenizer&) = delete;
    ModelTokenizer& operator=(const ModelTokenizer&) = delete;

    // Throws as load_tokenizer does. What it returns lives as long as this object.
    const Tokenizer& get(const Checkpoint& text_encoder);
    // A hash of what the tokenizer was built from, or would be if it were now.
    std::string hash(const Checkpoint& text_encoder);

  private:
    std::mutex mutex_;
    std::unique_ptr<const Tokenizer> tokenizer_;
    std::string hash_;
};

}  // namespace flux2
