#include "checkpoints/tensor_names.hpp"

#include <doctest/doctest.h>

using namespace flux2;

namespace {

void check_place(const TensorPlace& place, const char* name, int stack_index = 0, int n_stacked = 1,
                 bool swap_halves = false) {
    CHECK(place.name == name);
    CHECK(place.stack_index == stack_index);
    CHECK(place.n_stacked == n_stacked);
    CHECK(place.swap_halves == swap_halves);
}

}  // namespace

TEST_CASE("prefixes keep the parts of a file apart") {
    CHECK(prefix_of("img_in.weight").empty());
    CHECK(prefix_of("model.layers.0.mlp.up_proj.weight").empty());
    CHECK(prefix_of("model.diffusion_model.img_in.weight") == "model.diffusion_model.");
    CHECK(prefix_of("vae.bn.running_mean") == "vae.");
    CHECK(prefix_of("text_encoders.qwen3_4b.transformer.model.norm.weight") ==
          "text_encoders.qwen3_4b.");
    CHECK(prefix_of("text_encoders.clip_l.logit_scale") == "text_encoders.clip_l.");
    CHECK(prefix_of("text_encoders.x").empty());
}

TEST_CASE("prefixes of other programs are dropped") {
    CHECK(strip_prefix("model.diffusion_model.img_in.weight") == "img_in.weight");
    CHECK(strip_prefix("diffusion_model.img_in.weight") == "img_in.weight");
    CHECK(strip_prefix("base_model.model.img_in.weight") == "img_in.weight");
    CHECK(strip_prefix("transformer.img_in.weight") == "img_in.weight");
    CHECK(strip_prefix("vae.decoder.conv_in.weight") == "decoder.conv_in.weight");
    CHECK(strip_prefix("first_stage_model.decoder.conv_in.weight") == "decoder.conv_in.weight");
    CHECK(strip_prefix("text_encoders.llm.model.norm.weight") == "model.norm.weight");
    CHECK(strip_prefix("text_encoders.qwen3_4b.transformer.model.layers.0.mlp.up_proj.weight") ==
          "model.layers.0.mlp.up_proj.weight");
    CHECK(strip_prefix("text_encoders.llm.lm_head.weight") == "lm_head.weight");
}

TEST_CASE("names without such a prefix stay as they are") {
    for (const char* name :
         {"", "img_in.weight", "model.layers.0.mlp.up_proj.weight", "model.norm.weight",
          "transformer_blocks.0.attn.to_q.weight", "blk.0.attn_q.weight", "bn.running_mean",
          "decoder.conv_in.weight", "vae", "text_encoders.llm"}) {
        CHECK(strip_prefix(name) == name);
    }
}

TEST_CASE("transformer names of diffusers become the original ones") {
    const auto place = place_transformer_tensor;
    check_place(place("x_embedder.weight"), "img_in.weight");
    check_place(place("context_embedder.weight"), "txt_in.weight");
    check_place(place("time_guidance_embed.timestep_embedder.linear_1.weight"),
                "time_in.in_layer.weight");
    check_place(place("time_guidance_embed.guidance_embedder.linear_2.weight"),
                "guidance_in.out_layer.weight");
    check_place(place("double_stream_modulation_txt.linear.weight"),
                "double_stream_modulation_txt.lin.weight");
    check_place(place("single_stream_modulation.linear.weight"),
                "single_stream_modulation.lin.weight");
    check_place(place("proj_out.weight"), "final_layer.linear.weight");
    check_place(place("transformer_blocks.7.attn.norm_q.weight"),
                "double_blocks.7.img_attn.norm.query_norm.scale");
    check_place(place("transformer_blocks.7.attn.norm_added_k.weight"),
                "double_blocks.7.txt_attn.norm.key_norm.scale");
    check_place(place("transformer_blocks.0.attn.to_out.0.weight"),
                "double_blocks.0.img_attn.proj.weight");
    check_place(place("transformer_blocks.0.attn.to_add_out.weight"),
                "double_blocks.0.txt_attn.proj.weight");
    check_place(place("transformer_blocks.3.ff.linear_in.weight"),
                "double_blocks.3.img_mlp.0.weight");
    check_place(place("transformer_blocks.3.ff_context.linear_out.weight"),
                "double_blocks.3.txt_mlp.2.weight");
    check_place(place("single_transformer_blocks.47.attn.to_qkv_mlp_proj.weight"),
                "single_blocks.47.linear1.weight");
    check_place(place("single_transformer_blocks.47.attn.to_out.weight"),
                "single_blocks.47.linear2.weight");
    check_place(place("single_transformer_blocks.10.attn.norm_k.weight"),
                "single_blocks.10.norm.key_norm.scale");
}

