// flux2-convert as users run it: exit codes, messages, what is left on disk.
#include "formats/tensor_source.hpp"
#include "support/program.hpp"
#include "support/small_tokenizer.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <tuple>

namespace flux2::convert {
namespace {

namespace fs = std::filesystem;
using test::fixture;

test::ProgramResult convert(const std::string& arguments) {
    return test::run_program(test::convert_path() + " " + arguments);
}

std::string klein(const std::string& part) {
    return fixture("klein/" + part + ".safetensors").string();
}

TEST_CASE("one input gives one file and one line") {
    const test::TemporaryFolder folder;
    const auto result = convert(klein("flux2") + " -o " + (folder / "x.gguf").string());
    CHECK(result.exit_code == 0);
    CHECK(result.err.empty());
    CHECK(result.out.find("variant klein") != std::string::npos);
    CHECK(result.out.find("29 tensors") != std::string::npos);
    CHECK(folder.names() == std::vector<std::string>{"x.gguf"});
}

TEST_CASE("no tensor of a transformer may be missing") {
    const test::TemporaryFolder folder;
    const std::vector<test::TestTensor> whole = test::tensors_of(klein("flux2"));
    for (const test::TestTensor& missing : whole) {
        CAPTURE(missing.name);
        std::vector<test::TestTensor> tensors = whole;
        std::erase_if(tensors, [&](const auto& tensor) { return tensor.name == missing.name; });
        test::write_file(folder / "in.safetensors", test::safetensors_of(tensors));
        const auto result =
            convert((folder / "in.safetensors").string() + " -o " + (folder / "out.gguf").string());
        CHECK(result.exit_code == 3);
        CHECK(result.err.find(missing.name) != std::string::npos);
        CHECK(folder.names() == std::vector<std::string>{"in.safetensors"});
    }
}

TEST_CASE("several inputs go to a folder under fixed names") {
    const test::TemporaryFolder folder;
    const auto result = convert(klein("vae") + " " + klein("text_encoder") + " " + klein("flux2") +
                                " --verify -t Q4_0 -o " + (folder / "out").string());
    CHECK(result.exit_code == 0);
    CHECK(result.out.find("verify Q4_0") != std::string::npos);
    CHECK(result.err.find("no tokenizer.json") != std::string::npos);
    for (const char* name : {"transformer.gguf", "text_encoder.gguf", "vae.gguf"}) {
        CHECK(fs::exists(folder / "out" / name));
    }
}

TEST_CASE("a diffusers folder gives all its parts") {
    const test::TemporaryFolder folder;
    for (const auto& [part, file] :
         {std::pair{"transformer", "flux2"}, {"text_encoder", "text_encoder"}, {"vae", "vae"}}) {
        fs::create_directories(folder / "model" / part);
        fs::copy_file(klein(file), folder / "model" / part / "diffusion_pytorch_model.safetensors");
    }
    test::write_file(folder / "model/model_index.json", R"({"is_distilled": false})");
    fs::create_directories(folder / "model/tokenizer");
    test::write_file(folder / "model/tokenizer/tokenizer.json", test::small_tokenizer_json());
    const auto result = convert((folder / "model").string() + " -o " + (folder / "out").string());
    CHECK(result.exit_code == 0);
    const TensorSource transformer = TensorSource::open(folder / "out/transformer.gguf");
    CHECK(transformer.metadata().get_string("flux2.variant") == "base");
    const TensorSource text = TensorSource::open(folder / "out/text_encoder.gguf");
    CHECK(text.metadata().contains("tokenizer.ggml.tokens"));
    fs::remove_all(folder / "model/vae");
    const auto incomplete =
        convert((folder / "model").string() + " -o " + (folder / "other").string());
    CHECK(incomplete.exit_code == 3);
    CHECK(incomplete.err.find("vae") != std::string::npos);
    CHECK_FALSE(fs::exists(folder / "other"));
}

TEST_CASE("a dry run prints the table and writes nothing") {
    const test::TemporaryFolder folder;
    const auto result =
        convert(klein("flux2") + " --dry-run -t Q4_0 -o " + (folder / "x.gguf").string());
    CHECK(result.exit_code == 0);
    CHECK(result.out.find("single_blocks.1.linear2.weight") != std::string::npos);
    CHECK(result.out.find("BF16     -> Q4_0") != std::string::npos);
    CHECK(folder.names().empty());
}

TEST_CASE("usage errors exit with 2") {
    const test::TemporaryFolder folder;
    const std::string out = " -o " + (folder / "x.gguf").string();
    for (const std::string& arguments : std::vector<std::string>{
             "", "-o x", klein("flux2"), klein("flux2") + out + " --type Q7",
             klein("flux2") + out + " --variant schnell", klein("flux2") + out + " --nonsense",
             klein("flux2") + out + " --threads 0", klein("flux2") + out + " --threads many",
             klein("flux2") + out + " --tensor-type '(=Q8_0'",
             klein("flux2") + out + " --variant dev",
             klein("text_encoder") + out + " --text-layers 9,x",
             klein("text_encoder") + out + " --text-layers 9,99",
             klein("flux2") + " -o " + folder.path().string(),
             klein("flux2") + " -o " + klein("flux2")}) {
        CAPTURE(arguments);
        const auto result = convert(arguments);
        CHECK(result.exit_code == 2);
        CHECK(result.err.find("flux2-convert: ") == 0);
        CHECK(folder.names().empty());
    }
}

// A text encoder in two shards with all that is read beside it.
void write_model_folder(const test::TemporaryFolder& folder) {
    auto tensors = test::tensors_of(klein("text_encoder"));
    const auto half = tensors.begin() + static_cast<std::ptrdiff_t>(tensors.size() / 2);
    nlohmann::json shards;
    for (auto tensor = tensors.begin(); tensor != tensors.end(); ++tensor) {
        shards[tensor->name] =
            tensor < half ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
    }
    fs::create_directories(folder / "model/text_encoder");
    fs::create_directories(folder / "model/tokenizer");
    const fs::path here = folder / "model/text_encoder";
    test::write_file(here / "model-00001-of-00002.safetensors",
                     test::safetensors_of({tensors.begin(), half}));
    test::write_file(here / "model-00002-of-00002.safetensors",
                     test::safetensors_of({half, tensors.end()}));
    test::write_file(here / "model.safetensors.index.json",
                     nlohmann::json{{"weight_map", shards}}.dump());
    test::write_file(here / "config.json", "{}");
    test::write_file(folder / "model/model_index.json", "{}");
    test::write_file(folder / "model/tokenizer/tokenizer.json", test::small_tokenizer_json());
    test::write_file(folder / "model/tokenizer/merges.txt", "");
}

TEST_CASE("a file that is read is not written, whatever name it is given") {
    const test::TemporaryFolder folder;
    write_model_folder(folder);
    test::write_file(folder / "own.json", test::small_tokenizer_json());
    fs::create_symlink(folder / "model/tokenizer/tokenizer.json", folder / "link.gguf");
    fs::create_hard_link(folder / "model/text_encoder/config.json", folder / "hard.gguf");
    const std::string input = (folder / "model/text_encoder").string() + " --tokenizer " +
                              (folder / "own.json").string() + " -o ";
    for (const std::string name :
         {"model/text_encoder/model-00002-of-00002.safetensors",
          "model/text_encoder/model.safetensors.index.json", "model/text_encoder/config.json",
          "model/model_index.json", "model/tokenizer/tokenizer.json", "model/tokenizer/merges.txt",
          "model/text_encoder/../tokenizer/tokenizer.json", "link.gguf", "hard.gguf", "own.json"}) {
        CAPTURE(name);
        const test::Bytes before = test::read_file(folder / name);
        const auto result = convert(input + (folder / name).string());
        CHECK(result.exit_code == 2);
        CHECK(result.err.find("is an input") != std::string::npos);
        CHECK(result.out.empty());  // refused before the work
        CHECK(test::read_file(folder / name) == before);
    }
    CHECK(convert(input + (folder / "model/text_encoder/new.gguf").string()).exit_code == 0);
}

TEST_CASE("outputs that cannot be files are refused before the work, and stay what they are") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "file", "x");
    REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
    for (const auto& [output, code, words] :
         {std::tuple{(folder / "pipe").string(), 3, "is a pipe or a device"},
          {(folder / "file/x.gguf").string(), 3, "is no folder"},
          {(folder / "new/").string(), 3, "is a folder"},
          {std::string("''"), 2, "empty name"}}) {
        CAPTURE(output);
        const auto result = convert(klein("vae") + " -o " + output);
        CHECK(result.exit_code == code);
        CHECK(result.err.find(words) != std::string::npos);
        CHECK(result.out.empty());
    }
    CHECK(fs::is_fifo(folder / "pipe"));
    CHECK(folder.names() == std::vector<std::string>{"file", "pipe"});
}

