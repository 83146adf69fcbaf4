// LoRAs from differences of checkpoints, with differences whose rank and singular values are known.
#include "adapters/adapter_file.hpp"
#include "adapters/formulas.hpp"
#include "convert.hpp"
#include "extract_lora.hpp"
#include "formats/safetensors.hpp"
#include "formats/tensor_source.hpp"
#include "low_rank.hpp"
#include "merge.hpp"
#include "support/program.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace flux2::convert {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::kNoCancel;
using test::TestTensor;

const std::string kQkv = "double_blocks.0.img_attn.qkv";
const std::string kLinear2 = "single_blocks.0.linear2";
const std::string kNorm = "single_blocks.0.norm.query_norm.scale";

// The i-th vector of an orthonormal basis (the cosine transform), i above 0.
std::vector<double> basis_vector(size_t i, size_t n) {
    std::vector<double> vector;
    for (size_t at = 0; at < n; ++at) {
        const double angle = std::numbers::pi / static_cast<double>(n) *
                             (static_cast<double>(at) + 0.5) * static_cast<double>(i);
        vector.push_back(std::sqrt(2.0 / static_cast<double>(n)) * std::cos(angle));
    }
    return vector;
}

// A matrix with these singular values.
std::vector<float> matrix_of(size_t rows, size_t columns, const std::vector<double>& singular) {
    std::vector<double> sums(rows * columns);
    for (size_t i = 0; i < singular.size(); ++i) {
        // Not of the same frequencies on both sides.
        const std::vector<double> left = basis_vector(i + 2, rows);
        const std::vector<double> right = basis_vector(2 * i + 1, columns);
        for (size_t at = 0; at < sums.size(); ++at) {
            sums[at] += singular[i] * left[at / columns] * right[at % columns];
        }
    }
    return {sums.begin(), sums.end()};
}

void add_to(TestTensor& tensor, const std::vector<float>& difference) {
    std::vector<float> values(difference.size());
    REQUIRE(tensor.data.size() == values.size() * sizeof(float));
    to_f32(TensorType::f32, tensor.data, values);
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] += difference[i];
    }
    tensor.data = test::bytes_of(values);
}

// A model, and one with three matrices' worth of rank 3, 2 and a changed norm.
struct Files {
    test::TemporaryFolder folder;
    fs::path base = folder / "base.safetensors";
    fs::path tuned = folder / "tuned.safetensors";

    Files() {
        std::vector<TestTensor> tensors = test::wide_transformer(1);
        test::write_file(base, test::safetensors_of(tensors));
        for (TestTensor& tensor : tensors) {
            if (tensor.name == kQkv + ".weight") {
                add_to(tensor, matrix_of(768, 256, {4, 2, 0.5}));
            } else if (tensor.name == kLinear2 + ".weight") {
                add_to(tensor, matrix_of(256, 512, {3, 1}));
            } else if (tensor.name == kNorm) {
                add_to(tensor, std::vector<float>(64, 0.25f));
            }
        }
        test::write_file(tuned, test::safetensors_of(tensors));
    }

    Extracted extract(const std::string& name, int64_t rank, int n_threads = 2) const {
        return extract_lora(
            Checkpoint::open(base), Checkpoint::open(tuned), folder / name,
            {.rank = rank, .n_threads = n_threads, .cancel = &kNoCancel, .progress = [](uint64_t) {
             }});
    }
};

double relative_error(const std::vector<float>& found, const std::vector<float>& expected) {
    double squares = 0, difference = 0;
    for (size_t i = 0; i < found.size(); ++i) {
        const double value = static_cast<double>(expected[i]);
        squares += value * value;
        difference += std::pow(static_cast<double>(found[i]) - value, 2);
    }
    return std::sqrt(difference / squares);
}

}  // namespace