TEST_CASE("queries, keys and values are parts of one matrix, in this order") {
    const auto place = place_transformer_tensor;
    const char* img = "double_blocks.12.img_attn.qkv.weight";
    check_place(place("transformer_blocks.12.attn.to_q.weight"), img, 0, 3);
    check_place(place("transformer_blocks.12.attn.to_k.weight"), img, 1, 3);
    check_place(place("transformer_blocks.12.attn.to_v.weight"), img, 2, 3);
    const char* txt = "double_blocks.12.txt_attn.qkv.weight";
    check_place(place("transformer_blocks.12.attn.add_q_proj.weight"), txt, 0, 3);
    check_place(place("transformer_blocks.12.attn.add_k_proj.weight"), txt, 1, 3);
    check_place(place("transformer_blocks.12.attn.add_v_proj.weight"), txt, 2, 3);
}

TEST_CASE("only the last modulation swaps its halves") {
    check_place(place_transformer_tensor("norm_out.linear.weight"),
                "final_layer.adaLN_modulation.1.weight", 0, 1, true);
    check_place(place_transformer_tensor("final_layer.adaLN_modulation.1.weight"),
                "final_layer.adaLN_modulation.1.weight");
}

TEST_CASE("norms that call their scale a weight are understood") {
    check_place(place_transformer_tensor("double_blocks.1.txt_attn.norm.query_norm.weight"),
                "double_blocks.1.txt_attn.norm.query_norm.scale");
    check_place(place_transformer_tensor("single_blocks.9.norm.key_norm.weight"),
                "single_blocks.9.norm.key_norm.scale");
}

TEST_CASE("names no rule knows are taken to be ours") {
    for (const char* name :
         {"", "img_in.weight", "double_blocks.0.img_attn.qkv.weight", "transformer_blocks.",
          "transformer_blocks.x.attn.to_q.weight", "transformer_blocks..attn.to_q.weight",
          "transformer_blocks.0.attn.to_q.weight.more", "transformer_blocks.0.attn.to_q"}) {
        check_place(place_transformer_tensor(name), name);
    }
    check_place(place_text_encoder_tensor("blk.0.attn_q.weight"), "blk.0.attn_q.weight");
    check_place(place_vae_tensor("bn.running_mean"), "bn.running_mean");
    check_place(place_vae_tensor("decoder.up.0.block.0.conv1.weight"),
                "decoder.up.0.block.0.conv1.weight");
}

TEST_CASE("autoencoder names of diffusers become the original ones") {
    const auto place = place_vae_tensor;
    check_place(place("encoder.conv_in.weight"), "encoder.conv_in.weight");
    check_place(place("encoder.conv_norm_out.bias"), "encoder.norm_out.bias");
    check_place(place("decoder.conv_norm_out.weight"), "decoder.norm_out.weight");
    check_place(place("encoder.down_blocks.2.resnets.1.norm1.weight"),
                "encoder.down.2.block.1.norm1.weight");
    check_place(place("encoder.down_blocks.1.resnets.0.conv_shortcut.bias"),
                "encoder.down.1.block.0.nin_shortcut.bias");
    check_place(place("encoder.down_blocks.0.downsamplers.0.conv.weight"),
                "encoder.down.0.downsample.conv.weight");
    check_place(place("encoder.mid_block.resnets.0.conv1.weight"),
                "encoder.mid.block_1.conv1.weight");
    check_place(place("decoder.mid_block.resnets.1.norm2.bias"), "decoder.mid.block_2.norm2.bias");
    check_place(place("encoder.mid_block.attentions.0.group_norm.weight"),
                "encoder.mid.attn_1.norm.weight");
    check_place(place("decoder.mid_block.attentions.0.to_q.weight"), "decoder.mid.attn_1.q.weight");
    check_place(place("decoder.mid_block.attentions.0.to_k.bias"), "decoder.mid.attn_1.k.bias");
    check_place(place("encoder.mid_block.attentions.0.to_v.bias"), "encoder.mid.attn_1.v.bias");
    check_place(place("decoder.mid_block.attentions.0.to_out.0.weight"),
                "decoder.mid.attn_1.proj_out.weight");
    check_place(place("encoder.mid_block.attentions.0.query.weight"),
                "encoder.mid.attn_1.q.weight");
    check_place(place("decoder.mid_block.attentions.0.proj_attn.bias"),
                "decoder.mid.attn_1.proj_out.bias");
    check_place(place("quant_conv.weight"), "encoder.quant_conv.weight");
    check_place(place("post_quant_conv.bias"), "decoder.post_quant_conv.bias");
}

