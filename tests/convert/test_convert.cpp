// Whole conversions of the recorded small model, checked against the source's bytes, ggml's own
// quantizer and what diffusers recorded.
#include <flux2/flux2.hpp>
#include "convert.hpp"
#include "formats/sha256.hpp"
#include "formats/tensor_source.hpp"
#include "support/diffusers_names.hpp"
#include "support/small_tokenizer.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>
#include <ggml.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>

namespace flux2::convert {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::fixture;
using test::kNoCancel;
using test::tensors_of;
using test::TestTensor;

std::string hash(std::span<const std::byte> bytes) {
    return sha256(bytes, kNoCancel);
}

ConvertOptions options_for(const std::string& type) {
    ConvertOptions options;
    options.types.file_type = &parse_file_type(type);
    options.n_threads = 2;
    return options;
}

void convert_file(const fs::path& input, const fs::path& output, const ConvertOptions& options) {
    const Checkpoint checkpoint = Checkpoint::open(input);
    write_plan(make_plan(checkpoint, output, options), options.n_threads, kNoCancel,
               [](uint64_t) {});
}

TensorSource converted(const fs::path& input, const fs::path& output, const std::string& type) {
    convert_file(input, output, options_for(type));
    return TensorSource::open(output);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// The other direction of the mapping, from original to diffusers names, written from diffusers'
// conversion script: one tensor may become three.
std::vector<TestTensor> as_diffusers_transformer(const TestTensor& tensor) {
    const std::vector<std::pair<std::string, std::string>> renames = {
        {"img_in.", "x_embedder."},
        {"txt_in.", "context_embedder."},
        {"time_in.in_layer.", "time_guidance_embed.timestep_embedder.linear_1."},
        {"time_in.out_layer.", "time_guidance_embed.timestep_embedder.linear_2."},
        {".lin.", ".linear."},
        {"final_layer.linear.", "proj_out."},
        {"final_layer.adaLN_modulation.1.", "norm_out.linear."},
        {"img_attn.norm.query_norm.scale", "attn.norm_q.weight"},
        {"img_attn.norm.key_norm.scale", "attn.norm_k.weight"},
        {"txt_attn.norm.query_norm.scale", "attn.norm_added_q.weight"},
        {"txt_attn.norm.key_norm.scale", "attn.norm_added_k.weight"},
        {".norm.query_norm.scale", ".attn.norm_q.weight"},
        {".norm.key_norm.scale", ".attn.norm_k.weight"},
        {".linear1.", ".attn.to_qkv_mlp_proj."},
        {".linear2.", ".attn.to_out."},
        {"double_blocks", "transformer_blocks"},
        {"single_blocks", "single_transformer_blocks"},
    };
    std::string name = tensor.name;
    for (const auto& [from, to] : test::kDiffusersMatrices) {
        name = replaced(name, from, to);
    }
    for (const auto& [from, to] : renames) {
        name = replaced(name, from, to);
    }
    if (name == "norm_out.linear.weight") {
        TestTensor swapped = tensor;
        swapped.name = name;
        std::rotate(swapped.data.begin(),
                    swapped.data.begin() + static_cast<ptrdiff_t>(swapped.data.size() / 2),
                    swapped.data.end());
        return {swapped};
    }
    const bool img = name.find("img_attn.qkv") != std::string::npos;
    const bool txt = name.find("txt_attn.qkv") != std::string::npos;
    if (!img && !txt) {
        return {{name, tensor.shape, tensor.data, tensor.type}};
    }
    std::vector<TestTensor> parts;
    const size_t third = tensor.data.size() / 3;
    for (size_t i = 0; i < 3; ++i) {
        const std::string letter(1, "qkv"[i]);
        const auto start = tensor.data.begin() + static_cast<ptrdiff_t>(i * third);
        parts.push_back({img ? replaced(name, "img_attn.qkv", "attn.to_" + letter)
                             : replaced(name, "txt_attn.qkv", "attn.add_" + letter + "_proj"),
                         {tensor.shape[0], tensor.shape[1] / 3},
                         {start, start + static_cast<ptrdiff_t>(third)},
                         tensor.type});
    }
    return parts;
}

// A diffusers file made from an original one; every tensor must be what diffusers itself wrote.
void write_diffusers(const fs::path& original, const std::string& part, const fs::path& output) {
    std::ifstream recorded_file(fixture("klein/diffusers.json"));
    const nlohmann::json recorded = nlohmann::json::parse(recorded_file).at(part);
    std::vector<TestTensor> tensors;
    for (const TestTensor& tensor : tensors_of(original)) {
        const auto parts = part == "vae" ? std::vector{test::as_diffusers_vae(tensor)}
                                         : as_diffusers_transformer(tensor);
        tensors.insert(tensors.end(), parts.begin(), parts.end());
    }
    REQUIRE(tensors.size() == recorded.size());
    for (const TestTensor& tensor : tensors) {
        CAPTURE(tensor.name);
        REQUIRE(recorded.contains(tensor.name));
        const std::vector<int64_t> shape(tensor.shape.rbegin(), tensor.shape.rend());
        CHECK(recorded[tensor.name]["shape"] == shape);
        CHECK(recorded[tensor.name]["sha256"] == hash(tensor.data));
    }
    test::write_file(output, test::safetensors_of(tensors));
}

void check_same_tensors(const TensorSource& a, const TensorSource& b) {
    REQUIRE(a.tensors().size() == b.tensors().size());
    for (size_t i = 0; i < a.tensors().size(); ++i) {
        const TensorInfo& x = a.tensors()[i];
        const TensorInfo& y = b.tensors()[i];
        CAPTURE(x.name);
        CHECK(x.name == y.name);
        CHECK(x.type == y.type);
        CHECK(x.shape == y.shape);
        CHECK(std::equal(x.bytes.begin(), x.bytes.end(), y.bytes.begin(), y.bytes.end()));
    }
}

TEST_CASE("original and diffusers names give the same tensor data") {
    const test::TemporaryFolder folder;
    for (const std::string part : {"flux2", "vae"}) {
        const fs::path original = fixture("klein/" + part + ".safetensors");
        const fs::path diffusers = folder / (part + ".diffusers.safetensors");
        write_diffusers(original, part, diffusers);
        for (const char* type : {"F32", "Q8_0", "Q4_K_M"}) {
            CAPTURE(type);
            check_same_tensors(converted(original, folder / "a.gguf", type),
                               converted(diffusers, folder / "b.gguf", type));
        }
    }
}

TEST_CASE("F32 holds exactly the values of a bf16 source") {
    const test::TemporaryFolder folder;
    for (const char* part : {"flux2", "text_encoder", "vae"}) {
        const fs::path source_file = fixture(std::string("klein/") + part + ".safetensors");
        const TensorSource source = TensorSource::open(source_file);
        const TensorSource result = converted(source_file, folder / "x.gguf", "F32");
        REQUIRE(result.tensors().size() == source.tensors().size());
        const Checkpoint checkpoint = Checkpoint::open(source_file);
        for (const TensorInfo& tensor : result.tensors()) {
            CAPTURE(tensor.name);
            CHECK(tensor.type == TensorType::f32);
            const auto bf16 = checkpoint.get(tensor.name).pieces.front().bytes;
            REQUIRE(tensor.bytes.size() == 2 * bf16.size());
            bool equal = true;
            for (size_t i = 0; i < bf16.size() / 2; ++i) {
                uint16_t high;
                uint32_t bits;
                std::memcpy(&high, bf16.data() + 2 * i, 2);
                std::memcpy(&bits, tensor.bytes.data() + 4 * i, 4);
                equal = equal && bits == static_cast<uint32_t>(high) << 16;
            }
            CHECK(equal);
        }
    }
}

fs::path write_wide_transformer(const test::TemporaryFolder& folder) {
    const fs::path file = folder / "wide.safetensors";
    test::write_file(file, test::safetensors_of(test::wide_transformer(/*n_single=*/1)));
    return file;
}

TEST_CASE("quantised bytes are ggml_quantize_chunk's on the same rows") {
    const test::TemporaryFolder folder;
    const fs::path source_file = write_wide_transformer(folder);
    const TensorSource source = TensorSource::open(source_file);
    for (const char* type :
         {"F16", "BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q4_K_M", "Q4_K_S", "Q3_K_M", "Q3_K_S",
          "Q2_K", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "IQ4_XS", "MXFP4"}) {
        CAPTURE(type);
        const TensorSource result = converted(source_file, folder / "x.gguf", type);
        for (const TensorInfo& tensor : result.tensors()) {
            CAPTURE(tensor.name);
            const TensorInfo* original = source.find(tensor.name);
            REQUIRE(original != nullptr);
            const int64_t row = tensor.shape.ne[0];
            std::vector<float> values(static_cast<size_t>(tensor.shape.elements()));
            std::memcpy(values.data(), original->bytes.data(), original->bytes.size());
            std::vector<std::byte> expected(tensor.bytes.size());
            ggml_quantize_chunk(static_cast<ggml_type>(tensor.type), values.data(), expected.data(),
                                0, tensor.shape.rows(), row, nullptr);
            CHECK(std::equal(expected.begin(), expected.end(), tensor.bytes.begin()));
        }
    }
}

TEST_CASE("a transformer's keys say what its tensors cannot") {
    const test::TemporaryFolder folder;
    const fs::path input = fixture("klein/flux2.safetensors");
    ConvertOptions options = options_for("Q4_K_M");
    options.variant = Variant::base;
    convert_file(input, folder / "x.gguf", options);
    const TensorSource result = TensorSource::open(folder / "x.gguf");
    const Metadata& metadata = result.metadata();
    CHECK(metadata.get_string("general.architecture") == "flux");
    CHECK(metadata.get_int("general.file_type") == 15);
    CHECK(metadata.get_int("general.quantization_version") == 2);
    CHECK(metadata.get_string("flux2.variant") == "base");
    CHECK(metadata.get_bool("flux2.distilled") == false);
    CHECK(metadata.get_int("flux2.default_steps") == 50);
    CHECK(metadata.get_float("flux2.default_guidance") == 4.0);
    CHECK(metadata.get_int("flux2.text_width") == 192);
    CHECK(metadata.get_float("flux2.rope_theta") == 2000.0);
    CHECK(metadata.get_ints("flux2.rope_axes") == std::vector<int64_t>{16, 16, 16, 16});
    CHECK(metadata.get_string("flux2.source_sha256") == hash(test::read_file(input)));
    CHECK(metadata.contains("flux2.tool_version"));
    // Converting the result again finds the variant in the file.
    const Checkpoint again = Checkpoint::open(folder / "x.gguf");
    CHECK(decide_variant(again, read_transformer_sizes(again), {}).variant == Variant::base);
}

TEST_CASE("a text encoder becomes a llama.cpp qwen3 file") {
    const test::TemporaryFolder folder;
    const TensorSource result =
        converted(fixture("klein/text_encoder.safetensors"), folder / "x.gguf", "Q8_0");
    const Metadata& metadata = result.metadata();
    CHECK(metadata.get_string("general.architecture") == "qwen3");
    CHECK(metadata.get_int("qwen3.block_count") == 36);
    CHECK(metadata.get_int("qwen3.context_length") == 40960);
    CHECK(metadata.get_int("qwen3.embedding_length") == 64);
    CHECK(metadata.get_int("qwen3.feed_forward_length") == 96);
    CHECK(metadata.get_int("qwen3.attention.head_count") == 2);
    CHECK(metadata.get_int("qwen3.attention.head_count_kv") == 1);
    CHECK(metadata.get_int("qwen3.attention.key_length") == 32);
    CHECK(metadata.get_float("qwen3.rope.freq_base") == 1e6);
    CHECK(metadata.get_float("qwen3.attention.layer_norm_rms_epsilon") ==
          doctest::Approx(1e-6).epsilon(1e-6));  // stored as a float
    CHECK(metadata.get_ints("flux2.text_layers") == std::vector<int64_t>{9, 18, 27});
    CHECK(metadata.get_int("flux2.text_length") == 512);
    CHECK_FALSE(metadata.contains("flux2.trimmed"));
    CHECK(result.find("blk.35.ffn_down.weight") != nullptr);
}

TEST_CASE("trimming keeps the layers that are used and the final norm") {
    const test::TemporaryFolder folder;
    ConvertOptions options = options_for("Q8_0");
    options.text_encoder.trim = true;
    convert_file(fixture("klein/text_encoder.safetensors"), folder / "x.gguf", options);
    const TensorSource result = TensorSource::open(folder / "x.gguf");
    // 27 layers of 11 tensors, embedding and final norm.
    CHECK(result.tensors().size() == 27 * 11 + 2);
    CHECK(result.find("blk.26.ffn_down.weight") != nullptr);
    CHECK(result.find("blk.27.attn_q.weight") == nullptr);
    CHECK(result.find("output_norm.weight") != nullptr);
    CHECK(result.metadata().get_int("qwen3.block_count") == 27);
    CHECK(result.metadata().get_bool("flux2.trimmed") == true);
}

TEST_CASE("layers and text length come from options, else the configuration") {
    const test::TemporaryFolder folder;
    fs::copy_file(fixture("klein/text_encoder.safetensors"), folder / "te.safetensors");
    test::write_file(folder / "te.config.json",
                     R"({"rope_parameters": {"rope_theta": 5000}, "rms_norm_eps": 1e-5,
                         "flux2": {"layers": [1, 2, 3], "text_length": 64}})");
    test::write_file(folder / "config.json", R"({"rope_theta": 7})");
    const Metadata by_config =
        converted(folder / "te.safetensors", folder / "x.gguf", "Q8_0").metadata();
    CHECK(by_config.get_ints("flux2.text_layers") == std::vector<int64_t>{1, 2, 3});
    CHECK(by_config.get_int("flux2.text_length") == 64);
    CHECK(by_config.get_float("qwen3.rope.freq_base") == 5000.0);

    ConvertOptions options = options_for("Q8_0");
    options.text_encoder.layers = {4, 8};
    options.text_encoder.text_length = 128;
    convert_file(folder / "te.safetensors", folder / "y.gguf", options);
    const Metadata by_option = TensorSource::open(folder / "y.gguf").metadata();
    CHECK(by_option.get_ints("flux2.text_layers") == std::vector<int64_t>{4, 8});
    CHECK(by_option.get_int("flux2.text_length") == 128);

    for (const std::vector<int64_t>& bad : {std::vector<int64_t>{9, 99}, {3, 2}, {0}}) {
        options.text_encoder.layers = bad;
        const auto error =
            error_of([&] { convert_file(folder / "te.safetensors", folder / "z.gguf", options); });
        CHECK(error.kind == ErrorKind::bad_argument);
        CHECK(error.mentions("36 layers"));
    }
}

TEST_CASE("a GGUF converts again: same types are copied, others need permission") {
    const test::TemporaryFolder folder;
    const fs::path q8 = folder / "q8.gguf";
    const TensorSource first = converted(fixture("klein/flux2.safetensors"), q8, "Q8_0");
    check_same_tensors(first, converted(q8, folder / "again.gguf", "Q8_0"));
    ConvertOptions options = options_for("Q4_0");
    const auto error = error_of([&] { convert_file(q8, folder / "q4.gguf", options); });
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("--allow-requantize"));
    CHECK_FALSE(fs::exists(folder / "q4.gguf"));
    options.allow_requantize = true;
    convert_file(q8, folder / "q4.gguf", options);
    const TensorSource q4 = TensorSource::open(folder / "q4.gguf");
    CHECK(q4.find("single_blocks.0.linear1.weight")->type == TensorType::q4_0);
}

