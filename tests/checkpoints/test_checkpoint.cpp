#include "checkpoints/checkpoint.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <numeric>

namespace fs = std::filesystem;
using namespace flux2;
using namespace flux2::test;

namespace {

// A safetensors file with these tensors, opened. The file stays mapped after the folder is gone.
Checkpoint open_tensors(const std::vector<TestTensor>& tensors) {
    const TemporaryFolder folder;
    write_file(folder / "part.safetensors", safetensors_of(tensors));
    return Checkpoint::open(folder / "part.safetensors");
}

// The same with tensors of one element under these names.
Checkpoint open_names(const std::vector<std::string>& names) {
    std::vector<TestTensor> tensors;
    for (const std::string& name : names) {
        tensors.push_back(counting_tensor(name, {1}));
    }
    return open_tensors(tensors);
}

CaughtError refused(const std::vector<TestTensor>& tensors, ErrorKind kind) {
    const auto error = error_of([&] { open_tensors(tensors); });
    CHECK(error.kind == kind);
    CHECK(error.mentions("part.safetensors"));
    return error;
}

CaughtError refused_names(const std::vector<std::string>& names, ErrorKind kind) {
    const auto error = error_of([&] { open_names(names); });
    CHECK(error.kind == kind);
    CHECK(error.mentions("part.safetensors"));
    return error;
}

void check_recognised(const std::vector<std::string>& names, Part part, Naming naming) {
    const Checkpoint checkpoint = open_names(names);
    CHECK(checkpoint.part() == part);
    CHECK(checkpoint.naming() == naming);
}

std::vector<float> all_values(const ModelTensor& tensor) {
    std::vector<float> values(static_cast<size_t>(tensor.shape.elements()));
    tensor.read_f32(0, values);
    return values;
}

std::vector<float> counting(float first, size_t n) {
    std::vector<float> values(n);
    std::iota(values.begin(), values.end(), first);
    return values;
}

// Makes a file a transformer with diffusers names.
const TestTensor kDiffusersMark =
    counting_tensor("double_stream_modulation_img.linear.weight", {1});

// q, k and v of different heights: 2, 1 and 3 rows of 4.
const TestTensor kQ = counting_tensor("transformer_blocks.0.attn.to_q.weight", {4, 2}, 0);
const TestTensor kK = counting_tensor("transformer_blocks.0.attn.to_k.weight", {4, 1}, 100);
const TestTensor kV = counting_tensor("transformer_blocks.0.attn.to_v.weight", {4, 3}, 200);
constexpr const char* kQkv = "double_blocks.0.img_attn.qkv.weight";

}  // namespace

TEST_CASE("each part is recognised under each of its spellings") {
    check_recognised({"double_stream_modulation_img.lin.weight"}, Part::transformer,
                     Naming::original);
    check_recognised({"double_stream_modulation_img.linear.weight"}, Part::transformer,
                     Naming::diffusers);
    check_recognised(
        {"decoder.conv_in.weight", "decoder.post_quant_conv.weight", "bn.running_mean"}, Part::vae,
        Naming::original);
    check_recognised({"decoder.conv_in.weight", "post_quant_conv.weight", "bn.running_mean"},
                     Part::vae, Naming::diffusers);
    check_recognised(
        {"model.layers.0.self_attn.q_norm.weight", "model.layers.0.self_attn.q_proj.weight"},
        Part::text_encoder, Naming::hugging_face);
    check_recognised({"blk.0.attn_q_norm.weight", "blk.0.attn_q.weight"}, Part::text_encoder,
                     Naming::llama_cpp);
}

TEST_CASE("parts are recognised behind prefixes and found without them") {
    const Checkpoint transformer =
        open_names({"model.diffusion_model.double_stream_modulation_img.lin.weight",
                    "model.diffusion_model.img_in.weight"});
    CHECK(transformer.part() == Part::transformer);
    CHECK(transformer.find("img_in.weight") != nullptr);
    CHECK(transformer.find("model.diffusion_model.img_in.weight") == nullptr);
    check_recognised({"vae.decoder.conv_in.weight", "vae.bn.running_mean"}, Part::vae,
                     Naming::diffusers);
    check_recognised({"text_encoders.qwen3_4b.transformer.model.layers.0.self_attn.q_norm.weight"},
                     Part::text_encoder, Naming::hugging_face);
}

