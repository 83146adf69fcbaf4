// LoRAs merged while converting: the written weights against sums computed here.
#include "convert.hpp"
#include "formats/tensor_source.hpp"
#include "merge.hpp"
#include "support/program.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

namespace flux2::convert {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::kNoCancel;
using test::TestTensor;

const std::string kQkv = "double_blocks.0.img_attn.qkv";
const std::string kNorm = "single_blocks.0.norm.query_norm";
constexpr int64_t kHidden = 256;
constexpr int64_t kRank = 4;

std::vector<float> small_values(int64_t n, int step) {
    std::vector<float> values;
    for (int64_t i = 0; i < n; ++i) {
        values.push_back(static_cast<float>(i * step % 31 - 15) / 64);
    }
    return values;
}

TestTensor tensor(const std::string& name, const std::vector<int64_t>& shape, int step) {
    int64_t n = 1;
    for (const int64_t size : shape) {
        n *= size;
    }
    return {name, shape, test::bytes_of(small_values(n, step))};
}

// A pair for the fused queries, keys and values, and a difference for a norm.
std::vector<TestTensor> lora_tensors() {
    return {tensor("diffusion_model." + kQkv + ".lora_A.weight", {kHidden, kRank}, 3),
            tensor("diffusion_model." + kQkv + ".lora_B.weight", {kRank, 3 * kHidden}, 7),
            tensor("diffusion_model." + kNorm + ".diff", {64}, 5)};
}

// A model and a LoRA for it in a folder.
struct Files {
    test::TemporaryFolder folder;
    fs::path model = folder / "model.safetensors";
    fs::path lora = folder / "style.safetensors";

    Files() {
        test::write_file(model, test::safetensors_of(test::wide_transformer(1)));
        test::write_file(lora, test::safetensors_of(lora_tensors()));
    }
    std::string lora_at(const std::string& strength) const {
        return lora.string() + ":" + strength;
    }
};

ConvertOptions options_for(const std::string& type, const std::vector<std::string>& adapters) {
    ConvertOptions options;
    options.types.file_type = &parse_file_type(type);
    options.n_threads = 2;
    options.adapters = open_adapters(adapters);
    return options;
}

TensorSource converted(const fs::path& input, const fs::path& output,
                       const ConvertOptions& options) {
    const Checkpoint checkpoint = Checkpoint::open(input);
    write_plan(make_plan(checkpoint, output, options), options.n_threads, kNoCancel,
               [](uint64_t) {});
    return TensorSource::open(output);
}

std::vector<float> values_of(const TestTensor& tensor) {
    std::vector<float> values(tensor.data.size() / sizeof(float));
    to_f32(TensorType::f32, tensor.data, values);
    return values;
}

// What the model's tensors are with the LoRA.
std::vector<float> expected_values(const TestTensor& source, double strength) {
    std::vector<float> values = values_of(source);
    if (source.name == kQkv + ".weight") {
        const std::vector<float> down = small_values(kRank * kHidden, 3);
        const std::vector<float> up = small_values(3 * kHidden * kRank, 7);
        for (size_t i = 0; i < values.size(); ++i) {
            double sum = 0;
            for (size_t k = 0; k < kRank; ++k) {
                sum += static_cast<double>(up[i / kHidden * kRank + k]) *
                       static_cast<double>(down[k * kHidden + i % kHidden]);
            }
            values[i] = static_cast<float>(static_cast<double>(values[i]) + strength * sum);
        }
    }
    if (source.name == kNorm + ".scale") {
        for (size_t i = 0; i < values.size(); ++i) {
            values[i] += static_cast<float>(strength) * small_values(64, 5)[i];
        }
    }
    return values;
}

// Sums of four products of values below 1 in F32.
constexpr float kTolerance = 1e-6f;

void check_merged(const TensorSource& written, double strength) {
    for (const TestTensor& source : test::wide_transformer(1)) {
        CAPTURE(source.name);
        const std::vector<float> found = read_tensor(written, source.name).data;
        const std::vector<float> expected = expected_values(source, strength);
        REQUIRE(found.size() == expected.size());
        float worst = 0;
        for (size_t i = 0; i < found.size(); ++i) {
            worst = std::max(worst, std::abs(found[i] - expected[i]));
        }
        CHECK(worst <= kTolerance);
    }
}

}  // namespace

TEST_CASE("merged weights are W + s B A, and others are as in the source") {
    const Files files;
    const TensorSource written =
        converted(files.model, files.folder / "x.gguf", options_for("F32", {files.lora_at("0.5")}));
    check_merged(written, 0.5);
    const auto* notes = written.metadata().get_strings("flux2.adapters");
    REQUIRE(notes != nullptr);
    CHECK(*notes == std::vector<std::string>{"style.safetensors:0.5"});
}

TEST_CASE("several LoRAs add up, also over two conversions, and all are noted") {
    const Files files;
    converted(files.model, files.folder / "first.gguf",
              options_for("F32", {files.lora_at("0.5"), files.lora_at("-0.25")}));
    const TensorSource second = converted(files.folder / "first.gguf", files.folder / "x.gguf",
                                          options_for("F32", {files.lora_at("1")}));
    check_merged(second, 1.25);
    CHECK(*second.metadata().get_strings("flux2.adapters") ==
          std::vector<std::string>{"style.safetensors:0.5", "style.safetensors:-0.25",
                                   "style.safetensors:1"});
}

TEST_CASE("a LoRA of strength 0 leaves the same file as none") {
    const Files files;
    converted(files.model, files.folder / "zero.gguf", options_for("Q8_0", {files.lora_at("0")}));
    converted(files.model, files.folder / "none.gguf", options_for("Q8_0", {}));
    CHECK(test::read_file(files.folder / "zero.gguf") ==
          test::read_file(files.folder / "none.gguf"));
}

