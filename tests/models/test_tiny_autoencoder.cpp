// TAEF2 against a plain computation of its layers, under every naming; errors in files; and its use
// in a pipeline.
#include "checkpoints/inventory.hpp"
#include "models/tiny_autoencoder.hpp"

#include <flux2/flux2.hpp>
#include "pipeline/loaded_model.hpp"
#include "pipeline/model_files.hpp"
#include "support/cli.hpp"
#include "support/plain_pictures.hpp"
#include "support/program.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using namespace test;

// ---- The network once more; layers are numbered as in taesd.py ----

constexpr int64_t kWidth = 8;
constexpr int64_t kPool = 16;
constexpr int64_t kLatent = 32;

void add_blocks(PlainWeights& w, const std::string& half, int first, int last, bool pools) {
    for (int i = first; i <= last; ++i) {
        const std::string name = half + std::to_string(i);
        for (const char* conv : {".conv.0", ".conv.2", ".conv.4"}) {
            w.add_conv(name + conv, kWidth, kWidth, 3);
        }
        if (pools) {
            w.add_conv(name + ".pool.0", kWidth, kPool, 1, /*bias=*/false);
            w.add_norm(name + ".pool.1", kPool);
            w.add_conv(name + ".pool.3", kPool, kWidth, 1, /*bias=*/false);
        }
    }
}

PlainWeights make_weights() {
    PlainWeights w;
    const auto resample = [&](const std::string& name) {
        w.add_conv(name, kWidth, kWidth, 3, /*bias=*/false);
    };
    w.add_conv("encoder.0", 3, kWidth, 3);
    add_blocks(w, "encoder.", 1, 1, false);
    resample("encoder.2");
    add_blocks(w, "encoder.", 3, 5, false);
    resample("encoder.6");
    add_blocks(w, "encoder.", 7, 9, false);
    resample("encoder.10");
    add_blocks(w, "encoder.", 11, 13, true);
    w.add_conv("encoder.14", kWidth, kLatent, 3);
    w.add_conv("decoder.1", kLatent, kWidth, 3);
    add_blocks(w, "decoder.", 3, 5, true);
    resample("decoder.7");
    add_blocks(w, "decoder.", 8, 10, false);
    resample("decoder.12");
    add_blocks(w, "decoder.", 13, 15, false);
    resample("decoder.17");
    add_blocks(w, "decoder.", 18, 18, false);
    w.add_conv("decoder.19", kWidth, 3, 3);
    return w;
}

const PlainWeights& weights() {
    static const PlainWeights made = make_weights();
    return made;
}

Planes plain_relu(const Planes& x) {
    return plain_map(x, [](double v) { return std::max(v, 0.0); });
}

Planes plain_blocks(const std::string& half, int first, int last, Planes x) {
    const PlainWeights& w = weights();
    for (int i = first; i <= last; ++i) {
        const std::string name = half + std::to_string(i);
        if (w.find(name + ".pool.0.weight") != nullptr) {
            const Planes wide = plain_conv(w, name + ".pool.0", x);
            const Planes pooled = plain_relu(plain_group_norm(w, name + ".pool.1", wide, 4, 1e-5));
            x = plain_sum(x, plain_conv(w, name + ".pool.3", pooled));
        }
        Planes h = plain_relu(plain_conv(w, name + ".conv.0", x));
        h = plain_relu(plain_conv(w, name + ".conv.2", h));
        x = plain_relu(plain_sum(x, plain_conv(w, name + ".conv.4", h)));
    }
    return x;
}

// Pixels in -1..1 -> latents in the transformer's form.
Planes plain_encode(const HostTensor& pixels) {
    const PlainWeights& w = weights();
    Planes x = plain_map(planes_of(pixels), [](double v) { return v * 0.5 + 0.5; });
    x = plain_blocks("encoder.", 1, 1, plain_conv(w, "encoder.0", x));
    x = plain_blocks("encoder.", 3, 5, plain_conv(w, "encoder.2", x, 2));
    x = plain_blocks("encoder.", 7, 9, plain_conv(w, "encoder.6", x, 2));
    x = plain_blocks("encoder.", 11, 13, plain_conv(w, "encoder.10", x, 2));
    return plain_patchify(plain_conv(w, "encoder.14", x));
}

