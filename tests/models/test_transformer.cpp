// What the recordings do not cover: the guidance input, the KV cache across steps, refusals.
#include "adapters/adapter_set.hpp"
#include "checkpoints/inventory.hpp"
#include "convert.hpp"
#include "models/transformer.hpp"
#include "pipeline/latents.hpp"
#include "support/small_transformer.hpp"
#include "support/support.hpp"
#include "support/values.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <new>

namespace flux2 {
namespace {

using test::TestTensor;

// Small random values, the same every time.
std::vector<float> random_values(size_t n, uint32_t seed) {
    return test::even_values(n, seed, 0.18f);
}

TransformerSizes small_sizes(bool guidance) {
    return test::small_transformer(1, 2, guidance);
}

// A transformer of these sizes in a file, and its tensors.
struct SmallModel {
    test::TemporaryFolder folder;
    std::vector<TestTensor> tensors;

    explicit SmallModel(const TransformerSizes& sizes) {
        uint32_t seed = 1;
        for (const ExpectedTensor& expected : tensor_list(sizes)) {
            const auto n = static_cast<size_t>(expected.shape.elements());
            tensors.push_back(test::tensor_of(expected, test::bytes_of(random_values(n, seed++))));
        }
        test::write_file(path(), test::safetensors_of(tensors));
    }
    std::filesystem::path path() const { return folder / "model.safetensors"; }

    std::vector<float> values(const std::string& name) const {
        for (const TestTensor& tensor : tensors) {
            if (tensor.name == name) {
                std::vector<float> result(tensor.data.size() / sizeof(float));
                std::memcpy(result.data(), tensor.data.data(), tensor.data.size());
                return result;
            }
        }
        FAIL("no tensor " << name);
        return {};
    }
};

// The same, loaded.
struct LoadedModel {
    explicit LoadedModel(bool guidance = false) : sizes(small_sizes(guidance)) {}

    TransformerSizes sizes;
    SmallModel model{sizes};
    Backend backend{"CPU"};
    Checkpoint checkpoint = Checkpoint::open(model.path());
    Transformer transformer{backend, read_transformer_sizes(checkpoint), checkpoint};
};

TransformerInput small_input(const TransformerSizes& sizes, int64_t n_ref_side) {
    TransformerInput input;
    const auto filled = [](std::array<int64_t, 4> ne, uint32_t seed) {
        HostTensor x(ne);
        x.data = random_values(x.data.size(), seed);
        for (float& value : x.data) {
            value *= 5;
        }
        return x;
    };
    input.img = filled({sizes.channels, 6, 1, 1}, 100);
    input.txt = share(filled({sizes.text_width, 5, 1, 1}, 101));
    input.img_pos = image_positions(3, 2);
    input.txt_pos = text_positions(5);
    if (n_ref_side > 0) {
        input.ref = filled({sizes.channels, n_ref_side * n_ref_side, 1, 1}, 102);
        input.ref_pos = image_positions(n_ref_side, n_ref_side, reference_time(0));
    }
    input.timestep = 0.7f;
    input.guidance = 3.5f;
    return input;
}

// y = W x, the plain way.
std::vector<float> multiply(const std::vector<float>& w, const std::vector<float>& x) {
    std::vector<float> y(w.size() / x.size());
    for (size_t row = 0; row < y.size(); ++row) {
        double sum = 0;
        for (size_t i = 0; i < x.size(); ++i) {
            sum += static_cast<double>(w[row * x.size() + i]) * static_cast<double>(x[i]);
        }
        y[row] = static_cast<float>(sum);
    }
    return y;
}

std::vector<float> embed(const SmallModel& model, const std::string& name, float t) {
    std::vector<float> h = multiply(model.values(name + ".in_layer.weight"), timestep_embedding(t));
    for (float& value : h) {
        value = value / (1.0f + std::exp(-value));
    }
    return multiply(model.values(name + ".out_layer.weight"), h);
}

// Sums of 100 products in F32.
constexpr double kF32Sums = 1e-5;

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    REQUIRE(a.size() == b.size());
    double largest = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        largest = std::max(largest, std::abs(static_cast<double>(a[i] - b[i])));
    }
    return largest;
}