TEST_CASE("the levels of the decoder run the other way in diffusers") {
    const auto place = place_vae_tensor;
    check_place(place("decoder.up_blocks.0.resnets.2.conv1.weight"),
                "decoder.up.3.block.2.conv1.weight");
    check_place(place("decoder.up_blocks.3.resnets.0.conv_shortcut.weight"),
                "decoder.up.0.block.0.nin_shortcut.weight");
    check_place(place("decoder.up_blocks.2.upsamplers.0.conv.bias"),
                "decoder.up.1.upsample.conv.bias");
}

TEST_CASE("a level no autoencoder has gets no level's name") {
    for (const char* level : {"4", "9", "10", "30", "00"}) {
        CAPTURE(std::string(level));
        const std::string name =
            place_vae_tensor("decoder.up_blocks." + std::string(level) + ".resnets.0.conv1.weight")
                .name;
        for (const char* known : {"0", "1", "2", "3"}) {
            CHECK(name != "decoder.up." + std::string(known) + ".block.0.conv1.weight");
        }
    }
}

TEST_CASE("text encoder names of Hugging Face become llama.cpp's") {
    const auto place = place_text_encoder_tensor;
    check_place(place("model.embed_tokens.weight"), "token_embd.weight");
    check_place(place("model.norm.weight"), "output_norm.weight");
    check_place(place("lm_head.weight"), "output.weight");
    check_place(place("model.layers.0.input_layernorm.weight"), "blk.0.attn_norm.weight");
    check_place(place("model.layers.35.self_attn.q_proj.weight"), "blk.35.attn_q.weight");
    check_place(place("model.layers.35.self_attn.k_proj.weight"), "blk.35.attn_k.weight");
    check_place(place("model.layers.35.self_attn.v_proj.weight"), "blk.35.attn_v.weight");
    check_place(place("model.layers.35.self_attn.o_proj.weight"), "blk.35.attn_output.weight");
    check_place(place("model.layers.1.self_attn.q_norm.weight"), "blk.1.attn_q_norm.weight");
    check_place(place("model.layers.1.self_attn.k_norm.weight"), "blk.1.attn_k_norm.weight");
    check_place(place("model.layers.1.post_attention_layernorm.weight"), "blk.1.ffn_norm.weight");
    check_place(place("model.layers.1.mlp.gate_proj.weight"), "blk.1.ffn_gate.weight");
    check_place(place("model.layers.1.mlp.up_proj.weight"), "blk.1.ffn_up.weight");
    check_place(place("model.layers.1.mlp.down_proj.weight"), "blk.1.ffn_down.weight");
    check_place(place("model.language_model.embed_tokens.weight"), "token_embd.weight");
    check_place(place("model.language_model.layers.7.mlp.up_proj.weight"), "blk.7.ffn_up.weight");
}

TEST_CASE("a tiny autoencoder's names become halves and numbers of the original's layers") {
    const auto place = place_tiny_tensor;
    check_place(place("3.pool.0.weight"), "decoder.3.pool.0.weight");
    check_place(place("19.bias"), "decoder.19.bias");
    check_place(place("decoder.18.conv.2.bias"), "decoder.18.conv.2.bias");
    check_place(place("taesd_decoder.7.weight"), "decoder.7.weight");
    check_place(place("taesd_encoder.0.weight"), "encoder.0.weight");
    // The decoder's clamp is no layer in diffusers; the encoder has none.
    check_place(place("decoder.layers.0.weight"), "decoder.1.weight");
    check_place(place("decoder.layers.9.conv.4.bias"), "decoder.10.conv.4.bias");
    check_place(place("encoder.layers.14.weight"), "encoder.14.weight");
    check_place(place("decoder.layers.99999999999999999999.weight"), "decoder.?.weight");
}
