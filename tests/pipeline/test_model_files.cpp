// Descriptions of files, which of them fit together, and which are chosen in a folder. All files
// are made from the small model in fixtures/klein, whose README lists the shapes.
#include <flux2/flux2.hpp>
#include "pipeline/model_files.hpp"
#include "support/program.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using test::fixture;
using test::TemporaryFolder;
using test::TestTensor;

std::vector<TestTensor> klein(const std::string& part) {
    return test::tensors_of(fixture("klein/" + part + ".safetensors"));
}

// Writes a GGUF without keys or a safetensors file, by the ending of its name.
fs::path write_model(const fs::path& path, const std::vector<TestTensor>& tensors) {
    fs::create_directories(path.parent_path());
    test::write_file(
        path, path.extension() == ".gguf" ? test::gguf_of(tensors) : test::safetensors_of(tensors));
    return path;
}

fs::path write_part(const fs::path& path, const std::string& part) {
    return write_model(path, klein(part));
}

// The names and shapes that diffusers itself saves, with other values.
std::vector<TestTensor> diffusers(const std::string& part) {
    std::ifstream file(fixture("klein/diffusers.json"));
    const auto recorded = nlohmann::json::parse(file);
    std::vector<TestTensor> tensors;
    for (const auto& [name, facts] : recorded.at(part).items()) {
        const auto shape = facts.at("shape").get<std::vector<int64_t>>();
        tensors.push_back(
            test::counting_tensor(name, std::vector<int64_t>(shape.rbegin(), shape.rend())));
    }
    return tensors;
}

// The transformer with text features of another width.
std::vector<TestTensor> transformer_for_width(int64_t text_width) {
    std::vector<TestTensor> tensors = klein("flux2");
    for (TestTensor& tensor : tensors) {
        if (tensor.name == "txt_in.weight") {
            tensor = test::counting_tensor(tensor.name, {text_width, 128});
        }
    }
    return tensors;
}

std::vector<TestTensor> dev_transformer() {
    std::vector<TestTensor> tensors = klein("flux2");
    tensors.push_back(test::counting_tensor("guidance_in.in_layer.weight", {256, 128}));
    tensors.push_back(test::counting_tensor("guidance_in.out_layer.weight", {128, 128}));
    return tensors;
}

std::vector<TestTensor> without(std::vector<TestTensor> tensors, const std::string& start) {
    std::erase_if(tensors, [&](const TestTensor& t) { return t.name.starts_with(start); });
    return tensors;
}

// A text encoder that gives features of 64 for each of these layers.
fs::path write_text_encoder(const fs::path& path, const std::string& layers) {
    write_part(path, "text_encoder");
    fs::path config = path;
    test::write_file(config.replace_extension(".config.json"),
                     R"({"flux2": {"layers": [)" + layers + "]}}");
    return path;
}

// One of each, under plain names.
void write_three(const fs::path& folder) {
    write_part(folder / "klein.gguf", "flux2");
    write_part(folder / "qwen3.gguf", "text_encoder");
    write_part(folder / "vae.gguf", "vae");
}

test::CaughtError find_error(const fs::path& folder, const std::string& variant = "",
                             const ModelFiles& given = {}) {
    return test::error_of([&] { find_model(folder, variant, given); });
}

// The lines that are logged while the object lives.
class LogWatch {
  public:
    LogWatch() {
        set_log([this](LogLevel level, const std::string& line) {
            (level == LogLevel::debug ? debug : warnings) += line + "\n";
        });
    }
    ~LogWatch() { set_log({}); }
    LogWatch(const LogWatch&) = delete;
    LogWatch& operator=(const LogWatch&) = delete;

    std::string debug, warnings;
};

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

// ---- inspect_file ----

TEST_CASE("a transformer is described from its header") {
    const FileInfo info = inspect_file(fixture("klein/flux2.safetensors"));
    CHECK(info.part == "transformer");
    CHECK(info.name == "FLUX.2 klein 1.2M");
    CHECK(info.format == "safetensors");
    CHECK(info.naming == "original");
    CHECK(info.types == "BF16 x 21");  // 29 tensors, 8 of them norms
    int64_t n_parameters = 0;
    for (const TestTensor& tensor : klein("flux2")) {
        n_parameters += static_cast<int64_t>(tensor.data.size()) / 2;  // BF16
    }
    CHECK(info.n_parameters == n_parameters);
    CHECK(info.size_bytes == fs::file_size(fixture("klein/flux2.safetensors")));
    CHECK(info.text_width == 192);
    CHECK(info.latent_channels == 128);
    CHECK(info.variant == "klein");
    CHECK(contains(info.variant_reason, "nothing says otherwise"));
    CHECK(info.default_steps == 4);
    CHECK(info.default_guidance == 1.0f);
}