TEST_CASE("the time embedding has the reference's values") {
    const std::vector<float> e = timestep_embedding(1.0f);
    REQUIRE(e.size() == 256);
    const std::pair<size_t, double> expected[] = {
        {0, 0.5623791},   {1, 0.7896147},   {2, 0.4399539},    {3, -0.0236699},  {127, 0.9942316},
        {128, 0.8268795}, {129, 0.6136030}, {130, -0.8980204}, {131, 0.9997198}, {255, 0.1072541}};
    for (const auto& [i, value] : expected) {
        // The argument reaches 1000, where F32 resolves 6e-5 radians.
        CHECK(std::abs(static_cast<double>(e[i]) - value) < 1e-4);
    }
}

TEST_CASE("guidance is embedded beside the time") {
    LoadedModel loaded(/*guidance=*/true);
    const TransformerSizes& sizes = loaded.sizes;
    Transformer& transformer = loaded.transformer;
    CHECK(transformer.sizes().guidance);
    Taps taps;
    transformer.predict(small_input(sizes, 0), ReferenceMode::joint, &taps);
    std::vector<float> expected = embed(loaded.model, "time_in", 0.7f);
    const std::vector<float> guidance = embed(loaded.model, "guidance_in", 3.5f);
    for (size_t i = 0; i < expected.size(); ++i) {
        expected[i] += guidance[i];
    }
    CHECK(largest_difference(taps.at("vec").data, expected) < kF32Sums);
}

TEST_CASE("kept keys and values stand in for the references") {
    LoadedModel loaded;
    const TransformerSizes& sizes = loaded.sizes;
    Transformer& transformer = loaded.transformer;
    TransformerInput input = small_input(sizes, 3);
    const HostTensor extracted = transformer.predict(input, ReferenceMode::extract);
    const HostTensor cached = transformer.predict(input, ReferenceMode::cached);
    CHECK(largest_difference(cached.data, extracted.data) < kF32Sums);
    // They do not depend on time, text or picture: the cache of another step serves too.
    input.timestep = 0.2f;
    const HostTensor later = transformer.predict(input, ReferenceMode::cached);
    CHECK(largest_difference(later.data, transformer.predict(input, ReferenceMode::extract).data) <
          kF32Sums);
    // And they matter.
    const HostTensor alone = transformer.predict(small_input(sizes, 0));
    CHECK(largest_difference(cached.data, alone.data) > 10 * kF32Sums);
}

