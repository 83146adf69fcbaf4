// Weight files as people have them, made here from the small klein model and the tiny one: each
// runs and converts like the plain file with the same values, and each broken one is refused with a
// message.
#include <flux2/flux2.hpp>
#include "checkpoints/checkpoint.hpp"
#include "formats/gguf_writer.hpp"
#include "support/cli.hpp"
#include "support/folders.hpp"
#include "support/scaled_files.hpp"

#include <doctest/doctest.h>
#include <ggml.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using test::Arguments;
using test::Encoded;
using test::fixture;
using test::TemporaryFolder;
using test::TestTensor;
using Tensors = std::vector<TestTensor>;

Tensors klein(const std::string& part) {
    return test::tensors_of(fixture("klein/" + part + ".safetensors"));
}

fs::path write(const fs::path& path, const Tensors& tensors, std::string_view metadata = {}) {
    test::write_file(path, path.extension() == ".gguf" ? test::gguf_of(tensors)
                                                       : test::safetensors_of(tensors, metadata));
    return path;
}

void add(Tensors& tensors, const Tensors& more) {
    tensors.insert(tensors.end(), more.begin(), more.end());
}

Tensors prefixed(const std::string& prefix, Tensors tensors) {
    for (TestTensor& tensor : tensors) {
        tensor.name = prefix + tensor.name;
    }
    return tensors;
}

Tensors without(Tensors tensors, const std::string& name) {
    std::erase_if(tensors, [&](const TestTensor& tensor) { return tensor.name == name; });
    return tensors;
}

bool is_block_matrix(const TestTensor& tensor) {
    return tensor.shape.size() == 2 && tensor.name.find("_blocks.") != std::string::npos;
}

bool is_projection(const TestTensor& tensor) {
    return tensor.name.find("_proj.weight") != std::string::npos;
}

// A part with some of its matrices encoded, and the plain file of the same values.
struct Pair {
    Tensors encoded, plain;
};

template <typename Choose, typename Encode>
Pair encode(const Tensors& tensors, const Choose& choose, const Encode& encode) {
    Pair pair;
    for (const TestTensor& tensor : tensors) {
        if (choose(tensor)) {
            const Encoded encoded = encode(tensor);
            add(pair.encoded, encoded.tensors);
            pair.plain.push_back(test::as_bf16(tensor, encoded.values));
        } else {
            pair.encoded.push_back(tensor);
            pair.plain.push_back(tensor);
        }
    }
    return pair;
}

Pair scaled_fp8_transformer() {
    Pair pair = encode(klein("flux2"), is_block_matrix,
                       [](const TestTensor& weight) { return test::as_scaled_fp8(weight); });
    pair.encoded.push_back(test::scalar("single_blocks.0.linear1.input_scale", 0.5f));
    return pair;
}

Pair nvfp4_transformer() {
    return encode(klein("flux2"), is_block_matrix, [](const TestTensor& weight) {
        return test::as_nvfp4(weight, test::Order::comfy);
    });
}

// ---- running them ----

test::ProgramResult flux2(const Arguments& arguments) {
    return test::flux2_program(arguments);
}

test::ProgramResult convert(const std::string& arguments) {
    return test::run_program(test::convert_path() + " " + arguments);
}

Image draw(const TemporaryFolder& folder, const Arguments& arguments) {
    const fs::path out = folder / "out.png";
    fs::remove(out);
    const auto result = flux2(test::joined(arguments, {"-s", "1", "-o", out.string()}));
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    return load_image(out);
}

// The small picture with another transformer.
Image draw_with(const TemporaryFolder& folder, const fs::path& transformer,
                const Arguments& more = {}) {
    Arguments arguments = test::joined(test::small_picture(), {"-p", "x"});
    arguments[1] = transformer.string();
    return draw(folder, test::joined(arguments, more));
}

double mean_difference(const Image& a, const Image& b) {
    REQUIRE(a.rgb.size() == b.rgb.size());
    double sum = 0;
    for (size_t i = 0; i < a.rgb.size(); ++i) {
        sum += std::abs(static_cast<double>(a.rgb[i]) - static_cast<double>(b.rgb[i]));
    }
    return sum / static_cast<double>(a.rgb.size());
}

// Where the CPU multiplies F16, the plain file's weights are rounded to BF16 first and the others
// are not, which moves a pixel by a level here and there (0.21 seen).
constexpr double kSamePicture = 0.5;