TEST_CASE("a text encoder GGUF keeps its tokenizer when converted again") {
    const test::TemporaryFolder folder;
    fs::copy_file(fixture("klein/text_encoder.safetensors"), folder / "te.safetensors");
    test::write_file(folder / "tokenizer.json", test::small_tokenizer_json());
    converted(folder / "te.safetensors", folder / "bf16.gguf", "BF16");
    fs::remove(folder / "tokenizer.json");
    const Metadata metadata =
        converted(folder / "bf16.gguf", folder / "q8.gguf", "Q8_0").metadata();
    REQUIRE(metadata.get_strings("tokenizer.ggml.tokens") != nullptr);
    CHECK(metadata.get_strings("tokenizer.ggml.tokens")->size() == 512);
    CHECK(metadata.get_int("qwen3.embedding_length") == 64);
    CHECK(metadata.get_int("general.file_type") == 7);
}

TEST_CASE("parts that do not belong together are refused") {
    const test::TemporaryFolder folder;
    const fs::path wide = write_wide_transformer(folder);
    const Checkpoint transformer = Checkpoint::open(wide);
    const Checkpoint small = Checkpoint::open(fixture("klein/flux2.safetensors"));
    const Checkpoint text = Checkpoint::open(fixture("klein/text_encoder.safetensors"));
    const Checkpoint vae = Checkpoint::open(fixture("klein/vae.safetensors"));
    const ConvertOptions options = options_for("Q8_0");
    const auto plans_of = [&](const std::vector<const Checkpoint*>& checkpoints) {
        std::vector<ConversionPlan> plans;
        for (const Checkpoint* checkpoint : checkpoints) {
            plans.push_back(make_plan(*checkpoint, folder / "x.gguf", options));
        }
        return plans;
    };
    CHECK_NOTHROW(check_parts_fit(plans_of({&small, &text, &vae})));
    const auto widths = error_of([&] { check_parts_fit(plans_of({&transformer, &text})); });
    CHECK(widths.kind == ErrorKind::bad_file);
    CHECK(widths.mentions("256"));
    CHECK(widths.mentions("192"));
    const auto twice = error_of([&] { check_parts_fit(plans_of({&small, &transformer})); });
    CHECK(twice.kind == ErrorKind::bad_file);
    CHECK(twice.mentions("both"));
}

