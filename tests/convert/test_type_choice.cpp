// Expected types are read off the rules of city96's ComfyUI-GGUF (transformer) and llama.cpp's
// quantizer (text encoder), not off our code.
#include "support/published_sizes.hpp"
#include "support/support.hpp"
#include "type_choice.hpp"

#include <doctest/doctest.h>

#include <set>

namespace flux2::convert {
namespace {

using enum TensorType;
using test::kQwen3_4b;

TypeRequest request(const std::string& type, const std::vector<std::string>& overrides = {}) {
    TypeRequest result;
    result.file_type = &parse_file_type(type);
    for (const std::string& text : overrides) {
        result.overrides.push_back(parse_type_override(text));
    }
    return result;
}

TensorType transformer_type(const std::string& type, const std::string& name, Shape shape) {
    return choose_type(request(type), Part::transformer, {name, shape}, bf16, {}, true).type;
}

TensorType text_type(const std::string& type, const std::string& name, Shape shape = {2560, 2560},
                     bool tied = true) {
    return choose_type(request(type), Part::text_encoder, {name, shape}, bf16, kQwen3_4b, tied)
        .type;
}

std::set<int> layers_with(const std::string& type, const std::string& tensor, TensorType wanted) {
    std::set<int> layers;
    for (int i = 0; i < 36; ++i) {
        if (text_type(type, "blk." + std::to_string(i) + "." + tensor + ".weight") == wanted) {
            layers.insert(i);
        }
    }
    return layers;
}

TEST_CASE("file types have llama.cpp's numbers and are found in any case") {
    CHECK(parse_file_type("q8_0").number == 7);
    CHECK(parse_file_type("Q4_K_M").number == 15);
    CHECK(parse_file_type("Q5_K_S").number == 16);
    CHECK(parse_file_type("BF16").number == 32);
    CHECK(parse_file_type("IQ4_XS").number == 30);
    const auto error = test::error_of([] { parse_file_type("Q9_Z"); });
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("Q9_Z"));
    CHECK(error.mentions("Q4_K_M"));
}

TEST_CASE("a bare K type is its middle mix, as llama.cpp has it") {
    for (const char* name : {"Q5_K", "Q4_K", "Q3_K"}) {
        CHECK(parse_file_type(name).name == std::string(name) + "_M");
    }
    CHECK(parse_file_type("q4_k").name == std::string("Q4_K_M"));
    CHECK(parse_file_type("Q6_K").name == std::string("Q6_K"));
    CHECK(parse_file_type("Q2_K").name == std::string("Q2_K"));
    // For one tensor it is the type.
    CHECK(parse_type_override("qkv=Q4_K").type == q4_k);
}

TEST_CASE("only block matrices of a transformer are quantised") {
    CHECK(transformer_type("Q4_0", "single_blocks.7.linear1.weight", {3072, 27648}) == q4_0);
    CHECK(transformer_type("Q4_0", "double_blocks.0.txt_mlp.2.weight", {9216, 3072}) == q4_0);
    for (const char* outer :
         {"img_in.weight", "txt_in.weight", "time_in.in_layer.weight",
          "double_stream_modulation_img.lin.weight", "single_stream_modulation.lin.weight",
          "guidance_in.out_layer.weight", "final_layer.linear.weight",
          "final_layer.adaLN_modulation.1.weight"}) {
        CHECK(transformer_type("Q4_0", outer, {3072, 3072}) == bf16);
        CHECK(transformer_type("F32", outer, {3072, 3072}) == f32);
    }
    CHECK(transformer_type("Q4_0", "single_blocks.7.norm.key_norm.scale", {128}) == f32);
}

TEST_CASE("an outer matrix that came quantised stays as it is") {
    const ExpectedTensor tensor{"txt_in.weight", {7680, 3072}};
    CHECK(choose_type(request("Q4_0"), Part::transformer, tensor, q8_0, {}, true).type == q8_0);
}

TEST_CASE("the mixes give attention of the double blocks the next larger type") {
    const std::string qkv = "double_blocks.3.img_attn.qkv.weight";
    CHECK(transformer_type("Q5_K_M", qkv, {3072, 9216}) == q6_k);
    CHECK(transformer_type("Q4_K_M", qkv, {3072, 9216}) == q5_k);
    CHECK(transformer_type("Q3_K_M", qkv, {3072, 9216}) == q4_k);
    CHECK(transformer_type("Q4_K_S", qkv, {3072, 9216}) == q4_k);
    CHECK(transformer_type("Q4_K_M", "double_blocks.3.img_attn.proj.weight", {3072, 3072}) == q4_k);
    CHECK(transformer_type("Q4_K_M", "single_blocks.3.linear1.weight", {3072, 27648}) == q4_k);
}

TEST_CASE("a text encoder's mix is llama.cpp's") {
    // 36 layers: the first 4, the last 5 (from 31 on), and every third from 6 on.
    const std::set<int> more = {0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 31, 32, 33, 34, 35};
    CHECK(layers_with("Q4_K_M", "ffn_down", q6_k) == more);
    CHECK(layers_with("Q4_K_M", "attn_v", q6_k) == more);
    CHECK(layers_with("Q5_K_M", "ffn_down", q6_k) == more);
    CHECK(layers_with("Q4_K_M", "attn_q", q4_k).size() == 36);
    CHECK(layers_with("Q4_K_S", "attn_v", q5_k) == std::set<int>{0, 1, 2, 3});
    CHECK(layers_with("Q4_K_S", "ffn_down", q5_k) == std::set<int>{0, 1, 2, 3});
    CHECK(layers_with("Q3_K_M", "attn_v", q5_k) == std::set<int>{0, 1});
    CHECK(layers_with("Q3_K_M", "ffn_down", q5_k) == std::set<int>{0, 1});
    CHECK(layers_with("Q3_K_M", "attn_output", q4_k).size() == 36);
    CHECK(layers_with("Q2_K", "attn_v", q4_k).size() == 36);
    CHECK(layers_with("Q2_K", "ffn_down", q3_k).size() == 36);
    CHECK(layers_with("IQ4_XS", "attn_v", q5_k).size() == 36);
    CHECK(layers_with("IQ4_NL", "ffn_down", q5_k) == std::set<int>{0, 1, 2, 3});
}

TEST_CASE("embeddings that double as the output head get its type") {
    CHECK(text_type("Q4_K_M", "token_embd.weight") == q6_k);
    CHECK(text_type("Q4_K_M", "token_embd.weight", {2560, 2560}, /*tied=*/false) == q4_k);
    CHECK(text_type("Q4_K_M", "output.weight", {2560, 2560}, /*tied=*/false) == q6_k);
    CHECK(text_type("Q8_0", "token_embd.weight") == q8_0);
    CHECK(text_type("Q4_K_M", "token_embd.weight", {64, 512}) == q8_0);
    CHECK(text_type("BF16", "token_embd.weight") == bf16);
}

TEST_CASE("convolutions are never stored in blocks") {
    const auto conv = [](const std::string& type) {
        return choose_type(request(type), Part::vae, {"decoder.conv_in.weight", {3, 3, 32, 512}},
                           f32, {}, true)
            .type;
    };
    CHECK(conv("Q4_K_M") == f16);
    CHECK(conv("Q8_0") == f16);
    CHECK(conv("F32") == f32);
    CHECK(conv("BF16") == bf16);
    const ExpectedTensor statistics{"bn.running_var", {128}};
    CHECK(choose_type(request("F16"), Part::vae, statistics, f32, {}, true).type == f32);
}

TEST_CASE("rows that do not fit fall back and say what was wanted") {
    const auto choice = [](const std::string& type, int64_t row) {
        return choose_type(request(type), Part::transformer,
                           {"single_blocks.0.linear1.weight", {row, 64}}, bf16, {}, true);
    };
    const std::pair<const char*, TensorType> expected[] = {{"Q2_K", q4_0},   {"Q3_K_S", q4_0},
                                                           {"Q4_K_S", q5_0}, {"Q5_K_S", q5_1},
                                                           {"Q6_K", q8_0},   {"IQ4_XS", iq4_nl}};
    for (const auto& [type, other] : expected) {
        CHECK(choice(type, 96).type == other);
        CHECK(choice(type, 96).wanted == parse_file_type(type).base);
        CHECK(choice(type, 512).wanted == std::nullopt);
        CHECK(choice(type, 40).type == bf16);
    }
    CHECK(choice("Q8_0", 40).type == bf16);
}

TEST_CASE("the first matching override wins") {
    const TypeRequest types =
        request("Q4_0", {"txt_in=Q8_0", "double_blocks\\.[01]\\.=q6_k", "double_blocks=Q4_K"});
    const auto type_of = [&](const std::string& name) {
        return choose_type(types, Part::transformer, {name, {3072, 3072}}, bf16, {}, true).type;
    };
    CHECK(type_of("txt_in.weight") == q8_0);
    CHECK(type_of("double_blocks.1.img_mlp.0.weight") == q6_k);
    CHECK(type_of("double_blocks.2.img_mlp.0.weight") == q4_k);
    CHECK(type_of("single_blocks.2.linear1.weight") == q4_0);
    for (const char* bad : {"txt_in", "=Q8_0", "txt_in=Q99", "(=Q8_0"}) {
        CHECK(test::error_of([&] { parse_type_override(bad); }).kind == ErrorKind::bad_argument);
    }
}

}  // namespace
}  // namespace flux2::convert