TEST_CASE("blocks on several devices compute what they do on one, and little is copied") {
    LoadedModel loaded(/*guidance=*/true);
    const TransformerSizes& sizes = loaded.sizes;
    const Backend first("CPU"), second("CPU");
    const TransformerSizes read = read_transformer_sizes(loaded.checkpoint);
    TransformerInput input = small_input(sizes, 3);
    for (const double share : {0.01, 0.3, 1.0, 3.0, 100.0}) {
        INFO(share);
        Transformer shared({{&first, share}, {&second, 1}}, read, loaded.checkpoint);
        CHECK(shared.block_ranges()[0].end > 0);
        CHECK(shared.block_ranges()[1].end > shared.block_ranges()[1].first);
        for (const ReferenceMode mode :
             {ReferenceMode::joint, ReferenceMode::extract, ReferenceMode::cached}) {
            Taps of_one, of_both;
            CHECK(shared.predict(input, mode, &of_both).data ==
                  loaded.transformer.predict(input, mode, &of_one).data);
            CHECK(of_one.size() == of_both.size());
            for (const auto& [name, tensor] : of_one) {
                INFO(name);
                CHECK(of_both.at(name).data == tensor.data);
            }
        }
    }
    // From the second step on: latents, tokens at the cut, velocity, and less than a tenth more.
    constexpr int64_t kText = 400;
    HostTensor text({sizes.text_width, kText, 1, 1});
    text.data = random_values(text.data.size(), 103);
    input.txt = share(text);
    input.txt_pos = text_positions(kText);
    Transformer shared({{&first, 1}, {&second, 1}}, read, loaded.checkpoint);
    shared.predict(input);
    const auto before = std::pair(first.traffic(), second.traffic());
    input.timestep = 0.3f;
    CHECK(shared.predict(input).data == loaded.transformer.predict(input).data);
    constexpr int64_t kPictureTokens = 6 + 9;
    const auto latents = static_cast<uint64_t>(4 * sizes.channels * kPictureTokens);
    const auto tokens = static_cast<uint64_t>(4 * sizes.hidden * (kPictureTokens + kText));
    const auto velocity = static_cast<uint64_t>(4 * sizes.channels * 6);
    const uint64_t copied = first.traffic().sent - before.first.sent + second.traffic().sent -
                            before.second.sent + second.traffic().received - before.second.received;
    CHECK(copied >= latents + tokens + velocity);
    CHECK(static_cast<double>(copied) <= 1.1 * static_cast<double>(latents + tokens + velocity));
    CHECK_THROWS_AS(share_blocks(sizes, std::vector<double>(1000, 1.0)), Error);
}

TEST_CASE("text that is kept on the device is replaced by other text") {
    LoadedModel loaded;
    const TransformerSizes& sizes = loaded.sizes;
    Transformer& transformer = loaded.transformer;
    TransformerInput input = small_input(sizes, 0);
    const auto text = input.txt;
    const HostTensor first = transformer.predict(input);
    CHECK(transformer.predict(input).data == first.data);
    HostTensor other = *text;
    std::reverse(other.data.begin(), other.data.end());
    input.txt = share(other);
    CHECK(largest_difference(transformer.predict(input).data, first.data) > 10 * kF32Sums);
    CHECK(transformer.predict(input).data ==
          Transformer(loaded.backend, read_transformer_sizes(loaded.checkpoint), loaded.checkpoint)
              .predict(input)
              .data);
    input.txt = text;
    CHECK(transformer.predict(input).data == first.data);
}

TEST_CASE("references and their positions change the picture") {
    LoadedModel loaded;
    const TransformerSizes& sizes = loaded.sizes;
    Transformer& transformer = loaded.transformer;
    TransformerInput input = small_input(sizes, 3);
    const HostTensor with = transformer.predict(input);
    CHECK(with.ne == std::array<int64_t, 4>{sizes.channels, 6, 1, 1});
    CHECK(largest_difference(with.data, transformer.predict(small_input(sizes, 0)).data) >
          10 * kF32Sums);
    for (Position& position : input.ref_pos) {
        position[0] += 10;
    }
    CHECK(largest_difference(with.data, transformer.predict(input).data) > kF32Sums);
}

TEST_CASE("a converted file computes the same as its source") {
    const TransformerSizes sizes = small_sizes(/*guidance=*/true);
    const SmallModel model(sizes);
    const Backend backend("CPU");
    const Checkpoint original = Checkpoint::open(model.path());
    convert::ConvertOptions options;
    options.types.file_type = &convert::parse_file_type("F32");
    const std::atomic<bool> no_cancel = false;
    convert::write_plan(convert::make_plan(original, model.folder / "model.gguf", options), 1,
                        no_cancel, [](uint64_t) {});
    const Checkpoint converted = Checkpoint::open(model.folder / "model.gguf");
    const TransformerInput input = small_input(sizes, 2);
    const HostTensor expected =
        Transformer(backend, read_transformer_sizes(original), original).predict(input);
    CHECK(Transformer(backend, read_transformer_sizes(converted), converted).predict(input).data ==
          expected.data);
}

