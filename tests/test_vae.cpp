// What the recordings cannot tell apart: the small constant under the root of the latent
// statistics.
#include "models/vae.hpp"
#include "support.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

namespace flux2 {
namespace {

// The small autoencoder with these statistics for every latent channel.
std::filesystem::path with_statistics(const test::TemporaryFolder& folder, float mean,
                                      float variance) {
    auto tensors = test::tensors_of(test::fixture("klein/vae.safetensors"));
    for (test::TestTensor& tensor : tensors) {
        if (tensor.name.starts_with("bn.")) {
            const float value = tensor.name == "bn.running_mean" ? mean : variance;
            tensor.data = test::bytes_of(std::vector<float>(128, value));
            tensor.type = TensorType::f32;
        }
    }
    test::write_file(folder / "vae.safetensors", test::safetensors_of(tensors));
    return folder / "vae.safetensors";
}

HostTensor encode(const std::filesystem::path& file, const HostTensor& pixels) {
    const Backend backend("CPU");
    const Checkpoint checkpoint = Checkpoint::open(file);
    return Vae(backend, checkpoint).encode(pixels);
}

TEST_CASE("latents are normalised by their statistics with 1e-4 under the root") {
    const test::TemporaryFolder folder;
    HostTensor pixels({32, 32, 3, 1});
    for (size_t i = 0; i < pixels.data.size(); ++i) {
        pixels.data[i] = std::sin(static_cast<float>(i));
    }
    // sqrt(0.9999 + 0.0001) = 1: the latents as they are.
    const HostTensor raw = encode(with_statistics(folder, 0.0f, 0.9999f), pixels);
    // sqrt(0 + 0.0001) = 0.01, and a mean to take off.
    const HostTensor scaled = encode(with_statistics(folder, 0.5f, 0.0f), pixels);
    REQUIRE(raw.data.size() == scaled.data.size());
    double largest = 0;
    for (size_t i = 0; i < raw.data.size(); ++i) {
        const double expected = (static_cast<double>(raw.data[i]) - 0.5) / 0.01;
        largest = std::max(largest, std::abs(static_cast<double>(scaled.data[i]) - expected));
    }
    // Values reach a few hundred; F32 resolves 3e-5 there, twice rounded.
    CHECK(largest < 1e-3);
}

TEST_CASE("pictures and latents of impossible sizes are refused") {
    const Backend backend("CPU");
    const Checkpoint checkpoint = Checkpoint::open(test::fixture("klein/vae.safetensors"));
    Vae vae(backend, checkpoint);
    CHECK(test::error_of([&] {
              vae.encode(HostTensor({40, 32, 3, 1}));
          }).kind == ErrorKind::bad_argument);
    CHECK(test::error_of([&] {
              vae.decode(HostTensor({2, 2, 64, 1}));
          }).kind == ErrorKind::bad_argument);
}

TEST_CASE("decoding 1024x1024 with the full-size autoencoder takes at most 2.5 GB") {
    // Memory grows with the area, so a small picture tells: 64x64 is a 256th of it. Beyond the
    // pictures only slices of attention and rounding to blocks take room.
    const test::TemporaryFolder folder;
    const VaeSizes sizes{.latent_channels = 32,
                         .encoder_widths = {128, 256, 512, 512},
                         .decoder_widths = {128, 256, 512, 512}};
    std::vector<test::TestTensor> tensors;
    for (const ExpectedTensor& expected : inventory(sizes)) {
        const auto n_dims = static_cast<size_t>(expected.shape.n_dims);
        tensors.push_back({expected.name,
                           {expected.shape.ne.begin(), expected.shape.ne.begin() + n_dims},
                           test::Bytes(static_cast<size_t>(expected.shape.elements()) * 2),
                           TensorType::f16});
    }
    test::write_file(folder / "vae.safetensors", test::safetensors_of(tensors));
    const Checkpoint checkpoint = Checkpoint::open(folder / "vae.safetensors");
    for (const bool stock : {true, false}) {
        Backend backend("CPU", 0, BackendUse::measure);
        if (stock) {
            backend.use_stock_operations();
        }
        Vae vae(backend, checkpoint, {});
        vae.reserve_decode(1024, 1024);
        CHECK(vae.compute_memory().host > 1'000'000'000);
        CHECK(vae.compute_memory().host < 2'500'000'000);
    }
}

}  // namespace
}  // namespace flux2