Planes plain_decode(const HostTensor& latents) {
    const PlainWeights& w = weights();
    Planes x = plain_map(plain_unpatchify(planes_of(latents)),
                         [](double v) { return std::tanh(v / 3) * 3; });
    x = plain_blocks("decoder.", 3, 5, plain_relu(plain_conv(w, "decoder.1", x)));
    x = plain_blocks("decoder.", 8, 10, plain_conv(w, "decoder.7", plain_upscale(x)));
    x = plain_blocks("decoder.", 13, 15, plain_conv(w, "decoder.12", plain_upscale(x)));
    x = plain_blocks("decoder.", 18, 18, plain_conv(w, "decoder.17", plain_upscale(x)));
    return plain_map(plain_conv(w, "decoder.19", x), [](double v) { return 2 * v - 1; });
}

double spread(const Planes& x) {
    const auto [least, most] = std::minmax_element(x.values.begin(), x.values.end());
    return *most - *least;
}

// ---- Files ----

using Rename = std::function<std::string(const std::string&)>;

std::string same(const std::string& name) {
    return name;
}

std::string decoder_only(const std::string& name) {
    return name.starts_with("decoder.") ? name : "";
}

std::string bare(const std::string& name) {
    return name.starts_with("decoder.") ? name.substr(8) : "";
}

std::string comfy(const std::string& name) {
    return "taesd_" + name;
}

// The clamp is no layer there.
std::string diffusers(const std::string& name) {
    const bool decodes = name.starts_with("decoder.");
    const size_t end = name.find('.', 8);
    const int layer = std::stoi(name.substr(8, end - 8)) - (decodes ? 1 : 0);
    return name.substr(0, 8) + "layers." + std::to_string(layer) + name.substr(end);
}

fs::path write_tiny(const TemporaryFolder& folder, const Rename& rename,
                    const std::string& name = "taef2.safetensors",
                    TensorType type = TensorType::f32) {
    write_file(folder / name, safetensors_of(weights().under(rename, type)));
    return folder / name;
}

// On the CPU, in ggml's operations or ours; calls f with the network.
template <typename F>
void with_network(const fs::path& file, bool stock, const F& f) {
    Backend backend("CPU");
    if (stock) {
        backend.use_stock_operations();
    }
    const Checkpoint checkpoint = Checkpoint::open(file);
    CHECK(checkpoint.part() == Part::tiny_autoencoder);
    CHECK_NOTHROW(check_inventory(checkpoint));
    TinyAutoencoder tiny(backend, read_tiny_autoencoder_sizes(checkpoint), checkpoint,
                         {.type = TensorType::f32});
    f(tiny);
}

// F32 over some thirty layers.
double tolerance(const Planes& expected) {
    return 2e-6 * spread(expected);
}

TEST_CASE("the tiny autoencoder decodes as its layers say, under every naming and in both forms") {
    const HostTensor latents = some_picture(3, 2, 4 * kLatent, 4.0f);
    const Planes expected = plain_decode(latents);
    REQUIRE(spread(expected) > 0.3);
    const TemporaryFolder folder;
    for (const Rename& rename :
         {Rename(same), Rename(decoder_only), Rename(bare), Rename(comfy), Rename(diffusers)}) {
        for (const bool stock : {false, true}) {
            with_network(write_tiny(folder, rename), stock, [&](TinyAutoencoder& tiny) {
                const HostTensor pixels = tiny.decode(latents);
                CHECK(pixels.ne == std::array<int64_t, 4>{48, 32, 3, 1});
                CHECK(largest_difference(expected, pixels) < tolerance(expected));
            });
        }
    }
}