TEST_CASE("text encoder and autoencoder are described from their headers") {
    const FileInfo text = inspect_file(fixture("klein/text_encoder.safetensors"));
    CHECK(text.part == "text encoder");
    CHECK(text.name == "Qwen3, hidden size 64");
    CHECK(text.naming == "Hugging Face");
    CHECK(text.text_width == 3 * 64);  // layers 9, 18 and 27
    CHECK(text.latent_channels == 0);
    CHECK(text.variant.empty());
    const FileInfo vae = inspect_file(fixture("klein/vae.safetensors"));
    CHECK(vae.part == "autoencoder");
    CHECK(vae.name == "FLUX.2 autoencoder");
    CHECK(vae.latent_channels == 4 * 32);
    CHECK(vae.text_width == 0);
}

TEST_CASE("a Mistral as wide as Mistral Small 3 that is another one gets a note") {
    const TemporaryFolder folder;
    // One narrow layer with the width of the real one.
    const TextEncoderSizes sizes = {.family = TextFamily::mistral,
                                    .hidden = 5120,
                                    .ffn = 32,
                                    .head_dim = 128,
                                    .n_head = 1,
                                    .n_head_kv = 1,
                                    .n_layers = 1,
                                    .vocabulary = 2};
    std::vector<TestTensor> tensors;
    for (const ExpectedTensor& expected : tensor_list(sizes)) {
        const auto& ne = expected.shape.ne;
        tensors.push_back(test::counting_tensor(
            expected.name, std::vector<int64_t>(ne.begin(), ne.begin() + expected.shape.n_dims)));
    }
    test::write_file(folder / "x.config.json", R"({"flux2": {"layers": [1]}})");
    const FileInfo info = inspect_file(write_model(folder / "x.safetensors", tensors));
    CHECK(info.name == "Mistral, hidden size 5120");
    CHECK(info.text_width == 5120);
    REQUIRE(info.notes.size() == 2);
    CHECK(contains(info.notes[0], "put tokenizer.json of black-forest-labs/FLUX.2-dev"));
    CHECK(contains(info.notes[1], "another model"));
}

TEST_CASE("types are counted, the most frequent first") {
    const TemporaryFolder folder;
    std::vector<TestTensor> tensors = klein("flux2");
    for (TestTensor& tensor : tensors) {
        if (tensor.name == "img_in.weight" || tensor.name == "txt_in.weight") {
            tensor = test::counting_tensor(tensor.name, tensor.shape);
        }
    }
    const FileInfo info = inspect_file(write_model(folder / "x.gguf", tensors));
    CHECK(info.types == "BF16 x 19, F32 x 2");
    CHECK(info.format == "GGUF");
}

TEST_CASE("diffusers names and shards are seen through") {
    const TemporaryFolder folder;
    const FileInfo one = inspect_file(write_model(folder / "a.safetensors", diffusers("flux2")));
    CHECK(one.naming == "diffusers");
    CHECK(one.types == "F32 x 21");
    CHECK(one.n_parameters == inspect_file(fixture("klein/flux2.safetensors")).n_parameters);
    std::vector<TestTensor> tensors = klein("vae");
    const auto half = tensors.begin() + static_cast<std::ptrdiff_t>(tensors.size() / 2);
    write_model(folder / "v-00001-of-00002.safetensors", {tensors.begin(), half});
    write_model(folder / "v-00002-of-00002.safetensors", {half, tensors.end()});
    const FileInfo shards = inspect_file(folder / "v-00002-of-00002.safetensors");
    CHECK(shards.part == "autoencoder");
    CHECK(shards.size_bytes == fs::file_size(folder / "v-00001-of-00002.safetensors") +
                                   fs::file_size(folder / "v-00002-of-00002.safetensors"));
}