void check_runs_like(const Tensors& encoded, const Tensors& plain,
                     const std::string& metadata = {}) {
    const TemporaryFolder folder;
    const fs::path file = write(folder / "x.safetensors", encoded, metadata);
    const fs::path reference = write(folder / "plain.safetensors", plain);
    CHECK(mean_difference(draw_with(folder, file), draw_with(folder, reference)) < kSamePicture);
    CHECK(draw_with(folder, file, {"--type", "BF16"}).rgb ==
          draw_with(folder, reference, {"--type", "BF16"}).rgb);
    // Converted to BF16 it holds the plain file's bytes.
    const auto result = convert(file.string() + " -t BF16 -o " + (folder / "x.gguf").string());
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    std::map<std::string, TestTensor> converted;
    for (const TestTensor& tensor : test::tensors_of(folder / "x.gguf")) {
        converted[tensor.name] = tensor;
    }
    for (const TestTensor& tensor : plain) {
        if (tensor.shape.size() == 2) {
            CAPTURE(tensor.name);
            CHECK(converted.at(tensor.name).data == tensor.data);
        }
    }
}

TEST_CASE("BFL's scaled FP8 draws and converts like the plain file") {
    const Pair pair = scaled_fp8_transformer();
    check_runs_like(pair.encoded, pair.plain);
}

TEST_CASE("ComfyUI's older scaled FP8 with its prefix does too") {
    Pair pair = encode(klein("flux2"), is_block_matrix, [](const TestTensor& weight) {
        return test::as_scaled_fp8(weight, ".scale_weight");
    });
    pair.encoded.push_back({"scaled_fp8", {2}, test::Bytes(2), TensorType::f8_e4m3});
    check_runs_like(prefixed("model.diffusion_model.", pair.encoded), pair.plain);
}

TEST_CASE("ComfyUI's newer FP8 with its description in the header does too") {
    const Pair pair = scaled_fp8_transformer();
    nlohmann::json layers;
    for (const TestTensor& tensor : pair.encoded) {
        if (tensor.type == TensorType::f8_e4m3) {
            const std::string layer = tensor.name.substr(0, tensor.name.rfind('.'));
            layers["layers"][layer]["format"] = "float8_e4m3fn";
        }
    }
    const nlohmann::json metadata = {{"_quantization_metadata", layers.dump()}};
    check_runs_like(pair.encoded, pair.plain, metadata.dump());
}

TEST_CASE("plain FP8 does too") {
    const Pair pair = encode(klein("flux2"), is_block_matrix, test::as_plain_fp8);
    check_runs_like(pair.encoded, pair.plain);
}

TEST_CASE("NVFP4 does too") {
    const Pair pair = nvfp4_transformer();
    check_runs_like(pair.encoded, pair.plain);
}

TEST_CASE("scaled FP8 becomes blocks without asking, NVFP4 only when allowed") {
    const TemporaryFolder folder;
    const std::string out = " -t Q8_0 --verify -o " + (folder / "x.gguf").string();
    const fs::path fp8 = write(folder / "fp8.safetensors", scaled_fp8_transformer().encoded);
    CHECK(convert(fp8.string() + out).exit_code == 0);
    const fs::path fp4 = write(folder / "fp4.safetensors", nvfp4_transformer().encoded);
    const auto refused = convert(fp4.string() + out);
    CHECK(refused.exit_code == 2);
    CHECK(refused.err.find("already quantised to NVFP4") != std::string::npos);
    CHECK(convert(fp4.string() + out + " --allow-requantize").exit_code == 0);
}

// ---- all in one ----

TEST_CASE("an all-in-one checkpoint runs, converts and is described part by part") {
    const TemporaryFolder folder;
    const fs::path text_encoder = test::write_reading_encoder(folder);
    Tensors all = prefixed("model.diffusion_model.", scaled_fp8_transformer().encoded);
    add(all, prefixed("first_stage_model.", klein("vae")));
    add(all, prefixed("text_encoders.qwen3_4b.transformer.", test::tensors_of(text_encoder)));
    const fs::path file = write(folder / "all.safetensors", all);
    const fs::path transformer =
        write(folder / "fp8.safetensors", scaled_fp8_transformer().encoded);

    const Arguments picture = {"-p",      "a star", "-W",         "64", "-H", "64",
                               "--steps", "1",      "--no-cache", "-t", "1"};
    const Image together =
        draw(folder, test::joined({"--diffusion-model", file.string()}, picture));
    const Image apart = draw(folder, test::joined({"--diffusion-model", transformer.string(),
                                                   "--llm", text_encoder.string(), "--vae",
                                                   fixture("klein/vae.safetensors").string()},
                                                  picture));
    CHECK(together.rgb == apart.rgb);
    fs::create_directory(folder / "model");
    fs::copy_file(file, folder / "model/all.safetensors");
    fs::copy_file(folder / "tokenizer.json", folder / "model/tokenizer.json");
    CHECK(draw(folder, test::joined({"-m", (folder / "model").string()}, picture)).rgb ==
          apart.rgb);

    const auto info = flux2({"info", file.string()});
    CHECK(info.exit_code == 0);
    for (const char* words : {"transformer: FLUX.2 klein", "text encoder: Qwen3",
                              "autoencoder: FLUX.2", "FP8 (E4M3) with one scale per matrix x 12"}) {
        CHECK(info.out.find(words) != std::string::npos);
    }
    CHECK(info.out.find("next: flux2 --diffusion-model " + file.string() + " -p") !=
          std::string::npos);
    CHECK(inspect_parts(file).size() == 3);

    const auto converted = convert(file.string() + " -o " + (folder / "out").string());
    CHECK(converted.exit_code == 0);
    for (const char* name : {"transformer.gguf", "text_encoder.gguf", "vae.gguf"}) {
        CHECK(fs::exists(folder / "out" / name));
    }
}

