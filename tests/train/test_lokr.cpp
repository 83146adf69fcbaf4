// LoKr: sizes of its factors, gradients, and files against the Kronecker product.
#include "adapters/adapter_set.hpp"
#include "networks/tensor_list.hpp"
#include "train/small_training.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace flux2 {
namespace {

using test::fill_pairs;
using test::OpenedModel;
using test::small_example;
using test::trained_sizes;

std::shared_ptr<const AdapterSet> adapters_of(const std::filesystem::path& path,
                                              const TransformerSizes& sizes) {
    const auto file = std::make_shared<const AdapterFile>(AdapterFile::open(path));
    CHECK(file->unused().empty());
    CHECK(file->kinds() == "LoKr");
    Adapter use;
    use.file = path;
    return std::make_shared<const AdapterSet>(std::vector<UsedAdapter>{{file, use}},
                                              Part::transformer, tensor_list(sizes), "test");
}

TEST_CASE("the factors of a LoKr have the sizes that LyCORIS gives them") {
    // Columns and rows of W1 and of W2, or of its two matrices.
    const auto shapes = [](const AdapterChoice& choice) {
        std::map<std::string, std::string> found;
        const TrainedAdapter adapter(trained_sizes(false), choice);
        for (const TrainedModule& module : adapter.modules()) {
            const auto text = [](const TrainedMatrix& matrix) {
                return concat(matrix.n_in, "x", matrix.n_out);
            };
            found[module.name] = concat(text(module.w1), " ", text(module.a),
                                        module.b.exists() ? " " + text(module.b) : "");
        }
        return found;
    };
    // 64 = 8 * 8, 192 = 12 * 16, 96 = 8 * 12, 384 = 16 * 24, 160 = 10 * 16; 2 * 4 < 12, 16 or 24.
    const auto near_root = shapes({.kind = NetworkKind::lokr, .rank = 4});
    CHECK(near_root.size() == 20);
    CHECK(near_root.at("double_blocks.0.img_attn.qkv") == "8x12 8x4 4x16");
    CHECK(near_root.at("double_blocks.1.txt_attn.proj") == "8x8 8x8");
    CHECK(near_root.at("double_blocks.0.img_mlp.2") == "8x8 12x4 4x8");
    CHECK(near_root.at("single_blocks.1.linear1") == "8x16 8x4 4x24");
    CHECK(near_root.at("single_blocks.1.linear2") == "10x8 16x4 4x8");
    const auto by_four = shapes({.kind = NetworkKind::lokr, .rank = 30, .factor = 4});
    CHECK(by_four.at("double_blocks.0.img_attn.qkv") == "4x4 16x48");  // 60 is not below 48
    CHECK(by_four.at("single_blocks.1.linear1") == "4x4 16x30 30x96");
    // 5 divides 160; of 64 and 384 the largest divisors up to it are taken.
    const auto by_five = shapes({.kind = NetworkKind::lokr, .rank = 100, .factor = 5});
    CHECK(by_five.at("single_blocks.1.linear2") == "5x4 32x16");
    CHECK(by_five.at("single_blocks.1.linear1") == "4x4 16x96");
}

TEST_CASE("a LoKr begins without effect, and choices that cannot be are refused") {
    const TransformerSizes sizes = trained_sizes(false);
    const TrainedAdapter adapter(sizes, {.kind = NetworkKind::lokr, .rank = 4});
    for (const TrainedModule& module : adapter.modules()) {
        const auto values = [&](const TrainedMatrix& matrix) {
            return adapter.parameters().subspan(matrix.first, matrix.size());
        };
        for (const float value : values(module.a)) {
            REQUIRE(value == 0);
        }
        for (const TrainedMatrix& matrix : {module.w1, module.b}) {
            if (matrix.exists()) {
                const double most = 1 / std::sqrt(static_cast<double>(matrix.n_in));
                double sum = 0;
                for (const float value : values(matrix)) {
                    REQUIRE(std::abs(static_cast<double>(value)) <= most);
                    sum += std::abs(static_cast<double>(value));
                }
                CHECK(sum > 0.3 * most * static_cast<double>(matrix.size()));
            }
        }
    }
    const auto refused = [&](const AdapterChoice& choice, const char* words) {
        const test::CaughtError error = test::error_of([&] { TrainedAdapter(sizes, choice); });
        CHECK(error.kind == ErrorKind::bad_argument);
        CHECK(error.mentions(words));
    };
    refused({.kind = NetworkKind::lokr, .factor = 0}, "factor 0");
    refused({.kind = NetworkKind::lokr, .dropout = 0.1}, "dropout");
}

TEST_CASE("gradients of a LoKr agree with differences of the loss") {
    const TransformerSizes sizes = trained_sizes(false);
    const OpenedModel model(sizes);
    const TrainingExample example = small_example(sizes, true);
    const Backend backend("CPU", 2);
    // Whole second factors beside split ones; outside of the blocks too.
    for (const AdapterChoice& choice :
         {AdapterChoice{.kind = NetworkKind::lokr, .rank = 4, .alpha = 6},
          AdapterChoice{.kind = NetworkKind::lokr, .rank = 2, .include = {"."}, .factor = 4}}) {
        TrainedAdapter adapter(sizes, choice);
        fill_pairs(adapter);
        TrainingPass pass(backend, model.checkpoint, adapter);
        test::check_by_differences(pass, adapter, example);
        // The form for NVIDIA GPUs, by the plain forms of its nodes; values are rounded to BF16.
        TrainingPass on_gpu(backend, model.checkpoint, adapter, {}, Operations::cuda);
        std::vector<float> exact(adapter.parameters().size()), rounded(exact.size());
        pass.add_gradients(example, 1, exact);
        on_gpu.add_gradients(example, 1, rounded);
        double difference = 0, size = 0;
        for (size_t i = 0; i < exact.size(); ++i) {
            difference +=
                std::pow(static_cast<double>(rounded[i]) - static_cast<double>(exact[i]), 2);
            size += std::pow(static_cast<double>(exact[i]), 2);
        }
        CHECK(std::sqrt(difference / size) < 2e-2);
    }
}

TEST_CASE("files of a LoKr are its Kronecker products, and give the velocity of training") {
    const TransformerSizes sizes = trained_sizes(false);
    const OpenedModel model(sizes);
    const TrainingExample example = small_example(sizes, true);
    const Backend backend("CPU", 2);
    TrainedAdapter adapter(sizes, {.kind = NetworkKind::lokr, .rank = 4, .alpha = 6});
    fill_pairs(adapter);
    const std::span<const float> values = adapter.parameters();
    TrainingPass pass(backend, model.checkpoint, adapter);
    pass.loss(example);
    const std::vector<float> velocity = pass.velocity().data;
    const test::TemporaryFolder folder;
    for (const AdapterForm form : {AdapterForm::plain, AdapterForm::kohya}) {
        adapter.write(folder / "a.safetensors", form, {});
        const auto set = adapters_of(folder / "a.safetensors", sizes);
        for (const TrainedModule& module : adapter.modules()) {
            CAPTURE(module.name);
            const auto n_in = static_cast<size_t>(module.n_in);
            std::vector<float> change(n_in * static_cast<size_t>(module.n_out));
            set->apply(module.name + ".weight", change);
            const auto i1 = static_cast<size_t>(module.w1.n_in);
            const auto i2 = static_cast<size_t>(module.a.n_in);
            const auto rank = static_cast<size_t>(module.b.n_in);
            const size_t o2 = static_cast<size_t>(module.n_out / module.w1.n_out);
            for (size_t i = 0; i < change.size(); i += 37) {
                const size_t row = i / n_in, column = i % n_in;
                double w2 = 0;
                if (module.b.exists()) {
                    for (size_t r = 0; r < rank; ++r) {
                        w2 += static_cast<double>(values[module.b.first + row % o2 * rank + r]) *
                              static_cast<double>(values[module.a.first + r * i2 + column % i2]) *
                              6 / 4;
                    }
                } else {
                    w2 = static_cast<double>(values[module.a.first + row % o2 * i2 + column % i2]);
                }
                const double w1 =
                    static_cast<double>(values[module.w1.first + row / o2 * i1 + column / i2]);
                REQUIRE(static_cast<double>(change[i]) == doctest::Approx(w1 * w2).epsilon(1e-5));
            }
        }
        Transformer transformer(backend, sizes, model.checkpoint,
                                {.type = TensorType::f32, .adapters = set});
        const std::vector<float> predicted = transformer.predict(test::model_input(example)).data;
        REQUIRE(predicted.size() == velocity.size());
        Transformer alone(backend, sizes, model.checkpoint, {.type = TensorType::f32});
        const std::vector<float> without = alone.predict(test::model_input(example)).data;
        double difference = 0, change = 0;
        for (size_t i = 0; i < velocity.size(); ++i) {
            difference =
                std::max(difference, std::abs(static_cast<double>(predicted[i] - velocity[i])));
            change = std::max(change, std::abs(static_cast<double>(without[i] - velocity[i])));
        }
        CHECK(difference < 1e-4 * change);
    }
}

}  // namespace
}  // namespace flux2
