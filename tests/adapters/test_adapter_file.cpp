// LoRA files of every dialect and kind, written here after the trainers' own code, and what is
// wrong with some of them.
#include "adapters/adapter_file.hpp"
#include "formats/gguf_writer.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace flux2 {
namespace {

using test::Bytes;
using test::TemporaryFolder;
using test::TestTensor;
using Tensors = std::vector<TestTensor>;
using Kind = AdapterKind;
using Role = AdapterRole;

// A tensor with a shape in PyTorch's order, as the formulas have it.
TestTensor tensor(const std::string& name, std::vector<int64_t> shape, float first = 1) {
    std::reverse(shape.begin(), shape.end());
    return test::counting_tensor(name, shape, first);
}

TestTensor zeros(const std::string& name, const std::vector<int64_t>& shape) {
    TestTensor result = tensor(name, shape);
    std::fill(result.data.begin(), result.data.end(), std::byte{0});
    return result;
}

TestTensor number(const std::string& name, float value) {
    return tensor(name, {}, value);
}

// A LoRA for 12 outputs and 8 inputs, of rank 2.
Tensors pair(const std::string& stem, const std::string& down = ".lora_A.weight",
             const std::string& up = ".lora_B.weight") {
    return {tensor(stem + down, {2, 8}), tensor(stem + up, {12, 2})};
}

Tensors joined(Tensors first, const Tensors& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
}

AdapterFile write_and_open(const TemporaryFolder& folder, const Tensors& tensors,
                           std::string_view metadata) {
    test::write_file(folder / "x.safetensors", test::safetensors_of(tensors, metadata));
    return AdapterFile::open(folder / "x.safetensors");
}

// A file of these tensors, opened.
struct Opened {
    TemporaryFolder folder;
    AdapterFile file;

    explicit Opened(const Tensors& tensors, std::string_view metadata = {})
        : file(write_and_open(folder, tensors, metadata)) {}