// ---- GGUF by others ----

TestTensor in_type(const TestTensor& tensor, TensorType type) {
    const std::vector<float> values = test::floats_of(tensor);
    const auto own = static_cast<ggml_type>(type);
    const int64_t row = tensor.shape[0];
    const auto rows = static_cast<int64_t>(values.size()) / row;
    TestTensor result{tensor.name, tensor.shape, {}, type};
    result.data.resize(ggml_row_size(own, row) * static_cast<size_t>(rows));
    ggml_quantize_chunk(own, values.data(), result.data.data(), 0, rows, row, nullptr);
    return result;
}

TEST_CASE("GGUFs of others run: no keys or foreign ones, quantised modulation, 16-bit norms") {
    const TemporaryFolder folder;
    Tensors tensors;
    for (const TestTensor& tensor : klein("flux2")) {
        const bool modulation = tensor.name.find("_modulation") != std::string::npos;
        tensors.push_back(is_block_matrix(tensor) || (modulation && tensor.shape.size() == 2)
                              ? in_type(tensor, TensorType::q8_0)
                              : in_type(tensor, TensorType::f16));
    }
    const Image plain = draw_with(folder, fixture("klein/flux2.safetensors"));
    for (const char* architecture : {"", "flux", "pig", "sd1", "llama"}) {
        CAPTURE(architecture);
        test::write_file(folder / "x.gguf", test::gguf_of(tensors, architecture));
        // Q8_0 rounds weights and activations to 8 bits.
        CHECK(mean_difference(draw_with(folder, folder / "x.gguf"), plain) < 1.0);
    }
    const auto info = flux2({"info", (folder / "x.gguf").string()});
    CHECK(info.out.find("quantised in ggml's blocks x 16, unquantised x 5") != std::string::npos);
}

// The tiny model's text encoder in another type of matrices, as llama.cpp's quantizer leaves it.
fs::path write_qwen3(const fs::path& path, TensorType type, bool with_output) {
    const fs::path tiny = fs::path(test::tiny_model()) / "text-encoder-bf16.gguf";
    const TensorSource source = TensorSource::open(tiny);
    Tensors tensors;
    for (TestTensor& tensor : test::tensors_of(tiny)) {
        const bool matrix = tensor.shape.size() == 2;
        if (with_output && tensor.name == "token_embd.weight") {
            tensors.push_back(in_type(tensor, TensorType::q8_0));
            tensors.back().name = "output.weight";
        }
        tensors.push_back(matrix ? in_type(tensor, type) : tensor);
    }
    if (with_output) {
        tensors.push_back(test::counting_tensor("rope_freqs.weight", {32}));
    }
    std::vector<GgufTensor> layout;
    for (const TestTensor& tensor : tensors) {
        Shape shape;
        for (const int64_t size : tensor.shape) {
            shape.ne[static_cast<size_t>(shape.n_dims++)] = size;
        }
        layout.push_back({tensor.name, tensor.type, shape});
    }
    GgufWriter writer(path, source.metadata(), layout);
    for (size_t i = 0; i < tensors.size(); ++i) {
        writer.write(i, 0, tensors[i].data);
    }
    writer.finish(source.metadata());
    return path;
}