TEST_CASE("a converted file tells its variant, name and defaults by its keys") {
    const TemporaryFolder folder;
    const std::string out = " -o " + (folder / "x.gguf").string();
    const std::string convert = test::convert_path();
    REQUIRE(test::run_program(convert + " --variant base -t Q8_0 " +
                              fixture("klein/flux2.safetensors").string() + out)
                .exit_code == 0);
    const FileInfo info = inspect_file(folder / "x.gguf");
    CHECK(info.name == "FLUX.2 klein base 1.2M");
    CHECK(info.variant == "base");
    CHECK(contains(info.variant_reason, "flux2.variant"));
    CHECK(info.default_steps == 50);
    CHECK(info.default_guidance == 4.0f);
    // One double block has 8 matrices, two single blocks have 4; the other 9 keep 16 bits.
    CHECK(info.types == "Q8_0 x 12, BF16 x 9");
    const FileInfo overridden = describe(Checkpoint::open(folder / "x.gguf"), Variant::kv);
    CHECK(overridden.name == "FLUX.2 klein KV 1.2M");
    CHECK(overridden.default_steps == 4);
    REQUIRE(test::run_program(convert + " " + fixture("klein/text_encoder.safetensors").string() +
                              " -o " + (folder / "t.gguf").string())
                .exit_code == 0);
    const FileInfo text = inspect_file(folder / "t.gguf");
    CHECK(text.name == "Qwen3, hidden size 64");
    CHECK(text.naming == "llama.cpp");
    CHECK(text.text_width == 192);
}

TEST_CASE("the used layers make the width, and must exist") {
    const TemporaryFolder folder;
    CHECK(inspect_file(write_text_encoder(folder / "a.safetensors", "1, 36")).text_width == 128);
    for (const char* layers : {"1, 37", "0, 1", "9, 9", "18, 9"}) {
        CAPTURE(layers);
        const auto error = test::error_of(
            [&] { inspect_file(write_text_encoder(folder / "b.safetensors", layers)); });
        CHECK(error.kind == ErrorKind::bad_file);
        CHECK(error.mentions("has 36 layers"));
        CHECK(error.mentions("b.safetensors"));
    }
}

TEST_CASE("an incomplete part is refused with the tensor it lacks") {
    const TemporaryFolder folder;
    const auto error_for = [&](const std::string& part, const std::string& tensor) {
        return test::error_of([&] {
            inspect_file(write_model(folder / "x.safetensors", without(klein(part), tensor)));
        });
    };
    const auto transformer = error_for("flux2", "single_blocks.1.linear2.weight");
    CHECK(transformer.kind == ErrorKind::bad_file);
    CHECK(transformer.mentions("single_blocks.1.linear2.weight is missing"));
    CHECK(error_for("text_encoder", "model.layers.3.mlp.up_proj").mentions("blk.3.ffn_up.weight"));
    CHECK(error_for("vae", "decoder.mid.attn_1.k.bias").mentions("decoder.mid.attn_1.k.bias"));
    CHECK(error_for("vae", "encoder.").mentions("decoder without its encoder"));
}

TEST_CASE("missing, broken and foreign files are refused by name") {
    const TemporaryFolder folder;
    CHECK(test::error_of([&] { inspect_file(folder / "no.gguf"); }).mentions("no.gguf"));
    test::write_file(folder / "x.safetensors", std::string_view("no tensors at all"));
    CHECK(test::error_of([&] { inspect_file(folder / "x.safetensors"); }).kind ==
          ErrorKind::bad_file);
    write_model(folder / "l.safetensors", {test::counting_tensor("a.lora_A.weight", {1})});
    const auto adapter = test::error_of([&] { inspect_file(folder / "l.safetensors"); });
    CHECK(adapter.kind == ErrorKind::unsupported);
    CHECK(adapter.mentions("is a LoRA (a.lora_A.weight); give it with `adapters`"));
}

// ---- misfit ----

FileInfo part_of(const char* part, int64_t text_width, int64_t channels) {
    FileInfo info;
    info.path = std::string(part) + ".gguf";
    info.part = part;
    info.text_width = text_width;
    info.latent_channels = channels;
    return info;
}

TEST_CASE("parts that belong together have no misfit, in either order") {
    const FileInfo transformer = part_of("transformer", 7680, 128);
    const FileInfo text = part_of("text encoder", 7680, 0);
    const FileInfo vae = part_of("autoencoder", 0, 128);
    CHECK_FALSE(misfit(transformer, text));
    CHECK_FALSE(misfit(text, transformer));
    CHECK_FALSE(misfit(transformer, vae));
    CHECK_FALSE(misfit(text, vae));
    CHECK_FALSE(misfit(transformer, part_of("transformer", 12288, 64)));
    CHECK_FALSE(misfit(text, part_of("text encoder", 12288, 0)));
}