TEST_CASE("the nearest product of a rank leaves the smaller singular values") {
    // Falling slowly, which is hard for random projection.
    std::vector<double> singular;
    for (int i = 0; i < 40; ++i) {
        singular.push_back(std::pow(0.9, i));
    }
    for (const auto& [rows, columns] : {std::pair(300u, 120u), {120u, 300u}}) {
        const std::vector<float> values = matrix_of(rows, columns, singular);
        const MatrixView matrix = {values, rows, columns};
        for (const int64_t rank : {1, 8, 20}) {
            double least = 0;
            for (size_t i = static_cast<size_t>(rank); i < singular.size(); ++i) {
                least += singular[i] * singular[i];
            }
            const LowRankPair pair = nearest_of_rank(matrix, rank, 2);
            CHECK(pair.rank == rank);
            const double left = squares_left(matrix, pair, 2);
            CHECK(left >= least * 0.999);
            CHECK(left <= least * 1.02);  // by two passes; without any it is twice as much
        }
    }
}

TEST_CASE("a rank beyond the matrix's sides is cut to them and exact") {
    const std::vector<float> values = matrix_of(12, 40, {3, 2, 1, 0.5});
    const MatrixView matrix = {values, 12, 40};
    const LowRankPair pair = nearest_of_rank(matrix, 64, 2);
    CHECK(pair.rank == 12);
    CHECK(squares_left(matrix, pair, 2) < 1e-8);
}

TEST_CASE("a difference of low rank is recovered") {
    const Files files;
    const Extracted extracted = files.extract("x.safetensors", 4);
    CHECK(extracted.all.n_modules == 3);
    CHECK(extracted.all.relative_error < 1e-3);
    REQUIRE(extracted.kinds.size() == 3);
    CHECK(extracted.kinds[0].kind == "double_blocks.*.img_attn.qkv");
    CHECK(extracted.kinds[1].kind == "single_blocks.*.linear2");
    CHECK(extracted.kinds[2].kind == "single_blocks.*.norm.query_norm.scale");
    CHECK(extracted.kinds[2].relative_error == 0);
    CHECK(extracted.warnings.empty());

    const AdapterFile lora = AdapterFile::open(files.folder / "x.safetensors");
    CHECK(lora.unused().empty());
    REQUIRE(lora.modules().size() == 3);
    for (const AdapterModule& module : lora.modules()) {
        CAPTURE(module.tensor);
        std::vector<float> found(static_cast<size_t>(module.n_out * module.n_in));
        apply_module(module, lora.file(), 1, found);
        if (module.tensor == kNorm) {
            CHECK(relative_error(found, std::vector<float>(64, 0.25f)) < 1e-6);
        } else if (module.tensor == kQkv + ".weight") {
            CHECK(relative_error(found, matrix_of(768, 256, {4, 2, 0.5})) < 1e-3);
        } else {
            REQUIRE(module.tensor == kLinear2 + ".weight");
            CHECK(relative_error(found, matrix_of(256, 512, {3, 1})) < 1e-3);
        }
    }
}

TEST_CASE("the error that is printed is the share of the difference that is left") {
    const Files files;
    const Extracted extracted = files.extract("x.safetensors", 1);
    const double qkv = std::sqrt((4 + 0.25) / (16 + 4 + 0.25));
    CHECK(extracted.kinds[0].relative_error == doctest::Approx(qkv).epsilon(0.01));
    const double linear2 = std::sqrt(1.0 / 10);
    CHECK(extracted.kinds[1].relative_error == doctest::Approx(linear2).epsilon(0.01));
    const double all = std::sqrt((4 + 0.25 + 1) / (20.25 + 10 + 64 * 0.0625));
    CHECK(extracted.all.relative_error == doctest::Approx(all).epsilon(0.01));
}