// The small transformer with one value changed.
fs::path with_value(const test::TemporaryFolder& folder, const std::string& name, uint16_t bf16) {
    std::vector<TestTensor> tensors = tensors_of(fixture("klein/flux2.safetensors"));
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const TestTensor& tensor) { return tensor.name == name; });
    std::memcpy(found->data.data() + 100, &bf16, sizeof(bf16));
    test::write_file(folder / "changed.safetensors", test::safetensors_of(tensors));
    return folder / "changed.safetensors";
}

TEST_CASE("values a type cannot hold are refused by name, and nothing is written") {
    const test::TemporaryFolder folder;
    const std::string name = "single_blocks.0.linear1.weight";
    constexpr uint16_t kNan = 0x7fc0;
    constexpr uint16_t kInfinity = 0xff80;
    constexpr uint16_t kHundredThousand = 0x47c3;
    for (const auto& [value, type] : {std::pair{kNan, "Q8_0"},
                                      {kNan, "Q4_0"},
                                      {kNan, "F16"},
                                      {kNan, "F32"},
                                      {kNan, "BF16"},
                                      {kInfinity, "Q8_0"},
                                      {kInfinity, "F32"},
                                      {kInfinity, "BF16"},
                                      {kHundredThousand, "F16"},
                                      {kHundredThousand, "Q4_0"}}) {
        const fs::path input = with_value(folder, name, value);
        const auto error =
            error_of([&] { convert_file(input, folder / "x.gguf", options_for(type)); });
        CHECK(error.kind == ErrorKind::bad_file);
        CHECK(error.mentions(name));
        CHECK(error.mentions(" as value 50"));
        CHECK(folder.names() == std::vector<std::string>{"changed.safetensors"});
    }
    CHECK_NOTHROW(convert_file(with_value(folder, name, kHundredThousand), folder / "x.gguf",
                               options_for("Q8_0")));
}