TEST_CASE("a text encoder of another size is refused with the one that fits") {
    const FileInfo klein_4b = part_of("transformer", 7680, 128);
    const FileInfo qwen3_8b = part_of("text encoder", 12288, 0);
    const auto reason = misfit(klein_4b, qwen3_8b);
    REQUIRE(reason);
    CHECK(*reason ==
          "transformer.gguf takes text features 7680 wide, text encoder.gguf gives 12288; "
          "use Qwen3-4B, which belongs to klein 4B");
    CHECK(misfit(qwen3_8b, klein_4b) == reason);
    CHECK(contains(*misfit(part_of("transformer", 12288, 128), part_of("text encoder", 7680, 0)),
                   "use Qwen3-8B"));
    const FileInfo dev = part_of("transformer", 15360, 128);
    CHECK(contains(*misfit(dev, qwen3_8b), "15360 wide"));
    CHECK(contains(*misfit(dev, qwen3_8b), "gives 12288; use Mistral Small 3.2, which belongs"));
    CHECK(contains(*misfit(klein_4b, part_of("text encoder", 15360, 0)),
                   "gives 15360; use Qwen3-4B"));
    CHECK_FALSE(misfit(dev, part_of("text encoder", 15360, 0)).has_value());
    CHECK(contains(*misfit(part_of("transformer", 192, 128), qwen3_8b),
                   "klein 4B goes with Qwen3-4B, klein 9B with Qwen3-8B"));
}

TEST_CASE("an autoencoder with other channels is refused") {
    const auto reason = misfit(part_of("autoencoder", 0, 64), part_of("transformer", 7680, 128));
    REQUIRE(reason);
    CHECK(contains(*reason, "transformer.gguf works on 128 latent channels"));
    CHECK(contains(*reason, "autoencoder.gguf makes 64"));
}

// ---- find_model ----

TEST_CASE("three parts in a folder are found") {
    const TemporaryFolder folder;
    write_three(folder.path());
    const FoundModel found = find_model(folder.path());
    CHECK(found.files.transformer == folder / "klein.gguf");
    CHECK(found.files.text_encoder == folder / "qwen3.gguf");
    CHECK(found.files.vae == folder / "vae.gguf");
    CHECK(found.choice == "klein.gguf (FLUX.2 klein 1.2M, BF16), qwen3.gguf, vae.gguf");
}

TEST_CASE("a diffusers folder and Comfy-Org's folders are looked through") {
    const TemporaryFolder folder;
    write_model(folder / "d/transformer/diffusion_pytorch_model.safetensors", diffusers("flux2"));
    const std::vector<TestTensor> text = klein("text_encoder");
    const auto half = text.begin() + static_cast<std::ptrdiff_t>(text.size() / 2);
    write_model(folder / "d/text_encoder/model-00001-of-00002.safetensors", {text.begin(), half});
    write_model(folder / "d/text_encoder/model-00002-of-00002.safetensors", {half, text.end()});
    write_model(folder / "d/vae/diffusion_pytorch_model.safetensors", diffusers("vae"));
    const FoundModel found = find_model(folder / "d");
    CHECK(found.files.transformer == folder / "d/transformer/diffusion_pytorch_model.safetensors");
    CHECK(found.files.text_encoder == folder / "d/text_encoder/model-00001-of-00002.safetensors");
    CHECK(found.files.vae == folder / "d/vae/diffusion_pytorch_model.safetensors");
    CHECK(contains(found.choice, "transformer/diffusion_pytorch_model.safetensors (FLUX.2"));

    write_part(folder / "c/split_files/diffusion_models/klein.safetensors", "flux2");
    write_part(folder / "c/split_files/vae/flux2-vae.safetensors", "vae");
    write_part(folder / "c/a/b/too_deep.safetensors", "text_encoder");
    const FoundModel split = find_model(folder / "c");
    CHECK(split.files.transformer == folder / "c/split_files/diffusion_models/klein.safetensors");
    CHECK(split.files.vae == folder / "c/split_files/vae/flux2-vae.safetensors");
    CHECK(split.files.text_encoder.empty());
}

TEST_CASE("an index represents its shards") {
    const TemporaryFolder folder;
    std::string map;
    for (const TestTensor& tensor : klein("flux2")) {
        map += (map.empty() ? "\"" : ",\"") + tensor.name + R"(": "m-00001-of-00001.safetensors")";
    }
    write_part(folder / "m-00001-of-00001.safetensors", "flux2");
    test::write_file(folder / "m.safetensors.index.json", R"({"weight_map": {)" + map + "}}");
    CHECK(find_model(folder.path()).files.transformer == folder / "m.safetensors.index.json");
}