    const AdapterModule& only() const {
        REQUIRE(file.modules().size() == 1);
        return file.modules().front();
    }
    // The reason why a key is not used; empty when it is.
    std::string reason(const std::string& key) const {
        for (const UnusedKey& unused : file.unused()) {
            if (unused.key == key) {
                return unused.reason;
            }
        }
        return {};
    }
};

test::CaughtError error_of(const Tensors& tensors, std::string_view metadata = {}) {
    const auto error = test::error_of([&] { Opened(tensors, metadata); });
    CHECK(error.mentions("x.safetensors: "));
    CHECK(error.message.find('\n') == std::string::npos);
    return error;
}

const std::string kStem = "diffusion_model.double_blocks.0.img_attn.qkv";

// ---- Dialects ----

TEST_CASE("the dialects of all trainers are read") {
    struct Dialect {
        std::string stem, down, up, name, tensor;
        int share = 0, n_shares = 1;
    };
    const std::string qkv = "double_blocks.0.img_attn.qkv.weight";
    for (const Dialect& d :
         {// musubi-tuner, OneTrainer KOHYA
          Dialect{"lora_unet_double_blocks_0_img_attn_qkv", ".lora_down.weight", ".lora_up.weight",
                  "kohya", qkv},
          // ai-toolkit
          Dialect{"diffusion_model.double_blocks.0.img_attn.qkv", ".lora_A.weight",
                  ".lora_B.weight", "ComfyUI", qkv},
          // diffusers' scripts, SimpleTuner, mflux
          Dialect{"transformer.transformer_blocks.0.attn.to_k", ".lora_A.weight", ".lora_B.weight",
                  "diffusers", qkv, 1, 3},
          Dialect{"transformer.single_transformer_blocks.0.attn.to_qkv_mlp_proj", ".lora_A.weight",
                  ".lora_B.weight", "diffusers", "single_blocks.0.linear1.weight"},
          // peft on the original class
          Dialect{"base_model.model.double_blocks.0.img_attn.qkv", ".lora_A.weight",
                  ".lora_B.weight", "peft", qkv},
          // DiffSynth-Studio
          Dialect{"transformer_blocks.0.attn.to_q", ".lora_A.default.weight",
                  ".lora_B.default.weight", "diffusers", qkv, 0, 3},
          Dialect{"pipe.dit.transformer_blocks.0.attn.to_v", ".lora_A.default.weight",
                  ".lora_B.default.weight", "diffusers", qkv, 2, 3},
          // OneTrainer ORIGINAL, LEGACY and its mixture
          Dialect{"double_blocks.0.img_attn.qkv", ".lora_down.weight", ".lora_up.weight",
                  "original", qkv},
          Dialect{"transformer.transformer_blocks.0.attn.to_q", ".lora_down.weight",
                  ".lora_up.weight", "diffusers", qkv, 0, 3},
          Dialect{"lora_transformer_transformer_blocks_0_attn_to_q", ".lora_down.weight",
                  ".lora_up.weight", "OneTrainer", qkv, 0, 3},
          // mflux's reader
          Dialect{"lora_unet_transformer_blocks_0_attn_to_q", ".lora_down.weight",
                  ".lora_up.weight", "kohya", qkv, 0, 3},
          // musubi-tuner's wrong conversion
          Dialect{"diffusion_model.double_blocks.0.img_attn_qkv", ".lora_A.weight",
                  ".lora_B.weight", "ComfyUI", qkv}}) {
        CAPTURE(d.stem);
        const Opened opened(pair(d.stem, d.down, d.up));
        const AdapterModule& module = opened.only();
        CHECK(module.part == Part::transformer);
        CHECK(module.tensor == d.tensor);
        CHECK(module.stem == d.stem);
        CHECK(module.kind == Kind::lora);
        CHECK(module.share == d.share);
        CHECK(module.n_shares == d.n_shares);
        CHECK(module.rank == 2);
        CHECK(module.n_out == 12);
        CHECK(module.n_in == 8);
        CHECK(module.factor == 1);
        CHECK(module.find(Role::down)->name == d.stem + d.down);
        CHECK(opened.file.dialect() == d.name);
        CHECK(opened.file.kinds() == "LoRA");
        CHECK(opened.file.ranks() == "2");
        CHECK(opened.file.unused().empty());
        CHECK(opened.file.made_for() == "unknown");
        CHECK(is_adapter(opened.file.source()));
    }
}

TEST_CASE("LyCORIS names of diffusers' modules are read") {
    const Opened opened({tensor("lycoris_transformer_blocks_0_ff_linear_in.lokr_w1", {2, 4}),
                         tensor("lycoris_transformer_blocks_0_ff_linear_in.lokr_w2", {3, 5})});
    CHECK(opened.only().tensor == "double_blocks.0.img_mlp.0.weight");
    CHECK(opened.file.dialect() == "LyCORIS");
}

TEST_CASE("partial sets of q, k and v are as good as whole ones") {
    const std::string attn = "transformer.transformer_blocks.0.attn.";
    const Opened opened(joined(pair(attn + "to_q"), pair(attn + "to_v")));
    REQUIRE(opened.file.modules().size() == 2);
    CHECK(opened.file.modules()[0].share == 0);
    CHECK(opened.file.modules()[1].share == 2);
    CHECK(opened.file.unused().empty());
}

TEST_CASE("beside a fused projection its untrained shares have no effect") {
    const std::string attn = "transformer.transformer_blocks.0.attn.";
    Tensors tensors = pair(attn + "to_q");
    tensors[1] = zeros(attn + "to_q.lora_B.weight", {12, 2});
    const Opened opened(joined(tensors, pair(attn + "to_qkv")));
    CHECK(opened.only().n_shares == 1);
    CHECK(opened.only().stem == attn + "to_qkv");
    CHECK(opened.reason(attn + "to_q.lora_A.weight") == attn + "to_qkv is for the same rows");
    CHECK(opened.file.unused().size() == 2);
}

TEST_CASE("two spellings of one module in a file: the first counts") {
    const Opened opened(
        joined(pair("double_blocks.0.img_mlp.0"), pair("transformer_blocks.0.ff.linear_in")));
    CHECK(opened.only().stem == "double_blocks.0.img_mlp.0");
    CHECK(opened.reason("transformer_blocks.0.ff.linear_in.lora_A.weight") ==
          "double_blocks.0.img_mlp.0 is for the same rows");
}

TEST_CASE("the rows of diffusers' last modulation are swapped") {
    const Opened opened(pair("transformer.norm_out.linear"));
    CHECK(opened.only().swap_halves);
    CHECK_FALSE(Opened(pair("final_layer.adaLN_modulation.1")).only().swap_halves);
    const auto odd = error_of({tensor("norm_out.linear.diff", {3, 8})});
    CHECK(odd.mentions("norm_out.linear has 3 outputs, an even number is expected"));
}

TEST_CASE("LoRAs of the text encoder are for its tensors") {
    const Opened opened(joined(
        pair("text_encoder.model.layers.0.self_attn.q_proj"),
        pair("lora_te_model_layers_1_mlp_down_proj", ".lora_down.weight", ".lora_up.weight")));
    REQUIRE(opened.file.modules().size() == 2);
    CHECK(opened.file.modules()[0].part == Part::text_encoder);
    CHECK(opened.file.modules()[0].tensor == "blk.0.attn_q.weight");
    CHECK(opened.file.modules()[1].tensor == "blk.1.ffn_down.weight");
}

// As llama.cpp's convert_lora_to_gguf.py writes it.
void write_gguf_lora(const std::filesystem::path& path, float alpha, const Tensors& tensors) {
    Metadata metadata;
    metadata.set("general.architecture", std::string("qwen3"));
    metadata.set("general.type", std::string("adapter"));
    metadata.set("adapter.type", std::string("lora"));
    metadata.set("adapter.lora.alpha", alpha);
    std::vector<GgufTensor> entries;
    for (const TestTensor& t : tensors) {
        Shape shape;
        shape.n_dims = static_cast<int>(t.shape.size());
        std::copy(t.shape.begin(), t.shape.end(), shape.ne.begin());
        entries.push_back({t.name, t.type, shape});
    }
    GgufWriter writer(path, metadata, entries);
    for (size_t i = 0; i < tensors.size(); ++i) {
        writer.write(i, 0, tensors[i].data);
    }
    writer.finish(metadata);
}

TEST_CASE("GGUF adapters of llama.cpp are read, and the same suffixes on the transformer's names") {
    const TemporaryFolder folder;
    for (const std::string stem : {"blk.0.attn_q.weight", "double_blocks.0.img_attn.qkv.weight"}) {
        write_gguf_lora(folder / "x.gguf", 8, pair(stem, ".lora_a", ".lora_b"));
        const AdapterFile file = AdapterFile::open(folder / "x.gguf");
        REQUIRE(file.modules().size() == 1);
        CHECK(file.modules()[0].tensor == stem);
        CHECK(file.modules()[0].factor == 4);
        CHECK(file.modules()[0].n_in == 8);
        CHECK(is_adapter(file.source()));
    }
    // llama.cpp takes 0 for none.
    write_gguf_lora(folder / "x.gguf", 0, pair("blk.0.attn_q.weight", ".lora_a", ".lora_b"));
    CHECK(AdapterFile::open(folder / "x.gguf").modules()[0].factor == 1);
    write_gguf_lora(folder / "x.gguf", std::numeric_limits<float>::quiet_NaN(),
                    pair("blk.0.attn_q.weight", ".lora_a", ".lora_b"));
    CHECK(test::error_of([&] {
              AdapterFile::open(folder / "x.gguf");
          }).mentions("adapter.lora.alpha is nan"));
}

// ---- Kinds ----

TEST_CASE("a LoHa has four matrices") {
    const Opened opened({tensor(kStem + ".hada_w1_a", {12, 2}),
                         tensor(kStem + ".hada_w1_b", {2, 8}),
                         tensor(kStem + ".hada_w2_a", {12, 2}),
                         tensor(kStem + ".hada_w2_b", {2, 8}), number(kStem + ".alpha", 1)});
    CHECK(opened.only().kind == Kind::loha);
    CHECK(opened.only().rank == 2);
    CHECK(opened.only().n_out == 12);
    CHECK(opened.only().n_in == 8);
    CHECK(opened.only().factor == 0.5);
    CHECK(opened.file.kinds() == "LoHa");
}

TEST_CASE("the alpha of a LoKr counts only where a factor is split") {
    const TestTensor w1 = tensor(kStem + ".lokr_w1", {3, 2});
    const TestTensor w2 = tensor(kStem + ".lokr_w2", {4, 4});
    const Tensors split_w1 = {tensor(kStem + ".lokr_w1_a", {3, 8}),
                              tensor(kStem + ".lokr_w1_b", {8, 2})};
    const Tensors split_w2 = {tensor(kStem + ".lokr_w2_a", {4, 2}),
                              tensor(kStem + ".lokr_w2_b", {2, 4})};
    struct Case {
        Tensors tensors;
        int64_t rank;
        double factor;
    };
    for (const Case& c :
         {Case{{w1, w2}, 0, 1}, Case{joined({w1}, split_w2), 2, 2},
          Case{joined(split_w1, {w2}), 8, 0.5}, Case{joined(split_w1, split_w2), 2, 2}}) {
        const Opened opened(joined(c.tensors, {number(kStem + ".alpha", 4)}));
        CHECK(opened.only().kind == Kind::lokr);
        CHECK(opened.only().n_out == 12);
        CHECK(opened.only().n_in == 8);
        CHECK(opened.only().rank == c.rank);
        CHECK(opened.only().factor == c.factor);
        CHECK(opened.file.ranks() == (c.rank == 0 ? "" : std::to_string(c.rank)));
    }
    // ai-toolkit's alpha of full LoKrs, which is infinite in F16.
    const TestTensor huge = number(kStem + ".alpha", 9999999999.0f);
    const TestTensor infinite = {
        kStem + ".alpha", {}, test::bytes_of(std::vector<uint16_t>{0x7c00}), TensorType::f16};
    for (const TestTensor& alpha : {huge, infinite}) {
        CHECK(Opened({w1, w2, alpha}).only().factor == 1);
    }
}

TEST_CASE("a magnitude is per row or per column") {
    for (const auto& [suffix, shape] :
         {std::pair<std::string, std::vector<int64_t>>{".dora_scale", {12, 1}},
          {".dora_scale", {1, 8}},
          {".lora_magnitude_vector", {12}},
          {".lora_magnitude_vector.weight", {12}},
          {".lora_magnitude_vector.default.weight", {12}},
          {".magnitude", {12}}}) {
        CAPTURE(suffix);
        const Opened opened(joined(pair(kStem), {tensor(kStem + suffix, shape)}));
        CHECK(opened.only().has(Role::magnitude));
        CHECK(opened.file.kinds() == "LoRA (DoRA)");
        CHECK(opened.file.unused().empty());
    }
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{8}, {8, 1}, {1, 12}, {11}, {12, 8}}) {
        const auto error = error_of(joined(pair(kStem), {tensor(kStem + ".dora_scale", shape)}));
        CHECK(error.kind == ErrorKind::bad_file);
        CHECK(error.mentions("dora_scale has the shape"));
        CHECK(error.mentions("the module has 12 outputs and 8 inputs"));
    }
}