TEST_CASE("a cancelled conversion leaves the old file and nothing else") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "x.gguf", std::string_view("old"));
    const Checkpoint checkpoint = Checkpoint::open(fixture("klein/flux2.safetensors"));
    const std::atomic<bool> cancel = true;
    const auto error = error_of([&] {
        write_plan(make_plan(checkpoint, folder / "x.gguf", options_for("Q8_0")), 2, cancel,
                   [](uint64_t) {});
    });
    CHECK(error.kind == ErrorKind::cancelled);
    CHECK(folder.names() == std::vector<std::string>{"x.gguf"});
    CHECK(test::read_file(folder / "x.gguf") == test::bytes_of("old"));
}

TEST_CASE("verification passes on a sound file and fails on a damaged one") {
    const test::TemporaryFolder folder;
    const Checkpoint checkpoint = Checkpoint::open(write_wide_transformer(folder));
    for (const char* type : {"F32", "F16", "BF16", "Q8_0", "Q6_K", "Q5_K_S", "Q4_K_S", "Q3_K_S",
                             "Q2_K", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "IQ4_XS", "MXFP4"}) {
        CAPTURE(type);
        const ConversionPlan plan = make_plan(checkpoint, folder / "x.gguf", options_for(type));
        write_plan(plan, 2, kNoCancel, [](uint64_t) {});
        const auto verify = [&] { return verify_plan(plan, 2, kNoCancel, [](uint64_t) {}); };
        for (const TypeError& error : verify()) {
            CHECK(error.within_limit);
        }
        // Exchange the halves of one tensor's bytes.
        test::Bytes bytes = test::read_file(folder / "x.gguf");
        const TensorSource written = TensorSource::open(folder / "x.gguf");
        const TensorInfo& victim = *written.find("single_blocks.0.linear1.weight");
        const auto start = victim.bytes.data() - written.files().front().bytes().data();
        std::rotate(bytes.begin() + start,
                    bytes.begin() + start + static_cast<ptrdiff_t>(victim.bytes.size() / 2),
                    bytes.begin() + start + static_cast<ptrdiff_t>(victim.bytes.size()));
        test::write_file(folder / "x.gguf", bytes);
        const auto errors = verify();
        CHECK(std::any_of(errors.begin(), errors.end(), [](const TypeError& error) {
            return !error.within_limit && error.worst_tensor == "single_blocks.0.linear1.weight";
        }));
    }
}

