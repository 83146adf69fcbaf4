// A Mistral with small random weights, in both layouts files have, and its mathematics once more:
// plain loops in double precision over the weights in Hugging Face's order.
#pragma once

#include "formats/metadata.hpp"
#include "support/support.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace flux2::test {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

class SmallMistral {
  public:
    static constexpr int64_t kHidden = 80;  // wider than all heads together, as in the real one
    static constexpr int64_t kHeadDim = 16;
    static constexpr int64_t kHeads = 4;
    static constexpr int64_t kHeadsKv = 2;
    static constexpr int64_t kFfn = 96;
    static constexpr int64_t kLayers = 31;  // the last is not used
    static constexpr int64_t kVocabulary = 320;

    SmallMistral();

    // Hugging Face's names behind a prefix, and its order of rows.
    std::vector<TestTensor> tensors(const std::string& prefix = {}) const;
    // llama.cpp's names, and its order of the rows of queries and keys.
    std::vector<TestTensor> llama_tensors() const;

    // X.safetensors with config.json beside it.
    void write_safetensors(const std::filesystem::path& path, const std::string& prefix = {}) const;
    // With the keys of this architecture.
    void write_gguf(const std::filesystem::path& path, const std::string& architecture) const;

    // The residual stream after each layer, the embedding first; the first n_padding of the tokens
    // are padding.
    std::vector<Rows> hidden_states(const std::vector<int32_t>& ids, size_t n_padding) const;

  private:
    Rows matrix(const std::string& name) const;

    std::vector<TestTensor> tensors_;
    std::map<std::string, size_t> index_;
};

// Its tokenizer.json: the special tokens under Tekken's own ids, then every byte from kFirstByte
// on, then "ca", made of c and a, and " cat", which no merges make.
inline constexpr int32_t kFirstByte = 20;
inline constexpr int32_t kCa = kFirstByte + 256;
inline constexpr int32_t kSpaceCat = kFirstByte + 257;
std::string small_tekken_json();

// The same special tokens and bytes as Mistral's own tekken.json has them, then these words.
std::string small_tekken_file(const std::vector<std::string>& words);

// The keys llama.cpp gives such a model.
Metadata small_mistral_keys(const std::string& architecture);

void write_gguf(const std::filesystem::path& path, const Metadata& metadata,
                const std::vector<TestTensor>& tensors);

}  // namespace flux2::test