TEST_CASE("the extracted LoRA merged into the base gives the tuned model") {
    const Files files;
    files.extract("x.safetensors", 4);
    ConvertOptions options;
    options.types.file_type = &parse_file_type("F32");
    options.adapters = open_adapters({(files.folder / "x.safetensors").string()});
    const Checkpoint base = Checkpoint::open(files.base);
    write_plan(make_plan(base, files.folder / "x.gguf", options), 1, kNoCancel, [](uint64_t) {});
    const TensorSource merged = TensorSource::open(files.folder / "x.gguf");
    const TensorSource tuned = TensorSource::open(files.tuned);
    for (const TensorInfo& tensor : tuned.tensors()) {
        CAPTURE(tensor.name);
        CHECK(relative_error(read_tensor(merged, tensor.name).data,
                             read_tensor(tuned, tensor.name).data) < 1e-3);
    }
}

TEST_CASE("the same checkpoints give the same LoRA with any number of threads") {
    const Files files;
    files.extract("one.safetensors", 4, 1);
    files.extract("three.safetensors", 4, 3);
    CHECK(test::read_file(files.folder / "one.safetensors") ==
          test::read_file(files.folder / "three.safetensors"));
}

TEST_CASE("checkpoints without a difference, or of other sizes, or other parts are refused") {
    const Files files;
    const auto extract = [&](const fs::path& base, const fs::path& tuned) {
        return error_of([&] {
            extract_lora(Checkpoint::open(base), Checkpoint::open(tuned),
                         files.folder / "x.safetensors",
                         {.cancel = &kNoCancel, .progress = [](uint64_t) {}});
        });
    };
    const auto same = extract(files.base, files.base);
    CHECK(same.kind == ErrorKind::bad_file);
    CHECK(same.mentions("hold the same weights"));
    test::write_file(files.folder / "longer.safetensors",
                     test::safetensors_of(test::wide_transformer(2)));
    const auto longer = extract(files.base, files.folder / "longer.safetensors");
    CHECK(longer.kind == ErrorKind::bad_file);
    CHECK(longer.mentions("are not of one size"));
    CHECK(extract(files.folder / "longer.safetensors", files.base).kind == ErrorKind::bad_file);
    const fs::path vae = test::fixture("klein/vae.safetensors");
    CHECK(extract(vae, vae).kind == ErrorKind::unsupported);
    CHECK_FALSE(fs::exists(files.folder / "x.safetensors"));
}

TEST_CASE("quantised checkpoints are a warning, since their rounding is extracted too") {
    const Files files;
    ConvertOptions options;
    options.types.file_type = &parse_file_type("Q8_0");
    const Checkpoint base = Checkpoint::open(files.base);
    write_plan(make_plan(base, files.folder / "q8.gguf", options), 1, kNoCancel, [](uint64_t) {});
    const Extracted extracted =
        extract_lora(Checkpoint::open(files.folder / "q8.gguf"), Checkpoint::open(files.tuned),
                     files.folder / "x.safetensors",
                     {.rank = 2, .cancel = &kNoCancel, .progress = [](uint64_t) {}});
    REQUIRE(extracted.warnings.size() == 1);
    CHECK(extracted.warnings[0].find("q8.gguf: holds Q8_0 weights") != std::string::npos);
}

TEST_CASE("flux2-convert --extract-lora writes a LoRA and prints what it leaves") {
    const Files files;
    const std::string output = " -o " + (files.folder / "x.safetensors").string();
    const auto convert = [&](const std::string& arguments) {
        return test::run_program(test::convert_path() + " --extract-lora " + arguments);
    };
    const std::string both = files.base.string() + " " + files.tuned.string();
    const auto good = convert(both + " --rank 4" + output);
    CHECK(good.exit_code == 0);
    CHECK(good.err.empty());
    CHECK(good.out.find("3 modules, rank 4") != std::string::npos);
    CHECK(good.out.find("double_blocks.*.img_attn.qkv") != std::string::npos);
    CHECK(AdapterFile::open(files.folder / "x.safetensors").modules().size() == 3);
    for (const std::string& wrong :
         {files.base.string() + output, both + " --rank 0" + output, both + " --dry-run" + output,
          both + " -o " + (files.folder / "x.gguf").string(),
          both + " -o " + files.base.string()}) {
        CAPTURE(wrong);
        CHECK(convert(wrong).exit_code == 2);
    }
}

}  // namespace flux2::convert