TEST_CASE("the folder of a result is made, and a link to it stays one") {
    const test::TemporaryFolder folder;
    CHECK(convert(klein("vae") + " -o " + (folder / "a/b/vae.gguf").string()).exit_code == 0);
    CHECK(TensorSource::open(folder / "a/b/vae.gguf").tensors().size() > 10);
    fs::create_symlink("a/b/vae.gguf", folder / "link.gguf");
    const auto flux2 = convert(klein("flux2") + " -o " + (folder / "link.gguf").string());
    CHECK(flux2.exit_code == 0);
    CHECK(fs::is_symlink(folder / "link.gguf"));
    CHECK(TensorSource::open(folder / "a/b/vae.gguf").tensors().size() == 29);
}

TEST_CASE("values that cannot be used are refused with the option's name") {
    const test::TemporaryFolder folder;
    const std::string out = " -o " + (folder / "x.gguf").string();
    for (const auto& [part, arguments, says] : std::vector<std::array<std::string, 3>>{
             {"flux2", "--max-error 0.1x", "--max-error takes a number, not '0.1x'"},
             {"flux2", "--max-error nan", "--max-error takes a number, not 'nan'"},
             {"flux2", "--target-size much", "--target-size: 'much' is no size"},
             {"flux2", "--default-guidance 4x", "--default-guidance takes a number, not '4x'"},
             {"flux2", "--default-guidance abc", "--default-guidance takes a number, not 'abc'"},
             {"flux2", "--default-steps abc", "--default-steps takes a whole number, not 'abc'"},
             {"flux2", "--default-steps 1.5", "--default-steps takes a whole number, not '1.5'"},
             {"flux2", "-j abc", "--threads takes a whole number, not 'abc'"},
             {"text_encoder", "--text-length 9z", "--text-length takes a whole number, not '9z'"},
             {"text_encoder", "--text-layers ''", "--text-layers '' is not a list"},
             {"text_encoder", "--text-layers 9,", "--text-layers '9,' is not a list"},
             {"flux2", "--tensor-type no_such=Q8_0", "--tensor-type no_such=Q8_0 matches"},
             {"flux2", "--tensor-type query_norm=Q8_0", "norms and biases are always F32"}}) {
        CAPTURE(arguments);
        const auto result = convert(klein(part) + out + " " + arguments);
        CHECK(result.exit_code == 2);
        CHECK_MESSAGE(result.err.find(says) != std::string::npos, result.err);
        CHECK(folder.names().empty());
    }
}