TEST_CASE("the tiny autoencoder encodes as its layers say, under every naming and in both forms") {
    const HostTensor pixels = some_picture(48, 32, 3, 1.0f);
    const Planes expected = plain_encode(pixels);
    REQUIRE(spread(expected) > 0.3);
    const TemporaryFolder folder;
    for (const Rename& rename : {Rename(same), Rename(comfy), Rename(diffusers)}) {
        for (const bool stock : {false, true}) {
            with_network(write_tiny(folder, rename), stock, [&](TinyAutoencoder& tiny) {
                const HostTensor latents = tiny.encode(pixels);
                CHECK(latents.ne == std::array<int64_t, 4>{3, 2, 4 * kLatent, 1});
                CHECK(largest_difference(expected, latents) < tolerance(expected));
                // The other way, and back: each direction has a graph of its own.
                CHECK(tiny.decode(latents).ne == pixels.ne);
                CHECK(largest_difference(expected, tiny.encode(pixels)) < tolerance(expected));
            });
        }
    }
}

TEST_CASE("the tiny autoencoder computes the same in bands, in less memory") {
    const TemporaryFolder folder;
    const Checkpoint checkpoint = Checkpoint::open(write_tiny(folder, same));
    const Backend backend("CPU");
    const TinyAutoencoderSizes sizes = read_tiny_autoencoder_sizes(checkpoint);
    TinyAutoencoder tiny(backend, sizes, checkpoint, {.type = TensorType::f32});
    const HostTensor pixels = some_picture(48, 80, 3, 1);
    const HostTensor latents = some_picture(3, 5, 4 * sizes.latent_channels, 1);
    const HostTensor encoded = tiny.encode(pixels);
    const uint64_t whole_encode = tiny.compute_memory().host;
    const HostTensor decoded = tiny.decode(latents);
    const uint64_t whole_decode = tiny.compute_memory().host;
    const auto largest = [](const HostTensor& x) {
        return static_cast<double>(*std::max_element(x.data.begin(), x.data.end()));
    };
    for (const int64_t rows : {4, 17}) {
        CAPTURE(rows);
        tiny.set_map_memory(MapMemory::bands, 48 * sizes.width * rows);
        CHECK(largest_difference(planes_of(encoded), tiny.encode(pixels)) <
              1e-5 * largest(encoded));
        CHECK(tiny.compute_memory().host < whole_encode);
        CHECK(largest_difference(planes_of(decoded), tiny.decode(latents)) <
              1e-5 * largest(decoded));
        CHECK(tiny.compute_memory().host < whole_decode);
    }
}

TEST_CASE("the published sizes give the parameters that its layers have") {
    const TinyAutoencoderSizes sizes{
        .latent_channels = 32, .width = 64, .pool_width = 256, .has_encoder = true};
    int64_t encoder = 0;
    int64_t decoder = 0;
    for (const ExpectedTensor& tensor : tensor_list(sizes)) {
        (tensor.name.starts_with("encoder.") ? encoder : decoder) += tensor.shape.elements();
    }
    constexpr int64_t kConv = 64 * 64 * 9;
    constexpr int64_t kBlocks = 10 * 3 * (kConv + 64);
    constexpr int64_t kPools = 3 * (2 * 64 * 256 + 2 * 256);
    CHECK(encoder == 3 * 64 * 9 + 64 + kBlocks + kPools + 3 * kConv + 64 * 32 * 9 + 32);
    CHECK(decoder == 32 * 64 * 9 + 64 + kBlocks + kPools + 3 * kConv + 64 * 3 * 9 + 3);
}

// ---- What is wrong with a file ----

CaughtError refused(const std::vector<TestTensor>& tensors) {
    const TemporaryFolder folder;
    write_file(folder / "x.safetensors", safetensors_of(tensors));
    return error_of([&] {
        const Checkpoint checkpoint = Checkpoint::open(folder / "x.safetensors");
        const Backend backend("CPU");
        TinyAutoencoder tiny(backend, read_tiny_autoencoder_sizes(checkpoint), checkpoint);
    });
}