TEST_CASE("a LoRA is added before weights are quantised") {
    const Files files;
    converted(files.model, files.folder / "merged.gguf", options_for("F32", {files.lora_at("1")}));
    const TensorSource in_two_steps =
        converted(files.folder / "merged.gguf", files.folder / "two.gguf", options_for("Q4_K", {}));
    const TensorSource at_once = converted(files.model, files.folder / "one.gguf",
                                           options_for("Q4_K", {files.lora_at("1")}));
    for (const TensorInfo& tensor : in_two_steps.tensors()) {
        CAPTURE(tensor.name);
        const TensorInfo* other = at_once.find(tensor.name);
        REQUIRE(other != nullptr);
        CHECK(other->type == tensor.type);
        CHECK(std::equal(tensor.bytes.begin(), tensor.bytes.end(), other->bytes.begin(),
                         other->bytes.end()));
    }
}

TEST_CASE("verification compares with the merged weights") {
    const Files files;
    const Checkpoint checkpoint = Checkpoint::open(files.model);
    const ConvertOptions options = options_for("Q8_0", {files.lora_at("1")});
    ConversionPlan plan = make_plan(checkpoint, files.folder / "x.gguf", options);
    write_plan(plan, 2, kNoCancel, [](uint64_t) {});
    const auto all_good = [&] {
        const std::vector<TypeError> errors = verify_plan(plan, 2, kNoCancel, [](uint64_t) {});
        return std::all_of(errors.begin(), errors.end(),
                           [](const TypeError& error) { return error.within_limit; });
    };
    CHECK(all_good());
    plan.adapters = AdapterSet();
    CHECK_FALSE(all_good());
}

TEST_CASE("types by measured error are those of the merged weights") {
    const Files files;
    converted(files.model, files.folder / "merged.gguf", options_for("F32", {files.lora_at("1")}));
    const auto errors = [&](const fs::path& input, const std::vector<std::string>& adapters) {
        const Checkpoint checkpoint = Checkpoint::open(input);
        ConvertOptions options = options_for("Q8_0", adapters);
        options.types.max_error = 0.05;
        std::vector<double> result;
        for (const PlannedTensor& tensor : make_plan(checkpoint, "x.gguf", options).tensors) {
            result.push_back(tensor.error.value_or(0));
        }
        return result;
    };
    CHECK(errors(files.model, {files.lora_at("1")}) == errors(files.folder / "merged.gguf", {}));
}

TEST_CASE("quantised weights with a LoRA are not quantised again unless asked") {
    const Files files;
    converted(files.model, files.folder / "q8.gguf", options_for("Q8_0", {}));
    ConvertOptions options = options_for("Q8_0", {files.lora_at("1")});
    const auto error =
        error_of([&] { converted(files.folder / "q8.gguf", files.folder / "x.gguf", options); });
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions(kQkv + ".weight is already quantised to Q8_0"));
    options.allow_requantize = true;
    CHECK_NOTHROW(converted(files.folder / "q8.gguf", files.folder / "x.gguf", options));
    options.allow_requantize = false;
    options.types.file_type = &parse_file_type("BF16");
    CHECK_NOTHROW(converted(files.folder / "q8.gguf", files.folder / "x.gguf", options));
}

TEST_CASE("a LoRA for a text encoder is merged into it alone") {
    const test::TemporaryFolder folder;
    const fs::path model = test::fixture("klein/text_encoder.safetensors");
    const Checkpoint checkpoint = Checkpoint::open(model);
    const std::string name = "blk.1.attn_q.weight";
    const Shape shape = checkpoint.get(name).shape;
    const std::string key = "text_encoder.model.layers.1.self_attn.q_proj.diff";
    test::write_file(folder / "te.safetensors",
                     test::safetensors_of({tensor(key, {shape.ne[0], shape.ne[1]}, 3)}));
    const ConvertOptions options =
        options_for("F32", {(folder / "te.safetensors").string() + ":2"});
    const TensorSource written = converted(model, folder / "te.gguf", options);
    std::vector<float> expected(static_cast<size_t>(shape.elements()));
    checkpoint.get(name).read_f32(0, expected);
    const std::vector<float> change = small_values(shape.elements(), 3);
    for (size_t i = 0; i < expected.size(); ++i) {
        expected[i] += 2 * change[i];
    }
    CHECK(read_tensor(written, name).data == expected);

    const Checkpoint transformer = Checkpoint::open(test::fixture("klein/flux2.safetensors"));
    std::vector<ConversionPlan> plans;
    plans.push_back(make_plan(transformer, "x.gguf", options));
    const auto error = error_of([&] { check_adapters_used(plans, options.adapters); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("te.safetensors: changes a text encoder"));
}

TEST_CASE("flux2-convert merges LoRAs and says so") {
    const Files files;
    const auto convert = [&](const std::string& arguments) {
        return test::run_program(test::convert_path() + " " + files.model.string() + " " +
                                 arguments);
    };
    const std::string output = " -o " + (files.folder / "x.gguf").string();
    const auto good = convert("--lora " + files.lora_at("0.5") + " -t F32 --verify" + output);
    CHECK(good.exit_code == 0);
    CHECK(good.err.empty());
    CHECK(good.out.find("with 2 modules of style.safetensors:0.5") != std::string::npos);
    check_merged(TensorSource::open(files.folder / "x.gguf"), 0.5);
    CHECK(convert("--lora " + (files.folder / "none.safetensors").string() + output).exit_code ==
          3);
    CHECK(convert("--lora " + files.lora.string() + " -o " + files.lora.string()).exit_code == 2);
    CHECK(convert("--lora " + files.lora_at("0.5") + " --rank 4" + output).exit_code == 2);
}

}  // namespace flux2::convert