TEST_CASE("differences, replaced weights and norms are read") {
    const Opened opened({tensor("diffusion_model.double_blocks.0.img_mlp.0.diff", {6, 4}),
                         tensor("diffusion_model.single_blocks.0.linear2.set_weight", {4, 6}),
                         tensor("diffusion_model.single_blocks.0.norm.query_norm.diff", {5}),
                         tensor("transformer.transformer_blocks.0.attn.norm_k.w_norm", {5})});
    REQUIRE(opened.file.modules().size() == 4);
    CHECK(opened.file.kinds() == "diff, set_weight");
    CHECK(opened.file.ranks() == "");
    CHECK(opened.file.modules()[0].n_out == 6);
    CHECK(opened.file.modules()[0].n_in == 4);
    CHECK(opened.file.modules()[2].tensor == "single_blocks.0.norm.query_norm.scale");
    CHECK(opened.file.modules()[2].n_out == 5);
    CHECK(opened.file.modules()[2].n_in == 1);
    CHECK(opened.file.modules()[3].tensor == "double_blocks.0.img_attn.norm.key_norm.scale");
    CHECK(error_of({tensor("single_blocks.0.norm.query_norm.diff", {5, 2})})
              .mentions("a vector is expected for a norm"));
    CHECK(error_of(pair("single_blocks.0.norm.query_norm")).mentions("LoRA cannot change a norm"));
}