TEST_CASE("a pattern of --tensor-type may match in any of several parts") {
    const test::TemporaryFolder folder;
    const auto result =
        convert(klein("vae") + " " + klein("flux2") + " --dry-run --tensor-type txt_in=F32 -o " +
                (folder / "out").string());
    CHECK(result.exit_code == 0);
}

TEST_CASE("values that are no numbers exit with 3, with their tensor and place") {
    const test::TemporaryFolder folder;
    std::vector<test::TestTensor> tensors = test::tensors_of(klein("flux2"));
    const auto victim = std::find_if(tensors.begin(), tensors.end(), [](const auto& tensor) {
        return tensor.name == "txt_in.weight";
    });
    REQUIRE(victim->type == TensorType::bf16);
    const uint16_t nan = 0x7fc0;
    std::memcpy(victim->data.data() + 17 * sizeof(nan), &nan, sizeof(nan));
    test::write_file(folder / "in.safetensors", test::safetensors_of(tensors));
    const auto result = convert((folder / "in.safetensors").string() + " --verify -o " +
                                (folder / "x.gguf").string());
    CHECK(result.exit_code == 3);
    CHECK(result.err.find("tensor txt_in.weight holds nan as value 17") != std::string::npos);
    CHECK(folder.names() == std::vector<std::string>{"in.safetensors"});
}

TEST_CASE("missing, broken and unfitting files exit with 3 and are named") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "broken.safetensors", std::string_view("not a model at all"));
    test::Bytes truncated = test::read_file(klein("flux2"));
    truncated.resize(truncated.size() / 2);
    test::write_file(folder / "truncated.safetensors", truncated);
    const size_t before = folder.names().size();
    for (const char* name :
         {"missing.safetensors", "broken.safetensors", "truncated.safetensors"}) {
        CAPTURE(name);
        const auto result =
            convert((folder / name).string() + " -o " + (folder / "x.gguf").string());
        CHECK(result.exit_code == 3);
        CHECK(result.err.find(name) != std::string::npos);
        CHECK(folder.names().size() == before);
    }
    const auto twice =
        convert(klein("flux2") + " " + klein("flux2") + " -o " + (folder / "out").string());
    CHECK(twice.exit_code == 3);
    CHECK_FALSE(fs::exists(folder / "out"));
}

TEST_CASE("help and version exit with 0") {
    CHECK(convert("--help").out.find("--tensor-type") != std::string::npos);
    CHECK(convert("--help").exit_code == 0);
    CHECK(convert("--version").out.find("flux2-convert ") == 0);
}

}  // namespace
}  // namespace flux2::convert
