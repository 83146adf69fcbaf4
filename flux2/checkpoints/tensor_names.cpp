#include "checkpoints/tensor_names.hpp"

#include "base/check.hpp"

#include <array>
#include <cctype>
#include <optional>
#include <span>
#include <vector>

namespace flux2 {
namespace {

constexpr std::string_view kTextEncoders = "text_encoders.";

// In a pattern `#` matches a number and a final `*` the rest of the name. In the target `#` and `*`
// insert the matches in order, `~` inserts 3 minus the number and `+` the number plus 1.
struct Rule {
    std::string_view from;
    std::string_view to;
    int stack_index = 0;
    int n_stacked = 1;
    bool swap_halves = false;
};

// The inverse of diffusers' scripts/convert_flux2_to_diffusers.py, and one older name of norms.
constexpr std::array kTransformerRules = {
    Rule{"x_embedder.weight", "img_in.weight"},
    Rule{"context_embedder.weight", "txt_in.weight"},
    Rule{"time_guidance_embed.timestep_embedder.linear_1.weight", "time_in.in_layer.weight"},
    Rule{"time_guidance_embed.timestep_embedder.linear_2.weight", "time_in.out_layer.weight"},
    Rule{"time_guidance_embed.guidance_embedder.linear_1.weight", "guidance_in.in_layer.weight"},
    Rule{"time_guidance_embed.guidance_embedder.linear_2.weight", "guidance_in.out_layer.weight"},
    Rule{"double_stream_modulation_img.linear.weight", "double_stream_modulation_img.lin.weight"},
    Rule{"double_stream_modulation_txt.linear.weight", "double_stream_modulation_txt.lin.weight"},
    Rule{"single_stream_modulation.linear.weight", "single_stream_modulation.lin.weight"},
    // The original makes shift first, then scale; diffusers has them the other way round.
    Rule{"norm_out.linear.weight", "final_layer.adaLN_modulation.1.weight", 0, 1, true},
    Rule{"proj_out.weight", "final_layer.linear.weight"},
    Rule{"transformer_blocks.#.attn.to_q.weight", "double_blocks.#.img_attn.qkv.weight", 0, 3},
    Rule{"transformer_blocks.#.attn.to_k.weight", "double_blocks.#.img_attn.qkv.weight", 1, 3},
    Rule{"transformer_blocks.#.attn.to_v.weight", "double_blocks.#.img_attn.qkv.weight", 2, 3},
    Rule{"transformer_blocks.#.attn.add_q_proj.weight", "double_blocks.#.txt_attn.qkv.weight", 0,
         3},
    Rule{"transformer_blocks.#.attn.add_k_proj.weight", "double_blocks.#.txt_attn.qkv.weight", 1,
         3},
    Rule{"transformer_blocks.#.attn.add_v_proj.weight", "double_blocks.#.txt_attn.qkv.weight", 2,
         3},
    Rule{"transformer_blocks.#.attn.norm_q.weight",
         "double_blocks.#.img_attn.norm.query_norm.scale"},
    Rule{"transformer_blocks.#.attn.norm_k.weight", "double_blocks.#.img_attn.norm.key_norm.scale"},
    Rule{"transformer_blocks.#.attn.norm_added_q.weight",
         "double_blocks.#.txt_attn.norm.query_norm.scale"},
    Rule{"transformer_blocks.#.attn.norm_added_k.weight",
         "double_blocks.#.txt_attn.norm.key_norm.scale"},
    Rule{"transformer_blocks.#.attn.to_out.0.weight", "double_blocks.#.img_attn.proj.weight"},
    Rule{"transformer_blocks.#.attn.to_add_out.weight", "double_blocks.#.txt_attn.proj.weight"},
    Rule{"transformer_blocks.#.ff.linear_in.weight", "double_blocks.#.img_mlp.0.weight"},
    Rule{"transformer_blocks.#.ff.linear_out.weight", "double_blocks.#.img_mlp.2.weight"},
    Rule{"transformer_blocks.#.ff_context.linear_in.weight", "double_blocks.#.txt_mlp.0.weight"},
    Rule{"transformer_blocks.#.ff_context.linear_out.weight", "double_blocks.#.txt_mlp.2.weight"},
    Rule{"single_transformer_blocks.#.attn.to_qkv_mlp_proj.weight",
         "single_blocks.#.linear1.weight"},
    Rule{"single_transformer_blocks.#.attn.to_out.weight", "single_blocks.#.linear2.weight"},
    Rule{"single_transformer_blocks.#.attn.norm_q.weight", "single_blocks.#.norm.query_norm.scale"},
    Rule{"single_transformer_blocks.#.attn.norm_k.weight", "single_blocks.#.norm.key_norm.scale"},
    Rule{"double_blocks.#.img_attn.norm.query_norm.weight",
         "double_blocks.#.img_attn.norm.query_norm.scale"},
    Rule{"double_blocks.#.img_attn.norm.key_norm.weight",
         "double_blocks.#.img_attn.norm.key_norm.scale"},
    Rule{"double_blocks.#.txt_attn.norm.query_norm.weight",
         "double_blocks.#.txt_attn.norm.query_norm.scale"},
    Rule{"double_blocks.#.txt_attn.norm.key_norm.weight",
         "double_blocks.#.txt_attn.norm.key_norm.scale"},
    Rule{"single_blocks.#.norm.query_norm.weight", "single_blocks.#.norm.query_norm.scale"},
    Rule{"single_blocks.#.norm.key_norm.weight", "single_blocks.#.norm.key_norm.scale"},
};

// Hugging Face -> llama.cpp (gguf-py's tables for qwen3 and llama).
constexpr std::array kTextEncoderRules = {
    Rule{"model.embed_tokens.weight", "token_embd.weight"},
    Rule{"model.norm.weight", "output_norm.weight"},
    Rule{"lm_head.weight", "output.weight"},
    Rule{"model.layers.#.input_layernorm.weight", "blk.#.attn_norm.weight"},
    Rule{"model.layers.#.self_attn.q_proj.weight", "blk.#.attn_q.weight"},
    Rule{"model.layers.#.self_attn.k_proj.weight", "blk.#.attn_k.weight"},
    Rule{"model.layers.#.self_attn.v_proj.weight", "blk.#.attn_v.weight"},
    Rule{"model.layers.#.self_attn.o_proj.weight", "blk.#.attn_output.weight"},
    Rule{"model.layers.#.self_attn.q_norm.weight", "blk.#.attn_q_norm.weight"},
    Rule{"model.layers.#.self_attn.k_norm.weight", "blk.#.attn_k_norm.weight"},
    Rule{"model.layers.#.post_attention_layernorm.weight", "blk.#.ffn_norm.weight"},
    Rule{"model.layers.#.mlp.gate_proj.weight", "blk.#.ffn_gate.weight"},
    Rule{"model.layers.#.mlp.up_proj.weight", "blk.#.ffn_up.weight"},
    Rule{"model.layers.#.mlp.down_proj.weight", "blk.#.ffn_down.weight"},
};

// diffusers AutoencoderKLFlux2 -> original. `*` is "weight" or "bias"; resnets share one rule
// below.
constexpr std::array kVaeRules = {
    Rule{"quant_conv.*", "encoder.quant_conv.*"},
    Rule{"post_quant_conv.*", "decoder.post_quant_conv.*"},
    Rule{"encoder.conv_norm_out.*", "encoder.norm_out.*"},
    Rule{"decoder.conv_norm_out.*", "decoder.norm_out.*"},
    Rule{"encoder.down_blocks.#.resnets.#.conv_shortcut.*",
         "encoder.down.#.block.#.nin_shortcut.*"},
    Rule{"encoder.down_blocks.#.resnets.#.*", "encoder.down.#.block.#.*"},
    Rule{"encoder.down_blocks.#.downsamplers.0.conv.*", "encoder.down.#.downsample.conv.*"},
    Rule{"decoder.up_blocks.#.resnets.#.conv_shortcut.*", "decoder.up.~.block.#.nin_shortcut.*"},
    Rule{"decoder.up_blocks.#.resnets.#.*", "decoder.up.~.block.#.*"},
    Rule{"decoder.up_blocks.#.upsamplers.0.conv.*", "decoder.up.~.upsample.conv.*"},
    Rule{"encoder.mid_block.resnets.0.*", "encoder.mid.block_1.*"},
    Rule{"encoder.mid_block.resnets.1.*", "encoder.mid.block_2.*"},
    Rule{"decoder.mid_block.resnets.0.*", "decoder.mid.block_1.*"},
    Rule{"decoder.mid_block.resnets.1.*", "decoder.mid.block_2.*"},
    Rule{"encoder.mid_block.attentions.0.group_norm.*", "encoder.mid.attn_1.norm.*"},
    Rule{"encoder.mid_block.attentions.0.to_q.*", "encoder.mid.attn_1.q.*"},
    Rule{"encoder.mid_block.attentions.0.to_k.*", "encoder.mid.attn_1.k.*"},
    Rule{"encoder.mid_block.attentions.0.to_v.*", "encoder.mid.attn_1.v.*"},
    Rule{"encoder.mid_block.attentions.0.to_out.0.*", "encoder.mid.attn_1.proj_out.*"},
    Rule{"encoder.mid_block.attentions.0.query.*", "encoder.mid.attn_1.q.*"},
    Rule{"encoder.mid_block.attentions.0.key.*", "encoder.mid.attn_1.k.*"},
    Rule{"encoder.mid_block.attentions.0.value.*", "encoder.mid.attn_1.v.*"},
    Rule{"encoder.mid_block.attentions.0.proj_attn.*", "encoder.mid.attn_1.proj_out.*"},
    Rule{"decoder.mid_block.attentions.0.group_norm.*", "decoder.mid.attn_1.norm.*"},
    Rule{"decoder.mid_block.attentions.0.to_q.*", "decoder.mid.attn_1.q.*"},
    Rule{"decoder.mid_block.attentions.0.to_k.*", "decoder.mid.attn_1.k.*"},
    Rule{"decoder.mid_block.attentions.0.to_v.*", "decoder.mid.attn_1.v.*"},
    Rule{"decoder.mid_block.attentions.0.to_out.0.*", "decoder.mid.attn_1.proj_out.*"},
    Rule{"decoder.mid_block.attentions.0.query.*", "decoder.mid.attn_1.q.*"},
    Rule{"decoder.mid_block.attentions.0.key.*", "decoder.mid.attn_1.k.*"},
    Rule{"decoder.mid_block.attentions.0.value.*", "decoder.mid.attn_1.v.*"},
    Rule{"decoder.mid_block.attentions.0.proj_attn.*", "decoder.mid.attn_1.proj_out.*"},
};

// Of TAEF2. In the target `+` is the number plus 1: diffusers does not count the clamp that the
// decoder begins with.
constexpr std::array kTinyRules = {
    Rule{"taesd_encoder.*", "encoder.*"},
    Rule{"taesd_decoder.*", "decoder.*"},
    Rule{"encoder.layers.*", "encoder.*"},
    Rule{"decoder.layers.#.*", "decoder.+.*"},
    Rule{"#.*", "decoder.#.*"},
};

// What the wildcards of a pattern matched, in order; nothing when the name does not fit.
std::optional<std::vector<std::string_view>> match(std::string_view pattern,
                                                   std::string_view name) {
    std::vector<std::string_view> matched;
    size_t at = 0;
    for (const char expected : pattern) {
        if (expected == '*') {
            matched.push_back(name.substr(at));
            return matched;
        }
        if (expected == '#') {
            const size_t start = at;
            while (at < name.size() && std::isdigit(static_cast<unsigned char>(name[at])) != 0) {
                ++at;
            }
            if (at == start) {
                return std::nullopt;
            }
            matched.push_back(name.substr(start, at - start));
        } else if (at < name.size() && name[at] == expected) {
            ++at;
        } else {
            return std::nullopt;
        }
    }
    return at == name.size() ? std::optional(matched) : std::nullopt;
}

std::string substitute(std::string_view target, const std::vector<std::string_view>& matched) {
    std::string name;
    size_t next = 0;
    for (const char c : target) {
        if (c == '#' || c == '*') {
            name += matched[next++];
        } else if (c == '~') {
            // Autoencoders have four levels. Any other number gives a name that fits nothing.
            const std::string_view level = matched[next++];
            name += level.size() == 1 && level <= "3" ? std::to_string('3' - level[0]) : "?";
        } else if (c == '+') {
            // At most two digits: what is longer is no layer, and fits nothing.
            const std::string number(matched[next++]);
            name += number.size() <= 2 ? std::to_string(std::stoi(number) + 1) : "?";
        } else {
            name += c;
        }
    }
    return name;
}

TensorPlace place(std::span<const Rule> rules, std::string_view name) {
    for (const Rule& rule : rules) {
        if (const auto matched = match(rule.from, name)) {
            return {substitute(rule.to, *matched), rule.stack_index, rule.n_stacked,
                    rule.swap_halves};
        }
    }
    return {.name = std::string(name)};
}

}  // namespace

std::string_view prefix_of(std::string_view name) {
    constexpr std::array<std::string_view, 7> kPrefixes = {
        "model.diffusion_model.", "base_model.model.", "diffusion_model.",
        "first_stage_model.",     "transformer.",      "vae.",
        "language_model.",
    };
    for (const std::string_view prefix : kPrefixes) {
        if (name.starts_with(prefix)) {
            return prefix;
        }
    }
    if (name.starts_with(kTextEncoders)) {
        return name.substr(0, name.find('.', kTextEncoders.size()) + 1);
    }
    return {};
}

std::string_view strip_prefix(std::string_view name) {
    if (!name.starts_with(kTextEncoders)) {
        return name.substr(prefix_of(name).size());
    }
    // "text_encoders.qwen3_4b.transformer.model.layers..." -> "model.layers..."
    for (const std::string_view start : {".model.", ".lm_head."}) {
        const size_t at = name.find(start);
        if (at != std::string_view::npos) {
            return name.substr(at + 1);
        }
    }
    return name;
}

TensorPlace place_transformer_tensor(std::string_view name) {
    return place(kTransformerRules, name);
}

TensorPlace place_text_encoder_tensor(std::string_view name) {
    // Vision-language models: "model.language_model.layers..." -> "model.layers..."
    constexpr std::string_view kInner = "model.language_model.";
    if (name.starts_with(kInner)) {
        return place(kTextEncoderRules, concat("model.", name.substr(kInner.size())));
    }
    return place(kTextEncoderRules, name);
}

TensorPlace place_vae_tensor(std::string_view name) {
    return place(kVaeRules, name);
}

TensorPlace place_tiny_tensor(std::string_view name) {
    return place(kTinyRules, name);
}

}  // namespace flux2