TEST_CASE("a tensor that is missing or of another shape is named") {
    for (const std::string name :
         {"decoder.1.weight", "decoder.12.weight", "decoder.4.pool.3.weight", "encoder.0.weight",
          "encoder.13.conv.4.bias"}) {
        CAPTURE(name);
        const auto error =
            refused(weights().under([&](const std::string& n) { return n == name ? "" : n; }));
        CHECK(error.kind == ErrorKind::bad_file);
        CHECK(error.mentions(name));
        CHECK(error.mentions("missing"));
    }
    auto tensors = weights().under(same);
    for (TestTensor& tensor : tensors) {
        if (tensor.name == "decoder.9.conv.2.weight") {
            tensor = counting_tensor(tensor.name, {3, 3, kWidth, kWidth - 1});
        }
    }
    const auto error = refused(tensors);
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("decoder.9.conv.2.weight"));
    CHECK(error.mentions("shape"));
}

TEST_CASE("a file that was cut off is refused before anything is computed") {
    const TemporaryFolder folder;
    const fs::path file = write_tiny(folder, same);
    Bytes bytes = read_file(file);
    bytes.resize(bytes.size() - 100);
    write_file(file, bytes);
    CHECK(error_of([&] { Checkpoint::open(file); }).kind == ErrorKind::bad_file);
}

TEST_CASE("FLUX.1's tiny autoencoder and the encoder alone are refused as what they are") {
    auto other = weights().under(
        [](const std::string& n) { return n.find(".pool.") == std::string::npos ? n : ""; });
    for (TestTensor& tensor : other) {
        if (tensor.name == "decoder.1.weight") {
            tensor = counting_tensor(tensor.name, {3, 3, 16, kWidth});
        }
    }
    const auto flux1 = refused(other);
    CHECK(flux1.kind == ErrorKind::unsupported);
    CHECK(flux1.mentions("tiny autoencoder of FLUX.1"));
    CHECK(flux1.mentions("TAEF2"));
    const auto encoder = refused(
        weights().under([](const std::string& n) { return n.starts_with("encoder.") ? n : ""; }));
    CHECK(encoder.kind == ErrorKind::unsupported);
    CHECK(encoder.mentions("without its decoder"));
}

TEST_CASE("pictures and latents of impossible sizes are refused, and a lone decoder encodes none") {
    const TemporaryFolder folder;
    with_network(write_tiny(folder, same), false, [](TinyAutoencoder& tiny) {
        CHECK(error_of([&] {
                  tiny.encode(HostTensor({40, 32, 3, 1}));
              }).kind == ErrorKind::bad_argument);
        CHECK(error_of([&] {
                  tiny.decode(HostTensor({2, 2, 64, 1}));
              }).kind == ErrorKind::bad_argument);
    });
    with_network(write_tiny(folder, bare), false, [](TinyAutoencoder& tiny) {
        const auto error = error_of([&] { tiny.encode(HostTensor({32, 32, 3, 1})); });
        CHECK(error.kind == ErrorKind::bad_file);
        CHECK(error.mentions("`vae` FILE"));
    });
}

// ---- Programs ----

TEST_CASE("flux2 info explains it, flux2-convert makes a GGUF of it that decodes the same") {
    const TemporaryFolder folder;
    const fs::path file = write_tiny(folder, bare);
    const FileInfo info = inspect_file(file);
    CHECK(info.part == "tiny autoencoder");
    CHECK(info.name.find("TAEF2") == 0);
    CHECK(info.latent_channels == 128);
    REQUIRE(info.notes.size() == 1);
    CHECK(info.notes[0].find("`vae` FILE") != std::string::npos);
    const auto said = flux2_program({"info", file.string()});
    CHECK(said.exit_code == 0);
    CHECK(said.out.find("--taesd " + file.string()) != std::string::npos);
    CHECK(said.out.find("rough pictures (--taesd)") != std::string::npos);
    CHECK(said.out.find("need --vae FILE beside it") != std::string::npos);

    const HostTensor latents = some_picture(2, 2, 4 * kLatent, 4.0f);
    const Planes expected = plain_decode(latents);
    for (const std::string type : {"F32", "F16", "Q4_K_M"}) {
        CAPTURE(type);
        const fs::path gguf = folder / (type + ".gguf");
        const auto converted = run_program(test::convert_path() + " " + file.string() + " -o " +
                                           gguf.string() + " --verify --type " + type);
        CHECK(converted.exit_code == 0);
        const FileInfo made = inspect_file(gguf);
        CHECK(made.part == "tiny autoencoder");
        CHECK(made.format == "GGUF");
        CHECK(made.types.find(type == "F32" ? "F32" : "F16") == 0);
        // The weights are such that F16 holds them.
        with_network(gguf, false, [&](TinyAutoencoder& tiny) {
            CHECK(largest_difference(expected, tiny.decode(latents)) < tolerance(expected));
        });
    }
}

