// Keys of adapter files: the spellings of the trainers' own code.
#include "adapters/adapter_key.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace flux2 {
namespace {

using Role = AdapterRole;

void check_target(const std::string& stem, const std::string& tensor, int share = 0,
                  int n_shares = 1, bool swap_halves = false) {
    CAPTURE(stem);
    const auto target = find_adapter_target(stem);
    REQUIRE(target.has_value());
    CHECK(target->tensor == tensor);
    CHECK(target->share == share);
    CHECK(target->n_shares == n_shares);
    CHECK(target->swap_halves == swap_halves);
    CHECK(target->part == (tensor.starts_with("blk.") ? Part::text_encoder : Part::transformer));
}

std::string flat(std::string name) {
    std::replace(name.begin(), name.end(), '.', '_');
    return name;
}

struct Spelling {
    std::string name, tensor;
    int share = 0, n_shares = 1;
    bool swap_halves = false;
};

const std::vector<Spelling> kSpellings = {
    {"double_blocks.0.img_attn.qkv", "double_blocks.0.img_attn.qkv.weight"},
    {"double_blocks.7.txt_attn.qkv", "double_blocks.7.txt_attn.qkv.weight"},
    {"double_blocks.1.img_attn.proj", "double_blocks.1.img_attn.proj.weight"},
    {"double_blocks.1.txt_attn.proj", "double_blocks.1.txt_attn.proj.weight"},
    {"double_blocks.1.img_mlp.0", "double_blocks.1.img_mlp.0.weight"},
    {"double_blocks.1.img_mlp.2", "double_blocks.1.img_mlp.2.weight"},
    {"double_blocks.1.txt_mlp.0", "double_blocks.1.txt_mlp.0.weight"},
    {"double_blocks.1.txt_mlp.2", "double_blocks.1.txt_mlp.2.weight"},
    {"double_blocks.1.img_attn.norm.query_norm", "double_blocks.1.img_attn.norm.query_norm.scale"},
    {"double_blocks.1.txt_attn.norm.key_norm.scale",
     "double_blocks.1.txt_attn.norm.key_norm.scale"},
    {"single_blocks.47.linear1", "single_blocks.47.linear1.weight"},
    {"single_blocks.47.linear2", "single_blocks.47.linear2.weight"},
    {"single_blocks.3.norm.key_norm", "single_blocks.3.norm.key_norm.scale"},
    {"img_in", "img_in.weight"},
    {"txt_in", "txt_in.weight"},
    {"time_in.in_layer", "time_in.in_layer.weight"},
    {"time_in.out_layer", "time_in.out_layer.weight"},
    {"guidance_in.in_layer", "guidance_in.in_layer.weight"},
    {"guidance_in.out_layer", "guidance_in.out_layer.weight"},
    {"double_stream_modulation_img.lin", "double_stream_modulation_img.lin.weight"},
    {"double_stream_modulation_txt.lin", "double_stream_modulation_txt.lin.weight"},
    {"single_stream_modulation.lin", "single_stream_modulation.lin.weight"},
    {"final_layer.linear", "final_layer.linear.weight"},
    {"final_layer.adaLN_modulation.1", "final_layer.adaLN_modulation.1.weight"},
    // diffusers
    {"transformer_blocks.0.attn.to_q", "double_blocks.0.img_attn.qkv.weight", 0, 3},
    {"transformer_blocks.0.attn.to_k", "double_blocks.0.img_attn.qkv.weight", 1, 3},
    {"transformer_blocks.0.attn.to_v", "double_blocks.0.img_attn.qkv.weight", 2, 3},
    {"transformer_blocks.0.attn.add_q_proj", "double_blocks.0.txt_attn.qkv.weight", 0, 3},
    {"transformer_blocks.0.attn.add_k_proj", "double_blocks.0.txt_attn.qkv.weight", 1, 3},
    {"transformer_blocks.0.attn.add_v_proj", "double_blocks.0.txt_attn.qkv.weight", 2, 3},
    {"transformer_blocks.0.attn.to_out.0", "double_blocks.0.img_attn.proj.weight"},
    {"transformer_blocks.0.attn.to_add_out", "double_blocks.0.txt_attn.proj.weight"},
    {"transformer_blocks.0.ff.linear_in", "double_blocks.0.img_mlp.0.weight"},
    {"transformer_blocks.0.ff.linear_out", "double_blocks.0.img_mlp.2.weight"},
    {"transformer_blocks.0.ff_context.linear_in", "double_blocks.0.txt_mlp.0.weight"},
    {"transformer_blocks.0.ff_context.linear_out", "double_blocks.0.txt_mlp.2.weight"},
    {"transformer_blocks.0.attn.norm_added_q", "double_blocks.0.txt_attn.norm.query_norm.scale"},
    {"single_transformer_blocks.19.attn.to_qkv_mlp_proj", "single_blocks.19.linear1.weight"},
    {"single_transformer_blocks.19.attn.to_out", "single_blocks.19.linear2.weight"},
    {"single_transformer_blocks.19.attn.norm_k", "single_blocks.19.norm.key_norm.scale"},
    {"x_embedder", "img_in.weight"},
    {"context_embedder", "txt_in.weight"},
    {"time_guidance_embed.timestep_embedder.linear_1", "time_in.in_layer.weight"},
    {"time_guidance_embed.timestep_embedder.linear_2", "time_in.out_layer.weight"},
    {"time_guidance_embed.guidance_embedder.linear_1", "guidance_in.in_layer.weight"},
    {"time_guidance_embed.guidance_embedder.linear_2", "guidance_in.out_layer.weight"},
    {"double_stream_modulation_img.linear", "double_stream_modulation_img.lin.weight"},
    {"single_stream_modulation.linear", "single_stream_modulation.lin.weight"},
    {"proj_out", "final_layer.linear.weight"},
    {"norm_out.linear", "final_layer.adaLN_modulation.1.weight", 0, 1, true},
    // mflux
    {"time_guidance_embed.linear_1", "time_in.in_layer.weight"},
    {"time_guidance_embed.guidance_linear_2", "guidance_in.out_layer.weight"},
    // OneTrainer's OMI layout and its fused names
    {"double_blocks.2.img_attn.qkv.0", "double_blocks.2.img_attn.qkv.weight", 0, 3},
    {"double_blocks.2.txt_attn.qkv.2", "double_blocks.2.txt_attn.qkv.weight", 2, 3},
    {"transformer_blocks.2.attn.qkv", "double_blocks.2.img_attn.qkv.weight"},
    {"transformer_blocks.2.attn.added_qkv", "double_blocks.2.txt_attn.qkv.weight"},
    // SimpleTuner with fused projections
    {"transformer_blocks.2.attn.to_qkv", "double_blocks.2.img_attn.qkv.weight"},
    {"transformer_blocks.2.attn.to_added_qkv", "double_blocks.2.txt_attn.qkv.weight"},
    // ComfyUI
    {"single_blocks.2.linear1_qkv", "single_blocks.2.linear1.weight", 0, 3},
    // musubi-tuner's wrong names
    {"double_blocks.2.img_attn_qkv", "double_blocks.2.img_attn.qkv.weight"},
    {"double_blocks.2.txt_attn_proj", "double_blocks.2.txt_attn.proj.weight"},
    // An alias in diffusers, and FLUX.1's names of the MLPs
    {"sformer_blocks.2.attn.to_k", "double_blocks.2.img_attn.qkv.weight", 1, 3},
    {"transformer_blocks.2.ff.net.0.proj", "double_blocks.2.img_mlp.0.weight"},
    {"transformer_blocks.2.ff_context.net.2", "double_blocks.2.txt_mlp.2.weight"},
    // Text encoders
    {"model.layers.3.self_attn.q_proj", "blk.3.attn_q.weight"},
    {"model.layers.3.self_attn.k_proj", "blk.3.attn_k.weight"},
    {"model.layers.3.self_attn.v_proj", "blk.3.attn_v.weight"},
    {"model.layers.3.self_attn.o_proj", "blk.3.attn_output.weight"},
    {"model.layers.3.mlp.gate_proj", "blk.3.ffn_gate.weight"},
    {"model.layers.3.mlp.up_proj", "blk.3.ffn_up.weight"},
    {"model.layers.3.mlp.down_proj", "blk.3.ffn_down.weight"},
    {"model.layers.3.input_layernorm", "blk.3.attn_norm.weight"},
    {"model.language_model.layers.3.self_attn.q_proj", "blk.3.attn_q.weight"},
    {"layers.3.self_attn.q_proj", "blk.3.attn_q.weight"},
    {"blk.3.ffn_down.weight", "blk.3.ffn_down.weight"},
};

TEST_CASE("every spelling of a module leads to the same tensor, dotted and flat") {
    for (const Spelling& s : kSpellings) {
        check_target(s.name, s.tensor, s.share, s.n_shares, s.swap_halves);
        check_target(flat(s.name), s.tensor, s.share, s.n_shares, s.swap_halves);
        if (!s.name.ends_with(".weight") && !s.name.ends_with(".scale")) {
            check_target(s.name + ".weight", s.tensor, s.share, s.n_shares, s.swap_halves);
        }
    }
}

TEST_CASE("prefixes are stripped, also several") {
    for (const std::string prefix :
         {"", "diffusion_model.", "model.diffusion_model.", "base_model.model.", "transformer.",
          "pipe.dit.", "unet.", "lora_unet_", "lora_unet__", "lora_transformer_", "lycoris_",
          "transformer.base_model.model.", "base_model.model.diffusion_model."}) {
        for (const std::string name :
             {"transformer_blocks.0.attn.to_q", "transformer_blocks_0_attn_to_q"}) {
            check_target(prefix + name, "double_blocks.0.img_attn.qkv.weight", 0, 3);
        }
    }
    for (const std::string prefix :
         {"text_encoder.", "te.", "te1.", "lora_te_", "lora_te1_", "base_model.model.",
          "text_encoder.base_model.model.", "text_encoders.qwen3_4b.transformer."}) {
        check_target(prefix + "model.layers.0.mlp.up_proj", "blk.0.ffn_up.weight");
        check_target(prefix + "model_layers_0_mlp_up_proj", "blk.0.ffn_up.weight");
    }
    check_target("lora_te_text_model_layers_0_mlp_up_proj", "blk.0.ffn_up.weight");
}

TEST_CASE("names that no part of FLUX.2 has lead nowhere") {
    for (const char* stem :
         {"", ".", "lora_unet_", "diffusion_model.", "double_blocks", "double_blocks.0",
          "double_blocks..img_attn.qkv", "double_blocks.x.img_attn.qkv",
          "double_blocks.00.img_attn.qkv", "double_blocks.1000.img_attn.qkv",
          "double_blocks.99999999999999999999.img_attn.qkv", "double_blocks.0.img_attn.qkv.3",
          "single_blocks.0.img_attn.qkv", "lora_unet_input_blocks_1_0",
          "lora_te_text_model_encoder_layers_0_self_attn_q_proj", "vae.decoder.conv_in"}) {
        CAPTURE(stem);
        CHECK_FALSE(find_adapter_target(stem).has_value());
        CHECK_FALSE(is_flux1_module(stem));
    }
}

TEST_CASE("modules of FLUX.1 alone are known as such") {
    for (const char* stem :
         {"lora_unet_double_blocks_0_img_mod_lin", "diffusion_model.double_blocks.18.txt_mod.lin",
          "single_blocks.3.modulation.lin", "transformer.single_blocks.0.linear1.3",
          "transformer.transformer_blocks.0.norm1.linear",
          "transformer.single_transformer_blocks.37.proj_mlp",
          "transformer.single_transformer_blocks.37.proj_out",
          "transformer.single_transformer_blocks.37.attn.to_q", "vector_in.in_layer"}) {
        CAPTURE(stem);
        CHECK(is_flux1_module(stem));
        CHECK_FALSE(find_adapter_target(stem).has_value());
    }
    CHECK_FALSE(is_flux1_module("transformer_blocks.0.attn.to_q"));
}

TEST_CASE("the longest suffix tells what a tensor is") {
    struct Case {
        std::string suffix;
        Role role;
        bool decisive = true;
    };
    for (const Case& c : {Case{".lora_down.weight", Role::down},
                          Case{".lora_A.weight", Role::down},
                          Case{".lora_A.default.weight", Role::down},
                          Case{".lora_A.default_0.weight", Role::down},
                          Case{".lora_A", Role::down},
                          Case{".lora.down.weight", Role::down},
                          Case{"_lora.down.weight", Role::down},
                          Case{".lora_linear_layer.down.weight", Role::down},
                          Case{".lora_a", Role::down},
                          Case{".lora_up.weight", Role::up},
                          Case{".lora_B.weight", Role::up},
                          Case{".lora_B.default.weight", Role::up},
                          Case{".lora_B", Role::up},
                          Case{".lora.up.weight", Role::up},
                          Case{"_lora.up.weight", Role::up},
                          Case{".lora_linear_layer.up.weight", Role::up},
                          Case{".lora_b", Role::up},
                          Case{".alpha", Role::alpha, false},
                          Case{".lora_alpha", Role::alpha, false},
                          Case{".scale", Role::scale, false},
                          Case{".hada_w1_a", Role::hada_w1_a},
                          Case{".hada_w1_b", Role::hada_w1_b},
                          Case{".hada_w2_a", Role::hada_w2_a},
                          Case{".hada_w2_b", Role::hada_w2_b},
                          Case{".lokr_w1", Role::lokr_w1},
                          Case{".lokr_w1_a", Role::lokr_w1_a},
                          Case{".lokr_w1_b", Role::lokr_w1_b},
                          Case{".lokr_w2", Role::lokr_w2},
                          Case{".lokr_w2_a", Role::lokr_w2_a},
                          Case{".lokr_w2_b", Role::lokr_w2_b},
                          Case{".dora_scale", Role::magnitude},
                          Case{".lora_magnitude_vector", Role::magnitude},
                          Case{".lora_magnitude_vector.weight", Role::magnitude},
                          Case{".lora_magnitude_vector.default.weight", Role::magnitude},
                          Case{".lora_magnitude_vector.default", Role::magnitude},
                          Case{".magnitude", Role::magnitude, false},
                          Case{".diff", Role::diff},
                          Case{".w_norm", Role::diff},
                          Case{".diff_b", Role::diff_b},
                          Case{".b_norm", Role::diff_b},
                          Case{".lora_B.bias", Role::diff_b},
                          Case{".set_weight", Role::set_weight},
                          Case{".oft_blocks", Role::oft_blocks},
                          Case{".rescale", Role::rescale, false},
                          Case{".oft_R.weight", Role::oft_r},
                          Case{".oft_R.scaled_oft", Role::scaled_oft},
                          Case{".a1.weight", Role::glora_a1},
                          Case{".a2.weight", Role::glora_a2},
                          Case{".b1.weight", Role::glora_b1},
                          Case{".b2.weight", Role::glora_b2}}) {
        CAPTURE(c.suffix);
        const std::string stem = "double_blocks.0.img_attn.qkv";
        const std::string key = stem + c.suffix;
        const auto split = split_adapter_key(key);
        REQUIRE(split.has_value());
        CHECK(split->stem == stem);
        CHECK(split->role == c.role);
        CHECK(split->decisive == c.decisive);
    }
}

TEST_CASE("tensors without a use here are told with the reason") {
    for (const auto& [suffix, word] : {std::pair{".lora_mid.weight", "convolutions"},
                                       {".hada_t1", "convolutions"},
                                       {".lokr_t2", "convolutions"},
                                       {".lora_down.0.weight", "split_dims"},
                                       {".lora_up.12.weight", "split_dims"},
                                       {".reshape_weight", "shape"}}) {
        CAPTURE(suffix);
        const std::string key = std::string("lora_unet_double_blocks_0_img_attn_qkv") + suffix;
        const auto split = split_adapter_key(key);
        REQUIRE(split.has_value());
        CHECK(split->stem == "lora_unet_double_blocks_0_img_attn_qkv");
        CHECK_FALSE(split->role.has_value());
        CHECK(std::string(split->reason).find(word) != std::string::npos);
    }
}

TEST_CASE("keys of models are no keys of adapters") {
    for (const char* key : {"", ".alpha", ".lora_A.weight", "double_blocks.0.img_attn.qkv.weight",
                            "lora_down.5.weight", "blk.0.attn_q.weight", "default", ".default",
                            ".default.weight", "x.bias", "blk.0.attn_norm.weight"}) {
        CAPTURE(key);
        CHECK_FALSE(split_adapter_key(key).has_value());
    }
    // The norms' own names end as sd.cpp's factor does.
    CHECK_FALSE(split_adapter_key("single_blocks.0.norm.query_norm.scale")->decisive);
}

TEST_CASE("a dialect is told by how a stem begins") {
    for (const auto& [stem, dialect] :
         {std::pair{"lora_unet_double_blocks_0_img_attn_qkv", "kohya"},
          {"lora_te1_model_layers_0_mlp_up_proj", "kohya"},
          {"lora_transformer_transformer_blocks_0_attn_to_q", "OneTrainer"},
          {"lycoris_transformer_blocks_0_ff_linear_in", "LyCORIS"},
          {"diffusion_model.double_blocks.0.img_attn.qkv", "ComfyUI"},
          {"base_model.model.double_blocks.0.img_attn.qkv", "peft"},
          {"transformer.transformer_blocks.0.attn.to_q", "diffusers"},
          {"transformer_blocks.0.attn.to_q", "diffusers"},
          {"double_blocks.0.img_attn.qkv", "original"},
          {"blk.0.attn_q.weight", "llama.cpp"}}) {
        CHECK(adapter_dialect(stem) == dialect);
    }
}

}  // namespace
}  // namespace flux2