TEST_CASE("streamed blocks compute the same as resident ones, step after step") {
    const TransformerSizes sizes = small_sizes(/*guidance=*/false);
    const SmallModel model(sizes);
    const Backend backend("CPU");
    const Checkpoint checkpoint = Checkpoint::open(model.path());
    Transformer resident(backend, read_transformer_sizes(checkpoint), checkpoint);
    Transformer streamed(backend, read_transformer_sizes(checkpoint), checkpoint,
                         {.type = {}, .stream_blocks = true});
    // Three blocks in two places: an odd number, so that the first one is copied again in each
    // step.
    for (const float timestep : {1.0f, 0.7f, 0.2f}) {
        TransformerInput input = small_input(sizes, 2);
        input.timestep = timestep;
        CHECK(streamed.predict(input).data == resident.predict(input).data);
    }
    CHECK(streamed.weight_memory().own.host > resident.weight_memory().own.host);
}

TEST_CASE("what is measured is what is allocated") {
    const TransformerSizes sizes = small_sizes(/*guidance=*/false);
    const SmallModel model(sizes);
    const Checkpoint checkpoint = Checkpoint::open(model.path());
    const Backend backend("CPU", 2);
    const Backend measuring("CPU", 2, BackendUse::measure);
    // Types that one CPU or another repacks, and one that none does.
    for (const TensorType type :
         {TensorType::f32, TensorType::f16, TensorType::q8_0, TensorType::q4_0}) {
        for (const bool stream : {false, true}) {
            CAPTURE(type_name(type));
            CAPTURE(stream);
            const WeightOptions options{.type = type, .stream_blocks = stream};
            Transformer real(backend, read_transformer_sizes(checkpoint), checkpoint, options);
            Transformer measured(measuring, read_transformer_sizes(checkpoint), checkpoint,
                                 options);
            for (const ReferenceMode mode : {ReferenceMode::joint, ReferenceMode::extract}) {
                const TransformerShape shape{mode, 6, 3, 5};
                real.reserve(shape);
                measured.reserve(shape);
                CHECK(measured.compute_memory().host == real.compute_memory().host);
                CHECK(measured.compute_memory().host > 0);
            }
            CHECK(measured.weight_memory().own.host == real.weight_memory().own.host);
            CHECK((measured.weight_memory().own.host > 0 || type == TensorType::f32));
        }
    }
}

TEST_CASE("a raised flag cancels a computation, and progress counts blocks") {
    LoadedModel loaded;
    const TransformerSizes& sizes = loaded.sizes;
    Transformer& transformer = loaded.transformer;
    std::atomic<bool> cancel = false;
    loaded.backend.set_cancel(&cancel);
    std::vector<double> shares;
    loaded.backend.set_on_progress([&](double share) { shares.push_back(share); });
    const HostTensor whole = transformer.predict(small_input(sizes, 0));
    CHECK(shares == std::vector<double>{1.0 / 3, 2.0 / 3, 1.0});
    loaded.backend.set_on_progress([&](double share) { cancel = share > 0.5; });
    const auto error = test::error_of([&] { transformer.predict(small_input(sizes, 0)); });
    CHECK(error.kind == ErrorKind::cancelled);
    // Afterwards it works as before.
    cancel = false;
    loaded.backend.set_on_progress({});
    CHECK(transformer.predict(small_input(sizes, 0)).data == whole.data);
    // What a callback throws arrives.
    loaded.backend.set_on_progress([](double) { throw Error(ErrorKind::bad_argument, "enough"); });
    CHECK(test::error_of([&] { transformer.predict(small_input(sizes, 0)); }).mentions("enough"));
}