TEST_CASE("OFT, BOFT and OFTv2 are told apart") {
    const Opened oft({tensor(kStem + ".oft_blocks", {3, 4, 4}), number(kStem + ".alpha", 0.5f),
                      tensor(kStem + ".rescale", {12, 1})});
    CHECK(oft.only().kind == Kind::oft);
    CHECK(oft.only().n_out == 12);
    CHECK(oft.only().n_in == 0);
    CHECK(oft.only().constraint == 0.5);
    CHECK(oft.only().has(Role::rescale));
    const Opened boft({tensor(kStem + ".oft_blocks", {2, 4, 2, 2}), number(kStem + ".alpha", 0)});
    CHECK(boft.only().kind == Kind::boft);
    CHECK(boft.only().n_out == 8);
    CHECK(boft.only().constraint == 0);
    const Opened v2(
        {tensor(kStem + ".oft_R.weight", {2, 6}), zeros(kStem + ".oft_R.scaled_oft", {})});
    CHECK(v2.only().kind == Kind::oft_v2);
    CHECK(v2.only().n_in == 8);
    CHECK(v2.only().n_out == 0);
    CHECK(v2.only().has(Role::scaled_oft));
    CHECK(error_of({tensor(kStem + ".oft_blocks", {3, 4, 5})}).mentions("square ones"));
    CHECK(error_of({tensor(kStem + ".oft_blocks", {3, 3, 4, 4})}).mentions("do not fit together"));
    CHECK(error_of({tensor(kStem + ".oft_R.weight", {2, 7})}).mentions("upper triangle"));
    CHECK(error_of({tensor(kStem + ".oft_blocks", {3, 4, 4}), tensor(kStem + ".rescale", {11, 1})})
              .mentions("outputs"));
}

TEST_CASE("a GLoRA has its newer or its older layout") {
    const auto glora = [](std::vector<int64_t> a1, std::vector<int64_t> a2, std::vector<int64_t> b1,
                          std::vector<int64_t> b2) {
        return Tensors{tensor(kStem + ".a1.weight", a1), tensor(kStem + ".a2.weight", a2),
                       tensor(kStem + ".b1.weight", b1), tensor(kStem + ".b2.weight", b2),
                       number(kStem + ".alpha", 1)};
    };
    for (const Tensors& tensors :
         {glora({8, 2}, {2, 8}, {12, 2}, {2, 8}), glora({2, 8}, {8, 2}, {2, 8}, {12, 2})}) {
        const Opened opened(tensors);
        CHECK(opened.only().kind == Kind::glora);
        CHECK(opened.only().n_out == 12);
        CHECK(opened.only().n_in == 8);
        CHECK(opened.only().rank == 2);
        CHECK(opened.only().factor == 0.5);
    }
    CHECK(error_of(glora({8, 2}, {2, 8}, {12, 2}, {2, 9})).mentions("do not belong together"));
}

// ---- Alpha ----

double factor_of(const Tensors& tensors, std::string_view metadata = {}) {
    return Opened(tensors, metadata).only().factor;
}