TEST_CASE("a GGUF file is recognised like any other") {
    const TemporaryFolder folder;
    write_file(folder / "part.gguf", gguf_of({counting_tensor("blk.0.attn_q_norm.weight", {1})}));
    const Checkpoint checkpoint = Checkpoint::open(folder / "part.gguf");
    CHECK(checkpoint.part() == Part::text_encoder);
    CHECK(checkpoint.source().format() == FileFormat::gguf);
    CHECK(checkpoint.file() == (folder / "part.gguf").string());
}

TEST_CASE("an adapter is refused as one") {
    for (const char* name : {"diffusion_model.double_blocks.0.img_attn.qkv.lora_A.weight",
                             "transformer.transformer_blocks.0.attn.to_q.lora_B.weight",
                             "lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight",
                             "lora_unet_double_blocks_0_img_attn_qkv.lora_up.weight",
                             "diffusion_model.double_blocks.0.img_attn.qkv.lokr_w1"}) {
        const auto error = refused_names({name}, ErrorKind::unsupported);
        CHECK(error.mentions("is a LoRA"));
        CHECK(error.mentions(name));
    }
}

TEST_CASE("a FLUX.1 transformer is refused as one") {
    CHECK(refused_names({"double_blocks.0.img_mod.lin.weight", "img_in.weight"},
                        ErrorKind::unsupported)
              .mentions("FLUX.1"));
    CHECK(refused_names({"model.diffusion_model.vector_in.in_layer.weight"}, ErrorKind::unsupported)
              .mentions("FLUX.1"));
}

TEST_CASE("an autoencoder without the latent statistics is refused") {
    CHECK(
        refused_names({"decoder.conv_in.weight", "encoder.conv_in.weight"}, ErrorKind::unsupported)
            .mentions("bn.running_mean"));
}

TEST_CASE("scales, markers and descriptions are no tensors of the model") {
    const Checkpoint checkpoint = open_names(
        {"double_stream_modulation_img.lin.weight", "img_in.weight_scale", "img_in.scale_weight",
         "scaled_fp8", "img_in.comfy_quant", "img_in.weight_scale_inv", "img_in.input_scale",
         "img_in.scale_input", "img_in.weight_scale_2", "img_in.pre_quant_scale"});
    CHECK(checkpoint.tensors().size() == 1);
}

TEST_CASE("scales beside weights that need none are refused") {
    for (const char* scale :
         {"img_in.weight_scale", "img_in.scale_weight", "img_in.weight_scale_inv"}) {
        const auto error =
            refused_names({"double_stream_modulation_img.lin.weight", "img_in.weight", scale},
                          ErrorKind::bad_file);
        CHECK(error.mentions("img_in.weight is of type F32"));
        CHECK(error.mentions(scale));
    }
}

TEST_CASE("a language model without query norms is refused") {
    CHECK(refused_names({"model.layers.0.self_attn.q_proj.weight"}, ErrorKind::unsupported)
              .mentions("Qwen3"));
    CHECK(refused_names({"blk.0.attn_q.weight"}, ErrorKind::unsupported).mentions("Qwen3"));
}

TEST_CASE("an unknown file is refused with its first tensor") {
    CHECK(refused_names({"some.weight"}, ErrorKind::bad_file).mentions("some.weight"));
    refused_names({}, ErrorKind::bad_file);
}

TEST_CASE("parts and spellings have names") {
    CHECK(to_string(Part::transformer) == std::string("transformer"));
    CHECK(to_string(Part::text_encoder) == std::string("text encoder"));
    CHECK(to_string(Part::vae) == std::string("autoencoder"));
    CHECK(to_string(Naming::original) == std::string("original names"));
    CHECK(to_string(Naming::diffusers) == std::string("diffusers names"));
    CHECK(to_string(Naming::hugging_face) == std::string("Hugging Face names"));
    CHECK(to_string(Naming::llama_cpp) == std::string("llama.cpp names"));
}