// Tokens of three pictures, of which the first is that of small_input.
TransformerInput three_pictures(const TransformerSizes& sizes, int64_t n_ref_side) {
    TransformerInput input = small_input(sizes, n_ref_side);
    const std::vector<float> first = input.img.data;
    for (const float factor : {-1.0f, 0.5f}) {
        for (const float value : first) {
            input.img.data.push_back(factor * value);
        }
    }
    input.img.ne[2] = 3;
    return input;
}

TransformerInput only_picture(TransformerInput input, size_t i) {
    const auto n = static_cast<std::ptrdiff_t>(input.img.data.size()) / input.img.ne[2];
    const auto begin = input.img.data.begin() + static_cast<std::ptrdiff_t>(i) * n;
    input.img.data = std::vector<float>(begin, begin + n);
    input.img.ne[2] = 1;
    return input;
}

// Largest difference between picture i of `all` and `one`.
double difference_of_picture(const HostTensor& all, size_t i, const HostTensor& one) {
    REQUIRE(all.data.size() >= (i + 1) * one.data.size());
    double largest = 0;
    for (size_t j = 0; j < one.data.size(); ++j) {
        const float value = all.data[i * one.data.size() + j];
        largest = std::max(largest, static_cast<double>(std::abs(value - one.data[j])));
    }
    return largest;
}

TEST_CASE("several pictures and two texts in one pass equal those computed one at a time") {
    for (const bool stock : {false, true}) {
        for (const int64_t n_ref_side : {0, 2}) {
            CAPTURE(stock);
            CAPTURE(n_ref_side);
            LoadedModel loaded;
            Backend backend("CPU");
            if (stock) {
                backend.use_stock_operations();
            }
            Transformer transformer(backend, loaded.sizes, loaded.checkpoint);
            TransformerInput input = three_pictures(loaded.sizes, n_ref_side);
            const SharedTensor positive = input.txt;
            HostTensor other = *positive;
            std::reverse(other.data.begin(), other.data.end());
            const SharedTensor negative = share(std::move(other));
            input.negative_txt = negative;
            const HostTensor all = transformer.predict(input);
            CHECK(all.ne == std::array<int64_t, 4>{loaded.sizes.channels, 6, 6, 1});
            for (size_t i = 0; i < 6; ++i) {
                CAPTURE(i);
                TransformerInput one = only_picture(input, i % 3);
                one.txt = i < 3 ? positive : negative;
                one.negative_txt = nullptr;
                CHECK(difference_of_picture(all, i, transformer.predict(one)) < 1e-5);
            }
            // The pictures differ by more than that.
            CHECK(difference_of_picture(all, 1, transformer.predict(only_picture(input, 0))) >
                  1e-3);
        }
    }
}

TEST_CASE("pictures of one pass share what is kept of references") {
    LoadedModel loaded;
    const TransformerInput input = three_pictures(loaded.sizes, 2);
    loaded.transformer.predict(only_picture(input, 0), ReferenceMode::extract);
    const HostTensor all = loaded.transformer.predict(input, ReferenceMode::cached);
    for (size_t i = 0; i < 3; ++i) {
        const HostTensor one =
            loaded.transformer.predict(only_picture(input, i), ReferenceMode::cached);
        CHECK(difference_of_picture(all, i, one) < 1e-5);
    }
}

TEST_CASE("what is kept of references has memory, also after there was none for it") {
    LoadedModel loaded;
    Transformer& transformer = loaded.transformer;
    const TransformerInput few = small_input(loaded.sizes, 2);
    const TransformerInput many = small_input(loaded.sizes, 3);
    const HostTensor of_few = transformer.predict(few, ReferenceMode::extract);
    const HostTensor of_many = transformer.predict(many, ReferenceMode::extract);
    // The first allocations of a call with other references are for these.
    constexpr size_t kFirst = 30;
    size_t n_failed = 0;
    for (size_t n = 0; n < kFirst; ++n) {
        CAPTURE(n);
        CHECK(transformer.predict(few, ReferenceMode::extract).data == of_few.data);
        {
            const test::AllocationHook hook(0, SIZE_MAX, [&](size_t i) {
                if (i == n) {
                    throw std::bad_alloc();
                }
            });
            try {
                transformer.predict(many, ReferenceMode::extract);
            } catch (const std::bad_alloc&) {
                ++n_failed;
            }
        }
        CHECK(transformer.predict(many, ReferenceMode::extract).data == of_many.data);
    }
    CHECK(n_failed > kFirst / 2);
}

