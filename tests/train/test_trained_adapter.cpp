// Which pairs are trained, their first values, and what other readers find in the files.
#include "adapters/adapter_set.hpp"
#include "networks/tensor_list.hpp"
#include "support/small_transformer.hpp"
#include "support/support.hpp"
#include "train/trained_adapter.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace flux2 {
namespace {

constexpr TransformerSizes kSizes = test::small_transformer(1, 1);

std::set<std::string> names_of(const TrainedAdapter& adapter) {
    std::set<std::string> names;
    for (const TrainedModule& module : adapter.modules()) {
        names.insert(module.name);
    }
    return names;
}

TEST_CASE("every matrix of the blocks is trained unless patterns say otherwise") {
    const TrainedAdapter adapter(kSizes, {.rank = 4});
    const std::set<std::tuple<std::string, int64_t, int64_t>> expected = {
        {"double_blocks.0.img_attn.qkv", 64, 192},  {"double_blocks.0.img_attn.proj", 64, 64},
        {"double_blocks.0.img_mlp.0", 64, 192},     {"double_blocks.0.img_mlp.2", 96, 64},
        {"double_blocks.0.txt_attn.qkv", 64, 192},  {"double_blocks.0.txt_attn.proj", 64, 64},
        {"double_blocks.0.txt_mlp.0", 64, 192},     {"double_blocks.0.txt_mlp.2", 96, 64},
        {"single_blocks.0.linear1", 64, 192 + 192}, {"single_blocks.0.linear2", 64 + 96, 64}};
    std::set<std::tuple<std::string, int64_t, int64_t>> found;
    size_t n = 0;
    for (const TrainedModule& module : adapter.modules()) {
        found.insert({module.name, module.n_in, module.n_out});
        CHECK(module.a.first == n);
        CHECK(module.b.first == n + static_cast<size_t>(4 * module.n_in));
        n = module.b.first + static_cast<size_t>(4 * module.n_out);
    }
    CHECK(found == expected);
    CHECK(adapter.parameters().size() == n);
    CHECK(adapter.alpha() == 4);
    CHECK(adapter.scale() == 1.0f);
    CHECK(names_of(TrainedAdapter(kSizes,
                                  {.include = {"single_blocks", "^txt_in$"}, .exclude = {"2$"}})) ==
          std::set<std::string>{"single_blocks.0.linear1", "txt_in"});
}

TEST_CASE("A begins uniform within one by the root of its width, B at zero") {
    const TrainedAdapter adapter(kSizes, {.rank = 8, .seed = 3});
    for (const TrainedModule& module : adapter.modules()) {
        CAPTURE(module.name);
        const auto values = adapter.parameters();
        const auto a = values.subspan(module.a.first, module.b.first - module.a.first);
        const auto b = values.subspan(module.b.first, static_cast<size_t>(8 * module.n_out));
        CHECK(std::all_of(b.begin(), b.end(), [](float value) { return value == 0; }));
        const double most = 1 / std::sqrt(static_cast<double>(module.n_in));
        double sum = 0, squares = 0;
        for (const float value : a) {
            CHECK_FALSE(std::abs(static_cast<double>(value)) > most);
            sum += static_cast<double>(value);
            squares += std::pow(static_cast<double>(value), 2);
        }
        const auto n = static_cast<double>(a.size());
        CHECK(std::abs(sum / n) < 0.1 * most);
        // The variance of a uniform distribution; 512 values or more.
        CHECK(squares / n == doctest::Approx(most * most / 3).epsilon(0.15));
    }
    const auto equal = [&](uint64_t seed) {
        const TrainedAdapter other(kSizes, {.rank = 8, .seed = seed});
        return std::equal(adapter.parameters().begin(), adapter.parameters().end(),
                          other.parameters().begin());
    };
    CHECK(equal(3));
    CHECK_FALSE(equal(4));
}

TEST_CASE("choices that make no sense are refused") {
    const auto refused = [](const AdapterChoice& choice, const char* words) {
        const test::CaughtError error = test::error_of([&] { TrainedAdapter(kSizes, choice); });
        CAPTURE(error.message);
        CHECK(error.kind == ErrorKind::bad_argument);
        CHECK(error.mentions(words));
    };
    refused({.rank = 0}, "rank 0");
    refused({.rank = 5000}, "rank 5000");
    refused({.alpha = 0.0}, "alpha 0");
    refused({.alpha = std::nan("")}, "alpha nan");
    refused({.include = {"single["}}, "single[");
    refused({.include = {"modulation"}}, "modulation");
    refused({.exclude = {"double_blocks.7"}}, "double_blocks.7");
    refused({.exclude = {"blocks"}}, "no matrix");
}

// What the file changes, as our own reader for all dialects understands it.
void check_file(const std::filesystem::path& path, const TrainedAdapter& adapter,
                const std::string& dialect, double limit) {
    const auto file = std::make_shared<const AdapterFile>(AdapterFile::open(path));
    CHECK(file->unused().empty());
    CHECK(file->dialect() == dialect);
    Adapter use;
    use.file = path;
    const AdapterSet set({{file, use}}, Part::transformer, tensor_list(kSizes), "test");
    const auto rank = static_cast<size_t>(adapter.rank());
    for (const TrainedModule& module : adapter.modules()) {
        CAPTURE(module.name);
        REQUIRE(set.is_low_rank(module.name + ".weight"));
        const auto n_in = static_cast<size_t>(module.n_in);
        std::vector<float> change(n_in * static_cast<size_t>(module.n_out));
        set.apply(module.name + ".weight", change);
        double difference = 0, size = 0;
        for (size_t i = 0; i < change.size(); ++i) {
            double expected = 0;
            for (size_t r = 0; r < rank; ++r) {
                expected +=
                    static_cast<double>(
                        adapter.parameters()[module.b.first + i / n_in * rank + r]) *
                    static_cast<double>(adapter.parameters()[module.a.first + r * n_in + i % n_in]);
            }
            expected *= adapter.alpha() / static_cast<double>(rank);
            difference += std::pow(static_cast<double>(change[i]) - expected, 2);
            size += expected * expected;
        }
        CHECK(std::sqrt(difference / size) < limit);
    }
}

TEST_CASE("files of both forms say what was trained, by the names that other programs expect") {
    TrainedAdapter adapter(kSizes, {.rank = 4, .alpha = 6});
    for (size_t i = 0; i < adapter.parameters().size(); ++i) {
        adapter.parameters()[i] += static_cast<float>(i % 23) / 100 - 0.1f;
    }
    const test::TemporaryFolder folder;
    adapter.write(folder / "plain.safetensors", AdapterForm::plain, {{"ss_steps", "7"}});
    adapter.write(folder / "kohya.safetensors", AdapterForm::kohya, {});
    adapter.write(folder / "bf16.safetensors", AdapterForm::plain, {}, TensorType::bf16);
    check_file(folder / "plain.safetensors", adapter, "ComfyUI", 1e-6);
    check_file(folder / "kohya.safetensors", adapter, "kohya", 1e-6);
    check_file(folder / "bf16.safetensors", adapter, "ComfyUI", 5e-3);  // 8 bits of mantissa
    const TensorSource plain = TensorSource::open(folder / "plain.safetensors");
    const auto shape = [](const TensorSource& source, const std::string& name) {
        const TensorInfo* tensor = source.find(name);
        REQUIRE(tensor != nullptr);
        return to_string(tensor->shape);
    };
    CHECK(plain.metadata().get_string("ss_steps") == "7");
    const std::string p = "diffusion_model.single_blocks.0.linear1";
    CHECK(shape(plain, p + ".lora_A.weight") == "[64, 4]");
    CHECK(shape(plain, p + ".lora_B.weight") == "[4, 384]");
    CHECK(plain.find(p + ".alpha") == nullptr);
    const TensorSource kohya = TensorSource::open(folder / "kohya.safetensors");
    const std::string k = "lora_unet_double_blocks_0_img_attn_qkv";
    CHECK(shape(kohya, k + ".lora_down.weight") == "[64, 4]");
    CHECK(shape(kohya, k + ".lora_up.weight") == "[4, 192]");
    CHECK(kohya.find(k + ".alpha") != nullptr);
}

}  // namespace
}  // namespace flux2