TEST_CASE("GGUF comes before safetensors, original before diffusers names") {
    const TemporaryFolder folder;
    write_model(folder / "a/transformer.safetensors", diffusers("flux2"));
    write_model(folder / "a/vae.safetensors", diffusers("vae"));
    write_part(folder / "b.safetensors", "flux2");
    write_part(folder / "v.safetensors", "vae");
    const FoundModel original = find_model(folder.path());
    CHECK(original.files.transformer == folder / "b.safetensors");
    CHECK(original.files.vae == folder / "v.safetensors");
    CHECK(contains(original.choice, ", over 1 other transformer"));
    CHECK_FALSE(contains(original.choice, "transformers"));
    write_model(folder / "c.gguf", diffusers("flux2"));
    write_part(folder / "t.safetensors", "text_encoder");
    write_part(folder / "t.gguf", "text_encoder");
    const FoundModel gguf = find_model(folder.path());
    CHECK(gguf.files.transformer == folder / "c.gguf");
    CHECK(gguf.files.text_encoder == folder / "t.gguf");
    CHECK(contains(gguf.choice, ", over 2 other transformers"));
}

TEST_CASE("of several variants the asked one is taken, else klein, kv, base, dev in this order") {
    const TemporaryFolder folder;
    const fs::path dev = write_model(folder / "d.gguf", dev_transformer());
    CHECK(find_model(folder.path()).files.transformer == dev);
    const fs::path base = write_part(folder / "x-base.safetensors", "flux2");
    CHECK(find_model(folder.path()).files.transformer == base);
    const fs::path kv = write_part(folder / "x-kv.safetensors", "flux2");
    CHECK(find_model(folder.path()).files.transformer == kv);
    const fs::path plain = write_part(folder / "x.safetensors", "flux2");
    CHECK(find_model(folder.path()).files.transformer == plain);
    CHECK(find_model(folder.path(), "klein").files.transformer == plain);
    CHECK(find_model(folder.path(), "kv").files.transformer == kv);
    CHECK(find_model(folder.path(), "base").files.transformer == base);
    CHECK(find_model(folder.path(), "dev").files.transformer == dev);
}

TEST_CASE("a variant that is not there is refused with those that are") {
    const TemporaryFolder folder;
    write_three(folder.path());
    write_part(folder / "x-base.gguf", "flux2");
    const auto error = find_error(folder.path(), "kv");
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("no transformer of variant kv"));
    CHECK(error.mentions("klein (klein.gguf), base (x-base.gguf)"));
    CHECK(find_error(folder.path(), "schnell").kind == ErrorKind::bad_argument);
}

TEST_CASE("parts fit the transformer that is taken") {
    const TemporaryFolder folder;
    write_part(folder / "small-base.gguf", "flux2");
    write_model(folder / "large.gguf", transformer_for_width(384));
    write_text_encoder(folder / "qwen-small.gguf", "9, 18, 27");
    write_text_encoder(folder / "qwen-large.gguf", "1, 2, 3, 4, 5, 6");
    const FoundModel large = find_model(folder.path());
    CHECK(large.files.transformer == folder / "large.gguf");
    CHECK(large.files.text_encoder == folder / "qwen-large.gguf");
    const FoundModel small = find_model(folder.path(), "base");
    CHECK(small.files.transformer == folder / "small-base.gguf");
    CHECK(small.files.text_encoder == folder / "qwen-small.gguf");
}

TEST_CASE("of two sizes the one with its text encoder is taken") {
    const TemporaryFolder folder;
    write_part(folder / "small.safetensors", "flux2");
    write_model(folder / "large.gguf", transformer_for_width(384));
    write_part(folder / "qwen.gguf", "text_encoder");
    CHECK(find_model(folder.path()).files.transformer == folder / "small.safetensors");
}

TEST_CASE("a part that does not fit is left out with a warning") {
    const TemporaryFolder folder;
    write_model(folder / "large.gguf", transformer_for_width(384));
    write_part(folder / "qwen.gguf", "text_encoder");
    write_part(folder / "vae.gguf", "vae");
    const LogWatch log;
    const FoundModel found = find_model(folder.path());
    CHECK(found.files.text_encoder.empty());
    CHECK(contains(found.choice, "no text encoder, vae.gguf"));
    CHECK(contains(log.warnings, "takes text features 384 wide"));
    CHECK(contains(log.warnings, "gives 192"));
}

