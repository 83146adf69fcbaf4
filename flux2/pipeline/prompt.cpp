#include "pipeline/prompt.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "store/inventory.hpp"

#include <string>
#include <utility>

namespace flux2 {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMaxTokenizerBytes = 64 << 20;

// llama.cpp's numbers for tokens that stand for themselves in a text.
constexpr int64_t kControl = 3;
constexpr int64_t kUserDefined = 4;

Vocabulary vocabulary_of_gguf(const Checkpoint& checkpoint) {
    const Metadata& keys = checkpoint.source().metadata();
    const auto* tokens = keys.get_strings("tokenizer.ggml.tokens");
    const auto* merges = keys.get_strings("tokenizer.ggml.merges");
    const auto types = keys.get_ints("tokenizer.ggml.token_type");
    check(tokens != nullptr && merges != nullptr && types && types->size() == tokens->size(),
          ErrorKind::bad_file, checkpoint.file(),
          ": holds no tokenizer, so it cannot read prompts; ", tokenizer_advice(checkpoint));
    const std::string model = keys.get_string("tokenizer.ggml.model").value_or("");
    const std::string pre = keys.get_string("tokenizer.ggml.pre").value_or("");
    check(model == "gpt2" && pre == "qwen2", ErrorKind::unsupported, checkpoint.file(),
          ": its tokenizer is of kind ", model, "/", pre, ", Qwen3's is gpt2/qwen2");
    Vocabulary vocabulary{*tokens, *merges, {}, checkpoint.file()};
    for (size_t id = 0; id < types->size(); ++id) {
        if ((*types)[id] == kControl || (*types)[id] == kUserDefined) {
            vocabulary.special.push_back(static_cast<int32_t>(id));
        }
    }
    return vocabulary;
}

// Empty when there is none.
fs::path tokenizer_beside(const Checkpoint& checkpoint) {
    const fs::path& path = checkpoint.source().path();
    const fs::path folder = fs::is_directory(path) ? path : path.parent_path();
    for (const fs::path& file :
         {folder / "tokenizer.json", folder / ".." / "tokenizer" / "tokenizer.json"}) {
        if (fs::exists(file)) {
            return file;
        }
    }
    return {};
}

}  // namespace

Tokenizer load_tokenizer(const Checkpoint& text_encoder) {
    if (text_encoder.source().format() == FileFormat::gguf) {
        return Tokenizer(vocabulary_of_gguf(text_encoder));
    }
    const fs::path file = tokenizer_beside(text_encoder);
    check(!file.empty(), ErrorKind::bad_file, text_encoder.file(),
          ": has no tokenizer.json beside it, so it cannot read prompts; ",
          tokenizer_advice(text_encoder));
    return Tokenizer(read_tokenizer_json(read_text_file(file, kMaxTokenizerBytes), file.string()));
}

bool has_tokenizer(const Checkpoint& text_encoder) {
    return text_encoder.source().format() == FileFormat::gguf
               ? text_encoder.source().metadata().contains("tokenizer.ggml.tokens")
               : !tokenizer_beside(text_encoder).empty();
}

std::string tokenizer_advice(const Checkpoint& text_encoder) {
    const std::string model = read_qwen3_sizes(text_encoder).hidden > 2560 ? "8B" : "4B";
    if (text_encoder.source().format() == FileFormat::gguf) {
        return concat("convert it again with --tokenizer tokenizer.json, that of Qwen/Qwen3-",
                      model, " on Hugging Face");
    }
    return concat("put tokenizer.json of Qwen/Qwen3-", model,
                  " on Hugging Face into the same folder, or make a GGUF with flux2-convert "
                  "--tokenizer tokenizer.json");
}

PromptFeatures encode_prompt_features(const Tokenizer& tokenizer, Qwen3& qwen3,
                                      std::string_view prompt, int64_t length) {
    EncodedPrompt encoded = encode_prompt(tokenizer, prompt, length);
    HostTensor features = qwen3.encode(encoded.ids, encoded.n_real);
    return {std::move(features), std::move(encoded)};
}

HostTensor read_features(const fs::path& file, const std::string& name) {
    HostTensor features = read_tensor(TensorSource::open(file), name);
    check(features.ne[2] == 1 && features.ne[3] == 1 && features.elements() > 0,
          ErrorKind::bad_file, file.string(), ": ", name, " has ", features.elements(),
          " values that are no [1, tokens, width]");
    return features;
}

}  // namespace flux2