TEST_CASE("verification finds a value that is no number, in whatever tensor of a type it lies") {
    const test::TemporaryFolder folder;
    const Checkpoint checkpoint = Checkpoint::open(fixture("klein/flux2.safetensors"));
    const ConversionPlan plan = make_plan(checkpoint, folder / "x.gguf", options_for("F32"));
    write_plan(plan, 2, kNoCancel, [](uint64_t) {});
    const test::Bytes sound = test::read_file(folder / "x.gguf");
    const TensorSource written = TensorSource::open(folder / "x.gguf");
    constexpr uint32_t kNan = 0x7fc00000;
    constexpr uint32_t kInfinity = 0x7f800000;
    for (const PlannedTensor& tensor : plan.tensors) {
        CAPTURE(tensor.target.name);
        for (const uint32_t value : {kNan, kInfinity}) {
            test::Bytes bytes = sound;
            const TensorInfo& victim = *written.find(tensor.target.name);
            const auto start = victim.bytes.data() - written.files().front().bytes().data();
            std::memcpy(bytes.data() + start, &value, sizeof(value));
            test::write_file(folder / "y.gguf", bytes);
            ConversionPlan damaged = plan;
            damaged.output = folder / "y.gguf";
            const auto errors = verify_plan(damaged, 2, kNoCancel, [](uint64_t) {});
            REQUIRE(errors.size() == 1);
            CHECK_FALSE(errors[0].within_limit);
            CHECK(errors[0].worst_tensor == tensor.target.name);
        }
    }
}

