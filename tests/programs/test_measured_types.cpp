// --target-size and --max-error on the bundled model and on hand-made ones, as users run them.
#include "convert.hpp"
#include "formats/tensor_source.hpp"
#include "support/folders.hpp"
#include "support/program.hpp"
#include "support/scaled_files.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <filesystem>
#include <optional>

namespace flux2::convert {
namespace {

namespace fs = std::filesystem;

const fs::path kTiny = fs::path(test::tiny_model()) / "flux2-tiny-bf16.gguf";
const std::string kConstant = "single_blocks.0.linear1.weight";
const std::string kOutliers = "single_blocks.1.linear1.weight";

test::ProgramResult convert(const std::string& arguments) {
    return test::run_program(test::convert_path() + " " + arguments);
}

ConvertOptions options_for(std::optional<uint64_t> target_bytes, std::optional<double> max_error) {
    ConvertOptions options;
    options.types.file_type = &parse_file_type("Q8_0");
    options.types.target_bytes = target_bytes;
    options.types.max_error = max_error;
    options.n_threads = 2;
    return options;
}

double error_of_plan(const ConversionPlan& plan) {
    return plan.metadata.get_float("flux2.quantization.error").value();
}

const PlannedTensor& planned(const ConversionPlan& plan, const std::string& name) {
    for (const PlannedTensor& tensor : plan.tensors) {
        if (tensor.target.name == name) {
            return tensor;
        }
    }
    FAIL("no tensor " << name);
    return plan.tensors.front();
}

// Two single blocks: all weights of one matrix are the same, those of another have an outlier in
// every 32 values.
fs::path write_model(const test::TemporaryFolder& folder) {
    std::vector<test::TestTensor> tensors = test::wide_transformer(/*n_single=*/2);
    for (test::TestTensor& tensor : tensors) {
        std::vector<float> values = test::floats_of(tensor);
        for (size_t i = 0; i < values.size(); ++i) {
            if (tensor.name == kConstant) {
                values[i] = -15.0f;
            } else if (tensor.name == kOutliers && i % 32 == 3) {
                values[i] = 0.62f;
            }
        }
        tensor.data = test::bytes_of(values);
    }
    const fs::path file = folder / "model.safetensors";
    test::write_file(file, test::safetensors_of(tensors));
    return file;
}

TEST_CASE("a file has at most the size asked for, to the byte") {
    const test::TemporaryFolder folder;
    const Checkpoint checkpoint = Checkpoint::open(write_model(folder));
    const auto error = test::error_of([&] { make_plan(checkpoint, "x", options_for(1000, {})); });
    CHECK(error.kind == ErrorKind::bad_argument);
    const uint64_t least = std::stoull(error.message.substr(error.message.find("takes ") + 6));
    CHECK_NOTHROW(make_plan(checkpoint, "x", options_for(least, {})));
    CHECK(test::error_of([&] {
              make_plan(checkpoint, "x", options_for(least - 1, {}));
          }).mentions(std::to_string(least)));

    const std::atomic<bool> cancel = false;
    for (const uint64_t size : {least + 1, least + least / 2 + 1}) {
        CAPTURE(size);
        const ConversionPlan plan = make_plan(checkpoint, folder / "x.gguf", options_for(size, {}));
        write_plan(plan, 2, cancel, [](uint64_t) {});
        CHECK(fs::file_size(folder / "x.gguf") == plan.output_bytes());
        CHECK(plan.output_bytes() <= size);
        // The size of the result as target gives the same result.
        const ConversionPlan again =
            make_plan(checkpoint, "y", options_for(plan.output_bytes(), {}));
        CHECK(again.output_bytes() == plan.output_bytes());
    }
}

TEST_CASE("larger files have smaller errors") {
    const Checkpoint checkpoint = Checkpoint::open(kTiny);
    double last = 10;
    for (const uint64_t size : {5400000, 6856832, 8614016, 20000000}) {
        const ConversionPlan plan = make_plan(checkpoint, "x", options_for(size, {}));
        CHECK(error_of_plan(plan) < last);
        last = error_of_plan(plan);
    }
    // As --verify finds for Q8_0.
    CHECK(last == doctest::Approx(0.006).epsilon(0.2));
}

TEST_CASE("what is exact in two bits gets two, and outliers get more than the rest") {
    const test::TemporaryFolder folder;
    const Checkpoint checkpoint = Checkpoint::open(write_model(folder));
    // Evenly spread values have an error of about 2^-b in b bits; one of ten times their size in
    // every 32 makes it 1.6 times that.
    constexpr double kLimit = 0.045;
    const ConversionPlan plan = make_plan(checkpoint, "x", options_for({}, kLimit));
    CHECK(planned(plan, kConstant).target.type == TensorType::q2_k);
    CHECK(planned(plan, kConstant).error == 0.0);
    CHECK(planned(plan, "double_blocks.0.img_attn.qkv.weight").target.type == TensorType::q5_k);
    CHECK(planned(plan, kOutliers).target.type == TensorType::q6_k);
    for (const PlannedTensor& tensor : plan.tensors) {
        const bool in_blocks = tensor.target.name.find("_blocks.") != std::string::npos;
        CHECK(tensor.error.has_value() == (in_blocks && tensor.target.shape.n_dims == 2));
        CHECK(tensor.error.value_or(0.0) <= kLimit);
    }

    const ConversionPlan large = make_plan(checkpoint, "x", options_for(100000000, {}));
    CHECK(planned(large, kConstant).target.type == TensorType::q2_k);
    CHECK(planned(large, kOutliers).target.type == TensorType::q8_0);
}

TEST_CASE("an override keeps its tensor out of the choice") {
    const Checkpoint checkpoint = Checkpoint::open(kTiny);
    ConvertOptions options = options_for(8000000, {});
    options.types.overrides.push_back(parse_type_override("single_blocks.0.linear1=F16"));
    const ConversionPlan plan = make_plan(checkpoint, "x", options);
    CHECK(planned(plan, "single_blocks.0.linear1.weight").target.type == TensorType::f16);
    CHECK_FALSE(planned(plan, "single_blocks.0.linear1.weight").error);
    CHECK(plan.output_bytes() <= 8000000);
}

TEST_CASE("the file says how its types were chosen, and forgets it when they change") {
    const test::TemporaryFolder folder;
    const std::string file = (folder / "x.gguf").string();
    const auto result = convert(kTiny.string() + " --target-size 6.8M -o " + file);
    CHECK(result.exit_code == 0);
    CHECK(result.out.find("types by measured error: ") != std::string::npos);
    const TensorSource written = TensorSource::open(file);
    CHECK(written.metadata().get_string("flux2.quantization.method") == "target-size");
    CHECK(written.metadata().get_float("flux2.quantization.error").value() > 0.07);
    CHECK(written.metadata().get_int("general.file_type") == 14);  // mostly Q4_K
    CHECK(fs::file_size(file) <= 6800000);

    const auto again = convert(file + " -t F16 -o " + (folder / "y.gguf").string());
    CHECK(again.exit_code == 0);
    const TensorSource changed = TensorSource::open(folder / "y.gguf");
    CHECK_FALSE(changed.metadata().contains("flux2.quantization.method"));
    CHECK_FALSE(changed.metadata().contains("flux2.quantization.error"));
}

TEST_CASE("a dry run shows the error of each matrix") {
    const test::TemporaryFolder folder;
    const auto result =
        convert(kTiny.string() + " --max-error 0.05 --dry-run -o " + (folder / "x.gguf").string());
    CHECK(result.exit_code == 0);
    CHECK(result.out.find("  error 0.0") != std::string::npos);
    CHECK(folder.names().empty());
}

TEST_CASE("limits that cannot be kept, or contradict each other, exit with 2") {
    const test::TemporaryFolder folder;
    const std::string tiny = kTiny.string() + " -o " + (folder / "x.gguf").string();
    const std::string vae = (fs::path(test::tiny_model()) / "vae-bf16.gguf").string();
    const std::pair<std::string, std::string> cases[] = {
        {tiny + " --target-size 2M", "cannot be made as small as 2000000 bytes"},
        {tiny + " --max-error 0.0001", "--max-error"},
        {tiny + " --target-size 6M --type Q8_0", "give one of them"},
        {tiny + " --target-size 6M --max-error 0.1", "give one of them"},
        {tiny + " --max-error 0.1 -t Q8_0", "give one of them"},
        {tiny + " --target-size 3X", "no size of a file"},
        {tiny + " --target-size G", "no size of a file"},
        {tiny + " --target-size -1", "no size of a file"},
        {tiny + " --max-error 0", "out of range"},
        {tiny + " --max-error 2", "out of range"},
        {vae + " --target-size 1M -o " + (folder / "x.gguf").string(), "cannot be made as small"},
        {vae + " " + kTiny.string() + " --target-size 9M -o " + (folder / "out").string(),
         "one by one"}};
    for (const auto& [arguments, message] : cases) {
        CAPTURE(arguments);
        const auto result = convert(arguments);
        CHECK(result.exit_code == 2);
        CHECK(result.err.find(message) != std::string::npos);
        CHECK(folder.names().empty());
    }
}

}  // namespace
}  // namespace flux2::convert
