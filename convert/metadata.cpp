#include "metadata.hpp"

#include <flux2/version.hpp>
#include "base/check.hpp"
#include "base/file.hpp"
#include "checkpoints/model_config.hpp"
#include "checkpoints/text_config.hpp"
#include "checkpoints/tokenizer_file.hpp"
#include "tokenizer_metadata.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

namespace flux2::convert {
namespace fs = std::filesystem;
namespace {

constexpr uint32_t kQuantizationVersion = 2;  // GGML_QNT_VERSION

uint32_t u32(int64_t n) {
    return static_cast<uint32_t>(n);
}

// Keys of a GGUF source that remain valid: all except those about its layout and types.
Metadata inherited(const Checkpoint& checkpoint) {
    Metadata metadata;
    if (checkpoint.source().format() == FileFormat::gguf) {
        for (const auto& [key, value] : checkpoint.source().metadata().entries()) {
            if (key != "general.alignment" && !key.starts_with("split.") &&
                !key.starts_with("flux2.quantization.")) {
                metadata.set(key, value);
            }
        }
    }
    return metadata;
}

void set_general(Metadata& metadata, const std::string& architecture, const std::string& name,
                 const FileType& type) {
    metadata.set("general.architecture", architecture);
    metadata.set("general.type", std::string("model"));
    metadata.set("general.name", name);
    metadata.set("general.quantization_version", kQuantizationVersion);
    metadata.set("general.file_type", type.number);
}

void set_origin(Metadata& metadata) {
    metadata.set("flux2.tool_version", std::string(version()));
    metadata.set(kSourceHashKey, std::string(64, '0'));
}

fs::path find_tokenizer(const Checkpoint& checkpoint, const fs::path& option) {
    if (option.empty()) {
        return find_tokenizer_beside(checkpoint.source().path());
    }
    if (!is_folder(option)) {
        return option;
    }
    const fs::path found = find_tokenizer_file(option);
    check(!found.empty(), ErrorKind::bad_argument, "--tokenizer ", option.string(),
          ": the folder holds neither tokenizer.json nor vocab.json with merges.txt");
    return found;
}

// What llama.cpp calls the model. It has two names for Mistral: a GGUF source keeps its name, other
// sources get the older one.
std::string text_architecture(const Checkpoint& checkpoint, TextFamily family) {
    if (family == TextFamily::qwen3) {
        return "qwen3";
    }
    return architecture_of(checkpoint.source()) == "mistral3" ? "mistral3" : "llama";
}

void set_text_sizes(Metadata& metadata, const std::string& architecture,
                    const TextEncoderSizes& sizes, const TextConfig& config) {
    const auto set = [&](const char* key, MetadataValue value) {
        metadata.set(architecture + key, std::move(value));
    };
    set(".context_length", u32(config.context_length));
    set(".embedding_length", u32(sizes.hidden));
    set(".feed_forward_length", u32(sizes.ffn));
    set(".attention.head_count", u32(sizes.n_head));
    set(".attention.head_count_kv", u32(sizes.n_head_kv));
    set(".attention.key_length", u32(sizes.head_dim));
    set(".attention.value_length", u32(sizes.head_dim));
    set(".attention.layer_norm_rms_epsilon", static_cast<float>(config.eps));
    set(".rope.freq_base", static_cast<float>(config.rope_theta));
    if (sizes.family == TextFamily::mistral) {
        set(".rope.dimension_count", u32(sizes.head_dim));
        set(".vocab_size", u32(sizes.vocabulary));
    }
}

}  // namespace

MetadataResult transformer_metadata(const Checkpoint& checkpoint, const TransformerSizes& sizes,
                                    Variant variant, const DefaultOptions& options,
                                    const FileType& type) {
    SamplingDefaults defaults = sampling_defaults(checkpoint, variant);
    defaults.steps = options.steps.value_or(defaults.steps);
    defaults.guidance = options.guidance.value_or(defaults.guidance);
    if (options.size) {
        defaults.width = options.size->width;
        defaults.height = options.size->height;
    }
    const std::string name = display_name(variant, sizes);
    const std::vector<int32_t> axes(4, static_cast<int32_t>(sizes.head_dim / 4));
    Metadata metadata = inherited(checkpoint);
    // "flux" is what other programs expect of every FLUX transformer, FLUX.2 included.
    set_general(metadata, "flux", name, type);
    metadata.set("flux2.variant", std::string(to_string(variant)));
    metadata.set("flux2.distilled", defaults.distilled);
    metadata.set("flux2.default_steps", u32(defaults.steps));
    metadata.set("flux2.default_guidance", defaults.guidance);
    metadata.set("flux2.default_width", u32(defaults.width));
    metadata.set("flux2.default_height", u32(defaults.height));
    metadata.set("flux2.text_width", u32(sizes.text_width));
    metadata.set("flux2.rope_theta", static_cast<float>(sizes.rope_theta));
    metadata.set("flux2.rope_axes", axes);
    set_origin(metadata);
    return {std::move(metadata), name, {}};
}

MetadataResult autoencoder_metadata(const Checkpoint& checkpoint, const FileType& type) {
    const bool tiny = checkpoint.part() == Part::tiny_autoencoder;
    const std::string name = tiny ? "TAEF2" : "FLUX.2 autoencoder";
    Metadata metadata = inherited(checkpoint);
    set_general(metadata, tiny ? "flux2-taesd" : "flux2-vae", name, type);
    set_origin(metadata);
    return {std::move(metadata), name, {}};
}

TextUse decide_text_use(const Checkpoint& checkpoint, const TextEncoderSizes& sizes,
                        const TextEncoderOptions& options) {
    const TextConfig config = read_text_config(checkpoint);
    TextUse use;
    use.layers = options.layers.empty() ? config.layers : options.layers;
    use.text_length = options.text_length.value_or(config.text_length);
    check(use.text_length >= 16 && use.text_length <= 65536, ErrorKind::bad_argument,
          "text length ", use.text_length, " is out of range; 16 to 65536 tokens make sense");
    for (size_t i = 0; i < use.layers.size(); ++i) {
        check(use.layers[i] >= 1 && use.layers[i] <= sizes.n_layers &&
                  (i == 0 || use.layers[i] > use.layers[i - 1]),
              options.layers.empty() ? ErrorKind::bad_file : ErrorKind::bad_argument,
              checkpoint.file(), ": has ", sizes.n_layers, " layers, so layer ", use.layers[i],
              " cannot be used; give rising numbers from 1 on with --text-layers");
    }
    return use;
}

int64_t layers_kept(const TextEncoderSizes& sizes, const TextUse& use, bool trim) {
    return trim ? use.layers.back() : sizes.n_layers;
}

MetadataResult text_encoder_metadata(const Checkpoint& checkpoint, const TextEncoderSizes& sizes,
                                     const TextUse& use, const TextEncoderOptions& options,
                                     const FileType& type) {
    MetadataResult result;
    result.name = display_name(sizes);
    Metadata& metadata = result.metadata;
    metadata = inherited(checkpoint);
    const std::string architecture = text_architecture(checkpoint, sizes.family);
    set_general(metadata, architecture, metadata.get_string("general.name").value_or(result.name),
                type);
    const int64_t kept = layers_kept(sizes, use, options.trim);
    metadata.set(architecture + ".block_count", u32(kept));
    if (!metadata.contains(architecture + ".embedding_length")) {
        set_text_sizes(metadata, architecture, sizes, read_text_config(checkpoint));
    }
    const fs::path tokenizer = find_tokenizer(checkpoint, options.tokenizer);
    if (!tokenizer.empty()) {
        add_tokenizer(metadata, tokenizer, sizes.vocabulary,
                      read_model_config(checkpoint.source()));
    } else if (!metadata.contains("tokenizer.ggml.tokens")) {
        result.warnings.push_back(checkpoint.file() +
                                  ": has no tokenizer.json beside it; the result cannot read "
                                  "prompts. Give one with --tokenizer");
    }
    metadata.set("flux2.text_layers", std::vector<int32_t>(use.layers.begin(), use.layers.end()));
    metadata.set("flux2.text_length", u32(use.text_length));
    if (kept < sizes.n_layers || options.trim) {
        metadata.set("flux2.trimmed", true);
    }
    set_origin(metadata);
    return result;
}

}  // namespace flux2::convert