TEST_CASE("bench times both halves") {
    const TemporaryFolder folder;
    const auto result =
        flux2_program({"bench", "--taesd", write_tiny(folder, same).string(), "-W", "64", "-H",
                       "64", "--repeat", "1", "-t", "1", "--device", "CPU"});
    CHECK(result.exit_code == 0);
    CHECK(result.out.find("taesd decode") != std::string::npos);
    CHECK(result.out.find("taesd encode") != std::string::npos);
}

// ---- In a pipeline ----

ModelFiles klein_with(const fs::path& taesd) {
    return {fixture("klein/flux2.safetensors"), {}, {}, taesd};
}

Request small_request() {
    Request request;
    request.embeds_file = fixture("klein/text_encoder.golden.safetensors");
    request.width = 64;
    request.height = 96;
    request.steps = 2;
    request.seed = 1;
    return request;
}

LoadOptions on_cpu() {
    LoadOptions options;
    options.device = "CPU";
    options.type = "F32";
    return options;
}

struct Drawn {
    Image image;
    std::vector<Image> previews;
    std::vector<double> shares;  // of denoising, in their order
};

Drawn draw(const ModelFiles& files, Request request) {
    Drawn drawn;
    Pipeline pipeline = Pipeline::load(files, on_cpu());
    request.preview = true;
    drawn.image = pipeline
                      .generate(request,
                                [&](const Step& step) {
                                    if (step.stage == Stage::denoise) {
                                        drawn.shares.push_back(step.share);
                                    }
                                    if (step.preview != nullptr) {
                                        drawn.previews.push_back(*step.preview);
                                    }
                                    return true;
                                })
                      .image;
    return drawn;
}

TEST_CASE("alone it draws previews and the picture, which the last preview is") {
    const TemporaryFolder folder;
    const ModelFiles files = klein_with(write_tiny(folder, bare));
    const Drawn drawn = draw(files, small_request());
    CHECK(drawn.image.width == 64);
    CHECK(drawn.image.height == 96);
    REQUIRE(drawn.previews.size() == 2);
    // After the last step nothing is left of the noise.
    CHECK(drawn.previews[1].rgb == drawn.image.rgb);
    CHECK(drawn.previews[0].rgb != drawn.image.rgb);
    CHECK(drawn.previews[0].width == 64);
    // Its own progress is not taken for the transformer's.
    CHECK(std::is_sorted(drawn.shares.begin(), drawn.shares.end()));
    CHECK(drawn.shares.back() == doctest::Approx(1.0));
}