TEST_CASE("alpha comes from its tensor, else the metadata, else is the rank") {
    const std::string stem = "transformer.transformer_blocks.0.attn.to_q";
    const Tensors plain = pair(stem);
    CHECK(factor_of(plain) == 1);
    CHECK(factor_of(joined(plain, {number(stem + ".alpha", 3)})) == 1.5);
    CHECK(factor_of(joined(plain, {tensor(stem + ".lora_alpha", {1}, 3)})) == 1.5);
    CHECK(factor_of(joined(plain, {number(stem + ".alpha", -3)})) == -1.5);
    // musubi-tuner takes 0 for the rank.
    CHECK(factor_of(joined(plain, {number(stem + ".alpha", 0)})) == 1);
    // sd.cpp's final factor.
    CHECK(factor_of(joined(plain, {number(stem + ".scale", 0.25f), number(stem + ".alpha", 3)})) ==
          0.25);
    const auto metadata = [](const std::string& json) {
        std::string escaped;
        for (const char c : json) {
            escaped += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
        }
        return "{\"lora_adapter_metadata\":\"" + escaped + "\"}";
    };
    const std::string three = metadata(R"({"transformer.lora_alpha":3,"transformer.r":2})");
    CHECK(factor_of(plain, three) == 1.5);
    CHECK(factor_of(joined(plain, {number(stem + ".alpha", 1)}), three) == 0.5);
    CHECK(factor_of(pair("text_encoder.model.layers.0.self_attn.q_proj"), three) == 1);
    CHECK(factor_of(plain,
                    metadata(R"({"transformer.lora_alpha":3,"transformer.use_rslora":true})")) ==
          doctest::Approx(3 / std::sqrt(2)));
    CHECK(factor_of(plain, metadata(R"({"transformer.lora_alpha":3,"transformer.alpha_pattern":)"
                                    R"({"transformer_blocks.0.attn.to_q":8,"to_k":9}})")) == 4);
    CHECK(factor_of(plain, metadata(R"({"transformer.lora_alpha":3,"transformer.alpha_pattern":)"
                                    R"({"^o_q":8,"blocks.0.attn.to_q":8}})")) == 1.5);
    for (const auto& [json, words] :
         {std::pair{"[1]", "no valid JSON object"},
          {"{", "no valid JSON object"},
          {R"({"transformer.lora_alpha":"x"})", "transformer.lora_alpha has an unexpected value"},
          {R"({"transformer.alpha_pattern":3})", "transformer.alpha_pattern is not an object"}}) {
        const auto error = error_of(plain, metadata(json));
        CHECK(error.kind == ErrorKind::bad_file);
        CHECK(error.mentions("lora_adapter_metadata"));
        CHECK(error.mentions(words));
    }
}

TEST_CASE("adapter_config.json beside the file gives alpha, if it is for this rank") {
    const TemporaryFolder folder;
    const std::string stem = "base_model.model.double_blocks.0.img_attn.qkv";
    test::write_file(folder / "adapter_model.safetensors", test::safetensors_of(pair(stem)));
    const auto factor = [&](std::string_view config) {
        test::write_file(folder / "adapter_config.json", config);
        return AdapterFile::open(folder / "adapter_model.safetensors").modules()[0].factor;
    };
    CHECK(factor(R"({"peft_type":"LORA","lora_alpha":8,"r":2})") == 4);
    CHECK(factor(R"({"lora_alpha":8,"r":2,"use_rslora":true})") ==
          doctest::Approx(8 / std::sqrt(2)));
    CHECK(factor(R"({"lora_alpha":8,"r":16})") == 1);
    CHECK(factor(R"({"lora_alpha":8,"r":16,"rank_pattern":{"img_attn.qkv":2}})") == 4);
    CHECK(factor(R"({"peft_type":"OFT","lora_alpha":8,"r":2})") == 1);
    CHECK(AdapterFile::open(folder.path()).modules().size() == 1);
    CHECK(test::error_of([&] { factor("{"); }).mentions("adapter_config.json"));
}

TEST_CASE("an alpha that is no finite number is refused") {
    for (const float value :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        for (const char* suffix : {".alpha", ".scale"}) {
            const auto error = error_of(joined(pair(kStem), {number(kStem + suffix, value)}));
            CHECK(error.kind == ErrorKind::bad_file);
            CHECK(error.mentions(kStem + suffix));
            CHECK(error.mentions("a finite number is expected"));
        }
    }
    const TestTensor blocks = tensor(kStem + ".oft_blocks", {3, 4, 4});
    CHECK(error_of({blocks, number(kStem + ".alpha", std::numeric_limits<float>::quiet_NaN())})
              .mentions("a number is expected"));
    CHECK(error_of(joined(pair(kStem), {tensor(kStem + ".alpha", {2})}))
              .mentions("a single number is expected"));
    const Opened whole(
        joined(pair(kStem),
               {{kStem + ".alpha", {}, test::bytes_of(std::vector<int64_t>{4}), TensorType::i64}}));
    CHECK(whole.only().factor == 2);
}

// ---- Keys that are not used ----

