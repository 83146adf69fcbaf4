#include "checkpoints/recognise.hpp"

#include "base/check.hpp"
#include "checkpoints/tensor_names.hpp"
#include "networks/family.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace flux2 {
namespace {

// What to use instead of a file of another model that was given as this part.
std::string advice_for(Part part) {
    switch (part) {
        case Part::transformer:
            return "use a FLUX.2 transformer, such as flux-2-klein-4b.safetensors";
        case Part::text_encoder:
            return families_in_words();
        case Part::vae:
            return "FLUX.2 has its own autoencoder, ae.safetensors or flux2-vae.safetensors";
        case Part::tiny_autoencoder:
            return "FLUX.2 has its own tiny autoencoder, TAEF2, such as taef2.safetensors";
    }
    fail(ErrorKind::internal, "unknown part");
}

// Prefixes of the layer numbers in files of tiny autoencoders, for decoder and encoder.
constexpr std::array<std::string_view, 3> kTinyDecoders = {"", "decoder.", "taesd_decoder."};
constexpr std::array<std::string_view, 3> kTinyEncoders = {"", "encoder.", "taesd_encoder."};

// A kind of file that does not belong to FLUX.2, recognised by a text in the name of any of its
// tensors.
struct OtherKind {
    std::string_view mark;
    std::string_view what;
    std::optional<Part> taken_for;  // none: an adapter of some model
};

// The first match counts: adapters and ControlNets repeat names of the model they belong to, and
// whole checkpoints contain text encoders and autoencoders.
constexpr std::array kOtherKinds = {
    OtherKind{"lora_A", "a LoRA", std::nullopt},
    OtherKind{"lora_B", "a LoRA", std::nullopt},
    OtherKind{"lora_down", "a LoRA", std::nullopt},
    OtherKind{"lora_up", "a LoRA", std::nullopt},
    OtherKind{".lora.down.", "a LoRA", std::nullopt},
    OtherKind{".lora.up.", "a LoRA", std::nullopt},
    OtherKind{"lokr_w", "a LoRA", std::nullopt},
    OtherKind{"hada_w", "a LoRA", std::nullopt},
    OtherKind{".lora_a", "a LoRA", std::nullopt},
    OtherKind{".lora_b", "a LoRA", std::nullopt},
    OtherKind{".oft_blocks", "a LoRA", std::nullopt},
    OtherKind{".oft_R.", "a LoRA", std::nullopt},
    OtherKind{"controlnet_blocks.", "a ControlNet", Part::transformer},
    OtherKind{"double_blocks.0.img_mod.lin.", "a FLUX.1 transformer", Part::transformer},
    OtherKind{"vector_in.in_layer.", "a FLUX.1 transformer", Part::transformer},
    OtherKind{"single_transformer_blocks.0.proj_mlp.", "a FLUX.1 transformer", Part::transformer},
    OtherKind{"distilled_guidance_layer.", "a Chroma transformer", Part::transformer},
    OtherKind{"input_blocks.0.0.", "a Stable Diffusion or SDXL model", Part::transformer},
    OtherKind{"down_blocks.1.attentions.0.", "a Stable Diffusion or SDXL UNet", Part::transformer},
    OtherKind{"joint_blocks.0.x_block.", "a Stable Diffusion 3 model", Part::transformer},
    OtherKind{"transformer_blocks.0.img_mod.1.", "a Qwen-Image transformer", Part::transformer},
    OtherKind{"noise_refiner.0.", "a Z-Image or Lumina transformer", Part::transformer},
    OtherKind{"layer.0.SelfAttention.q.", "a T5 text encoder", Part::text_encoder},
    OtherKind{"enc.blk.0.attn_q.", "a T5 text encoder", Part::text_encoder},
    OtherKind{"text_model.encoder.layers.0.", "a CLIP text encoder", Part::text_encoder},
    OtherKind{"resblocks.0.attn.in_proj_weight", "a CLIP encoder", Part::text_encoder},
    OtherKind{"v.blk.0.", "the picture encoder of a language model", Part::text_encoder},
    OtherKind{"layers.0.pre_feedforward_layernorm.", "a Gemma language model", Part::text_encoder},
    OtherKind{"blk.0.post_ffw_norm.", "a Gemma language model", Part::text_encoder},
};

using Tensors = std::vector<const TensorInfo*>;

std::string find_other_kind(const Tensors& tensors) {
    for (const OtherKind& other_kind : kOtherKinds) {
        for (const TensorInfo* tensor : tensors) {
            if (tensor->name.find(other_kind.mark) != std::string::npos) {
                return concat("is ", other_kind.what, " (", tensor->name, "); ",
                              other_kind.taken_for ? advice_for(*other_kind.taken_for)
                                                   : concat("give it with ", Setting::adapters,
                                                            " to the model it belongs to"));
            }
        }
    }
    return {};
}

// Tensors by their names without prefixes.
class Names {
  public:
    explicit Names(const Tensors& tensors) {
        for (const TensorInfo* tensor : tensors) {
            names_.emplace(strip_prefix(tensor->name), tensor);
        }
    }
    const TensorInfo* find(std::string_view name) const {
        const auto found = names_.find(name);
        return found == names_.end() ? nullptr : found->second;
    }
    bool has(std::string_view name) const { return find(name) != nullptr; }
    bool has_any(std::initializer_list<std::string_view> names) const {
        return std::any_of(names.begin(), names.end(),
                           [&](std::string_view name) { return has(name); });
    }