TEST_CASE("Qwen3 GGUFs of any type read prompts, with an output head and extra tensors too") {
    const TemporaryFolder folder;
    const std::string tiny = test::tiny_model();
    const auto picture = [&](const fs::path& text_encoder) {
        return draw(folder, {"--diffusion-model", tiny + "/flux2-tiny-bf16.gguf", "--vae",
                             tiny + "/vae-bf16.gguf", "--llm", text_encoder.string(), "-p",
                             "a red house on the grass", "-W", "64", "-H", "64", "--steps", "1",
                             "--no-cache"});
    };
    const Image plain = picture(fs::path(tiny) / "text-encoder-bf16.gguf");
    // The limits are about twice what was seen.
    for (const auto& [type, limit] : {std::pair{TensorType::q8_0, 0.5},
                                      {TensorType::q6_k, 0.7},
                                      {TensorType::q5_1, 0.9},
                                      {TensorType::q4_k, 5.0},
                                      {TensorType::iq4_xs, 4.0},
                                      {TensorType::q3_k, 6.0},
                                      {TensorType::q2_k, 18.0}}) {
        CAPTURE(type_name(type));
        const fs::path file = write_qwen3(folder / "q.gguf", type, type == TensorType::q8_0);
        CHECK(mean_difference(picture(file), plain) < limit);
    }
}

// ---- Comfy-Org's text encoders ----

TEST_CASE("a single-file encoder with FP8 reads prompts once a tokenizer lies beside it") {
    const TemporaryFolder folder;
    const fs::path plain = test::write_reading_encoder(folder);
    Pair pair = encode(test::tensors_of(plain), is_projection,
                       [](const TestTensor& weight) { return test::as_scaled_fp8(weight); });
    const std::string json = R"({"format": "float8_e4m3fn"})";
    for (const TestTensor& tensor : Tensors(pair.encoded)) {
        if (tensor.type == TensorType::f8_e4m3) {
            pair.encoded.push_back({tensor.name.substr(0, tensor.name.rfind('.')) + ".comfy_quant",
                                    {static_cast<int64_t>(json.size())},
                                    test::bytes_of(json),
                                    TensorType::u8});
        }
    }
    write(folder / "plain.safetensors", pair.plain);
    write(folder / "qwen_3_4b_fp8_mixed.safetensors", pair.encoded);
    const auto arguments = [&](const char* name) {
        return test::joined(test::klein_parts(), {"--llm", (folder / name).string(), "-p", "a star",
                                                  "-W", "64", "-H", "64", "--steps", "1"});
    };
    const Image same = draw(folder, arguments("plain.safetensors"));
    CHECK(mean_difference(draw(folder, arguments("qwen_3_4b_fp8_mixed.safetensors")), same) <
          kSamePicture);

    fs::remove(folder / "tokenizer.json");
    const auto mute = flux2(arguments("qwen_3_4b_fp8_mixed.safetensors"));
    CHECK(mute.exit_code == 3);
    CHECK(
        mute.err.find("put tokenizer.json of Qwen/Qwen3-4B on Hugging Face into the same folder") !=
        std::string::npos);
    const auto info = flux2({"info", (folder / "qwen_3_4b_fp8_mixed.safetensors").string()});
    CHECK(info.exit_code == 0);
    CHECK(info.out.find("note: no tokenizer in it or beside it") != std::string::npos);
}

// ---- in plain words ----

TEST_CASE("info says what a file is, how it is stored, what fits it and what to run") {
    const TemporaryFolder folder;
    const fs::path file =
        write(folder / "klein-base-nvfp4.safetensors", nvfp4_transformer().encoded);
    const auto info = flux2({"info", file.string()});
    CHECK(info.exit_code == 0);
    for (const char* words :
         {"variant base, not distilled (the file name contains 'base')", "NVFP4 x 12, BF16 x 9",
          "NVFP4 with a scale per 16 weights, in the order of ComfyUI and BFL x 12",
          "goes with: text encoder with the same width of text features and the FLUX.2 autoencoder",
          "--llm TEXT_ENCODER --vae AUTOENCODER -p", "flux2-convert "}) {
        CAPTURE(words);
        CHECK_MESSAGE(info.out.find(words) != std::string::npos, info.out);
    }
    const auto json = nlohmann::json::parse(flux2({"info", "--json", file.string()}).out);
    CHECK(json["files"][0]["distilled"] == false);
    CHECK(json["files"][0]["scheme"].get<std::string>().find("NVFP4") == 0);
    const FileInfo plain =
        inspect_file(write(folder / "p.safetensors",
                           encode(klein("flux2"), is_block_matrix, test::as_plain_fp8).encoded));
    CHECK(plain.scheme == "FP8 (E4M3) cast without scales x 12, unquantised x 9");
    CHECK(plain.distilled);
}

// ---- broken and foreign files ----