TEST_CASE("two that nothing tells apart are refused with the setting that chooses") {
    const TemporaryFolder folder;
    write_three(folder.path());
    for (const auto& [part, file, setting] :
         {std::tuple{"flux2", "klein.gguf", "`transformer` FILE"},
          {"text_encoder", "qwen3.gguf", "`text_encoder` FILE"},
          {"vae", "vae.gguf", "`vae` FILE"}}) {
        CAPTURE(part);
        write_part(folder / "other.gguf", part);
        const auto error = find_error(folder.path());
        CHECK(error.kind == ErrorKind::bad_file);
        CHECK(error.mentions("other.gguf ("));
        CHECK(error.mentions(std::string(file) + " ("));
        CHECK(error.mentions(setting));
    }
}

TEST_CASE("a part that is given is not looked for") {
    const TemporaryFolder folder;
    write_three(folder.path());
    write_part(folder / "other.gguf", "flux2");
    write_part(folder / "qwen3-q4.gguf", "text_encoder");
    const ModelFiles given{
        .transformer = folder / "other.gguf", .text_encoder = folder / "qwen3.gguf", .vae = {}};
    const FoundModel found = find_model(folder.path(), "base", given);
    CHECK(found.files.transformer == given.transformer);
    CHECK(found.files.text_encoder == given.text_encoder);
    CHECK(found.files.vae == folder / "vae.gguf");
    const auto wrong = find_error(folder.path(), "", {folder / "vae.gguf", {}, {}});
    CHECK(wrong.kind == ErrorKind::bad_file);
    CHECK(wrong.mentions("`transformer` takes the transformer"));
}

TEST_CASE("hidden files and files of other models are passed over") {
    const TemporaryFolder folder;
    write_three(folder.path());
    write_part(folder / ".klein.gguf", "flux2");
    write_part(folder / ".cache/klein.gguf", "flux2");
    write_model(folder / "flux1.gguf", {test::counting_tensor("vector_in.in_layer.weight", {1})});
    write_model(folder / "lora.safetensors", {test::counting_tensor("a.lora_A.weight", {1})});
    write_model(folder / "notes.safetensors", {test::counting_tensor("notes", {1})});
    const LogWatch log;
    CHECK(find_model(folder.path()).files.transformer == folder / "klein.gguf");
    CHECK(contains(log.debug, "flux1.gguf: skipped; is a FLUX.1 transformer"));
    CHECK(contains(log.debug, "lora.safetensors"));
    CHECK(contains(log.debug, "notes.safetensors: skipped; is no part of FLUX.2"));
    CHECK(log.warnings.empty());
}

TEST_CASE("a broken file matters only when nothing else serves its part") {
    const TemporaryFolder folder;
    write_three(folder.path());
    test::Bytes bytes = test::read_file(folder / "vae.gguf");
    bytes.resize(bytes.size() / 2);
    test::write_file(folder / "half.gguf", bytes);
    write_model(folder / "a.safetensors", without(klein("vae"), "decoder.conv_out"));
    CHECK(find_model(folder.path()).files.vae == folder / "vae.gguf");
    fs::remove(folder / "vae.gguf");
    // A broken autoencoder is named before a file of unknown kind.
    const auto incomplete = find_error(folder.path());
    CHECK(incomplete.kind == ErrorKind::bad_file);
    CHECK(incomplete.mentions("a.safetensors: tensor decoder.conv_out"));
    fs::remove(folder / "a.safetensors");
    CHECK(find_error(folder.path()).mentions("half.gguf"));
    fs::remove(folder / "half.gguf");
    CHECK(find_model(folder.path()).files.vae.empty());
}

TEST_CASE("a transformer with unreadable weights is reported when it is the only one") {
    const TemporaryFolder folder;
    std::vector<TestTensor> tensors = klein("flux2");
    tensors.push_back(test::counting_tensor("img_in.weight_packed", {1}));
    write_model(folder / "fp8.safetensors", tensors);
    const auto error = find_error(folder.path());
    CHECK(error.kind == ErrorKind::unsupported);
    CHECK(error.mentions("compressed-tensors"));
    CHECK(error.mentions("fp8.safetensors"));
    write_part(folder / "klein.safetensors", "flux2");
    CHECK(find_model(folder.path()).files.transformer == folder / "klein.safetensors");
}