TEST_CASE("a RoPE theta that makes no sense is refused") {
    const test::TemporaryFolder folder;
    for (const auto& [part, type] : {std::pair{"flux2", "Q8_0"}, {"text_encoder", "Q8_0"}}) {
        const TensorSource sound = converted(fixture("klein/" + std::string(part) + ".safetensors"),
                                             folder / "sound.gguf", type);
        const std::string key =
            part == std::string("flux2") ? "flux2.rope_theta" : "qwen3.rope.freq_base";
        REQUIRE(sound.metadata().contains(key));
        for (const float theta : {0.0f, -2000.0f, std::numeric_limits<float>::quiet_NaN(),
                                  std::numeric_limits<float>::infinity()}) {
            CAPTURE(theta);
            Metadata metadata;
            for (const auto& [name, value] : sound.metadata().entries()) {
                metadata.set(name, value);
            }
            metadata.set(key, theta);
            std::vector<GgufTensor> headers;
            for (const TensorInfo& tensor : sound.tensors()) {
                headers.push_back({tensor.name, tensor.type, tensor.shape});
            }
            GgufWriter writer(folder / "bad.gguf", metadata, headers);
            for (size_t i = 0; i < headers.size(); ++i) {
                writer.write(i, 0, sound.tensors()[i].bytes);
            }
            writer.finish(metadata);
            for (const auto& use :
                 {std::function([&] { inspect_file(folder / "bad.gguf"); }), std::function([&] {
                      convert_file(folder / "bad.gguf", folder / "x.gguf", options_for("Q8_0"));
                  })}) {
                const auto error = error_of(use);
                CHECK(error.kind == ErrorKind::bad_file);
                CHECK(error.mentions("bad.gguf"));
                CHECK(error.mentions("theta"));
            }
            CHECK_FALSE(fs::exists(folder / "x.gguf"));
        }
    }
}