// Both programs and info refuse the file with exit code 3 and these words.
void check_refused(const fs::path& file, const std::string& option, const std::string& words) {
    const TemporaryFolder folder;
    Arguments run =
        test::joined(test::small_picture(), {"-p", "x", "-o", (folder / "o.png").string()});
    const auto place = std::find(run.begin(), run.end(), option);
    if (place != run.end()) {
        *(place + 1) = file.string();
    } else {
        run = test::joined(run, {option, file.string()});
    }
    for (const auto& result : {flux2(run), flux2({"info", file.string()}),
                               convert(file.string() + " -o " + (folder / "x.gguf").string())}) {
        CHECK(result.exit_code == 3);
        CHECK_MESSAGE(result.err.find(words) != std::string::npos, result.err);
        CHECK(result.err.find(file.filename().string()) != std::string::npos);
    }
    CHECK(folder.names().empty());
}

TEST_CASE("files with a removed scale, or cut off, are refused by both programs") {
    const TemporaryFolder folder;
    const fs::path file = folder / "x.safetensors";
    const Tensors fp8 = scaled_fp8_transformer().encoded;
    write(file, without(fp8, "single_blocks.1.linear1.weight_scale"));
    check_refused(file, "--diffusion-model",
                  "single_blocks.1.linear1.weight holds F8_E4M3 codes without their scale "
                  "single_blocks.1.linear1.weight_scale, which 11 other matrices have");
    const Tensors fp4 = nvfp4_transformer().encoded;
    write(file, without(fp4, "single_blocks.1.linear1.weight_scale"));
    check_refused(file, "--diffusion-model", "single_blocks.1.linear1.weight_scale, the scales of");
    write(file, without(fp4, "single_blocks.1.linear1.weight_scale_2"));
    check_refused(file, "--diffusion-model",
                  "single_blocks.1.linear1.weight_scale_2, the scale of");
    test::Bytes bytes = test::safetensors_of(fp8);
    bytes.resize(bytes.size() - 100);
    test::write_file(file, bytes);
    check_refused(file, "--diffusion-model", "it is truncated: download it again");
}

TEST_CASE("a FLUX.1 file, an SDXL autoencoder and rotated INT8 are refused by both programs") {
    const TemporaryFolder folder;
    const fs::path file = folder / "x.safetensors";
    write(file, {test::counting_tensor("double_blocks.0.img_mod.lin.weight", {4, 4}),
                 test::counting_tensor("img_in.weight", {4, 4})});
    check_refused(file, "--diffusion-model", "is a FLUX.1 transformer");
    write(file, {test::counting_tensor("decoder.conv_in.weight", {3, 3, 4, 8}),
                 test::counting_tensor("encoder.conv_in.weight", {3, 3, 3, 8})});
    check_refused(file, "--vae", "is an autoencoder of Stable Diffusion or SDXL");
    Tensors rotated = klein("flux2");
    for (TestTensor& tensor : rotated) {
        if (tensor.name == "single_blocks.0.linear2.weight") {
            tensor.type = TensorType::i8;
            tensor.data.resize(tensor.data.size() / 2);
        }
    }
    const std::string json = R"({"format": "int8_tensorwise", "convrot": true})";
    rotated.push_back(test::scalar("single_blocks.0.linear2.weight_scale", 0.1f));
    rotated.push_back({"single_blocks.0.linear2.comfy_quant",
                       {static_cast<int64_t>(json.size())},
                       test::bytes_of(json),
                       TensorType::u8});
    write(file, rotated);
    check_refused(file, "--diffusion-model", "rotated weights (convrot)");
}

TEST_CASE("parts of 4B and 9B do not go together") {
    const TemporaryFolder folder;
    Tensors tensors = klein("flux2");
    for (TestTensor& tensor : tensors) {
        if (tensor.name == "txt_in.weight") {
            tensor = test::counting_tensor(tensor.name, {12288, 128});
        }
    }
    const fs::path transformer = write(folder / "9b.safetensors", tensors);
    const std::string text_encoder = fixture("klein/text_encoder.safetensors").string();
    const std::string words = "takes text features 12288 wide, " + text_encoder + " gives 192";
    const auto run = flux2({"--diffusion-model", transformer.string(), "--llm", text_encoder,
                            "--vae", fixture("klein/vae.safetensors").string(), "-p", "x", "-o",
                            (folder / "o.png").string()});
    CHECK(run.exit_code == 3);
    CHECK(run.err.find(words) != std::string::npos);
    CHECK(run.err.find("use Qwen3-8B, which belongs to klein 9B") != std::string::npos);
    const auto converted =
        convert(transformer.string() + " " + text_encoder + " -o " + (folder / "out").string());
    CHECK(converted.exit_code == 3);
    CHECK(converted.err.find(words) != std::string::npos);
}

}  // namespace
}  // namespace flux2