TEST_CASE("parts without a transformer are found too") {
    const TemporaryFolder folder;
    write_part(folder / "vae.gguf", "vae");
    const FoundModel found = find_model(folder.path(), "base");
    CHECK(found.files.transformer.empty());
    CHECK(found.files.vae == folder / "vae.gguf");
    CHECK(found.choice == "no transformer, no text encoder, vae.gguf");
}

TEST_CASE("a missing folder, an empty one and a file in its place are told apart") {
    const TemporaryFolder folder;
    const auto missing = find_error(folder / "nowhere");
    CHECK(missing.kind == ErrorKind::bad_file);
    CHECK(missing.mentions("no such folder"));
    const auto empty = find_error(folder.path());
    CHECK(empty.kind == ErrorKind::bad_file);
    CHECK(empty.mentions("holds no part of FLUX.2"));
    CHECK(empty.mentions("a text encoder and an autoencoder are expected"));
    const auto file = find_error(write_part(folder / "klein.gguf", "flux2"));
    CHECK(file.kind == ErrorKind::bad_argument);
    CHECK(file.mentions("`transformer`"));
}

// ---- flux2 info ----

test::ProgramResult run_info(const std::string& arguments) {
    return test::run_program(test::flux2_path() + " info " + arguments);
}

std::string klein_path(const std::string& file) {
    return fixture("klein/" + file).string();
}

TEST_CASE("info tells what files are and that they fit") {
    const auto result =
        run_info(klein_path("flux2.safetensors") + " " + klein_path("text_encoder.safetensors"));
    CHECK(result.exit_code == 0);
    CHECK(result.err.empty());
    for (const char* text :
         {"transformer: FLUX.2 klein 1.2M, variant klein, distilled (nothing says otherwise",
          "safetensors, original names, BF16 x 21", "parameters, 2 MB",
          "takes text features 192 wide", "by default 1024x1024, 4 steps, guidance 1",
          "text encoder: Qwen3, hidden size 64", "gives text features 192 wide", "fits: "}) {
        CAPTURE(text);
        CHECK(contains(result.out, text));
    }
    CHECK_FALSE(contains(result.out, "misfit"));
}

TEST_CASE("info goes on after a file it cannot read and exits with 3") {
    const auto result =
        run_info("no.gguf " + klein_path("ref_0.png") + " " + klein_path("vae.safetensors"));
    CHECK(result.exit_code == 3);
    CHECK(contains(result.err, "flux2: no.gguf: no such file"));
    CHECK(contains(result.out, "nothing is stored in it about how it was made"));
    CHECK(contains(result.out, "FLUX.2 autoencoder"));
}

