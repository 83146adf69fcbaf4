// Files of other models are recognised as what they are. The tensor names are those of the models'
// own repositories.
#include "checkpoints/checkpoint.hpp"
#include "checkpoints/recognise.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <array>

namespace flux2 {
namespace {

using test::counting_tensor;

Identity identity_of(const std::vector<test::TestTensor>& tensors) {
    const test::TemporaryFolder folder;
    test::write_file(folder / "x.safetensors", test::safetensors_of(tensors));
    return identify(TensorSource::open(folder / "x.safetensors"));
}

struct Case {
    std::string tensor, what, advice;
};

TEST_CASE("well-known models of other families are named, with what would fit") {
    for (const Case& c :
         {Case{"double_blocks.0.img_mod.lin.weight", "FLUX.1", "flux-2-klein"},
          Case{"model.diffusion_model.vector_in.in_layer.weight", "FLUX.1", "flux-2-klein"},
          Case{"single_transformer_blocks.0.proj_mlp.weight", "FLUX.1", "flux-2-klein"},
          Case{"model.diffusion_model.input_blocks.0.0.weight", "SDXL", "flux-2-klein"},
          Case{"down_blocks.1.attentions.0.proj_in.weight", "UNet", "flux-2-klein"},
          Case{"joint_blocks.0.x_block.attn.qkv.weight", "Stable Diffusion 3", "flux-2-klein"},
          Case{"encoder.block.0.layer.0.SelfAttention.q.weight", "T5", "Qwen3-4B"},
          Case{"enc.blk.0.attn_q.weight", "T5", "Qwen3-4B"},
          Case{"text_model.encoder.layers.0.self_attn.q_proj.weight", "CLIP", "Qwen3-4B"},
          Case{"v.blk.0.attn_q.weight", "picture encoder", "Qwen3-4B"},
          Case{"transformer.transformer_blocks.0.attn.to_q.lora_A.weight", "is a LoRA",
               "`adapters`"},
          Case{"lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight", "is a LoRA",
               "`adapters`"},
          Case{"blk.0.attn_q.weight.lora_a", "is a LoRA", "`adapters`"},
          Case{"lora_unet_double_blocks_0_img_attn_qkv.oft_blocks", "is a LoRA", "`adapters`"},
          Case{"transformer_blocks.0.attn.to_q.lora.up.weight", "is a LoRA", "`adapters`"}}) {
        CAPTURE(c.tensor);
        const Identity identity = identity_of({counting_tensor(c.tensor, {1})});
        CHECK(identity.parts.empty());
        CHECK(identity.other_kind.find("is ") == 0);
        CHECK(identity.other_kind.find(c.what) != std::string::npos);
        CHECK(identity.other_kind.find(c.tensor) != std::string::npos);
        CHECK(identity.other_kind.find(c.advice) != std::string::npos);
    }
}

TEST_CASE("autoencoders of other models are told by their latent channels") {
    for (const auto& [channels, owner] :
         {std::pair{4, "SDXL"}, {16, "FLUX.1"}, {8, "another model"}}) {
        const std::string text =
            identity_of({counting_tensor("decoder.conv_in.weight", {3, 3, channels, 2})})
                .other_kind;
        CHECK(text.find(owner) != std::string::npos);
        CHECK(text.find(std::to_string(channels) + " latent channels") != std::string::npos);
        CHECK(text.find("flux2-vae.safetensors") != std::string::npos);
    }
}

TEST_CASE("a whole Stable Diffusion checkpoint is not taken for the autoencoder in it") {
    const Identity identity =
        identity_of({counting_tensor("first_stage_model.decoder.conv_in.weight", {3, 3, 4, 2}),
                     counting_tensor("model.diffusion_model.input_blocks.0.0.weight", {1})});
    CHECK(identity.other_kind.find("Stable Diffusion or SDXL model") != std::string::npos);
}

TEST_CASE("the parts of an all-in-one checkpoint are told apart by their prefixes") {
    const Identity identity = identity_of(
        {counting_tensor("vae.decoder.conv_in.weight", {1}),
         counting_tensor("vae.bn.running_mean", {1}),
         counting_tensor("text_encoders.clip_l.transformer.text_model.encoder.layers.0.x", {1}),
         counting_tensor(
             "text_encoders.qwen3_4b.transformer.model.layers.0.self_attn.q_norm.weight", {1}),
         counting_tensor("model.diffusion_model.double_stream_modulation_img.lin.weight", {1})});
    REQUIRE(identity.parts.size() == 3);
    CHECK(identity.parts[0].part == Part::transformer);
    CHECK(identity.parts[0].prefix == "model.diffusion_model.");
    CHECK(identity.parts[1].part == Part::text_encoder);
    CHECK(identity.parts[1].prefix == "text_encoders.qwen3_4b.");
    CHECK(identity.parts[2].part == Part::vae);
    CHECK(identity.parts[2].prefix == "vae.");
    CHECK(identity.other_kind.empty());
}

TEST_CASE("Mistral is told from other language models by heads narrower than a token") {
    struct Spelling {
        std::string start, embeddings, q, bias;
        Naming naming;
    };
    for (const Spelling& s :
         {Spelling{"", "model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
                   "model.layers.0.self_attn.q_proj.bias", Naming::hugging_face},
          Spelling{"language_model.", "language_model.model.embed_tokens.weight",
                   "language_model.model.layers.0.self_attn.q_proj.weight",
                   "language_model.model.layers.0.self_attn.q_proj.bias", Naming::hugging_face},
          Spelling{"", "model.language_model.embed_tokens.weight",
                   "model.language_model.layers.0.self_attn.q_proj.weight",
                   "model.language_model.layers.0.self_attn.q_proj.bias", Naming::hugging_face},
          Spelling{"", "token_embd.weight", "blk.0.attn_q.weight", "blk.0.attn_q.bias",
                   Naming::llama_cpp}}) {
        CAPTURE(s.q);
        const auto embeddings = counting_tensor(s.embeddings, {10, 1});
        const auto mistral = identity_of({embeddings, counting_tensor(s.q, {10, 8})});
        REQUIRE(mistral.parts.size() == 1);
        CHECK(mistral.parts[0].part == Part::text_encoder);
        CHECK(mistral.parts[0].naming == s.naming);
        CHECK(mistral.parts[0].prefix == s.start);
        // Llama's heads together are as wide as the hidden size, Qwen2 has biases.
        for (const Identity& other : {identity_of({embeddings, counting_tensor(s.q, {10, 10})}),
                                      identity_of({embeddings, counting_tensor(s.q, {10, 8}),
                                                   counting_tensor(s.bias, {8})})}) {
            CHECK(other.parts.empty());
            CHECK(other.other_kind.find("neither Qwen3 nor Mistral") != std::string::npos);
            CHECK(other.other_kind.find("dev with Mistral Small 3.2") != std::string::npos);
        }
    }
}

TEST_CASE("Gemma has query norms too, but is not Qwen3") {
    const Identity identity = identity_of({counting_tensor("blk.0.attn_q_norm.weight", {1}),
                                           counting_tensor("blk.0.post_ffw_norm.weight", {1})});
    CHECK(identity.parts.empty());
    CHECK(identity.other_kind.find("Gemma") != std::string::npos);
}

TEST_CASE("a bare decoder lacks the statistics of latents: the file with all is named") {
    const auto block = counting_tensor("up.3.block.0.conv1.weight", {1});
    const Identity bare = identity_of({counting_tensor("conv_in.weight", {3, 3, 32, 2}), block});
    CHECK(bare.other_kind.find("decoder alone") != std::string::npos);
    CHECK(bare.other_kind.find("bn.running_mean") != std::string::npos);
    CHECK(bare.other_kind.find("full_encoder_small_decoder.safetensors") != std::string::npos);
    const Identity other = identity_of({counting_tensor("conv_in.weight", {3, 3, 16, 2}), block});
    CHECK(other.other_kind.find("FLUX.1") != std::string::npos);
}

TEST_CASE("a tiny autoencoder is recognised by the pools of its decoder, with any prefix") {
    for (const std::string mark :
         {"3.pool.0.weight", "decoder.3.pool.0.weight", "taesd_decoder.3.pool.0.weight",
          "decoder.layers.2.pool.0.weight"}) {
        CAPTURE(mark);
        const Identity identity = identity_of({counting_tensor(mark, {1})});
        REQUIRE(identity.parts.size() == 1);
        CHECK(identity.parts[0].part == Part::tiny_autoencoder);
        CHECK((identity.parts[0].naming == Naming::diffusers) == (mark.find("layers") == 8));
    }
    for (const std::string mark :
         {"11.pool.0.weight", "encoder.11.pool.0.weight", "taesd_encoder.11.pool.0.weight",
          "encoder.layers.11.pool.0.weight"}) {
        CAPTURE(mark);
        const Identity identity = identity_of({counting_tensor(mark, {1})});
        CHECK(identity.parts.empty());
        CHECK(identity.other_kind.find("without its decoder") != std::string::npos);
    }
}

TEST_CASE("tiny autoencoders of other models are told by their latent channels") {
    for (const auto& [prefix, first, block] :
         {std::array{"", "1.weight", "3.conv.0.weight"},
          std::array{"decoder.", "1.weight", "3.conv.0.weight"},
          std::array{"taesd_decoder.", "1.weight", "3.conv.0.weight"},
          std::array{"decoder.layers.", "0.weight", "2.conv.0.weight"}}) {
        for (const auto& [channels, owner] :
             {std::pair{4, "SDXL"}, {16, "FLUX.1"}, {8, "another model"}}) {
            CAPTURE(prefix);
            const std::string text =
                identity_of({counting_tensor(std::string(prefix) + first, {3, 3, channels, 2}),
                             counting_tensor(std::string(prefix) + block, {3, 3, 2, 2})})
                    .other_kind;
            CHECK(text.find("tiny autoencoder of") != std::string::npos);
            CHECK(text.find(owner) != std::string::npos);
            CHECK(text.find("TAEF2") != std::string::npos);
        }
    }
}

TEST_CASE("an unknown file has no name, a part has no other") {
    const Identity unknown = identity_of({counting_tensor("some.weight", {1})});
    CHECK(unknown.parts.empty());
    CHECK(unknown.other_kind.empty());
    const Identity part =
        identity_of({counting_tensor("double_stream_modulation_img.lin.weight", {1})});
    REQUIRE(part.parts.size() == 1);
    CHECK(part.parts[0].part == Part::transformer);
    CHECK(part.other_kind.empty());
}

}  // namespace
}  // namespace flux2