TEST_CASE("every key that has no effect is listed with the reason") {
    const std::string other = "diffusion_model.double_blocks.0.img_mlp.0";
    const std::string third = "diffusion_model.double_blocks.0.img_mlp.2";
    const Opened opened(
        joined(pair(kStem),
               {tensor(kStem + ".diff_b", {12}), zeros(other + ".lora_B.bias", {12}),
                tensor(kStem + ".lora_down.weight", {2, 8}), tensor(kStem + ".diff", {12, 8}),
                tensor(kStem + ".rescale", {12, 1}), tensor(other + ".lora_down.weight", {2, 8}),
                tensor(other + ".alpha", {}), tensor(third + ".lora_up.0.weight", {2, 8}),
                tensor(third + ".alpha", {}), tensor("diffusion_model.strange.lora_A.weight", {1}),
                tensor("something", {1})}));
    CHECK(opened.file.modules().size() == 1);
    CHECK(opened.reason(kStem + ".diff_b") == "it changes a bias, and FLUX.2 has none");
    CHECK(opened.reason(other + ".lora_B.bias") == "");
    CHECK(opened.reason(kStem + ".lora_down.weight") == "its module has another lora_down too");
    CHECK(opened.reason(kStem + ".diff") == "its module is a LoRA, which has no diff");
    CHECK(opened.reason(kStem + ".rescale") == "its module is a LoRA, which has no rescale");
    CHECK(opened.reason(other + ".lora_down.weight") == "its pair lora_up is missing");
    CHECK(opened.reason(other + ".alpha") == "its pair lora_up is missing");
    CHECK(opened.reason(third + ".lora_up.0.weight").find("split_dims") != std::string::npos);
    CHECK(opened.reason(third + ".alpha") == "nothing else of its module is there");
    CHECK(opened.reason("diffusion_model.strange.lora_A.weight") ==
          "no part of FLUX.2 has such a module");
    CHECK(opened.reason("something") == "no kind of adapter that is known has such a key");
    CHECK(opened.file.unused().size() == 10);
}

TEST_CASE("a file of which nothing can be used is refused with a reason") {
    const auto half = error_of({tensor(kStem + ".lora_A.weight", {2, 8})});
    CHECK(half.kind == ErrorKind::bad_file);
    CHECK(half.mentions(kStem + ".lora_A.weight: its pair lora_up is missing"));
    CHECK(error_of({tensor(kStem + ".lokr_w1", {2, 8})}).mentions("its pair lokr_w2 is missing"));
    CHECK(error_of({tensor(kStem + ".lokr_w1", {2, 8}), tensor(kStem + ".lokr_w2_a", {2, 8})})
              .mentions("its pair lokr_w2_b is missing"));
    CHECK(error_of({tensor(kStem + ".hada_w1_a", {2, 8})}).mentions("hada_w1_b is missing"));
    CHECK(error_of({zeros(kStem + ".diff_b", {2})}).mentions("all of its changes are zero"));
    CHECK(error_of(pair("some.layer")).mentions("no part of FLUX.2 has such a module"));
}

// ---- Damage ----

TEST_CASE("tensors of a module that do not belong together are refused by name") {
    const auto ranks = error_of(
        {tensor(kStem + ".lora_A.weight", {4, 8}), tensor(kStem + ".lora_B.weight", {12, 2})});
    CHECK(ranks.kind == ErrorKind::bad_file);
    CHECK(ranks.mentions(kStem + ".lora_B.weight has rank 2, lora_down has 4; they do not belong "
                                 "together"));
    CHECK(error_of({tensor(kStem + ".hada_w1_a", {12, 2}), tensor(kStem + ".hada_w1_b", {2, 8}),
                    tensor(kStem + ".hada_w2_a", {11, 2}), tensor(kStem + ".hada_w2_b", {2, 8})})
              .mentions("has outputs 12, hada_w2_a has 11"));
    CHECK(error_of({tensor(kStem + ".lora_A.weight", {2, 8, 1, 1}),
                    tensor(kStem + ".lora_B.weight", {12, 2, 1, 1})})
              .mentions("a matrix is expected"));
    CHECK(error_of(
              {tensor(kStem + ".lora_A.weight", {0, 8}), tensor(kStem + ".lora_B.weight", {12, 0})})
              .mentions("which no model has"));
    CHECK(error_of({tensor(kStem + ".lora_A.weight", {0, 8}),
                    tensor(kStem + ".lora_B.weight", {int64_t{1} << 40, 0})})
              .mentions("which no model has"));
}

TEST_CASE("a LoRA that was cut off anywhere is refused") {
    const Bytes whole = test::safetensors_of(pair(kStem));
    const TemporaryFolder folder;
    for (size_t n = 0; n < whole.size(); ++n) {
        test::write_file(folder / "x.safetensors", std::span(whole).first(n));
        const auto error = test::error_of([&] { AdapterFile::open(folder / "x.safetensors"); });
        CHECK(error.kind == ErrorKind::bad_file);
    }
    CHECK(test::error_of([&] { AdapterFile::open(folder / "missing.safetensors"); }).kind ==
          ErrorKind::bad_file);
}

