#include "pipeline/prompt.hpp"

#include "base/check.hpp"
#include "base/hash.hpp"
#include "checkpoints/inventory.hpp"
#include "checkpoints/tokenizer_file.hpp"
#include "networks/family.hpp"
#include "text/tekken.hpp"

#include <nlohmann/json.hpp>

#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace flux2 {
namespace fs = std::filesystem;
namespace {

// llama.cpp's numbers for tokens that are matched literally in a text.
constexpr int64_t kControl = 3;
constexpr int64_t kUserDefined = 4;

// How the text encoder's own tokenizer splits.
Split split_of(const Checkpoint& checkpoint) {
    return text_family(checkpoint) == TextFamily::qwen3 ? Split::qwen : Split::tekken;
}

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
    const Split split = split_of(checkpoint);
    const std::string expected = split == Split::qwen ? "qwen2" : "tekken";
    check(model == "gpt2" && pre == expected, ErrorKind::unsupported, checkpoint.file(),
          ": its tokenizer is of kind ", model, "/", pre, ", expected gpt2/", expected,
          " as in the models that FLUX.2 was trained with; ", tokenizer_advice(checkpoint));
    Vocabulary vocabulary{*tokens, *merges, {}, checkpoint.file(), split};
    for (size_t id = 0; id < types->size(); ++id) {
        if ((*types)[id] == kControl || (*types)[id] == kUserDefined) {
            vocabulary.special.push_back(static_cast<int32_t>(id));
        }
    }
    return vocabulary;
}

// The tekken.json that ComfyUI puts into Mistral's file as a tensor; empty when there is none.
std::string_view tokenizer_inside(const Checkpoint& checkpoint) {
    const ModelTensor* tensor = checkpoint.find("tekken_model");
    if (tensor == nullptr || split_of(checkpoint) != Split::tekken) {
        return {};
    }
    const std::span<const std::byte> bytes = tensor->pieces.front().bytes;
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void add_text(Hash& hash, const std::string& text) {
    hash.add(text);
}
template <typename T>
void add_text(Hash& hash, T number) {
    hash.add(concat(+number));
}
template <typename T>
void add_text(Hash& hash, const std::vector<T>& values) {
    for (const T& value : values) {
        add_text(hash, value);
    }
}

}  // namespace

std::string tokenizer_hash(const Checkpoint& text_encoder) {
    Hash hash;
    if (text_encoder.source().format() == FileFormat::gguf) {
        for (const auto& [key, value] : text_encoder.source().metadata().entries()) {
            if (key.starts_with("tokenizer.")) {
                hash.add(key);
                std::visit([&](const auto& content) { add_text(hash, content); }, value);
            }
        }
    } else if (const std::string_view inside = tokenizer_inside(text_encoder); !inside.empty()) {
        hash.add(inside);
    } else if (const fs::path file = find_tokenizer_beside(text_encoder.source().path());
               !file.empty()) {
        for (const fs::path& part : tokenizer_files(file)) {
            hash.add(part.filename().string()).add(MappedFile(part).bytes());
        }
    }
    return hash.hex();
}

Tokenizer load_tokenizer(const Checkpoint& text_encoder) {
    if (text_encoder.source().format() == FileFormat::gguf) {
        return Tokenizer(vocabulary_of_gguf(text_encoder));
    }
    if (const std::string_view inside = tokenizer_inside(text_encoder); !inside.empty()) {
        return Tokenizer(read_tekken_json(inside, text_encoder.file() + " (tekken_model)"));
    }
    const fs::path file = find_tokenizer_beside(text_encoder.source().path());
    check(!file.empty(), ErrorKind::bad_file, text_encoder.file(),
          ": has no tokenizer.json beside it, so it cannot read prompts; ",
          tokenizer_advice(text_encoder));
    Vocabulary vocabulary = vocabulary_of(read_tokenizer_file(file), file.string());
    check(vocabulary.split == split_of(text_encoder), ErrorKind::bad_file, file.string(),
          ": is not the tokenizer of ", text_encoder.file(), "; ", tokenizer_advice(text_encoder));
    return Tokenizer(std::move(vocabulary));
}

bool has_tokenizer(const Checkpoint& text_encoder) {
    const TensorSource& source = text_encoder.source();
    if (source.format() == FileFormat::gguf) {
        return source.metadata().contains("tokenizer.ggml.tokens");
    }
    return !tokenizer_inside(text_encoder).empty() || !find_tokenizer_beside(source.path()).empty();
}

std::string tokenizer_advice(const Checkpoint& text_encoder) {
    const TextEncoderSizes sizes = read_text_encoder_sizes(text_encoder);
    const char* origin = nearest_family(sizes.family, sizes.hidden).tokenizer_origin;
    if (text_encoder.source().format() == FileFormat::gguf) {
        return concat("convert it again with flux2-convert ", Setting::tokenizer,
                      " tokenizer.json, that of ", origin, " on Hugging Face");
    }
    return concat("put tokenizer.json of ", origin,
                  " on Hugging Face into the same folder, or make a GGUF with flux2-convert ",
                  Setting::tokenizer, " tokenizer.json");
}

PromptFeatures encode_prompt_features(const Tokenizer& tokenizer, TextEncoder& encoder,
                                      std::string_view prompt, int64_t length) {
    EncodedPrompt encoded = encode_prompt(tokenizer, prompt, length);
    HostTensor features = encoder.encode(encoded.ids, encoded.n_real);
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
