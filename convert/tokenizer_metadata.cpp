#include "tokenizer_metadata.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/split_patterns.hpp"
#include "checkpoints/tokenizer_file.hpp"
#include "formats/json_file.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>

namespace flux2::convert {
namespace fs = std::filesystem;
namespace {

// llama.cpp's numbers for tokenizer.ggml.token_type.
constexpr int32_t kNormal = 1;
constexpr int32_t kControl = 3;
constexpr int32_t kUserDefined = 4;
constexpr int32_t kUnused = 5;

// Properties of the tokenizers of FLUX.2's text encoders.
struct Kind {
    const char* pre;  // llama.cpp's name for how it splits text
    const char *bos, *eos, *pad;
    bool adds_bos;
};
constexpr Kind kQwen = {.pre = "qwen2",
                        .bos = "<|endoftext|>",
                        .eos = "<|im_end|>",
                        .pad = "<|endoftext|>",
                        .adds_bos = false};
constexpr Kind kTekken = {
    .pre = "tekken", .bos = "<s>", .eos = "</s>", .pad = "<pad>", .adds_bos = true};

struct Vocabulary {
    std::vector<std::string> tokens;
    std::vector<int32_t> types;
    std::unordered_map<std::string, int64_t> ids;  // of added tokens
};

void put(Vocabulary& vocabulary, const fs::path& file, const std::string& token, int64_t id,
         int32_t type) {
    const auto n = static_cast<int64_t>(vocabulary.tokens.size());
    check(id >= 0 && id < n, ErrorKind::bad_file, file.string(), ": token '", token, "' has id ",
          id, ", but the text encoder embeds ", n, " tokens; the two do not belong together");
    vocabulary.tokens[static_cast<size_t>(id)] = token;
    vocabulary.types[static_cast<size_t>(id)] = type;
}

bool looks_special(const std::string& token) {
    return token.starts_with("<|") && token.ends_with("|>");
}

Vocabulary read_vocabulary(const nlohmann::json& json, const fs::path& file, int64_t n_tokens) {
    Vocabulary vocabulary;
    for (int64_t i = 0; i < n_tokens; ++i) {
        vocabulary.tokens.push_back("[PAD" + std::to_string(i) + "]");
    }
    vocabulary.types.assign(static_cast<size_t>(n_tokens), kUnused);
    for (const auto& [token, id] : json.at("model").at("vocab").items()) {
        put(vocabulary, file, token, id.get<int64_t>(), kNormal);
    }
    if (const auto added_tokens = get_json<nlohmann::json>(json, "added_tokens", file)) {
        for (const nlohmann::json& added : *added_tokens) {
            const auto token = added.at("content").get<std::string>();
            const auto id = added.at("id").get<int64_t>();
            const bool special =
                get_json<bool>(added, "special", file).value_or(false) || looks_special(token);
            put(vocabulary, file, token, id, special ? kControl : kUserDefined);
            vocabulary.ids[token] = id;
        }
    }
    return vocabulary;
}

// Either "a b" or ["a", "b"]; both occur.
std::vector<std::string> read_merges(const nlohmann::json& json) {
    std::vector<std::string> merges;
    for (const nlohmann::json& merge : json.at("model").at("merges")) {
        merges.push_back(merge.is_string() ? merge.get<std::string>()
                                           : merge.at(0).get<std::string>() + " " +
                                                 merge.at(1).get<std::string>());
    }
    return merges;
}

// tokenizer_config.json names a token, either as text or as an object.
std::optional<int64_t> named_token(const nlohmann::json& config, const std::string& key,
                                   const Vocabulary& vocabulary) {
    const auto found = config.find(key);
    if (found == config.end()) {
        return std::nullopt;
    }
    const nlohmann::json token =
        found->is_object() ? found->value("content", nlohmann::json()) : *found;
    if (!token.is_string() || !vocabulary.ids.contains(token.get<std::string>())) {
        return std::nullopt;
    }
    return vocabulary.ids.at(token.get<std::string>());
}

// The first of a list or the number itself; Qwen's generation settings use both forms.
std::optional<int64_t> config_id(const nlohmann::json& config, const std::string& key) {
    const auto found = config.find(key);
    if (found == config.end()) {
        return std::nullopt;
    }
    const nlohmann::json& id = found->is_array() && !found->empty() ? found->front() : *found;
    return id.is_number_integer() ? std::optional(id.get<int64_t>()) : std::nullopt;
}

std::optional<std::string> read_chat_template(const nlohmann::json& tokenizer_config,
                                              const fs::path& folder) {
    constexpr size_t kMaxTemplateBytes = 1 << 20;
    const auto found = tokenizer_config.find("chat_template");
    if (found != tokenizer_config.end() && found->is_string()) {
        return found->get<std::string>();
    }
    const fs::path file = folder / "chat_template.jinja";
    return file_exists(file) ? std::optional(read_text_file(file, kMaxTemplateBytes))
                             : std::nullopt;
}

void set_id(Metadata& metadata, const char* key, std::optional<int64_t> id) {
    if (id && *id >= 0 && *id <= UINT32_MAX) {
        metadata.set(key, static_cast<uint32_t>(*id));
    }
}

void set_special_ids(Metadata& metadata, const Kind& kind, const Vocabulary& vocabulary,
                     const nlohmann::json& tokenizer_config, const nlohmann::json& config) {
    const auto first_of = [](std::optional<int64_t> a, std::optional<int64_t> b) {
        return a ? a : b;
    };
    const auto added = [&](const std::string& token) -> std::optional<int64_t> {
        const auto found = vocabulary.ids.find(token);
        return found == vocabulary.ids.end() ? std::nullopt : std::optional(found->second);
    };
    set_id(metadata, "tokenizer.ggml.bos_token_id",
           first_of(named_token(tokenizer_config, "bos_token", vocabulary),
                    first_of(config_id(config, "bos_token_id"), added(kind.bos))));
    set_id(metadata, "tokenizer.ggml.eos_token_id",
           first_of(named_token(tokenizer_config, "eos_token", vocabulary),
                    first_of(config_id(config, "eos_token_id"), added(kind.eos))));
    // FLUX.2 pads with this token, whatever the files say.
    set_id(metadata, "tokenizer.ggml.padding_token_id",
           first_of(added(kind.pad), named_token(tokenizer_config, "pad_token", vocabulary)));
}

}  // namespace

void add_tokenizer(Metadata& metadata, const fs::path& tokenizer, int64_t n_tokens,
                   const nlohmann::json& config) {
    const nlohmann::json json = read_tokenizer_file(tokenizer);
    const fs::path config_file = tokenizer.parent_path() / "tokenizer_config.json";
    const nlohmann::json tokenizer_config =
        read_json_if_present(config_file).value_or(nlohmann::json::object());
    try {
        check(json.at("model").value("type", "BPE") == "BPE", ErrorKind::unsupported,
              tokenizer.string(), ": is not a BPE tokenizer, which Qwen3 and Mistral use");
        Vocabulary vocabulary = read_vocabulary(json, tokenizer, n_tokens);
        std::vector<std::string> merges = read_merges(json);
        const std::optional<Split> split = split_of_tokenizer(json);
        check(split.has_value(), ErrorKind::unsupported, tokenizer.string(),
              ": does not split text as Qwen3 or Mistral does; use the tokenizer.json of the text "
              "encoder");
        const Kind& kind = *split == Split::tekken ? kTekken : kQwen;
        metadata.set("tokenizer.ggml.model", std::string("gpt2"));
        metadata.set("tokenizer.ggml.pre", std::string(kind.pre));
        metadata.set("tokenizer.ggml.merges", std::move(merges));
        set_special_ids(metadata, kind, vocabulary, tokenizer_config, config);
        metadata.set("tokenizer.ggml.add_bos_token", kind.adds_bos);
        if (auto chat_template = read_chat_template(tokenizer_config, tokenizer.parent_path())) {
            metadata.set("tokenizer.chat_template", std::move(*chat_template));
        }
        metadata.set("tokenizer.ggml.tokens", std::move(vocabulary.tokens));
        metadata.set("tokenizer.ggml.token_type", std::move(vocabulary.types));
    } catch (const nlohmann::json::exception& error) {
        fail(ErrorKind::bad_file, tokenizer.string(),
             ": is not a Hugging Face tokenizer: ", error.what());
    }
}

}  // namespace flux2::convert