TEST_CASE("a file with more keys than any LoRA has is refused") {
    std::string header = "{";
    for (int i = 0; i < 70'000; ++i) {
        header += (i == 0 ? "\"" : ",\"") + std::to_string(i) +
                  ".lora_A\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}";
    }
    const TemporaryFolder folder;
    test::write_file(folder / "x.safetensors", test::safetensors(header + "}"));
    const auto error = test::error_of([&] { AdapterFile::open(folder / "x.safetensors"); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("holds 70000 tensors, a LoRA has some thousands at most"));
}

// ---- Files of another kind or model ----

TEST_CASE("a file that is no LoRA is refused as what it is") {
    const auto refuse = [](const Tensors& tensors, ErrorKind kind, std::string_view words) {
        const auto error = error_of(tensors);
        CAPTURE(error.message);
        CHECK(error.kind == kind);
        CHECK(error.mentions(words));
        const TemporaryFolder folder;
        test::write_file(folder / "x.safetensors", test::safetensors_of(tensors));
        CHECK_FALSE(is_adapter(TensorSource::open(folder / "x.safetensors")));
    };
    refuse(test::wide_transformer(1), ErrorKind::unsupported,
           "is not a LoRA but a whole transformer; give it with `transformer`");
    refuse({tensor("vae.decoder.conv_in.weight", {1}), tensor("vae.bn.running_mean", {1})},
           ErrorKind::unsupported, "give it with `vae`");
    refuse({tensor("double_blocks.0.img_mod.lin.weight", {1})}, ErrorKind::unsupported,
           "is not a LoRA: it is a FLUX.1 transformer (double_blocks.0.img_mod.lin.weight); use a "
           "LoRA for FLUX.2");
    refuse({tensor("some.weight", {1}), tensor("some.alpha", {1})}, ErrorKind::bad_file,
           "is not a LoRA that this program knows (2 tensors, the first is some.weight)");
    refuse({}, ErrorKind::bad_file, "holds no tensors");
}

// Of rank 1, with all values zero, in BF16.
Tensors sized(const std::string& stem, int64_t n_out, int64_t n_in) {
    const auto zero = [](const std::string& name, std::vector<int64_t> shape) {
        const auto n = static_cast<size_t>(shape[0] * shape[1]);
        return TestTensor{name, std::move(shape), Bytes(2 * n), TensorType::bf16};
    };
    return {zero(stem + ".lora_down.weight", {n_in, 1}),
            zero(stem + ".lora_up.weight", {1, n_out})};
}

TEST_CASE("a LoRA for FLUX.1 is refused, with what shows it") {
    struct Case {
        std::string stem;
        int64_t n_out, n_in;
        std::string words;
    };
    for (const Case& c :
         {Case{"lora_unet_double_blocks_0_img_mlp_0", 12288, 3072,
               "its img_mlp.0 is 12288 wide, klein 4B's 18432"},
          Case{"lora_unet_double_blocks_0_txt_mlp_2", 3072, 12288,
               "its txt_mlp.2 takes 12288 inputs, klein 4B's 9216"},
          Case{"transformer.transformer_blocks.3.ff.net.0.proj", 12288, 3072,
               "its img_mlp.0 is 12288 wide, klein 4B's 18432"},
          Case{"lora_unet_single_blocks_0_linear1", 21504, 3072,
               "its linear1 is 21504 wide, klein 4B's 27648"},
          Case{"lora_unet_single_blocks_0_linear2", 3072, 15360,
               "its linear2 takes 15360 inputs, klein 4B's 12288"},
          Case{"txt_in", 3072, 4096, "its txt_in takes 4096 inputs, klein 4B's 7680"},
          Case{"lora_unet_double_blocks_18_img_attn_qkv", 9216, 3072,
               "it is for double_blocks.18.img_attn.qkv.weight, which klein 4B, the model of this "
               "width, lacks"},
          Case{"transformer.transformer_blocks.5.attn.to_q", 3072, 3072,
               "it is for double_blocks.5.img_attn.qkv.weight"}}) {
        const auto error = error_of(sized(c.stem, c.n_out, c.n_in));
        CAPTURE(error.message);
        CHECK(error.kind == ErrorKind::unsupported);
        CHECK(error.mentions("x.safetensors: made for FLUX.1: " + c.words));
        CHECK(error.mentions("; use a LoRA for FLUX.2"));
    }
    // By a name alone, also where the rest could be klein 4B's.
    const std::string mod = "lora_unet_double_blocks_0_img_mod_lin";
    const auto by_name = error_of(joined(
        sized("lora_unet_double_blocks_0_img_attn_qkv", 9216, 3072), sized(mod, 18432, 3072)));
    CHECK(by_name.kind == ErrorKind::unsupported);
    CHECK(by_name.mentions("made for FLUX.1: it is for " + mod));
}

TEST_CASE("the model is told by the shapes") {
    struct Case {
        std::string stem;
        int64_t n_out, n_in;
        std::string made_for;
    };
    for (const Case& c :
         {Case{"double_blocks.4.img_mlp.0", 18432, 3072, "FLUX.2 klein 4B"},
          Case{"single_blocks.19.linear1", 27648, 3072, "FLUX.2 klein 4B"},
          Case{"transformer.transformer_blocks.4.attn.to_q", 3072, 3072,
               "FLUX.2 klein 4B (assumed: the same modules of FLUX.1 are as large)"},
          Case{"single_blocks.23.linear2", 4096, 16384, "FLUX.2 klein 9B"},
          Case{"double_blocks.7.img_attn.qkv", 12288, 4096, "FLUX.2 klein 9B"},
          Case{"single_blocks.47.linear1", 55296, 6144, "FLUX.2 dev"},
          Case{"guidance_in.out_layer", 6144, 6144, "FLUX.2 dev"},
          Case{"single_blocks.48.linear1", 55296, 6144, "unknown"},
          Case{"single_blocks.0.linear1", 2304, 256, "unknown"},
          Case{"lora_te_model_layers_0_mlp_gate_proj", 9728, 2560, "FLUX.2 klein 4B"},
          Case{"lora_te_model_layers_0_self_attn_q_proj", 16, 16, "unknown"}}) {
        CAPTURE(c.stem);
        CHECK(Opened(sized(c.stem, c.n_out, c.n_in)).file.made_for() == c.made_for);
    }
    // What two models have in common does not tell.
    CHECK(Opened({tensor("single_blocks.0.norm.key_norm.diff", {128})}).file.made_for() ==
          "unknown");
    const std::string ff = "lycoris_transformer_blocks_0_ff_linear_in";
    CHECK(Opened({tensor(ff + ".lokr_w1", {128, 48}), tensor(ff + ".lokr_w2", {144, 64})})
              .file.made_for() == "FLUX.2 klein 4B");
}

TEST_CASE("LoRAs of other models are refused by the model's name") {
    for (const auto& [stem, model] :
         {std::pair{"lora_unet_input_blocks_4_1_transformer_blocks_0_attn1_to_q", "SDXL"},
          {"lora_unet_down_blocks_0_attentions_0_proj_in", "Stable Diffusion"},
          {"transformer.transformer_blocks.0.img_mlp.net.0.proj", "Qwen-Image"},
          {"diffusion_model.layers.0.attention.to_q", "Z-Image"},
          {"diffusion_model.blocks.0.cross_attn.k", "Wan"}}) {
        const auto error = error_of(pair(stem));
        CHECK(error.kind == ErrorKind::unsupported);
        CHECK(error.mentions("made for "));
        CHECK(error.mentions(model));
    }
    // Qwen-Image has names in common with diffusers' FLUX.2.
    const auto qwen = error_of(
        joined(pair("transformer_blocks.59.attn.to_q"), pair("transformer_blocks.59.img_mod.1")));
    CHECK(qwen.mentions("Qwen-Image"));
}

// ---- Metadata ----

using Facts = std::vector<std::pair<std::string, std::string>>;

TEST_CASE("metadata worth showing are facts, in single lines") {
    const Opened musubi(pair(kStem), R"({"ss_base_model_version":"flux_2_klein_4b",)"
                                     R"("ss_output_name":"ink","ss_steps":"1600","ss_epoch":"16",)"
                                     R"("ss_network_module":"networks.lora_flux_2",)"
                                     R"("ss_training_comment":"None"})");
    CHECK(musubi.file.facts() == Facts{{"title", "ink"},
                                       {"trained on", "flux_2_klein_4b"},
                                       {"steps", "1600"},
                                       {"epochs", "16"},
                                       {"trainer", "networks.lora_flux_2"}});
    const Opened toolkit(
        pair(kStem),
        R"({"ss_base_model_version":"flux2_klein_4b","name":"ink",)"
        R"("ss_tag_frequency":"{\"1_a\":{\"1nk\":7,\"rare\":1},\"b\":{\"1nk\":2}}",)"
        R"("training_info":"{\"step\":2000,\"epoch\":3}","software":"{\"name\":\"ai-toolkit\"}"})");
    CHECK(toolkit.file.facts() == Facts{{"title", "ink"},
                                        {"trigger words", "1nk, rare"},
                                        {"trained on", "flux2_klein_4b"},
                                        {"steps", "2000"},
                                        {"epochs", "3"},
                                        {"trainer", "ai-toolkit"}});
    const Opened odd(pair(kStem), R"({"modelspec.title":"a\u001b[31m\nb",)"
                                  R"("ss_tag_frequency":"[[[","software":"[3]",)"
                                  R"("training_info":"{\"step\":{}}","ss_steps":" "})");
    CHECK(odd.file.facts() == Facts{{"title", "a [31m b"}});
    const Opened long_text(pair(kStem),
                           "{\"modelspec.description\":\"" + std::string(5000, 'x') + "\"}");
    CHECK(long_text.file.facts() == Facts{{"description", std::string(200, 'x') + "..."}});
    CHECK(Opened(pair(kStem)).file.facts().empty());
}

TEST_CASE("whether it was trained on a base model is told where the metadata name one") {
    const auto on_base = [](std::string_view metadata) {
        return Opened(pair(kStem), metadata).file.trained_on_base();
    };
    CHECK_FALSE(on_base("").has_value());
    CHECK_FALSE(on_base(R"({"ss_base_model_version":"flux2_klein_4b"})").has_value());
    CHECK_FALSE(on_base(R"({"modelspec.architecture":"Flux.2-klein-4b/lora"})").has_value());
    CHECK_FALSE(on_base(R"({"ss_sd_model_name":"flux2-dev.safetensors"})").has_value());
    CHECK(on_base(R"({"ss_sd_model_name":"flux-2-klein-base-4b.safetensors"})") == true);
    CHECK(on_base(R"({"ss_base_model_version":"flux2_klein_base_4b"})") == true);
    CHECK(on_base(R"({"base_model":"black-forest-labs/FLUX.2-klein-base-9B"})") == true);
    CHECK(on_base(R"({"ss_sd_model_name":"flux-2-klein-4b.safetensors"})") == false);
    CHECK(on_base(R"({"model":"flux2-klein-9b"})") == false);
}

}  // namespace
}  // namespace flux2
