#include "adapters/adapter_key.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace flux2 {
namespace {

// ---- Suffixes ----

struct Suffix {
    std::string_view text;
    std::optional<AdapterRole> role;
    bool decisive = true;
    const char* reason = nullptr;  // without a role
};

constexpr const char* kForConvolutions =
    "it is for convolutions, of which the transformer and the text encoder have none";
constexpr const char* kSplitLora = "LoRAs split by kohya's split_dims are not supported";
constexpr const char* kControl = "it changes the shape of a weight, which is not supported";

using Role = AdapterRole;

// The longest that fits counts.
constexpr std::array kSuffixes = {
    Suffix{".lora_down.weight", Role::down},
    Suffix{".lora_up.weight", Role::up},
    Suffix{".lora_A.weight", Role::down},
    Suffix{".lora_B.weight", Role::up},
    Suffix{".lora_A", Role::down},
    Suffix{".lora_B", Role::up},
    Suffix{".lora.down.weight", Role::down},
    Suffix{".lora.up.weight", Role::up},
    Suffix{"_lora.down.weight", Role::down},
    Suffix{"_lora.up.weight", Role::up},
    Suffix{".lora_linear_layer.down.weight", Role::down},
    Suffix{".lora_linear_layer.up.weight", Role::up},
    // llama.cpp's.
    Suffix{".lora_a", Role::down},
    Suffix{".lora_b", Role::up},
    Suffix{".lora_B.bias", Role::diff_b},
    Suffix{".lora_up.bias", Role::diff_b},
    Suffix{".alpha", Role::alpha, false},
    Suffix{".lora_alpha", Role::alpha, false},
    Suffix{".scale", Role::scale, false},
    Suffix{".hada_w1_a", Role::hada_w1_a},
    Suffix{".hada_w1_b", Role::hada_w1_b},
    Suffix{".hada_w2_a", Role::hada_w2_a},
    Suffix{".hada_w2_b", Role::hada_w2_b},
    Suffix{".lokr_w1", Role::lokr_w1},
    Suffix{".lokr_w1_a", Role::lokr_w1_a},
    Suffix{".lokr_w1_b", Role::lokr_w1_b},
    Suffix{".lokr_w2", Role::lokr_w2},
    Suffix{".lokr_w2_a", Role::lokr_w2_a},
    Suffix{".lokr_w2_b", Role::lokr_w2_b},
    Suffix{".dora_scale", Role::magnitude},
    Suffix{".lora_magnitude_vector", Role::magnitude},
    Suffix{".lora_magnitude_vector.weight", Role::magnitude},
    Suffix{".magnitude", Role::magnitude, false},
    Suffix{".diff", Role::diff},
    Suffix{".diff_b", Role::diff_b},
    Suffix{".set_weight", Role::set_weight},
    Suffix{".w_norm", Role::diff},
    Suffix{".b_norm", Role::diff_b},
    Suffix{".oft_blocks", Role::oft_blocks},
    Suffix{".rescale", Role::rescale, false},
    Suffix{".oft_R.weight", Role::oft_r},
    Suffix{".oft_R.scaled_oft", Role::scaled_oft},
    Suffix{".a1.weight", Role::glora_a1},
    Suffix{".a2.weight", Role::glora_a2},
    Suffix{".b1.weight", Role::glora_b1},
    Suffix{".b2.weight", Role::glora_b2},
    Suffix{".lora_mid.weight", std::nullopt, true, kForConvolutions},
    Suffix{".hada_t1", std::nullopt, true, kForConvolutions},
    Suffix{".hada_t2", std::nullopt, true, kForConvolutions},
    Suffix{".lokr_t2", std::nullopt, true, kForConvolutions},
    Suffix{".reshape_weight", std::nullopt, true, kControl},
    Suffix{".row_offset", std::nullopt, false, kControl},
};

// The number of bytes of ".lora_down.0.weight" at the end of a key; 0 when there is none.
size_t split_lora_suffix(std::string_view key) {
    constexpr std::string_view kWeight = ".weight";
    if (!key.ends_with(kWeight)) {
        return 0;
    }
    const std::string_view numbered = key.substr(0, key.size() - kWeight.size());
    const size_t end = numbered.find_last_not_of("0123456789") + 1;
    for (const std::string_view start : {".lora_down.", ".lora_up."}) {
        if (end < numbered.size() && numbered.substr(0, end).ends_with(start)) {
            return key.size() - end + start.size();
        }
    }
    return 0;
}

// peft writes the name of the adapter too: "x.lora_A.default.weight" is "x.lora_A.weight".
std::string without_adapter_name(std::string_view key) {
    for (const std::string_view end : {".weight", ""}) {
        for (const std::string_view name : {".default", ".default_0"}) {
            const std::string_view start = key.substr(0, key.size() - end.size());
            if (key.ends_with(end) && start.ends_with(name)) {
                return std::string(start.substr(0, start.size() - name.size())).append(end);
            }
        }
    }
    return std::string(key);
}

// ---- Names of modules ----

// A module by its name with '_' for every '.', so that dotted and flat spellings are one, without
// the block it is in.
struct ModuleName {
    std::string_view name;
    std::string_view tensor;  // ours, in its block
    int share = 0, n_shares = 1;
    bool swap_halves = false;
};

constexpr std::array kOriginalDouble = {
    ModuleName{"img_attn_qkv", "img_attn.qkv.weight"},
    ModuleName{"img_attn_qkv_0", "img_attn.qkv.weight", 0, 3},
    ModuleName{"img_attn_qkv_1", "img_attn.qkv.weight", 1, 3},
    ModuleName{"img_attn_qkv_2", "img_attn.qkv.weight", 2, 3},
    ModuleName{"txt_attn_qkv", "txt_attn.qkv.weight"},
    ModuleName{"txt_attn_qkv_0", "txt_attn.qkv.weight", 0, 3},
    ModuleName{"txt_attn_qkv_1", "txt_attn.qkv.weight", 1, 3},
    ModuleName{"txt_attn_qkv_2", "txt_attn.qkv.weight", 2, 3},
    ModuleName{"img_attn_proj", "img_attn.proj.weight"},
    ModuleName{"txt_attn_proj", "txt_attn.proj.weight"},
    ModuleName{"img_mlp_0", "img_mlp.0.weight"},
    ModuleName{"img_mlp_2", "img_mlp.2.weight"},
    ModuleName{"txt_mlp_0", "txt_mlp.0.weight"},
    ModuleName{"txt_mlp_2", "txt_mlp.2.weight"},
    ModuleName{"img_attn_norm_query_norm", "img_attn.norm.query_norm.scale"},
    ModuleName{"img_attn_norm_key_norm", "img_attn.norm.key_norm.scale"},
    ModuleName{"txt_attn_norm_query_norm", "txt_attn.norm.query_norm.scale"},
    ModuleName{"txt_attn_norm_key_norm", "txt_attn.norm.key_norm.scale"},
};

// FLUX.1's names of the MLPs are known too: the shapes tell whose they are.
constexpr std::array kDiffusersDouble = {
    ModuleName{"attn_to_q", "img_attn.qkv.weight", 0, 3},
    ModuleName{"attn_to_k", "img_attn.qkv.weight", 1, 3},
    ModuleName{"attn_to_v", "img_attn.qkv.weight", 2, 3},
    ModuleName{"attn_to_qkv", "img_attn.qkv.weight"},
    ModuleName{"attn_qkv", "img_attn.qkv.weight"},
    ModuleName{"attn_add_q_proj", "txt_attn.qkv.weight", 0, 3},
    ModuleName{"attn_add_k_proj", "txt_attn.qkv.weight", 1, 3},
    ModuleName{"attn_add_v_proj", "txt_attn.qkv.weight", 2, 3},
    ModuleName{"attn_to_added_qkv", "txt_attn.qkv.weight"},
    ModuleName{"attn_added_qkv", "txt_attn.qkv.weight"},
    ModuleName{"attn_to_out_0", "img_attn.proj.weight"},
    ModuleName{"attn_to_add_out", "txt_attn.proj.weight"},
    ModuleName{"ff_linear_in", "img_mlp.0.weight"},
    ModuleName{"ff_linear_out", "img_mlp.2.weight"},
    ModuleName{"ff_context_linear_in", "txt_mlp.0.weight"},
    ModuleName{"ff_context_linear_out", "txt_mlp.2.weight"},
    ModuleName{"ff_net_0_proj", "img_mlp.0.weight"},
    ModuleName{"ff_net_2", "img_mlp.2.weight"},
    ModuleName{"ff_context_net_0_proj", "txt_mlp.0.weight"},
    ModuleName{"ff_context_net_2", "txt_mlp.2.weight"},
    ModuleName{"attn_norm_q", "img_attn.norm.query_norm.scale"},
    ModuleName{"attn_norm_k", "img_attn.norm.key_norm.scale"},
    ModuleName{"attn_norm_added_q", "txt_attn.norm.query_norm.scale"},
    ModuleName{"attn_norm_added_k", "txt_attn.norm.key_norm.scale"},
};

// linear1 makes q, k, v and the two inputs of the MLP, which are three times as wide: q, k and v
// are a third of its rows.
constexpr std::array kOriginalSingle = {
    ModuleName{"linear1", "linear1.weight"},
    ModuleName{"linear1_qkv", "linear1.weight", 0, 3},
    ModuleName{"linear2", "linear2.weight"},
    ModuleName{"norm_query_norm", "norm.query_norm.scale"},
    ModuleName{"norm_key_norm", "norm.key_norm.scale"},
};

constexpr std::array kDiffusersSingle = {
    ModuleName{"attn_to_qkv_mlp_proj", "linear1.weight"},
    ModuleName{"attn_to_out", "linear2.weight"},
    ModuleName{"attn_norm_q", "norm.query_norm.scale"},
    ModuleName{"attn_norm_k", "norm.key_norm.scale"},
};

// Hugging Face's and llama.cpp's names of a language model.
constexpr std::array kHuggingFaceLayer = {
    ModuleName{"self_attn_q_proj", "attn_q.weight"},
    ModuleName{"self_attn_k_proj", "attn_k.weight"},
    ModuleName{"self_attn_v_proj", "attn_v.weight"},
    ModuleName{"self_attn_o_proj", "attn_output.weight"},
    ModuleName{"mlp_gate_proj", "ffn_gate.weight"},
    ModuleName{"mlp_up_proj", "ffn_up.weight"},
    ModuleName{"mlp_down_proj", "ffn_down.weight"},
    ModuleName{"self_attn_q_norm", "attn_q_norm.weight"},
    ModuleName{"self_attn_k_norm", "attn_k_norm.weight"},
    ModuleName{"input_layernorm", "attn_norm.weight"},
    ModuleName{"post_attention_layernorm", "ffn_norm.weight"},
};

constexpr std::array kLlamaCppLayer = {
    ModuleName{"attn_q", "attn_q.weight"},
    ModuleName{"attn_k", "attn_k.weight"},
    ModuleName{"attn_v", "attn_v.weight"},
    ModuleName{"attn_output", "attn_output.weight"},
    ModuleName{"ffn_gate", "ffn_gate.weight"},
    ModuleName{"ffn_up", "ffn_up.weight"},
    ModuleName{"ffn_down", "ffn_down.weight"},
    ModuleName{"attn_q_norm", "attn_q_norm.weight"},
    ModuleName{"attn_k_norm", "attn_k_norm.weight"},
    ModuleName{"attn_norm", "attn_norm.weight"},
    ModuleName{"ffn_norm", "ffn_norm.weight"},
};

// Outside of blocks; mflux leaves out the inner name of time_guidance_embed.
constexpr std::array kOutsideBlocks = {
    ModuleName{"img_in", "img_in.weight"},
    ModuleName{"x_embedder", "img_in.weight"},
    ModuleName{"txt_in", "txt_in.weight"},
    ModuleName{"context_embedder", "txt_in.weight"},
    ModuleName{"time_in_in_layer", "time_in.in_layer.weight"},
    ModuleName{"time_in_out_layer", "time_in.out_layer.weight"},
    ModuleName{"time_guidance_embed_timestep_embedder_linear_1", "time_in.in_layer.weight"},
    ModuleName{"time_guidance_embed_timestep_embedder_linear_2", "time_in.out_layer.weight"},
    ModuleName{"time_guidance_embed_linear_1", "time_in.in_layer.weight"},
    ModuleName{"time_guidance_embed_linear_2", "time_in.out_layer.weight"},
    ModuleName{"guidance_in_in_layer", "guidance_in.in_layer.weight"},
    ModuleName{"guidance_in_out_layer", "guidance_in.out_layer.weight"},
    ModuleName{"time_guidance_embed_guidance_embedder_linear_1", "guidance_in.in_layer.weight"},
    ModuleName{"time_guidance_embed_guidance_embedder_linear_2", "guidance_in.out_layer.weight"},
    ModuleName{"time_guidance_embed_guidance_linear_1", "guidance_in.in_layer.weight"},
    ModuleName{"time_guidance_embed_guidance_linear_2", "guidance_in.out_layer.weight"},
    ModuleName{"double_stream_modulation_img_lin", "double_stream_modulation_img.lin.weight"},
    ModuleName{"double_stream_modulation_img_linear", "double_stream_modulation_img.lin.weight"},
    ModuleName{"double_stream_modulation_txt_lin", "double_stream_modulation_txt.lin.weight"},
    ModuleName{"double_stream_modulation_txt_linear", "double_stream_modulation_txt.lin.weight"},
    ModuleName{"single_stream_modulation_lin", "single_stream_modulation.lin.weight"},
    ModuleName{"single_stream_modulation_linear", "single_stream_modulation.lin.weight"},
    ModuleName{"final_layer_linear", "final_layer.linear.weight"},
    ModuleName{"proj_out", "final_layer.linear.weight"},
    ModuleName{"final_layer_adaLN_modulation_1", "final_layer.adaLN_modulation.1.weight"},
    ModuleName{"norm_out_linear", "final_layer.adaLN_modulation.1.weight", 0, 1, true},
};

// Modules of FLUX.1 alone. linear1_N are q, k, v and the MLP's input, as OneTrainer splits them.
using Names = std::span<const std::string_view>;
constexpr std::array<std::string_view, 2> kFlux1Double = {"img_mod_lin", "txt_mod_lin"};
constexpr std::array<std::string_view, 5> kFlux1Single = {"modulation_lin", "linear1_0",
                                                          "linear1_1", "linear1_2", "linear1_3"};
constexpr std::array<std::string_view, 2> kFlux1DiffusersDouble = {"norm1_linear",
                                                                   "norm1_context_linear"};
constexpr std::array<std::string_view, 6> kFlux1DiffusersSingle = {
    "norm_linear", "proj_mlp", "proj_out", "attn_to_q", "attn_to_k", "attn_to_v"};
constexpr std::array<std::string_view, 8> kFlux1OutsideBlocks = {
    "vector_in_in_layer",
    "vector_in_out_layer",
    "time_text_embed_timestep_embedder_linear_1",
    "time_text_embed_timestep_embedder_linear_2",
    "time_text_embed_guidance_embedder_linear_1",
    "time_text_embed_guidance_embedder_linear_2",
    "time_text_embed_text_embedder_linear_1",
    "time_text_embed_text_embedder_linear_2"};

struct BlockName {
    std::string_view name;
    Part part;
    std::string_view ours;
    std::span<const ModuleName> modules;
    Names flux1_modules;
};

constexpr std::array kBlocks = {
    BlockName{"double_blocks_", Part::transformer, "double_blocks.", kOriginalDouble, kFlux1Double},
    BlockName{"single_blocks_", Part::transformer, "single_blocks.", kOriginalSingle, kFlux1Single},
    BlockName{"transformer_blocks_", Part::transformer, "double_blocks.", kDiffusersDouble,
              kFlux1DiffusersDouble},
    // A wrong name that some trainers wrote; diffusers reads it too.
    BlockName{"sformer_blocks_", Part::transformer, "double_blocks.", kDiffusersDouble,
              kFlux1DiffusersDouble},
    BlockName{"single_transformer_blocks_", Part::transformer, "single_blocks.", kDiffusersSingle,
              kFlux1DiffusersSingle},
    BlockName{"model_layers_", Part::text_encoder, "blk.", kHuggingFaceLayer, {}},
    BlockName{"model_language_model_layers_", Part::text_encoder, "blk.", kHuggingFaceLayer, {}},
    BlockName{"layers_", Part::text_encoder, "blk.", kHuggingFaceLayer, {}},
    BlockName{"blk_", Part::text_encoder, "blk.", kLlamaCppLayer, {}},
};

// What programs put before the names, longer ones before those that they begin with. Several may
// follow each other.
constexpr std::array<std::string_view, 19> kPrefixes = {
    "model.diffusion_model.",
    "base_model.model.",
    "diffusion_model.",
    "lora_transformer_",
    "lora_te_text_model_",
    "lora_te1_",
    "lora_te_",
    "lora_unet__",
    "lora_unet_",
    "lycoris_",
    "transformer.",
    "text_encoders.qwen3_4b.",
    "text_encoders.qwen3_8b.",
    "text_encoder.",
    "language_model.",
    "pipe.dit.",
    "unet.",
    "te1.",
    "te.",
};

std::string_view strip_prefixes(std::string_view stem) {
    for (size_t i = 0; i < kPrefixes.size(); ++i) {
        if (stem.starts_with(kPrefixes[i])) {
            stem.remove_prefix(kPrefixes[i].size());
            i = static_cast<size_t>(-1);
        }
    }
    return stem;
}

// The name as it is in the tables. Some files also have what the tensor itself ends in.
std::string flat_name(std::string_view stem) {
    std::string name(strip_prefixes(stem));
    std::replace(name.begin(), name.end(), '.', '_');
    for (const std::string_view end : {"_weight", "_scale"}) {
        if (name.ends_with(end)) {
            name.erase(name.size() - end.size());
            break;
        }
    }
    return name;
}

// A name in a block: "double_blocks_0_img_attn_qkv" is "img_attn_qkv" in number 0.
struct InBlock {
    const BlockName* block;
    std::string_view number;
    std::string_view module;
};

// A number as networks have it: without leading zeros, and below 1000.
bool is_block_number(std::string_view digits) {
    return !digits.empty() && digits.size() <= 3 && (digits.size() == 1 || digits[0] != '0');
}

std::optional<InBlock> find_block(std::string_view name) {
    for (const BlockName& block : kBlocks) {
        if (!name.starts_with(block.name)) {
            continue;
        }
        const std::string_view rest = name.substr(block.name.size());
        const size_t end = std::min(rest.find_first_not_of("0123456789"), rest.size());
        if (is_block_number(rest.substr(0, end)) && end < rest.size() && rest[end] == '_') {
            return InBlock{&block, rest.substr(0, end), rest.substr(end + 1)};
        }
    }
    return std::nullopt;
}

const ModuleName* find_module(std::span<const ModuleName> modules, std::string_view name) {
    const auto found = std::find_if(modules.begin(), modules.end(),
                                    [&](const ModuleName& m) { return m.name == name; });
    return found == modules.end() ? nullptr : &*found;
}

bool contains(Names names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::optional<AdapterKey> split_adapter_key(std::string_view key) {
    if (const size_t bytes = split_lora_suffix(key); bytes > 0) {
        return AdapterKey{key.substr(0, key.size() - bytes), std::nullopt, kSplitLora, true};
    }
    const std::string plain = without_adapter_name(key);
    const Suffix* longest = nullptr;
    for (const Suffix& suffix : kSuffixes) {
        if (plain.size() > suffix.text.size() && plain.ends_with(suffix.text) &&
            (longest == nullptr || suffix.text.size() > longest->text.size())) {
            longest = &suffix;
        }
    }
    if (longest == nullptr) {
        return std::nullopt;
    }
    return AdapterKey{key.substr(0, plain.size() - longest->text.size()), longest->role,
                      longest->reason, longest->decisive};
}

const char* to_string(AdapterRole role) {
    switch (role) {
        case Role::down:
            return "lora_down";
        case Role::up:
            return "lora_up";
        case Role::alpha:
            return "alpha";
        case Role::scale:
            return "scale";
        case Role::hada_w1_a:
            return "hada_w1_a";
        case Role::hada_w1_b:
            return "hada_w1_b";
        case Role::hada_w2_a:
            return "hada_w2_a";
        case Role::hada_w2_b:
            return "hada_w2_b";
        case Role::lokr_w1:
            return "lokr_w1";
        case Role::lokr_w1_a:
            return "lokr_w1_a";
        case Role::lokr_w1_b:
            return "lokr_w1_b";
        case Role::lokr_w2:
            return "lokr_w2";
        case Role::lokr_w2_a:
            return "lokr_w2_a";
        case Role::lokr_w2_b:
            return "lokr_w2_b";
        case Role::magnitude:
            return "dora_scale";
        case Role::diff:
            return "diff";
        case Role::diff_b:
            return "diff_b";
        case Role::set_weight:
            return "set_weight";
        case Role::oft_blocks:
            return "oft_blocks";
        case Role::rescale:
            return "rescale";
        case Role::oft_r:
            return "oft_R";
        case Role::scaled_oft:
            return "scaled_oft";
        case Role::glora_a1:
            return "a1";
        case Role::glora_a2:
            return "a2";
        case Role::glora_b1:
            return "b1";
        case Role::glora_b2:
            return "b2";
    }
    fail(ErrorKind::internal, "unknown role of an adapter's tensor");
}

std::optional<AdapterTarget> find_adapter_target(std::string_view stem) {
    const std::string name = flat_name(stem);
    const auto in_block = find_block(name);
    const ModuleName* module = in_block ? find_module(in_block->block->modules, in_block->module)
                                        : find_module(kOutsideBlocks, name);
    if (module == nullptr) {
        return std::nullopt;
    }
    AdapterTarget target{.tensor = std::string(module->tensor),
                         .share = module->share,
                         .n_shares = module->n_shares,
                         .swap_halves = module->swap_halves};
    if (in_block) {
        target.part = in_block->block->part;
        target.tensor = concat(in_block->block->ours, in_block->number, ".", module->tensor);
    }
    return target;
}

bool is_flux1_module(std::string_view stem) {
    const std::string name = flat_name(stem);
    const auto in_block = find_block(name);
    return in_block ? contains(in_block->block->flux1_modules, in_block->module)
                    : contains(kFlux1OutsideBlocks, name);
}

std::string adapter_dialect(std::string_view stem) {
    for (const auto& [start, dialect] :
         {std::pair<std::string_view, const char*>{"lora_transformer_", "OneTrainer"},
          {"lora_", "kohya"},
          {"lycoris_", "LyCORIS"},
          {"diffusion_model.", "ComfyUI"},
          {"model.diffusion_model.", "ComfyUI"},
          {"blk.", "llama.cpp"}}) {
        if (stem.starts_with(start)) {
            return dialect;
        }
    }
    if (stem.find("base_model.model.") != std::string_view::npos) {
        return "peft";
    }
    const std::string_view name = strip_prefixes(stem);
    const bool original = name.starts_with("double_blocks") || name.starts_with("single_blocks");
    return original ? "original" : "diffusers";
}

}  // namespace flux2