TEST_CASE("a configuration nested without end is refused, not followed") {
    const TemporaryFolder folder;
    fs::copy_file(fixture("klein/text_encoder.safetensors"), folder / "text_encoder.safetensors");
    std::string deep = "{\"flux2\": ";
    for (int i = 0; i < 100'000; ++i) {
        deep += "[";
    }
    test::write_file(folder / "config.json", deep + std::string(100'000, ']') + "}");
    const auto result = run_info((folder / "text_encoder.safetensors").string());
    CHECK(result.exit_code == 3);
    CHECK(contains(result.err, "config.json: is not a valid JSON object"));
}

TEST_CASE("info says why parts do not fit, which is no failure of its own") {
    const TemporaryFolder folder;
    const fs::path large = write_model(folder / "large.gguf", transformer_for_width(384));
    const std::string files = large.string() + " " + klein_path("text_encoder.safetensors");
    const auto lines = run_info(files);
    CHECK(lines.exit_code == 0);
    CHECK(contains(lines.out, "misfit: " + large.string() + " takes text features 384 wide"));
    const auto result = run_info("--json no.gguf " + files);
    CHECK(result.exit_code == 3);
    const auto json = nlohmann::json::parse(result.out);
    REQUIRE(json.at("files").size() == 3);
    CHECK(json["files"][0]["path"] == "no.gguf");
    CHECK(contains(json["files"][0]["error"], "no such file"));
    CHECK(json["files"][1]["part"] == "transformer");
    CHECK(json["files"][1]["text_width"] == 384);
    CHECK(json["files"][1]["default_steps"] == 4);
    CHECK(json["files"][2]["name"] == "Qwen3, hidden size 64");
    REQUIRE(json.at("misfits").size() == 1);
    CHECK(json["misfits"][0]["files"][0] == large.string());
    CHECK(contains(json["misfits"][0]["reason"], "gives 192"));
}

TEST_CASE("info on a folder tells the choice and its parts") {
    // Recordings lie there too, and are passed over.
    const auto result = run_info(fixture("klein").string());
    CHECK(result.exit_code == 0);
    CHECK(contains(result.out,
                   "klein: flux2.safetensors (FLUX.2 klein 1.2M, BF16), "
                   "text_encoder.safetensors, vae.safetensors"));
    CHECK(contains(result.out, "FLUX.2 autoencoder"));
    const TemporaryFolder empty;
    CHECK(run_info(empty.path().string()).exit_code == 3);
}

TEST_CASE("info on a folder that lacks parts says what to add to it") {
    const TemporaryFolder folder;
    write_part(folder / "vae.safetensors", "vae");
    const auto result = run_info(folder.path().string());
    CHECK(result.exit_code == 0);
    CHECK(contains(result.out, "next: flux2 -m " + folder.path().string() +
                                   " --diffusion-model TRANSFORMER --llm TEXT_ENCODER -p"));
    CHECK(contains(run_info(fixture("klein").string()).out,
                   "next: flux2 -m " + fixture("klein").string() + " -p"));
}

TEST_CASE("info tells pictures of kinds that flux2 does not read") {
    const TemporaryFolder folder;
    const auto write = [&](const char* name, std::string_view start) {
        test::write_file(folder / name, std::string(start) + std::string(100, 'x'));
        return (folder / name).string();
    };
    for (const auto& [file, kind] :
         {std::pair{write("a.gif", "GIF89a"), "a GIF picture"},
          {write("b.gif", "GIF87a"), "a GIF picture"},
          {write("a.tiff", std::string_view("II*\0", 4)), "a TIFF picture"},
          {write("a.avif", std::string_view("\0\0\0\x20"
                                            "ftypavif",
                                            12)),
           "an AVIF picture"}}) {
        const auto result = run_info(file);
        CHECK(result.exit_code == 3);
        CHECK_MESSAGE(contains(result.err, file + ": is " + kind), result.err);
        CHECK(contains(result.err, "convert it to PNG, JPEG or WebP"));
    }
}

TEST_CASE("info tells the size of a BMP and of a WebP") {
    const TemporaryFolder folder;
    Image image;
    image.width = 48;
    image.height = 33;
    image.rgb.assign(size_t{48} * 33 * 3, 200);
    for (const char* name : {"x.bmp", "x.webp"}) {
        if (name == std::string("x.webp") && !supports_webp()) {
            continue;
        }
        CAPTURE(name);
        const std::string file = (folder / name).string();
        save_image(file, image);
        const auto result = run_info(file);
        CHECK(result.exit_code == 0);
        CHECK(contains(result.out, "picture: 48x33"));
        const auto json = nlohmann::json::parse(run_info("--json " + file).out);
        CHECK(json["files"][0]["part"] == "picture");
        CHECK(json["files"][0]["width"] == 48);
        CHECK(json["files"][0]["height"] == 33);
    }
}

TEST_CASE("a safetensors file that begins as a BMP does is none") {
    const TemporaryFolder folder;
    // Its header has 0x4D42 bytes, "BM".
    std::string header = R"({"__metadata__":{}})";
    header.resize(0x4D42, ' ');
    test::write_file(folder / "x.safetensors", test::safetensors(header));
    const auto result = run_info((folder / "x.safetensors").string());
    CHECK(result.exit_code == 3);
    CHECK(contains(result.err, "is no part of FLUX.2"));
}

#ifndef _WIN32
TEST_CASE("a configuration that cannot be looked at is named") {
    const TemporaryFolder folder;
    fs::copy_file(fixture("klein/text_encoder.safetensors"), folder / "text_encoder.safetensors");
    fs::create_symlink(folder / "config.json", folder / "config.json");
    const auto error = test::error_of([&] { inspect_file(folder / "text_encoder.safetensors"); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("config.json: cannot be looked at"));
}

TEST_CASE("a file whose name leaves no room for that of its configuration has none") {
    const TemporaryFolder folder;
    const std::string name = std::string(250, 'a') + ".gguf";  // 255 bytes, the most there may be
    CHECK(inspect_file(write_part(folder / name, "text_encoder")).part == "text encoder");
}
#endif

TEST_CASE("info without files is a usage error") {
    const auto result = run_info("");
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, "give model files"));
    CHECK(run_info("--help").exit_code == 0);
}

}  // namespace
}  // namespace flux2
