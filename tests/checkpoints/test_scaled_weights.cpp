// Tensors with separate scales, scheme by scheme: codes and scales are chosen here, and so are the
// values they stand for, by the formulas of the formats.
#include "checkpoints/checkpoint.hpp"
#include "support/scaled_files.hpp"

#include <doctest/doctest.h>

#include <cmath>

namespace flux2 {
namespace {

using test::Bytes;
using test::TestTensor;
using Tensors = std::vector<TestTensor>;

constexpr const char* kLayer = "single_blocks.0.linear2";
const std::string kWeight = std::string(kLayer) + ".weight";

// All different, without the NaNs of both FP8 types.
Bytes some_codes(int64_t n) {
    Bytes codes;
    uint32_t state = 1;
    for (int64_t i = 0; i < n; ++i) {
        state = state * 1664525 + 1013904223;
        const uint32_t code = state >> 24;
        codes.push_back(static_cast<std::byte>((code & 0x7c) == 0x7c ? code & 0x83 : code));
    }
    return codes;
}

TestTensor coded(TensorType type, int64_t in, int64_t out) {
    return {kWeight, {in, out}, some_codes(in * out), type};
}

// Scales 0.5, 0.625, 0.75, ... which F32, BF16 and F16 hold.
TestTensor scales_of(const std::string& suffix, const std::vector<int64_t>& shape) {
    TestTensor tensor = test::counting_tensor(kLayer + suffix, shape);
    std::vector<float> values = test::floats_of(tensor);
    for (float& value : values) {
        value = 0.5f + value / 8;
    }
    tensor.data = test::bytes_of(values);
    return tensor;
}

double scale(int64_t index) {
    return 0.5 + static_cast<double>(index) / 8;
}

TestTensor description(const std::string& json) {
    return {std::string(kLayer) + ".comfy_quant",
            {static_cast<int64_t>(json.size())},
            test::bytes_of(json),
            TensorType::u8};
}

// A transformer with original names and these additional tensors.
Checkpoint open(Tensors tensors, std::string_view metadata = {}) {
    tensors.push_back(test::counting_tensor("double_stream_modulation_img.lin.weight", {1}));
    const test::TemporaryFolder folder;
    test::write_file(folder / "x.safetensors", test::safetensors_of(tensors, metadata));
    return Checkpoint::open(folder / "x.safetensors");
}

std::vector<float> read_all(const ModelTensor& tensor) {
    std::vector<float> values(static_cast<size_t>(tensor.shape.elements()));
    tensor.read_f32(0, values);
    return values;
}

// The layer's values are value(row, column), whole and from any place on.
template <typename Value>
void check_values(const Checkpoint& checkpoint, TensorType type, Shape shape, const Value& value) {
    const ModelTensor& tensor = checkpoint.get(kWeight);
    CHECK(tensor.type() == type);
    REQUIRE(tensor.shape == shape);
    const std::vector<float> values = read_all(tensor);
    int64_t n_wrong = 0;
    for (int64_t i = 0; i < shape.elements(); ++i) {
        // Two roundings of F32 at most: of the scales' product and of the value.
        const double expected = value(i / shape.ne[0], i % shape.ne[0]);
        const double found = static_cast<double>(values[static_cast<size_t>(i)]);
        n_wrong += std::abs(found - expected) <= 2e-7 * std::abs(expected) ? 0 : 1;
    }
    CHECK(n_wrong == 0);
    for (const int64_t first : {int64_t{1}, shape.ne[0] - 1, shape.ne[0] + 7}) {
        for (const int64_t n : {int64_t{1}, int64_t{17}, shape.ne[0]}) {
            std::vector<float> run(static_cast<size_t>(n));
            tensor.read_f32(first, run);
            CHECK(std::equal(run.begin(), run.end(), values.begin() + first));
        }
    }
}

double code_value(const TestTensor& tensor, int64_t row, int64_t column) {
    const auto code =
        static_cast<uint8_t>(tensor.data[static_cast<size_t>(row * tensor.shape[0] + column)]);
    switch (tensor.type) {
        case TensorType::f8_e4m3:
            return test::e4m3(code);
        case TensorType::f8_e5m2:
            return test::e5m2(code);
        default:
            return static_cast<int8_t>(code);
    }
}

test::CaughtError refused(const Tensors& tensors, ErrorKind kind, std::string_view metadata = {}) {
    const auto error = test::error_of([&] { open(tensors, metadata); });
    CHECK(error.kind == kind);
    CHECK(error.mentions("x.safetensors"));
    return error;
}

// ---- FP8 ----

TEST_CASE("FP8 has one scale for a matrix, in each spelling and shape") {
    for (const TensorType type : {TensorType::f8_e4m3, TensorType::f8_e5m2}) {
        const TestTensor weight = coded(type, 48, 5);
        const TensorType expected =
            type == TensorType::f8_e4m3 ? TensorType::scaled_f8_e4m3 : TensorType::scaled_f8_e5m2;
        for (const auto& [suffix, shape] : {std::pair{".weight_scale", std::vector<int64_t>{}},
                                            {".weight_scale", {1}},
                                            {".scale_weight", {1}},
                                            {".weight_scale_inv", {1, 1}}}) {
            CAPTURE(suffix);
            check_values(open({weight, scales_of(suffix, shape)}), expected, {48, 5},
                         [&](int64_t row, int64_t column) {
                             return code_value(weight, row, column) * scale(0);
                         });
        }
    }
}

TEST_CASE("FP8 has a scale per row") {
    const TestTensor weight = coded(TensorType::f8_e4m3, 48, 5);
    for (const auto& shape : {std::vector<int64_t>{5}, {1, 5}, {1, 1, 5}}) {
        check_values(open({weight, scales_of(".weight_scale", shape)}), TensorType::scaled_f8_e4m3,
                     {48, 5}, [&](int64_t row, int64_t column) {
                         return code_value(weight, row, column) * scale(row);
                     });
    }
}

TEST_CASE("musubi's FP8 has a scale per 64 weights of a row") {
    const TestTensor weight = coded(TensorType::f8_e4m3, 192, 5);
    check_values(open({weight, scales_of(".scale_weight", {1, 3, 5}),
                       TestTensor{"scaled_fp8", {0}, {}, TensorType::f8_e4m3}}),
                 TensorType::scaled_f8_e4m3, {192, 5}, [&](int64_t row, int64_t column) {
                     return code_value(weight, row, column) * scale(row * 3 + column / 64);
                 });
}

TEST_CASE("Qwen3's FP8 has a scale per square of 128, cut off at the borders") {
    const TestTensor weight = coded(TensorType::f8_e4m3, 300, 130);
    TestTensor scales = scales_of(".weight_scale_inv", {3, 2});
    for (const bool bf16 : {false, true}) {
        if (bf16) {
            scales = test::as_bf16(scales, test::floats_of(scales));
        }
        check_values(open({weight, scales}), TensorType::scaled_f8_e4m3, {300, 130},
                     [&](int64_t row, int64_t column) {
                         return code_value(weight, row, column) *
                                scale(row / 128 * 3 + column / 128);
                     });
    }
}

TEST_CASE("FP8 without any scale is read as it stands") {
    for (const TensorType type : {TensorType::f8_e4m3, TensorType::f8_e5m2}) {
        const TestTensor weight = coded(type, 48, 5);
        check_values(open({weight}), type, {48, 5},
                     [&](int64_t row, int64_t column) { return code_value(weight, row, column); });
    }
}

TEST_CASE("queries, keys and values with scales of their own are fused after scaling") {
    Tensors tensors = {test::counting_tensor("double_stream_modulation_img.linear.weight", {1})};
    std::vector<float> expected;
    float factor = 1;
    for (const char* part : {"to_q", "to_k", "to_v"}) {
        const std::string layer = std::string("transformer_blocks.0.attn.") + part;
        TestTensor weight = coded(TensorType::f8_e4m3, 32, 2);
        weight.name = layer + ".weight";
        factor *= 0.3f;
        for (int64_t i = 0; i < 64; ++i) {
            expected.push_back(static_cast<float>(code_value(weight, i / 32, i % 32)) * factor);
        }
        tensors.push_back(weight);
        tensors.push_back(test::scalar(layer + ".weight_scale", factor));
        tensors.push_back(test::scalar(layer + ".input_scale", 7));
    }
    const test::TemporaryFolder folder;
    test::write_file(folder / "x.safetensors", test::safetensors_of(tensors));
    const Checkpoint checkpoint = Checkpoint::open(folder / "x.safetensors");
    const ModelTensor& qkv = checkpoint.get("double_blocks.0.img_attn.qkv.weight");
    CHECK(qkv.shape == Shape{32, 6});
    CHECK(read_all(qkv) == expected);
}

TEST_CASE("the halves of a scaled matrix change places with their scales") {
    TestTensor weight = coded(TensorType::f8_e4m3, 16, 4);
    weight.name = "norm_out.linear.weight";
    TestTensor scales = scales_of(".weight_scale", {4});
    scales.name = "norm_out.linear.weight_scale";
    const test::TemporaryFolder folder;
    test::write_file(folder / "x.safetensors",
                     test::safetensors_of(
                         {test::counting_tensor("double_stream_modulation_img.linear.weight", {1}),
                          weight, scales}));
    const Checkpoint checkpoint = Checkpoint::open(folder / "x.safetensors");
    std::vector<float> expected;
    for (const int64_t row : {2, 3, 0, 1}) {
        for (int64_t column = 0; column < 16; ++column) {
            expected.push_back(static_cast<float>(code_value(weight, row, column) * scale(row)));
        }
    }
    CHECK(read_all(checkpoint.get("final_layer.adaLN_modulation.1.weight")) == expected);
}

// ---- NVFP4, MXFP8, INT8 ----

TestTensor e4m3_scales(const std::string& suffix, std::vector<int64_t> shape) {
    TestTensor tensor{kLayer + suffix, shape, some_codes(shape[0] * shape[1]), TensorType::f8_e4m3};
    for (std::byte& code : tensor.data) {
        code &= std::byte{0x7f};  // scales have no sign
    }
    return tensor;
}

TEST_CASE("NVFP4 of BFL and ComfyUI: tiled scales, the high half of a byte first") {
    // 130 rows and 5 blocks in a row are padded to 256 and 8.
    TestTensor weight = coded(TensorType::u8, 40, 130);
    const TestTensor scales = e4m3_scales(".weight_scale", {8, 256});
    const TestTensor factor = test::scalar(std::string(kLayer) + ".weight_scale_2", 0.037f);
    const auto value = [&](int64_t row, int64_t column) {
        const auto byte =
            static_cast<uint8_t>(weight.data[static_cast<size_t>(row * 40 + column / 2)]);
        const int code = column % 2 == 0 ? byte >> 4 : byte & 15;
        const auto block =
            static_cast<uint8_t>(scales.data[test::tiled_index(row, column / 16, 5)]);
        return test::e2m1(static_cast<uint8_t>(code)) * test::e4m3(block) *
               static_cast<double>(0.037f);
    };
    const Shape shape{80, 130};
    check_values(open({weight, scales, factor}), TensorType::scaled_nvfp4, shape, value);
    check_values(open({weight, scales, factor, description(R"({"format": "nvfp4"})")}),
                 TensorType::scaled_nvfp4, shape, value);
    const std::string layers = std::string(R"({"_quantization_metadata": )") +
                               R"("{\"layers\": {\"single_blocks.0.linear2\": )" +
                               R"({\"format\": \"nvfp4\"}}}"})";
    check_values(open({weight, scales, factor}, layers), TensorType::scaled_nvfp4, shape, value);
}

// A part with diffusers names, one NVFP4 matrix and what else lies in its folder.
Checkpoint open_diffusers(const Tensors& nvfp4, const std::string& config,
                          const std::string& text) {
    Tensors tensors = nvfp4;
    for (TestTensor& tensor : tensors) {
        tensor.name = "single_transformer_blocks.0.attn.to_out" +
                      tensor.name.substr(std::string(kLayer).size());
    }
    tensors.push_back(test::counting_tensor("double_stream_modulation_img.linear.weight", {1}));
    const test::TemporaryFolder folder;
    if (!config.empty()) {
        test::write_file(folder / config, text);
    }
    test::write_file(folder / "x.safetensors", test::safetensors_of(tensors));
    return Checkpoint::open(folder / "x.safetensors");
}

TEST_CASE("NVFP4 of ModelOpt: scales row by row, the low half of a byte first") {
    const TestTensor weight = coded(TensorType::u8, 40, 6);
    const TestTensor scales = e4m3_scales(".weight_scale", {5, 6});
    const Tensors tensors = {weight, scales,
                             test::scalar(std::string(kLayer) + ".weight_scale_2", 0.037f)};
    const auto value = [&](int64_t row, int64_t column) {
        const auto byte =
            static_cast<uint8_t>(weight.data[static_cast<size_t>(row * 40 + column / 2)]);
        const int code = column % 2 == 0 ? byte & 15 : byte >> 4;
        const auto block =
            static_cast<uint8_t>(scales.data[static_cast<size_t>(row * 5 + column / 16)]);
        return test::e2m1(static_cast<uint8_t>(code)) * test::e4m3(block) *
               static_cast<double>(0.037f);
    };
    for (const auto& [config, text] :
         {std::pair{"hf_quant_config.json", "{}"},
          {"config.json", R"({"quantization_config": {"quant_algo": "NVFP4"}})"}}) {
        check_values(open_diffusers(tensors, config, text), TensorType::scaled_nvfp4, {80, 6},
                     value);
    }
    const auto error = test::error_of([&] { open_diffusers(tensors, "config.json", "{}"); });
    CHECK(error.kind == ErrorKind::unsupported);
    CHECK(error.mentions("hf_quant_config.json"));
}

TEST_CASE("MXFP8 has powers of two for scales, tiled, a block of 32 each") {
    const TestTensor weight = coded(TensorType::f8_e4m3, 160, 130);
    for (const TensorType type : {TensorType::u8, TensorType::f8_e8m0}) {
        TestTensor scales{std::string(kLayer) + ".weight_scale", {8, 256}, {}, type};
        for (int i = 0; i < 8 * 256; ++i) {
            scales.data.push_back(static_cast<std::byte>(110 + i % 30));
        }
        check_values(open({weight, scales, description(R"({"format": "mxfp8"})")}),
                     TensorType::scaled_mxfp8, {160, 130}, [&](int64_t row, int64_t column) {
                         const auto code =
                             static_cast<int>(scales.data[test::tiled_index(row, column / 32, 5)]);
                         return code_value(weight, row, column) * std::pow(2.0, code - 127);
                     });
    }
}

TEST_CASE("INT8 has a scale per matrix or row") {
    const TestTensor weight = coded(TensorType::i8, 48, 5);
    const TestTensor format = description(R"({"format": "int8_tensorwise", "convrot": false})");
    for (const auto& shape : {std::vector<int64_t>{}, {1, 5}}) {
        check_values(open({weight, scales_of(".weight_scale", shape), format}),
                     TensorType::scaled_i8, {48, 5}, [&](int64_t row, int64_t column) {
                         return code_value(weight, row, column) * scale(shape.empty() ? 0 : row);
                     });
    }
}

TEST_CASE("factors of a layer's input are multiplied onto its columns") {
    const TestTensor weight = coded(TensorType::f8_e4m3, 48, 5);
    check_values(
        open({weight, scales_of(".weight_scale", {}), scales_of(".pre_quant_scale", {48})}),
        TensorType::scaled_f8_e4m3, {48, 5}, [&](int64_t row, int64_t column) {
            return code_value(weight, row, column) * scale(0) * scale(column);
        });
}

// ---- what is refused ----

TEST_CASE("an FP8 matrix whose scale was removed is named, with the scale") {
    const TestTensor weight = coded(TensorType::f8_e4m3, 48, 5);
    TestTensor other = weight;
    other.name = "single_blocks.1.linear2.weight";
    for (const std::string spelling : {".weight_scale", ".scale_weight", ".weight_scale_inv"}) {
        const auto error =
            refused({weight, other, test::scalar("single_blocks.1.linear2" + spelling, 1)},
                    ErrorKind::bad_file);
        CHECK(error.mentions("single_blocks.0.linear2.weight holds F8_E4M3 codes without"));
        CHECK(error.mentions("single_blocks.0.linear2" + spelling + ","));
        CHECK(error.mentions("download it again"));
    }
    const TestTensor marker{"scaled_fp8", {2}, some_codes(2), TensorType::f8_e4m3};
    CHECK(refused({weight, marker}, ErrorKind::bad_file).mentions(kWeight));
    CHECK(refused({weight, description(R"({"format": "float8_e4m3fn"})")}, ErrorKind::bad_file)
              .mentions("without their scale"));
    // A vector has none.
    TestTensor vector = coded(TensorType::f8_e4m3, 48, 1);
    vector.shape = {48};
    CHECK(open({vector, other, test::scalar("single_blocks.1.linear2.weight_scale", 1)})
              .get(kWeight)
              .type() == TensorType::f8_e4m3);
}

TEST_CASE("NVFP4 without either of its scales is named, with the scale") {
    const TestTensor weight = coded(TensorType::u8, 32, 128);
    const TestTensor scales = e4m3_scales(".weight_scale", {4, 128});
    const TestTensor factor = test::scalar(std::string(kLayer) + ".weight_scale_2", 1);
    CHECK(open({weight, scales, factor}).get(kWeight).shape == Shape{64, 128});
    const auto no_scales = refused({weight, factor}, ErrorKind::bad_file);
    CHECK(no_scales.mentions("single_blocks.0.linear2.weight_scale, the scales of its blocks"));
    const auto no_factor = refused({weight, scales}, ErrorKind::bad_file);
    CHECK(no_factor.mentions("single_blocks.0.linear2.weight_scale_2, the scale of the whole"));
    CHECK(refused({weight}, ErrorKind::bad_file).mentions("is missing"));
}

TEST_CASE("scales of another size are refused with both shapes") {
    const TestTensor weight = coded(TensorType::f8_e4m3, 48, 5);
    for (const auto& shape : {std::vector<int64_t>{4}, {48, 1}, {5, 5}, {7, 5}, {0}}) {
        const auto error =
            refused({weight, scales_of(".weight_scale", shape)}, ErrorKind::bad_file);
        CHECK(error.mentions("single_blocks.0.linear2.weight_scale has shape"));
        CHECK(error.mentions("[48, 5]"));
    }
    const TestTensor factor = test::scalar(std::string(kLayer) + ".weight_scale_2", 1);
    const TestTensor codes = coded(TensorType::u8, 32, 128);
    CHECK(refused({codes, e4m3_scales(".weight_scale", {4, 64}), factor}, ErrorKind::bad_file)
              .mentions("needs 512"));
    const TestTensor infinite =
        test::scalar(std::string(kLayer) + ".weight_scale", std::numeric_limits<float>::infinity());
    CHECK(refused({weight, infinite}, ErrorKind::bad_file).mentions("finite"));
    const TestTensor empty{kWeight, {48, 0}, {}, TensorType::f8_e4m3};
    CHECK(refused({empty, scales_of(".weight_scale", {})}, ErrorKind::bad_file).mentions("empty"));
}

TEST_CASE("rotated weights and unknown formats are refused by name") {
    const TestTensor weight = coded(TensorType::i8, 48, 5);
    const TestTensor scales = scales_of(".weight_scale", {});
    for (const char* json : {R"({"format": "int8_tensorwise", "convrot": true})",
                             R"({"format": "int8_tensorwise", "convrot_groupsize": 256})",
                             R"({"format": "convrot_w4a4"})"}) {
        const auto error = refused({weight, scales, description(json)}, ErrorKind::unsupported);
        CHECK(error.mentions("rotated weights (convrot)"));
        CHECK(error.mentions(kLayer));
    }
    CHECK(refused({weight, scales, description(R"({"format": "int3_magic"})")},
                  ErrorKind::unsupported)
              .mentions("'int3_magic'"));
    CHECK(refused({weight, scales}, ErrorKind::unsupported,
                  R"({"_quantization_metadata": "{\"layers\": {\"single_blocks.0.linear2\": )"
                  R"({\"format\": \"int3_magic\"}}}"})")
              .mentions("'int3_magic'"));
    for (const char* json : {"{", "[]", "{}", R"({"format": 3})"}) {
        CHECK(refused({weight, scales, description(json)}, ErrorKind::bad_file)
                  .mentions("no JSON object with a format"));
    }
    CHECK(refused({weight, scales}, ErrorKind::bad_file, R"({"_quantization_metadata": "x"})")
              .mentions("_quantization_metadata"));
}

TEST_CASE("a format that contradicts the type of the weights is refused") {
    CHECK(refused({coded(TensorType::f8_e4m3, 48, 5), scales_of(".weight_scale", {}),
                   description(R"({"format": "float8_e5m2"})")},
                  ErrorKind::bad_file)
              .mentions("is said to be float8_e5m2, but its weights are of type F8_E4M3"));
    CHECK(refused({test::counting_tensor(kWeight, {48, 5}),
                   description(R"({"format": "float8_e4m3fn"})")},
                  ErrorKind::bad_file)
              .mentions("is of type F32"));
}

TEST_CASE("other ways of quantising are refused by name") {
    for (const auto& [suffix, what] :
         {std::pair{".weight.quant_state.bitsandbytes__nf4", "bitsandbytes"},
          {".weight_packed", "compressed-tensors"},
          {".qweight", "Nunchaku"}}) {
        const auto error = refused({test::counting_tensor(kLayer + std::string(suffix), {1})},
                                   ErrorKind::unsupported);
        CHECK(error.mentions(what));
        CHECK(error.mentions(suffix));
    }
}

TEST_CASE("a GGUF with separate scales is refused") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "x.gguf",
                     test::gguf_of({test::counting_tensor("blk.0.attn_q_norm.weight", {1}),
                                    test::counting_tensor("blk.0.attn_q.weight", {32, 2}),
                                    test::counting_tensor("blk.0.attn_q.scale", {1})}));
    const auto error = test::error_of([&] { Checkpoint::open(folder / "x.gguf"); });
    CHECK(error.kind == ErrorKind::unsupported);
    CHECK(error.mentions("blk.0.attn_q.scale"));
}

}  // namespace
}  // namespace flux2
