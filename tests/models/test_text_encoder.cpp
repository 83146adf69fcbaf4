// dev's text encoder against plain loops in double precision; klein's is in the recordings that
// test_selftest compares with.
#include "checkpoints/inventory.hpp"
#include "checkpoints/text_config.hpp"
#include "models/text_encoder.hpp"
#include "support/scaled_files.hpp"
#include "support/small_mistral.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

namespace flux2 {
namespace {

using test::SmallMistral;

const SmallMistral& mistral() {
    static const SmallMistral model;
    return model;
}

TextEncoderFacts facts_of(const Checkpoint& checkpoint) {
    const TextConfig config = read_text_config(checkpoint);
    return {.layers = config.layers,
            .rope_theta = static_cast<float>(config.rope_theta),
            .eps = static_cast<float>(config.eps)};
}

HostTensor features_of(const std::filesystem::path& file, const std::vector<int32_t>& ids,
                       int64_t n_real) {
    const Backend backend("CPU");
    const Checkpoint checkpoint = Checkpoint::open(file, Part::text_encoder);
    TextEncoder encoder(backend, read_text_encoder_sizes(checkpoint), facts_of(checkpoint),
                        checkpoint);
    return encoder.encode(ids, n_real);
}

// Layers 10, 20 and 30 side by side, the features of FLUX.2 dev.
std::vector<double> expected_features(const std::vector<int32_t>& ids, size_t n_padding) {
    const std::vector<test::Rows> states = mistral().hidden_states(ids, n_padding);
    std::vector<double> features;
    for (size_t token = 0; token < ids.size(); ++token) {
        for (const size_t layer : {10, 20, 30}) {
            const test::Row& row = states[layer][token];
            features.insert(features.end(), row.begin(), row.end());
        }
    }
    return features;
}

// The largest difference in parts of the root mean square.
double distance(const HostTensor& found, const std::vector<double>& expected) {
    REQUIRE(found.data.size() == expected.size());
    double largest = 0;
    double squares = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
        largest = std::max(largest, std::abs(double{found.data[i]} - expected[i]));
        squares += expected[i] * expected[i];
    }
    return largest / std::sqrt(squares / static_cast<double>(expected.size()));
}

// F32 sums of a hundred products in thirty layers.
constexpr double kTolerance = 1e-4;

const std::vector<int32_t> kIds = {11, 11, 11, 1, 200, 17, 319, 200, 4};
constexpr size_t kPadding = 3;

TEST_CASE("Mistral's features are those of its mathematics in every layout of its files") {
    const test::TemporaryFolder folder;
    mistral().write_safetensors(folder / "plain.safetensors");
    mistral().write_safetensors(folder / "inner.safetensors", "language_model.");
    mistral().write_gguf(folder / "llama.gguf", "llama");
    mistral().write_gguf(folder / "mistral3.gguf", "mistral3");
    const std::vector<double> expected = expected_features(kIds, kPadding);
    for (const char* name :
         {"plain.safetensors", "inner.safetensors", "llama.gguf", "mistral3.gguf"}) {
        CAPTURE(name);
        const HostTensor features = features_of(folder / name, kIds, 6);
        CHECK(features.ne == std::array<int64_t, 4>{240, 9, 1, 1});
        CHECK(distance(features, expected) < kTolerance);
    }
}

TEST_CASE("without padding Mistral attends everywhere") {
    const test::TemporaryFolder folder;
    mistral().write_gguf(folder / "llama.gguf", "llama");
    CHECK(distance(features_of(folder / "llama.gguf", kIds, 9), expected_features(kIds, 0)) <
          kTolerance);
}

TEST_CASE("padding on the left leaves nothing to attend to, so all of it is alike") {
    const test::TemporaryFolder folder;
    mistral().write_gguf(folder / "llama.gguf", "llama");
    const HostTensor features = features_of(folder / "llama.gguf", kIds, 6);
    const auto row = features.data.begin();
    CHECK(std::equal(row, row + 240, row + 240));
    CHECK(std::equal(row, row + 240, row + 480));
    CHECK_FALSE(std::equal(row, row + 240, row + 720));
}

TEST_CASE("Mistral with scaled FP8 queries and keys has its rows in order too") {
    std::vector<test::TestTensor> coded, plain;
    for (const test::TestTensor& tensor : mistral().tensors()) {
        const bool turns = tensor.name.find("q_proj") != std::string::npos ||
                           tensor.name.find("k_proj") != std::string::npos;
        if (!turns) {
            coded.push_back(tensor);
            plain.push_back(tensor);
            continue;
        }
        const test::Encoded encoded = test::as_scaled_fp8(tensor);
        coded.insert(coded.end(), encoded.tensors.begin(), encoded.tensors.end());
        plain.push_back({tensor.name, tensor.shape, test::bytes_of(encoded.values), tensor.type});
    }
    const test::TemporaryFolder folder;
    test::write_file(folder / "config.json", R"({"head_dim": 16})");
    test::write_file(folder / "coded.safetensors", test::safetensors_of(coded));
    test::write_file(folder / "plain.safetensors", test::safetensors_of(plain));
    const Checkpoint a = Checkpoint::open(folder / "coded.safetensors");
    const Checkpoint b = Checkpoint::open(folder / "plain.safetensors");
    for (const char* name : {"blk.0.attn_q.weight", "blk.30.attn_k.weight"}) {
        std::vector<float> from_codes(80 * 32), from_floats(80 * 32);
        a.get(name).read_f32(0, from_codes);
        b.get(name).read_f32(0, from_floats);
        CHECK(from_codes == from_floats);
    }
}

TEST_CASE("Mistral's configuration comes from the file, else from FLUX.2 dev") {
    const test::TemporaryFolder folder;
    mistral().write_safetensors(folder / "te.safetensors");
    const TextConfig plain = read_text_config(Checkpoint::open(folder / "te.safetensors"));
    CHECK(plain.family == TextFamily::mistral);
    CHECK(plain.layers == std::vector<int64_t>{10, 20, 30});
    CHECK(plain.text_length == 512);
    CHECK(plain.rope_theta == 1e9);
    CHECK(plain.eps == 1e-5);
    test::write_file(folder / "config.json",
                     R"({"text_config": {"head_dim": 16, "rope_theta": 5000.0}})");
    CHECK(read_text_config(Checkpoint::open(folder / "te.safetensors")).rope_theta == 5000.0);
}

TEST_CASE("a head size that does not fit Mistral's tensors is refused") {
    const test::TemporaryFolder folder;
    mistral().write_safetensors(folder / "te.safetensors");
    for (const auto& [config, mark] : {std::pair{R"({"head_dim": 24})", "heads of 24"},
                                       {R"({"head_dim": 15})", "15 wide"},
                                       {R"({"head_dim": 0})", "0 wide"},
                                       {R"({})", "heads of 128"}}) {
        test::write_file(folder / "config.json", config);
        const auto error = test::error_of([&] { Checkpoint::open(folder / "te.safetensors"); });
        CHECK(error.kind == ErrorKind::bad_file);
        CHECK(error.mentions(mark));
        CHECK(error.mentions("te.safetensors"));
    }
}

}  // namespace
}  // namespace flux2