TEST_CASE("a hash is the one sha256sum prints") {
    const test::TemporaryFolder folder;
    CHECK(hash(test::bytes_of("abc")) ==
          "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    test::write_file(folder / "a", std::string_view("abc"));
    test::write_file(folder / "b", std::string_view(""));
    std::vector<MappedFile> files;
    files.emplace_back(folder / "a");
    CHECK(sha256(files, kNoCancel) == hash(test::bytes_of("abc")));
    files.emplace_back(folder / "b");
    // sha256sum a b | sha256sum
    const std::string lines =
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a\n"
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  b\n";
    CHECK(sha256(files, kNoCancel) == hash(test::bytes_of(lines)));
}

#ifdef __linux__
TEST_CASE("a hashed file does not stay in the memory of the process") {
    const test::TemporaryFolder folder;
    constexpr uint64_t kSize = 64 << 20;
    test::write_file(folder / "large", std::string_view("x"));
    std::filesystem::resize_file(folder / "large", kSize);
    std::vector<MappedFile> files;
    files.emplace_back(folder / "large");
    const auto mapped_kilobytes = [] {
        std::ifstream status("/proc/self/status");
        std::string word;
        uint64_t kilobytes = 0;
        while (status >> word && word != "RssFile:") {
        }
        status >> kilobytes;
        return kilobytes;
    };
    const uint64_t before = mapped_kilobytes();
    REQUIRE(before > 0);
    CHECK(sha256(files, kNoCancel).size() == 64);
    CHECK(mapped_kilobytes() < before + kSize / 1024 / 4);
}
#endif

}  // namespace
}  // namespace flux2::convert