  private:
    std::map<std::string_view, const TensorInfo*> names_;
};

// Tensors of a language model under one of the naming schemes; null if absent.
struct LanguageModel {
    Naming naming;
    const TensorInfo *embeddings, *q, *output, *q_norm, *q_bias;

    bool found() const { return q != nullptr || output != nullptr; }
};

LanguageModel find_language_model(const Names& names) {
    for (const std::string start : {"model.", "model.language_model."}) {
        const std::string attention = start + "layers.0.self_attn.";
        const LanguageModel model = {Naming::hugging_face,
                                     names.find(start + "embed_tokens.weight"),
                                     names.find(attention + "q_proj.weight"),
                                     names.find(attention + "o_proj.weight"),
                                     names.find(attention + "q_norm.weight"),
                                     names.find(attention + "q_proj.bias")};
        if (model.found()) {
            return model;
        }
    }
    return {Naming::llama_cpp,
            names.find("token_embd.weight"),
            names.find("blk.0.attn_q.weight"),
            names.find("blk.0.attn_output.weight"),
            names.find("blk.0.attn_q_norm.weight"),
            names.find("blk.0.attn_q.bias")};
}

// Mistral Small has neither norms nor biases on its queries, as Llama, but its heads together are
// narrower than the hidden size (4096 and 5120), while Llama's are equally wide. Each width can be
// read from two tensors.
bool is_mistral(const LanguageModel& model) {
    if (!model.found() || model.q_norm != nullptr || model.q_bias != nullptr) {
        return false;
    }
    const int64_t heads = model.q != nullptr ? model.q->shape.ne[1] : model.output->shape.ne[0];
    const int64_t hidden = model.embeddings != nullptr ? model.embeddings->shape.ne[0]
                           : model.output != nullptr   ? model.output->shape.ne[1]
                                                       : 0;
    return heads < hidden;
}

// The first of these prefixes under which there is such a tensor.
const TensorInfo* find_under(const Names& names, std::span<const std::string_view> prefixes,
                             std::string_view name) {
    for (const std::string_view prefix : prefixes) {
        if (const TensorInfo* found = names.find(concat(prefix, name))) {
            return found;
        }
    }
    return nullptr;
}

// One of a part's characteristic tensors is enough: if others are missing, the inventory reports
// them.
std::optional<RecognisedPart> find_part(const Names& names) {
    if (names.has_any({"double_stream_modulation_img.lin.weight",
                       "double_stream_modulation_txt.lin.weight",
                       "single_stream_modulation.lin.weight"})) {
        return RecognisedPart{Part::transformer, Naming::original, {}};
    }
    if (names.has_any({"double_stream_modulation_img.linear.weight",
                       "double_stream_modulation_txt.linear.weight",
                       "single_stream_modulation.linear.weight"})) {
        return RecognisedPart{Part::transformer, Naming::diffusers, {}};
    }
    if (names.has_any({"decoder.conv_in.weight", "decoder.conv_out.weight"}) &&
        names.has_any({"bn.running_mean", "bn.running_var"})) {
        const bool original = names.has("decoder.post_quant_conv.weight");
        return RecognisedPart{Part::vae, original ? Naming::original : Naming::diffusers, {}};
    }
    if (names.has_any(
            {"model.layers.0.self_attn.q_norm.weight", "model.layers.0.self_attn.k_norm.weight"})) {
        return RecognisedPart{Part::text_encoder, Naming::hugging_face, {}};
    }
    if (names.has_any({"blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight"})) {
        return RecognisedPart{Part::text_encoder, Naming::llama_cpp, {}};
    }
    // No other tiny autoencoder has blocks with pools at the lowest resolution.
    if (find_under(names, kTinyDecoders, "3.pool.0.weight") != nullptr ||
        find_under(names, kTinyDecoders, "4.pool.0.weight") != nullptr) {
        return RecognisedPart{Part::tiny_autoencoder, Naming::original, {}};
    }
    if (names.has_any({"decoder.layers.2.pool.0.weight", "decoder.layers.3.pool.0.weight"})) {
        return RecognisedPart{Part::tiny_autoencoder, Naming::diffusers, {}};
    }
    if (const LanguageModel model = find_language_model(names); is_mistral(model)) {
        return RecognisedPart{Part::text_encoder, model.naming, {}};
    }
    return std::nullopt;
}

// Describes tiny autoencoders of other models, and TAEF2's encoder alone. Empty for other files.
std::string name_tiny_autoencoder(const Names& names) {
    if (find_under(names, kTinyEncoders, "11.pool.0.weight") != nullptr ||
        names.has("encoder.layers.11.pool.0.weight")) {
        return "is the encoder of TAEF2 without its decoder; use taef2_decoder.safetensors, or "
               "taef2.safetensors, which holds both";
    }
    const TensorInfo* conv_in = find_under(names, kTinyDecoders, "1.weight");
    const TensorInfo* block = find_under(names, kTinyDecoders, "3.conv.0.weight");
    if (names.has("decoder.layers.2.conv.0.weight")) {
        conv_in = names.find("decoder.layers.0.weight");
        block = conv_in;
    }
    if (conv_in == nullptr || block == nullptr) {
        return {};
    }
    const int64_t channels = conv_in->shape.ne[2];
    const char* owner = channels == 4    ? "Stable Diffusion or SDXL (TAESD, TAESDXL)"
                        : channels == 16 ? "FLUX.1 or Stable Diffusion 3 (TAEF1, TAESD3)"
                                         : "another model";
    return concat("is a tiny autoencoder of ", owner, ", with ", channels, " latent channels; ",
                  advice_for(Part::tiny_autoencoder));
}

std::string name_vae(const TensorInfo& decoder_conv_in) {
    const int64_t channels = decoder_conv_in.shape.ne[2];
    const char* owner = channels == 4    ? "Stable Diffusion or SDXL"
                        : channels == 16 ? "FLUX.1 or Stable Diffusion 3"
                                         : "another model";
    return concat("is an autoencoder of ", owner, " (", channels,
                  " latent channels, no bn.running_mean); ", advice_for(Part::vae));
}

// A decoder without prefix, encoder and statistics; for FLUX.2 there is a file with all of them.
std::string name_bare_decoder(const TensorInfo& conv_in) {
    constexpr int64_t kLatentChannels = 32;
    if (conv_in.shape.ne[2] != kLatentChannels) {
        return name_vae(conv_in);
    }
    return "is the autoencoder's decoder alone, without its encoder and without the statistics of "
           "latents (bn.running_mean) that decoding needs; use "
           "full_encoder_small_decoder.safetensors of the same repository, or ae.safetensors";
}

// Describes files in which nothing of FLUX.2 was found: kinds that are recognised by missing
// tensors.
std::string name_remains(const Names& names) {
    if (const TensorInfo* conv_in = names.find("decoder.conv_in.weight")) {
        return name_vae(*conv_in);
    }
    const TensorInfo* conv_in = names.find("conv_in.weight");
    if (conv_in != nullptr && names.has("up.3.block.0.conv1.weight")) {
        return name_bare_decoder(*conv_in);
    }
    if (std::string tiny = name_tiny_autoencoder(names); !tiny.empty()) {
        return tiny;
    }
    if (find_language_model(names).found()) {
        return concat("is a language model, but neither Qwen3 nor Mistral Small; ",
                      advice_for(Part::text_encoder));
    }
    return {};
}

}  // namespace