// A LoRA of one double and one single block of the small model.
std::shared_ptr<const AdapterSet> lora_of(const SmallModel& model,
                                          const std::filesystem::path& file) {
    std::vector<test::TestTensor> tensors;
    for (const char* name : {"double_blocks.0.img_attn.proj", "single_blocks.1.linear2"}) {
        constexpr int64_t kRank = 2;
        const std::string module = std::string("diffusion_model.") + name;
        const auto n_out = static_cast<int64_t>(small_sizes(false).hidden);
        const auto n_in =
            static_cast<int64_t>(model.values(std::string(name) + ".weight").size()) / n_out;
        tensors.push_back({module + ".lora_A.weight",
                           {n_in, kRank},
                           test::bytes_of(random_values(static_cast<size_t>(n_in * kRank), 7))});
        tensors.push_back({module + ".lora_B.weight",
                           {kRank, n_out},
                           test::bytes_of(random_values(static_cast<size_t>(n_out * kRank), 8))});
    }
    test::write_file(file, test::safetensors_of(tensors));
    Adapter use;
    use.file = file;
    const auto opened = std::make_shared<const AdapterFile>(AdapterFile::open(file));
    return std::make_shared<const AdapterSet>(std::vector<UsedAdapter>{{opened, use}},
                                              Part::transformer, tensor_list(small_sizes(false)),
                                              "a small model");
}

TEST_CASE("devices that share the blocks change their LoRAs together or not at all") {
    LoadedModel loaded;
    const test::TemporaryFolder folder;
    const auto lora = lora_of(loaded.model, folder / "lora.safetensors");
    const Backend first("CPU", 1), second("CPU", 1);
    Transformer shared({{&first, 1}, {&second, 1}}, read_transformer_sizes(loaded.checkpoint),
                       loaded.checkpoint);
    const TransformerInput input = small_input(loaded.sizes, 0);
    const HostTensor without = shared.predict(input);
    REQUIRE(shared.try_set_adapters(lora));
    const HostTensor with = shared.predict(input);
    REQUIRE(with.data != without.data);
    size_t n_failed = 0;
    bool failed = true;
    for (size_t n = 0; failed; ++n) {
        CAPTURE(n);
        REQUIRE(shared.try_set_adapters(nullptr));
        bool done = true;
        {
            const test::AllocationHook hook(0, SIZE_MAX, [&](size_t i) {
                if (i == n) {
                    throw std::bad_alloc();
                }
            });
            try {
                done = shared.try_set_adapters(lora);
                failed = false;
            } catch (const std::bad_alloc&) {
                CHECK(shared.adapters() == nullptr);
            }
        }
        CHECK(done);
        n_failed += failed ? 1 : 0;
        CHECK(shared.predict(input).data == (failed ? without : with).data);
    }
    CHECK(n_failed > 10);
}

TEST_CASE("inputs of another model are refused") {
    LoadedModel loaded;
    const TransformerSizes& sizes = loaded.sizes;
    Transformer& transformer = loaded.transformer;
    TransformerInput input = small_input(sizes, 0);
    input.txt = share(HostTensor({sizes.text_width + 1, 5, 1, 1}));
    const auto error = test::error_of([&] { transformer.predict(input); });
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("48"));
    CHECK(error.mentions("49"));
    CHECK(test::error_of([&] {
              transformer.predict(small_input(sizes, 3), ReferenceMode::cached);
          }).kind == ErrorKind::internal);
}

}  // namespace
}  // namespace flux2
