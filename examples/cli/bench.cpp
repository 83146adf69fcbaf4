#include "bench.hpp"

#include "base/check.hpp"
#include "base/random.hpp"
#include "models/qwen3.hpp"
#include "models/transformer.hpp"
#include "models/vae.hpp"
#include "pipeline/latents.hpp"
#include "store/tensor_type.hpp"
#include "store/text_config.hpp"

#include <cxxopts.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <iomanip>
#include <iostream>
#include <string>

namespace flux2::cli {
namespace {

struct BenchOptions {
    int64_t width = 1024, height = 1024;
    int64_t n_references = 0;  // of the picture's own size
    int n_repeats = 3;
    WeightOptions weights;
};

double seconds_of(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

HostTensor random_tensor(std::array<int64_t, 4> ne) {
    HostTensor tensor(ne);
    constexpr size_t kStep = 16;  // draws come in sixteens
    const size_t n = (tensor.data.size() + kStep - 1) / kStep * kStep;
    const std::vector<float> values = draw_normal(Generator::cpu_f32, 1, n);
    std::copy_n(values.begin(), tensor.data.size(), tensor.data.begin());
    return tensor;
}

// Prints the best time of several runs; the first one, which builds the graph, is apart.
bool print_stage(const std::string& name, const BenchOptions& options,
                 const std::function<HostTensor()>& run,
                 const std::function<uint64_t()>& buffer_bytes) {
    HostTensor result;
    const double first = seconds_of([&] { result = run(); });
    double best = first;
    for (int i = 1; i < options.n_repeats; ++i) {
        best = std::min(best, seconds_of([&] { result = run(); }));
    }
    const bool finite = std::all_of(result.data.begin(), result.data.end(),
                                    [](float value) { return std::isfinite(value); });
    std::cout << std::left << std::setw(14) << name << std::right << std::fixed
              << std::setprecision(4) << " first " << first << " s  best " << best << " s  buffer "
              << buffer_bytes() / 1000000 << " MB" << (finite ? "" : "  NOT FINITE") << std::endl;
    return finite;
}

bool bench_transformer(const Backend& backend, const std::string& file, const BenchOptions& o) {
    const Checkpoint checkpoint = Checkpoint::open(file);
    Transformer transformer(backend, checkpoint, o.weights);
    const int64_t w = o.width / 16;
    const int64_t h = o.height / 16;
    constexpr int64_t kTextLength = 512;
    TransformerInput input;
    input.img = random_tensor({transformer.sizes().channels, w * h, 1, 1});
    input.txt = random_tensor({transformer.sizes().text_width, kTextLength, 1, 1});
    input.img_pos = image_positions(w, h);
    input.txt_pos = text_positions(kTextLength);
    for (int64_t i = 0; i < o.n_references; ++i) {
        const auto positions = image_positions(w, h, reference_time(static_cast<size_t>(i)));
        input.ref_pos.insert(input.ref_pos.end(), positions.begin(), positions.end());
    }
    if (o.n_references > 0) {
        input.ref = random_tensor({transformer.sizes().channels, o.n_references * w * h, 1, 1});
    }
    input.timestep = 0.9f;
    input.guidance = 4.0f;
    return print_stage(
        "transformer", o, [&] { return transformer.predict(input); },
        [&] { return transformer.buffer_bytes(); });
}

bool bench_text_encoder(const Backend& backend, const std::string& file, const BenchOptions& o) {
    const Checkpoint checkpoint = Checkpoint::open(file);
    const TextConfig config = read_text_config(checkpoint);
    Qwen3 qwen3(backend, checkpoint,
                {.layers = config.layers,
                 .rope_theta = static_cast<float>(config.rope_theta),
                 .eps = static_cast<float>(config.eps)},
                o.weights);
    std::vector<int32_t> ids(static_cast<size_t>(config.text_length));
    for (size_t i = 0; i < ids.size(); ++i) {
        ids[i] = static_cast<int32_t>(i % static_cast<size_t>(qwen3.sizes().vocabulary));
    }
    const int64_t n_real = std::min<int64_t>(64, config.text_length);
    return print_stage(
        "text encoder", o, [&] { return qwen3.encode(ids, n_real); },
        [&] { return qwen3.buffer_bytes(); });
}

bool bench_vae(const Backend& backend, const std::string& file, const BenchOptions& o) {
    const Checkpoint checkpoint = Checkpoint::open(file);
    Vae vae(backend, checkpoint, o.weights);
    const HostTensor latents =
        random_tensor({o.width / 16, o.height / 16, 4 * vae.sizes().latent_channels, 1});
    const HostTensor pixels = random_tensor({o.width, o.height, 3, 1});
    const auto buffer = [&] { return vae.buffer_bytes(); };
    const bool decoded = print_stage(
        "vae decode", o, [&] { return vae.decode(latents); }, buffer);
    const bool encoded = print_stage(
        "vae encode", o, [&] { return vae.encode(pixels); }, buffer);
    return decoded && encoded;
}

}  // namespace

int bench(int argc, char** argv) {
    cxxopts::Options options("flux2 bench",
                             "Times the networks of model files on random inputs.\n");
    options.add_options()                                                                       //
        ("diffusion-model", "transformer, GGUF or safetensors", cxxopts::value<std::string>())  //
        ("llm", "text encoder", cxxopts::value<std::string>())                                  //
        ("vae", "autoencoder", cxxopts::value<std::string>())                                   //
        ("W,width", "pixels", cxxopts::value<int64_t>()->default_value("1024"))                 //
        ("H,height", "pixels", cxxopts::value<int64_t>()->default_value("1024"))                //
        ("references", "reference pictures of the same size",
         cxxopts::value<int64_t>()->default_value("0"))  //
        ("type", "type of the matrices in memory (default: as in the file)",
         cxxopts::value<std::string>())  //
        ("device", "CPU, CUDA0, ... or auto",
         cxxopts::value<std::string>()->default_value("auto"))                                //
        ("threads", "CPU threads (default: all)", cxxopts::value<int>()->default_value("0"))  //
        ("repeat", "runs of each stage", cxxopts::value<int>()->default_value("3"))           //
        ("h,help", "print this help");
    const auto args = options.parse(argc, argv);
    if (args.count("help") > 0) {
        std::cout << options.help();
        return 0;
    }
    BenchOptions o;
    o.width = args["width"].as<int64_t>();
    o.height = args["height"].as<int64_t>();
    o.n_references = args["references"].as<int64_t>();
    o.n_repeats = std::max(1, args["repeat"].as<int>());
    check(o.width >= 16 && o.height >= 16 && o.width % 16 == 0 && o.height % 16 == 0 &&
              o.n_references >= 0,
          ErrorKind::bad_argument, "a picture of ", o.width, "x", o.height,
          " cannot be made; sides are multiples of 16");
    if (args.count("type") > 0) {
        o.weights.type = parse_matrix_type(args["type"].as<std::string>());
    }
    const Backend backend(args["device"].as<std::string>(), args["threads"].as<int>());
    std::cout << "device " << backend.name() << ", " << o.width << "x" << o.height << std::endl;
    bool finite = true;
    int n_stages = 0;
    const auto stage = [&](const char* option, auto function) {
        if (args.count(option) > 0) {
            ++n_stages;
            finite = function(backend, args[option].as<std::string>(), o) && finite;
        }
    };
    stage("llm", bench_text_encoder);
    stage("diffusion-model", bench_transformer);
    stage("vae", bench_vae);
    check(n_stages > 0, ErrorKind::bad_argument,
          "nothing to time; give --diffusion-model, --llm or --vae");
    return finite ? 0 : 1;
}

}  // namespace flux2::cli