const char* to_string(Naming naming) {
    switch (naming) {
        case Naming::original:
            return "original names";
        case Naming::diffusers:
            return "diffusers names";
        case Naming::hugging_face:
            return "Hugging Face names";
        case Naming::llama_cpp:
            return "llama.cpp names";
    }
    return "?";
}

Identity identify(const TensorSource& source) {
    Tensors all;
    std::map<std::string_view, Tensors> by_prefix;
    for (const TensorInfo& tensor : source.tensors()) {
        all.push_back(&tensor);
        by_prefix[prefix_of(tensor.name)].push_back(&tensor);
    }
    Identity identity;
    for (const auto& [prefix, tensors] : by_prefix) {
        auto part = find_part(Names(tensors));
        if (part && find_other_kind(tensors).empty()) {
            part->prefix = prefix;
            identity.parts.push_back(std::move(*part));
        }
    }
    std::stable_sort(identity.parts.begin(), identity.parts.end(),
                     [](const auto& a, const auto& b) { return a.part < b.part; });
    if (identity.parts.empty()) {
        identity.other_kind = find_other_kind(all);
    }
    if (identity.parts.empty() && identity.other_kind.empty()) {
        identity.other_kind = name_remains(Names(all));
    }
    return identity;
}

}  // namespace flux2