TEST_CASE("for previews only it leaves the picture as the autoencoder makes it") {
    const TemporaryFolder folder;
    ModelFiles files = klein_with({});
    files.vae = fixture("klein/vae.safetensors");
    const Drawn plain = draw(files, small_request());
    files.taesd = write_tiny(folder, bare);
    const Drawn fast = draw(files, small_request());
    CHECK(fast.image.rgb != plain.image.rgb);
    files.taesd_preview_only = true;
    const Drawn both = draw(files, small_request());
    CHECK(both.image.rgb == plain.image.rgb);
    CHECK(both.previews.at(1).rgb == fast.image.rgb);
    files.vae.clear();
    const auto error = error_of([&] { Pipeline::load(files, on_cpu()); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("`vae` FILE"));
}

TEST_CASE("references are encoded by it when both halves and no autoencoder are there") {
    const TemporaryFolder folder;
    Request request = small_request();
    const Image without = draw(klein_with(write_tiny(folder, same)), request).image;
    request.references.push_back(load_image(fixture("klein/ref_0.png")));
    CHECK(draw(klein_with(write_tiny(folder, same)), request).image.rgb != without.rgb);
    const auto error =
        error_of([&] { draw(klein_with(write_tiny(folder, bare, "d.safetensors")), request); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("d.safetensors"));
    CHECK(error.mentions("`vae` FILE"));
    // If there is an autoencoder too, it encodes.
    ModelFiles files = klein_with(folder / "d.safetensors");
    files.vae = fixture("klein/vae.safetensors");
    CHECK(draw(files, request).image.width == 64);
}

TEST_CASE("the memory plan counts it: beside the transformer for previews, and as the decoder") {
    const TemporaryFolder folder;
    ModelFiles files = klein_with(write_tiny(folder, same));
    Pipeline tiny = Pipeline::load(files, on_cpu());
    Request request = small_request();
    const auto stage = [](const MemoryPlan& plan, const std::string& name) {
        for (const StageMemory& memory : plan.stages) {
            if (memory.stage == name) {
                return memory.host_weights + memory.host_compute + memory.mapped;
            }
        }
        FAIL("no stage ", name);
        return uint64_t{0};
    };
    // Every stage counts what the process held before, which differs from plan to plan.
    const auto loop_over_decode = [&](const MemoryPlan& plan) {
        return static_cast<int64_t>(stage(plan, "transformer")) -
               static_cast<int64_t>(stage(plan, "decode"));
    };
    const int64_t plain = loop_over_decode(tiny.plan(request));
    files.vae = fixture("klein/vae.safetensors");
    files.taesd_preview_only = true;
    CHECK(loop_over_decode(Pipeline::load(files, on_cpu()).plan(request)) < plain);
    request.preview = true;
    // 64 x 96 pixels of 8 channels in F32, twice at least.
    CHECK(loop_over_decode(tiny.plan(request)) > plain + 2 * 64 * 96 * 8 * 4);
    request.references.push_back(load_image(fixture("klein/ref_0.png")));
    CHECK(stage(tiny.plan(request), "encode references") > 0);
}

TEST_CASE("it comes beside the transformer for previews, and is alone when it decodes") {
    const TemporaryFolder folder;
    const Model model = open_model(klein_with(write_tiny(folder, same)), "klein");
    const LoadOptions options = on_cpu();
    LoadedModel loaded_model(model, options);
    loaded_model.transformer();
    const uint64_t transformer = loaded_model.memory().host;
    loaded_model.tiny();
    CHECK(loaded_model.memory().host > transformer);
    loaded_model.decode(HostTensor({2, 2, 4 * kLatent, 1}));
    CHECK(loaded_model.memory().host < transformer);
    loaded_model.transformer();
    CHECK(loaded_model.memory().host > transformer);  // it is too small to be freed for others
}

TEST_CASE("the program takes --taesd, and says what --taesd-preview-only needs") {
    const TemporaryFolder folder;
    const std::string file = write_tiny(folder, same).string();
    const std::string picture = (folder / "x.png").string();
    const auto drawn =
        flux2_program(joined(small_picture(), {"-p", "x", "--taesd", file, "-o", picture}));
    CHECK(drawn.exit_code == 0);
    const auto again =
        flux2_program({"redo", picture, "-o", (folder / "y.png").string(), "--no-cache", "-q"});
    CHECK(again.exit_code == 0);
    CHECK(load_image(folder / "y.png").rgb == load_image(picture).rgb);
    const auto alone = flux2_program(joined(small_picture(), {"--taesd-preview-only"}));
    CHECK(alone.exit_code == 2);
    CHECK(alone.err.find("--taesd FILE") != std::string::npos);
    const auto wrong = flux2_program(
        joined(small_picture(), {"-p", "x", "--taesd", fixture("klein/vae.safetensors").string()}));
    CHECK(wrong.exit_code == 3);
    CHECK(wrong.err.find("--taesd takes the tiny autoencoder") != std::string::npos);
}

}  // namespace
}  // namespace flux2
