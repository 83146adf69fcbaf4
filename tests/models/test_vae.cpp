// What the recordings do not show: the small constant under the root of the latent statistics; and
// decoders narrower than their encoder.
#include "checkpoints/inventory.hpp"
#include "models/vae.hpp"
#include "support/plain_pictures.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace flux2 {
namespace {

using namespace test;

// The small autoencoder with these statistics for every latent channel.
std::filesystem::path with_statistics(const TemporaryFolder& folder, float mean, float variance) {
    auto tensors = tensors_of(fixture("klein/vae.safetensors"));
    for (TestTensor& tensor : tensors) {
        if (tensor.name.starts_with("bn.")) {
            const float value = tensor.name == "bn.running_mean" ? mean : variance;
            tensor.data = bytes_of(std::vector<float>(128, value));
            tensor.type = TensorType::f32;
        }
    }
    write_file(folder / "vae.safetensors", safetensors_of(tensors));
    return folder / "vae.safetensors";
}

std::vector<TestTensor> zeros_of(const VaeSizes& sizes) {
    std::vector<TestTensor> tensors;
    for (const ExpectedTensor& expected : tensor_list(sizes)) {
        const auto n_bytes = static_cast<size_t>(expected.shape.elements()) * 2;
        tensors.push_back(tensor_of(expected, Bytes(n_bytes), TensorType::f16));
    }
    return tensors;
}

HostTensor encode(const std::filesystem::path& file, const HostTensor& pixels) {
    const Backend backend("CPU");
    const Checkpoint checkpoint = Checkpoint::open(file);
    return Vae(backend, read_vae_sizes(checkpoint), checkpoint).encode(pixels);
}

TEST_CASE("latents are normalised by their statistics with 1e-4 under the root") {
    const TemporaryFolder folder;
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

// ---- A small decoder: levels of 96, 192, 384 and 384 channels ----

constexpr int kGroups = 32;
constexpr double kEps = 1e-6;

void add_resnet(PlainWeights& w, const std::string& name, int64_t in, int64_t out) {
    w.add_norm(name + ".norm1", in);
    w.add_conv(name + ".conv1", in, out, 3);
    w.add_norm(name + ".norm2", out);
    w.add_conv(name + ".conv2", out, out, 3);
    if (in != out) {
        w.add_conv(name + ".nin_shortcut", in, out, 1);
    }
}

void add_mid(PlainWeights& w, const std::string& name, int64_t n) {
    add_resnet(w, name + ".block_1", n, n);
    w.add_norm(name + ".attn_1.norm", n);
    for (const char* part : {".q", ".k", ".v", ".proj_out"}) {
        w.add_conv(name + ".attn_1" + part, n, n, 1);
    }
    add_resnet(w, name + ".block_2", n, n);
}

// A file needs an encoder: one width at all levels.
PlainWeights small_decoder() {
    PlainWeights w;
    w.add_vector("bn.running_mean", 128, 0, 0.5f);
    w.add_vector("bn.running_var", 128, 2, 1);
    w.add_conv("encoder.conv_in", 3, 32, 3);
    for (const std::string level : {"0", "1", "2", "3"}) {
        add_resnet(w, "encoder.down." + level + ".block.0", 32, 32);
        add_resnet(w, "encoder.down." + level + ".block.1", 32, 32);
        if (level != "3") {
            w.add_conv("encoder.down." + level + ".downsample.conv", 32, 32, 3);
        }
    }
    add_mid(w, "encoder.mid", 32);
    w.add_norm("encoder.norm_out", 32);
    w.add_conv("encoder.conv_out", 32, 64, 3);
    w.add_conv("encoder.quant_conv", 64, 64, 1);
    w.add_conv("decoder.post_quant_conv", 32, 32, 1);
    w.add_conv("decoder.conv_in", 32, 384, 3);
    add_mid(w, "decoder.mid", 384);
    int64_t before = 384;
    for (const auto& [level, width] : {std::pair{"3", 384}, {"2", 384}, {"1", 192}, {"0", 96}}) {
        const std::string up = std::string("decoder.up.") + level;
        for (const char* block : {".block.0", ".block.1", ".block.2"}) {
            add_resnet(w, up + block, before, width);
            before = width;
        }
        if (std::string(level) != "0") {
            w.add_conv(up + ".upsample.conv", width, width, 3);
        }
    }
    w.add_norm("decoder.norm_out", 96);
    w.add_conv("decoder.conv_out", 96, 3, 3);
    return w;
}

Planes norm_silu(const PlainWeights& w, const std::string& name, const Planes& x) {
    return plain_map(plain_group_norm(w, name, x, kGroups, kEps),
                     [](double v) { return v / (1 + std::exp(-v)); });
}

Planes resnet(const PlainWeights& w, const std::string& name, const Planes& x) {
    const Planes h = plain_conv(w, name + ".conv1", norm_silu(w, name + ".norm1", x));
    const Planes branch = plain_conv(w, name + ".conv2", norm_silu(w, name + ".norm2", h));
    const bool widens = w.find(name + ".nin_shortcut.weight") != nullptr;
    return plain_sum(widens ? plain_conv(w, name + ".nin_shortcut", x) : x, branch);
}

Planes attention(const PlainWeights& w, const std::string& name, const Planes& x) {
    const Planes y = plain_group_norm(w, name + ".norm", x, kGroups, kEps);
    const Planes o = plain_attention(plain_conv(w, name + ".q", y), plain_conv(w, name + ".k", y),
                                     plain_conv(w, name + ".v", y));
    return plain_sum(x, plain_conv(w, name + ".proj_out", o));
}

Planes plain_decode(const PlainWeights& w, const HostTensor& latents) {
    Planes x = planes_of(latents);
    for (int64_t c = 0; c < x.channels; ++c) {
        const auto at = static_cast<size_t>(c);
        const double variance = static_cast<double>(w.get("bn.running_var").values[at]);
        const double mean = static_cast<double>(w.get("bn.running_mean").values[at]);
        for (int64_t i = 0; i < x.w * x.h; ++i) {
            x.at(c, 0, i) = x.at(c, 0, i) * std::sqrt(variance + 1e-4) + mean;
        }
    }
    x = plain_conv(w, "decoder.post_quant_conv", plain_unpatchify(x));
    x = resnet(w, "decoder.mid.block_1", plain_conv(w, "decoder.conv_in", x));
    x = resnet(w, "decoder.mid.block_2", attention(w, "decoder.mid.attn_1", x));
    for (const std::string up : {"decoder.up.3", "decoder.up.2", "decoder.up.1", "decoder.up.0"}) {
        for (const char* block : {".block.0", ".block.1", ".block.2"}) {
            x = resnet(w, up + block, x);
        }
        if (up != "decoder.up.0") {
            x = plain_conv(w, up + ".upsample.conv", plain_upscale(x));
        }
    }
    return plain_conv(w, "decoder.conv_out", norm_silu(w, "decoder.norm_out", x));
}

TEST_CASE("a small decoder gives the plain computation's picture, by both names and forms") {
    const PlainWeights weights = small_decoder();
    const TemporaryFolder folder;
    std::vector<TestTensor> tensors =
        weights.under([](const std::string& name) { return name; }, TensorType::f16);
    write_file(folder / "original.safetensors", safetensors_of(tensors));
    for (TestTensor& tensor : tensors) {
        tensor = as_diffusers_vae(tensor);
    }
    write_file(folder / "diffusers.safetensors", safetensors_of(tensors));
    const HostTensor latents = some_picture(2, 1, 128, 1.5f);
    const Planes expected = plain_decode(weights, latents);
    REQUIRE(*std::max_element(expected.values.begin(), expected.values.end()) > 0.3);
    for (const char* file : {"original.safetensors", "diffusers.safetensors"}) {
        for (const bool stock : {false, true}) {
            CAPTURE(file);
            CAPTURE(stock);
            const Checkpoint checkpoint = Checkpoint::open(folder / file);
            CHECK_NOTHROW(check_inventory(checkpoint));
            Backend backend("CPU");
            if (stock) {
                backend.use_stock_operations();
            }
            Vae vae(backend, read_vae_sizes(checkpoint), checkpoint, {.type = TensorType::f32});
            CHECK(vae.sizes().decoder_widths == std::array<int64_t, 4>{96, 192, 384, 384});
            // F32 over some forty layers.
            CHECK(largest_difference(expected, vae.decode(latents)) < 1e-4);
        }
    }
}

TEST_CASE("levels that do not divide into the groups of their norms are refused") {
    const VaeSizes sizes{.latent_channels = 32,
                         .encoder_widths = {32, 32, 32, 32},
                         .decoder_widths = {32, 40, 64, 64}};
    const TemporaryFolder folder;
    write_file(folder / "vae.safetensors", safetensors_of(zeros_of(sizes)));
    const Checkpoint checkpoint = Checkpoint::open(folder / "vae.safetensors");
    const Backend backend("CPU");
    const auto error = error_of([&] { Vae(backend, read_vae_sizes(checkpoint), checkpoint); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("40 channels"));
}

TEST_CASE("pictures and latents of impossible sizes are refused") {
    const Backend backend("CPU");
    const Checkpoint checkpoint = Checkpoint::open(fixture("klein/vae.safetensors"));
    Vae vae(backend, read_vae_sizes(checkpoint), checkpoint);
    CHECK(error_of([&] {
              vae.encode(HostTensor({40, 32, 3, 1}));
          }).kind == ErrorKind::bad_argument);
    CHECK(error_of([&] { vae.decode(HostTensor({2, 2, 64, 1})); }).kind == ErrorKind::bad_argument);
}

// The full-size autoencoder, of zeros.
Checkpoint full_size_checkpoint(const TemporaryFolder& folder) {
    const VaeSizes sizes{.latent_channels = 32,
                         .encoder_widths = {128, 256, 512, 512},
                         .decoder_widths = {128, 256, 512, 512}};
    write_file(folder / "vae.safetensors", safetensors_of(zeros_of(sizes)));
    return Checkpoint::open(folder / "vae.safetensors");
}

TEST_CASE("decoding 1024x1024 with the full-size autoencoder takes at most 2.5 GB") {
    // Memory grows with the area, so a small picture tells: 64x64 is a 256th of it. Beyond the
    // pictures only slices of attention and rounding to blocks take room.
    const TemporaryFolder folder;
    const Checkpoint checkpoint = full_size_checkpoint(folder);
    for (const bool stock : {true, false}) {
        Backend backend("CPU", 0, BackendUse::measure);
        if (stock) {
            backend.use_stock_operations();
        }
        Vae vae(backend, read_vae_sizes(checkpoint), checkpoint, {});
        vae.reserve_decode(1024, 1024);
        CHECK(vae.compute_memory().host > 1'000'000'000);
        CHECK(vae.compute_memory().host < 2'500'000'000);
    }
}

// ---- Bands ----

constexpr std::array kBands = {MapMemory::bands, MapMemory::upsampled_in_bands,
                               MapMemory::all_in_bands};

// The largest one, relative to the largest value.
double difference(const HostTensor& a, const HostTensor& b) {
    REQUIRE(a.ne == b.ne);
    double largest = 0;
    double size = 0;
    for (size_t i = 0; i < a.data.size(); ++i) {
        largest = std::max(largest, std::abs(static_cast<double>(a.data[i] - b.data[i])));
        size = std::max(size, std::abs(static_cast<double>(a.data[i])));
    }
    return largest / size;
}

TEST_CASE("pictures computed in bands equal those computed as a whole, in less memory") {
    const TemporaryFolder folder;
    write_file(folder / "vae.safetensors",
               safetensors_of(small_decoder().under([](const std::string& name) { return name; })));
    const Checkpoint checkpoint = Checkpoint::open(folder / "vae.safetensors");
    const Backend backend("CPU");
    Vae vae(backend, read_vae_sizes(checkpoint), checkpoint, {.type = TensorType::f32});
    const HostTensor pixels = some_picture(32, 160, 3, 1);
    const HostTensor latents = some_picture(2, 3, 128, 1.5f);
    const HostTensor encoded = vae.encode(pixels);
    const uint64_t whole_encode = vae.compute_memory().host;
    const HostTensor decoded = vae.decode(latents);
    // Rows of the encoder's maps; the decoder's are three to six times as wide.
    for (const int64_t rows : {3, 8}) {
        for (const MapMemory memory : kBands) {
            CAPTURE(static_cast<int>(memory));
            CAPTURE(rows);
            vae.set_map_memory(memory, 32 * 32 * rows);
            CHECK(difference(encoded, vae.encode(pixels)) < 1e-5);
            CHECK(vae.compute_memory().host < whole_encode);
            CHECK(difference(decoded, vae.decode(latents)) < 1e-5);
        }
    }
    vae.set_map_memory(MapMemory::whole);
    CHECK(difference(decoded, vae.decode(latents)) == 0);
}

TEST_CASE("where only ggml's operations are used, maps stay whole") {
    const TemporaryFolder folder;
    write_file(folder / "vae.safetensors",
               safetensors_of(small_decoder().under([](const std::string& name) { return name; })));
    const Checkpoint checkpoint = Checkpoint::open(folder / "vae.safetensors");
    Backend backend("CPU");
    backend.use_stock_operations();
    Vae vae(backend, read_vae_sizes(checkpoint), checkpoint, {.type = TensorType::f32});
    const HostTensor latents = some_picture(3, 5, 128, 1.5f);
    const HostTensor decoded = vae.decode(latents);
    vae.set_map_memory(MapMemory::all_in_bands);
    CHECK(difference(decoded, vae.decode(latents)) == 0);
}

TEST_CASE("in bands the full-size autoencoder needs a fraction of the memory, also at 4096x4096") {
    const TemporaryFolder folder;
    const Checkpoint checkpoint = full_size_checkpoint(folder);
    const Backend backend("CPU", 0, BackendUse::measure);
    Vae vae(backend, read_vae_sizes(checkpoint), checkpoint, {});
    const auto gigabytes = [&](int64_t side, MapMemory memory, bool decodes) {
        vae.set_map_memory(memory);
        decodes ? vae.reserve_decode(side, side) : vae.reserve_encode(side, side);
        return static_cast<double>(vae.compute_memory().host) / 1e9;
    };
    for (const bool decodes : {true, false}) {
        CAPTURE(decodes);
        double before = gigabytes(2048, MapMemory::whole, decodes);
        for (const MapMemory memory : kBands) {
            const double now = gigabytes(2048, memory, decodes);
            CAPTURE(static_cast<int>(memory));
            CHECK(now <= before);
            before = now;
        }
        CHECK(before < (decodes ? 4.5 : 2.5));
        CHECK(gigabytes(4096, MapMemory::all_in_bands, decodes) < (decodes ? 17 : 8.5));
    }
}

}  // namespace
}  // namespace flux2