TEST_CASE("tensors are found by name and a missing one is named") {
    const Checkpoint checkpoint = open_tensors({kDiffusersMark, kQ, kK, kV});
    CHECK(checkpoint.find("nothing") == nullptr);
    CHECK(checkpoint.get(kQkv).name == kQkv);
    CHECK(checkpoint.tensors().size() == 2);
    CHECK(checkpoint.n_parameters() == 1 + 4 * 6);
    const auto error = error_of([&] { checkpoint.get("nothing"); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("nothing"));
    CHECK(error.mentions("part.safetensors"));
}

TEST_CASE("queries, keys and values are stacked in this order, wherever they stand") {
    std::vector<float> expected = counting(0, 8);
    for (const float value : counting(100, 4)) {
        expected.push_back(value);
    }
    for (const float value : counting(200, 12)) {
        expected.push_back(value);
    }
    for (const auto& tensors : {std::vector<TestTensor>{kDiffusersMark, kQ, kK, kV},
                                std::vector<TestTensor>{kV, kQ, kDiffusersMark, kK}}) {
        const Checkpoint checkpoint = open_tensors(tensors);
        const ModelTensor& qkv = checkpoint.get(kQkv);
        CHECK(qkv.shape == Shape{4, 6});
        CHECK(qkv.pieces.size() == 3);
        CHECK(qkv.same_type_throughout());
        CHECK(all_values(qkv) == expected);
    }
}

TEST_CASE("parts may have different types") {
    TestTensor k = kK;
    k.type = TensorType::bf16;
    k.data = bytes_of(std::vector<uint16_t>{0x3F80, 0x4000, 0xBF80, 0x0000});  // 1, 2, -1, 0
    const Checkpoint checkpoint = open_tensors({kDiffusersMark, kQ, k, kV});
    const ModelTensor& qkv = checkpoint.get(kQkv);
    CHECK(qkv.type() == TensorType::f32);
    CHECK_FALSE(qkv.same_type_throughout());
    std::vector<float> keys(4);
    qkv.read_f32(8, keys);
    CHECK(keys == std::vector<float>{1, 2, -1, 0});
}

TEST_CASE("the halves of the last modulation change places in diffusers files only") {
    const Checkpoint swapped =
        open_tensors({kDiffusersMark, counting_tensor("norm_out.linear.weight", {3, 4})});
    const ModelTensor& tensor = swapped.get("final_layer.adaLN_modulation.1.weight");
    CHECK(tensor.shape == Shape{3, 4});
    CHECK(all_values(tensor) == std::vector<float>{6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5});

    const Checkpoint plain =
        open_tensors({counting_tensor("double_stream_modulation_img.lin.weight", {1}),
                      counting_tensor("final_layer.adaLN_modulation.1.weight", {3, 4})});
    CHECK(all_values(plain.get("final_layer.adaLN_modulation.1.weight")) == counting(0, 12));
}

TEST_CASE("an odd number of rows has no halves") {
    CHECK(refused({kDiffusersMark, counting_tensor("norm_out.linear.weight", {4, 3})},
                  ErrorKind::bad_file)
              .mentions("norm_out.linear.weight"));
}

TEST_CASE("every slice of a stacked tensor has the right values") {
    const Checkpoint checkpoint = open_tensors({kDiffusersMark, kQ, kK, kV});
    const ModelTensor& qkv = checkpoint.get(kQkv);
    const std::vector<float> all = all_values(qkv);
    const auto size = static_cast<int64_t>(all.size());
    for (int64_t first = 0; first <= size; ++first) {
        for (int64_t n = 0; first + n <= size; ++n) {
            int64_t covered = 0;
            for (const Piece& piece : qkv.slice(first, n)) {
                CHECK(piece.n_elements > 0);
                CHECK(piece.bytes.size() == 4 * static_cast<size_t>(piece.n_elements));
                covered += piece.n_elements;
            }
            CHECK(covered == n);
            std::vector<float> values(static_cast<size_t>(n));
            qkv.read_f32(first, values);
            CHECK(values == std::vector<float>(all.begin() + first, all.begin() + first + n));
        }
    }
    CHECK(qkv.slice(0, 8).size() == 1);
    CHECK(qkv.slice(7, 2).size() == 2);
    CHECK(qkv.slice(7, 6).size() == 3);
    CHECK(qkv.slice(8, 4).size() == 1);
}

TEST_CASE("a slice of quantised blocks falls on their borders") {
    const TemporaryFolder folder;
    const auto blocks = [](const std::string& name, int first) {
        TestTensor tensor{.name = name, .shape = {32, 2}, .data = {}, .type = TensorType::q8_0};
        for (int row = 0; row < 2; ++row) {
            const Bytes block(34, static_cast<std::byte>(first + row));
            tensor.data.insert(tensor.data.end(), block.begin(), block.end());
        }
        return tensor;
    };
    write_file(folder / "part.gguf", gguf_of({kDiffusersMark, blocks(kQ.name, 1),
                                              blocks(kK.name, 3), blocks(kV.name, 5)}));
    const Checkpoint checkpoint = Checkpoint::open(folder / "part.gguf");
    const ModelTensor& qkv = checkpoint.get(kQkv);
    CHECK(qkv.shape == Shape{32, 6});
    const std::vector<Piece> pieces = qkv.slice(32, 64);
    REQUIRE(pieces.size() == 2);
    CHECK(pieces[0].bytes.size() == 34);
    CHECK(pieces[0].bytes.front() == std::byte{2});
    CHECK(pieces[1].bytes.size() == 34);
    CHECK(pieces[1].bytes.front() == std::byte{3});
}

TEST_CASE("a slice past the end is refused") {
    const Checkpoint checkpoint = open_tensors({kDiffusersMark, kQ, kK, kV});
    const ModelTensor& qkv = checkpoint.get(kQkv);
    CHECK(error_of([&] { qkv.slice(0, 25); }).kind == ErrorKind::internal);
    CHECK(error_of([&] { qkv.slice(24, 1); }).mentions(kQkv));
    CHECK(error_of([&] { qkv.slice(30, 1); }).kind == ErrorKind::internal);
}

TEST_CASE("a missing part of a stacked matrix is refused") {
    for (const auto& tensors : {std::vector<TestTensor>{kDiffusersMark, kQ, kV},
                                std::vector<TestTensor>{kDiffusersMark, kK, kV},
                                std::vector<TestTensor>{kDiffusersMark, kQ}}) {
        const auto error = refused(tensors, ErrorKind::bad_file);
        CHECK(error.mentions(kQkv));
        CHECK(error.mentions("missing"));
    }
}

TEST_CASE("parts with rows of different length are refused") {
    const TestTensor k = counting_tensor(kK.name, {3, 2});
    CHECK(refused({kDiffusersMark, kQ, k, kV}, ErrorKind::bad_file).mentions(kK.name));
}

TEST_CASE("parts with more than two dimensions are refused") {
    // Stacked by their second dimension alone they would hold other numbers than they claim.
    const TestTensor deep = counting_tensor(kK.name, {4, 1, 2});
    CHECK(refused({kDiffusersMark, kQ, deep, kV}, ErrorKind::bad_file).mentions(kK.name));
    const TestTensor empty = counting_tensor(kK.name, {4, 1, 0});
    CHECK(refused({kDiffusersMark, kQ, empty, kV}, ErrorKind::bad_file).mentions(kK.name));
}

TEST_CASE("a file that mixes two layouts is refused") {
    const TestTensor fused = counting_tensor(kQkv, {4, 6});
    for (const auto& tensors : {std::vector<TestTensor>{kDiffusersMark, kQ, kK, kV, fused},
                                std::vector<TestTensor>{kDiffusersMark, fused, kQ, kK, kV},
                                std::vector<TestTensor>{kDiffusersMark, fused, kK},
                                std::vector<TestTensor>{kDiffusersMark, kK, kV, fused}}) {
        const auto error = refused(tensors, ErrorKind::bad_file);
        CHECK(error.mentions(kQkv));
        CHECK(error.mentions("mixes two layouts"));
    }
}

TEST_CASE("a tensor with and without a prefix is refused") {
    const auto error = refused_names({"double_stream_modulation_img.lin.weight", "img_in.weight",
                                      "model.diffusion_model.img_in.weight"},
                                     ErrorKind::bad_file);
    CHECK(error.mentions("img_in.weight"));
}
