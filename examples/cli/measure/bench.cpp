#include "measure/bench.hpp"

#include <flux2/device.hpp>
#include <flux2/flux2.hpp>
#include "base/check.hpp"
#include "base/image_limits.hpp"
#include "base/parse_arguments.hpp"
#include "base/parse_number.hpp"
#include "base/ram.hpp"
#include "checkpoints/inventory.hpp"
#include "checkpoints/text_config.hpp"
#include "common/options.hpp"
#include "common/random_values.hpp"
#include "formats/tensor_type.hpp"
#include "measure/adapter_cost.hpp"
#include "measure/bench_report.hpp"
#include "measure/profile.hpp"
#include "measure/raw_speed.hpp"
#include "measure/stopwatch.hpp"
#include "measure/training_speed.hpp"
#include "measure/type_speed.hpp"
#include "models/text_encoder.hpp"
#include "models/tiny_autoencoder.hpp"
#include "models/transformer.hpp"
#include "models/vae.hpp"
#include "pipeline/latents.hpp"
#include "pipeline/loaded_model.hpp"
#include "pipeline/memory_limits.hpp"

#include <cxxopts.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

namespace flux2::cli {
namespace {

struct BenchOptions {
    ModelFiles files;  // empty ones are not timed
    int64_t width = 1024, height = 1024;
    int64_t n_references = 0;  // of the picture's own size
    bool kv = false;           // their keys and values are kept after the first step
    int64_t n_pictures = 1;    // in one pass of the transformer
    int n_repeats = 3;
    std::string stage;  // only those whose names contain it
    bool json = false;
    bool profile = false;
    bool types = false;      // instead of networks
    int64_t train_rank = 0;  // instead: steps of training LoRAs of this rank
    MapMemory maps = MapMemory::whole;
    std::vector<Adapter> adapters;  // their cost is measured instead
    WeightOptions weights;
    std::string device;
    int n_threads = 0;  // 0: one per core

    bool wants(const std::string& name) const { return name.find(stage) != std::string::npos; }
};

HostTensor random_tensor(std::array<int64_t, 4> ne) {
    HostTensor tensor(ne);
    tensor.data = random_values(1, tensor.elements());
    return tensor;
}

uint64_t total(const MemoryUse& memory) {
    return memory.device + memory.host;
}

struct Bench {
    Backend& backend;
    const BenchOptions& options;
    std::vector<StageResult> stages;
};

// Runs a stage of the model several times. In text mode its line is printed at once.
template <typename Model>
void time_stage(Bench& bench, const std::string& name, const Model& model,
                const std::function<HostTensor()>& run) {
    if (!bench.options.wants(name)) {
        return;
    }
    StageResult stage;
    stage.name = name;
    HostTensor result;
    stage.first_seconds = seconds_of([&] { result = run(); });
    stage.seconds = stage.first_seconds;
    for (int i = 1; i < bench.options.n_repeats; ++i) {
        stage.seconds = std::min(stage.seconds, seconds_of([&] { result = run(); }));
    }
    stage.finite = std::all_of(result.data.begin(), result.data.end(),
                               [](float value) { return std::isfinite(value); });
    stage.weights_bytes = total(model.weight_memory().own);
    stage.buffer_bytes = total(model.compute_memory());
    const GraphWork work = work_of(model.graph()->nodes());
    stage.flops = work.flops;
    constexpr double kLong = 60;  // seconds; the raw multiplies take about half of the stage's
    const auto raw = stage.seconds < kLong
                         ? raw_seconds(bench.backend, work, bench.options.weights.repack)
                         : std::nullopt;
    if (raw) {
        stage.raw_share = *raw / stage.seconds;
    }
    if (!bench.options.json) {
        std::cout << to_text(stage) << std::endl;
    }
    bench.stages.push_back(stage);
    if (bench.options.profile) {
        Profile profile;
        bench.backend.set_on_operation(
            [&](const ggml_tensor& node, double seconds) { profile.add(node, seconds); });
        run();
        bench.backend.set_on_operation({});
        std::cout << profile.to_text();
        if (!bench.backend.is_cpu()) {
            std::cout << to_text(model.graph()->placement());
        }
        std::cout << std::flush;
    }
}

TransformerInput random_input(const TransformerSizes& sizes, const BenchOptions& o) {
    const int64_t w = o.width / kImageGrid;
    const int64_t h = o.height / kImageGrid;
    constexpr int64_t kTextLength = 512;
    TransformerInput input;
    input.img = random_tensor({sizes.channels, w * h, o.n_pictures, 1});
    input.txt = share(random_tensor({sizes.text_width, kTextLength, 1, 1}));
    input.img_pos = image_positions(w, h);
    input.txt_pos = text_positions(kTextLength);
    for (int64_t i = 0; i < o.n_references; ++i) {
        const auto positions = image_positions(w, h, reference_time(static_cast<size_t>(i)));
        input.ref_pos.insert(input.ref_pos.end(), positions.begin(), positions.end());
    }
    if (o.n_references > 0) {
        input.ref = random_tensor({sizes.channels, o.n_references * w * h, 1, 1});
    }
    input.timestep = 0.9f;
    input.guidance = 4.0f;
    return input;
}

void bench_transformer(Bench& bench) {
    const Checkpoint checkpoint =
        Checkpoint::open(bench.options.files.transformer, Part::transformer);
    Transformer transformer(bench.backend, read_transformer_sizes(checkpoint), checkpoint,
                            bench.options.weights);
    const TransformerInput input = random_input(transformer.sizes(), bench.options);
    if (bench.options.kv) {
        time_stage(bench, "kv, first step", transformer,
                   [&] { return transformer.predict(input, ReferenceMode::extract); });
        time_stage(bench, "kv, next steps", transformer,
                   [&] { return transformer.predict(input, ReferenceMode::cached); });
        return;
    }
    time_stage(bench, "transformer", transformer, [&] { return transformer.predict(input); });
}

void bench_text_encoder(Bench& bench) {
    const Checkpoint checkpoint =
        Checkpoint::open(bench.options.files.text_encoder, Part::text_encoder);
    const TextConfig config = read_text_config(checkpoint);
    TextEncoder encoder(bench.backend, read_text_encoder_sizes(checkpoint),
                        text_encoder_facts(config), checkpoint, bench.options.weights);
    std::vector<int32_t> ids(static_cast<size_t>(config.text_length));
    for (size_t i = 0; i < ids.size(); ++i) {
        ids[i] = static_cast<int32_t>(i % static_cast<size_t>(encoder.sizes().vocabulary));
    }
    const int64_t n_real = std::min<int64_t>(64, config.text_length);
    time_stage(bench, "text encoder", encoder, [&] { return encoder.encode(ids, n_real); });
}

// Root of the mean square, relative to that of b.
double relative_difference(const HostTensor& a, const HostTensor& b) {
    double difference = 0;
    double size = 0;
    for (size_t i = 0; i < a.data.size(); ++i) {
        const auto value = static_cast<double>(b.data[i]);
        difference += std::pow(static_cast<double>(a.data[i]) - value, 2);
        size += value * value;
    }
    return std::sqrt(difference / size);
}

// With maps in bands, also how far the result is from that of whole maps.
void time_maps(Bench& bench, const std::string& name, Autoencoder& network,
               const std::function<HostTensor()>& run) {
    const MapMemory maps = bench.options.maps;
    if (!bench.options.wants(name)) {
        return;
    }
    network.set_map_memory(maps);
    time_stage(bench, name, network, run);
    if (maps != MapMemory::whole && !bench.options.json) {
        const HostTensor in_bands = run();
        network.set_map_memory(MapMemory::whole);
        std::cout << "    difference from whole maps " << relative_difference(in_bands, run())
                  << std::endl;
    }
}

void bench_autoencoder(Bench& bench, const std::string& name, Autoencoder& network) {
    check(network.can_use(bench.options.maps), ErrorKind::unsupported,
          "maps in bands need a CPU "
          "or an NVIDIA GPU with kernels of our own; leave out --bands");
    const HostTensor latents =
        random_tensor({bench.options.width / kImageGrid, bench.options.height / kImageGrid,
                       4 * network.latent_channels(), 1});
    time_maps(bench, name + " decode", network, [&] { return network.decode(latents); });
    if (network.has_encoder()) {
        const HostTensor pixels = random_tensor({bench.options.width, bench.options.height, 3, 1});
        time_maps(bench, name + " encode", network, [&] { return network.encode(pixels); });
    }
}

void bench_vae(Bench& bench) {
    const Checkpoint checkpoint = Checkpoint::open(bench.options.files.vae, Part::vae);
    Vae vae(bench.backend, read_vae_sizes(checkpoint), checkpoint, bench.options.weights);
    bench_autoencoder(bench, "vae", vae);
}

void bench_tiny(Bench& bench) {
    const Checkpoint checkpoint =
        Checkpoint::open(bench.options.files.taesd, Part::tiny_autoencoder);
    TinyAutoencoder tiny(bench.backend, read_tiny_autoencoder_sizes(checkpoint), checkpoint,
                         bench.options.weights);
    bench_autoencoder(bench, "taesd", tiny);
}

cxxopts::Options known_options() {
    cxxopts::Options options("flux2 bench",
                             "Times the networks of model files on random inputs.\n");
    options.add_options()                                                                       //
        ("m,model", "folder with the parts", cxxopts::value<std::string>())                     //
        ("diffusion-model", "transformer, GGUF or safetensors", cxxopts::value<std::string>())  //
        ("llm,text-encoder", "text encoder", cxxopts::value<std::string>())                     //
        ("vae", "autoencoder", cxxopts::value<std::string>())                                   //
        ("taesd", "tiny autoencoder", cxxopts::value<std::string>())                            //
        ("W,width", "pixels", cxxopts::value<std::string>()->default_value("1024"))             //
        ("H,height", "pixels", cxxopts::value<std::string>()->default_value("1024"))            //
        ("references", "reference pictures of the same size",
         cxxopts::value<std::string>()->default_value("0"))                  //
        ("kv", "as KV models do it: references are computed once and kept")  //
        ("batch-size", "pictures in one pass of the transformer",
         cxxopts::value<std::string>()->default_value("1"))  //
        ("type", "type of the matrices in memory (default: as in the file)",
         cxxopts::value<std::string>())  //
        ("lora", "instead: what LoRAs cost a step of the transformer, FILE[:STRENGTH], repeatable",
         cxxopts::value<std::vector<std::string>>())  //
        ("train", "instead: steps of training a LoRA of this rank for the transformer",
         cxxopts::value<std::string>())                                                      //
        ("stream", "with --train: blocks stay in RAM and are copied to the device in turn")  //
        ("device", "CPU, CUDA0, ... or auto",
         cxxopts::value<std::string>()->default_value("auto"))  //
        ("rpc", "devices RPC0, ... of other machines: HOST:PORT, with commas",
         cxxopts::value<std::string>())  //
        ("t,threads", "CPU threads, 0 for all",
         cxxopts::value<std::string>()->default_value("0"))                                  //
        ("repeat", "runs of each stage", cxxopts::value<std::string>()->default_value("3"))  //
        ("stage", "only stages with this in their name: encode, decode, first, ...",
         cxxopts::value<std::string>())  //
        ("bands", "autoencoders: 1 to compute some rows at a time, 2 and 3 to keep fewer maps",
         cxxopts::value<std::string>()->default_value("0"))                      //
        ("no-repack", "CPU: leave matrices in the mapped file")                  //
        ("no-unpack", "H100, H200: keep quantised matrices as they are")         //
        ("profile", "one more run of each stage, timed operation by operation")  //
        ("types",
         "instead: speed and error of each type of weights here, and which one to take")  //
        ("json", "print one JSON object")                                                 //
        ("h,help", "print this help");
    return options;
}

void check_ranges(const BenchOptions& o) {
    constexpr int64_t kMostReferences = 10;
    constexpr int64_t kMostPictures = 64;
    for (const int64_t side : {o.width, o.height}) {
        check(is_image_side(side), ErrorKind::bad_argument, "a picture of ", o.width, "x", o.height,
              " cannot be made; sides are multiples of ", kImageGrid, " from ", kMinSide, " to ",
              kMaxSide);
    }
    check(o.n_references >= 0 && o.n_references <= kMostReferences, ErrorKind::bad_argument,
          "--references is ", o.n_references, "; give 0 to ", kMostReferences);
    check(o.n_pictures >= 1 && o.n_pictures <= kMostPictures, ErrorKind::bad_argument,
          "--batch-size is ", o.n_pictures, "; give 1 to ", kMostPictures);
    check(o.n_repeats >= 1, ErrorKind::bad_argument, "--repeat is ", o.n_repeats,
          "; a stage must run once at least");
    check(o.n_threads >= 0 && o.n_threads <= GGML_MAX_N_THREADS, ErrorKind::bad_argument,
          "--threads is ", o.n_threads, "; give 1 to ", GGML_MAX_N_THREADS, ", or 0 for all");
    check(o.types || !o.files.transformer.empty() || !o.files.text_encoder.empty() ||
              !o.files.vae.empty() || !o.files.taesd.empty(),
          ErrorKind::bad_argument,
          "nothing to time; give -m, --diffusion-model, --llm, --vae or --taesd");
}

BenchOptions read_options(const cxxopts::ParseResult& args) {
    check(args.unmatched().empty(), ErrorKind::bad_argument, "bench takes no argument '",
          args.unmatched().empty() ? "" : args.unmatched().front(),
          "'; files are given by --diffusion-model, --llm and --vae");
    const auto text = [&](const char* option) {
        return args.count(option) > 0 ? args[option].as<std::string>() : std::string();
    };
    const auto number = [&](const std::string& option) {
        return parse_int("--" + option, args[option].as<std::string>());
    };
    BenchOptions o;
    o.files = {text("diffusion-model"), text("llm"), text("vae"), text("taesd")};
    if (args.count("model") > 0) {
        o.files = find_model(text("model"), "", o.files).files;
    }
    o.width = number("width");
    o.height = number("height");
    o.n_references = number("references");
    o.kv = args.count("kv") > 0;
    check(!o.kv || o.n_references > 0, ErrorKind::bad_argument,
          "--kv keeps what is known of references; give their number by --references");
    o.n_pictures = number("batch-size");
    check(!o.kv || o.n_pictures == 1, ErrorKind::bad_argument,
          "--kv times the steps of one picture; leave out --batch-size");
    o.n_repeats = number("repeat");
    o.stage = text("stage");
    check(!o.kv || o.stage.empty(), ErrorKind::bad_argument,
          "the next steps of --kv need the first; leave out --stage");
    const int bands = number("bands");
    check(bands >= 0 && bands < static_cast<int>(kAllMapMemory.size()), ErrorKind::bad_argument,
          "--bands is ", bands, "; give 0 to ", kAllMapMemory.size() - 1);
    o.maps = kAllMapMemory[static_cast<size_t>(bands)];
    o.json = args.count("json") > 0;
    o.profile = args.count("profile") > 0;
    o.types = args.count("types") > 0;
    check(!o.json || !(o.profile || o.types), ErrorKind::bad_argument,
          "--profile and --types print tables for people; leave out --json");
    if (args.count("rpc") > 0) {
        add_servers(text("rpc"));
    }
    o.device = args["device"].as<std::string>();
    o.n_threads = number("threads");
    o.weights.repack = args.count("no-repack") == 0;
    o.weights.unpack = args.count("no-unpack") == 0 && args.count("type") == 0;
    if (args.count("type") > 0) {
        o.weights.type = parse_matrix_type(text("type"));
    }
    if (args.count("lora") > 0) {
        for (const std::string& lora : args["lora"].as<std::vector<std::string>>()) {
            o.adapters.push_back(parse_adapter(lora));
        }
        check(!o.files.transformer.empty() && !o.json, ErrorKind::bad_argument,
              "--lora measures steps of a transformer and prints a table; give -m or "
              "--diffusion-model, and leave out --json");
    }
    o.weights.stream_blocks = args.count("stream") > 0;
    check(!o.weights.stream_blocks || args.count("train") > 0, ErrorKind::bad_argument,
          "--stream is for steps of training; give --train");
    if (args.count("train") > 0) {
        constexpr int64_t kMaxRank = 1024;
        o.train_rank = number("train");
        check(o.train_rank >= 1 && o.train_rank <= kMaxRank, ErrorKind::bad_argument, "--train is ",
              o.train_rank, "; a LoRA's rank is 1 to ", kMaxRank);
        check(!o.files.transformer.empty() && !o.json && o.n_pictures == 1, ErrorKind::bad_argument,
              "--train measures steps with one picture and prints a table; give -m or "
              "--diffusion-model, and leave out --json and --batch-size");
    }
    check_ranges(o);
    return o;
}

uint64_t usable_memory(const Backend& backend) {
    if (backend.is_cpu()) {
        return usable_ram_bytes(available_ram_bytes());
    }
    size_t free = 0;
    size_t total = 0;
    ggml_backend_dev_memory(ggml_backend_buft_get_device(backend.buffer_type()), &free, &total);
    return usable_bytes(free, backend.device().abilities());
}

// A type is proposed for the transformer that is given, else for klein 4B's.
void bench_types(const Backend& backend, const BenchOptions& options) {
    constexpr int64_t kKlein4b = 3'875'544'576;
    TypeNeed need = {
        .model = "klein 4B", .n_weights = kKlein4b, .usable_bytes = usable_memory(backend)};
    if (!options.files.transformer.empty()) {
        need.model = "the transformer";
        need.n_weights =
            Checkpoint::open(options.files.transformer, Part::transformer).n_parameters();
    }
    std::cout << "device " << backend.name() << std::endl;  // seen while types are measured
    const std::vector<TypeSpeed> types = measure_types(backend, options.weights.repack);
    std::cout << to_text(types);
    if (!types.empty()) {
        std::cout << to_text(propose_type(types, need), need);
    }
}

void print_json(const Bench& bench) {
    nlohmann::json stages = nlohmann::json::array();
    for (const StageResult& stage : bench.stages) {
        stages.push_back(to_json(stage));
    }
    const nlohmann::json report = {{"device", bench.backend.name()},
                                   {"width", bench.options.width},
                                   {"height", bench.options.height},
                                   {"stages", stages}};
    std::cout << report.dump(2) << std::endl;
}

}  // namespace

int bench(int argc, char** argv) {
    cxxopts::Options known = known_options();
    const auto args = parse_arguments(known, argc, argv);
    if (args.count("help") > 0) {
        std::cout << known.help();
        return 0;
    }
    BenchOptions options = read_options(args);
    Backend backend(options.device, options.n_threads);
    options.weights.unpack &= backend.device().abilities().unpacks_matrices;
    Bench bench{backend, options, {}};
    if (options.types) {
        bench_types(backend, options);
        return 0;
    }
    if (!options.json) {
        std::cout << "device " << backend.name() << ", " << options.width << "x" << options.height
                  << std::endl;
    }
    if (options.train_rank > 0) {
        WeightOptions weights = options.weights;
        weights.unpack = false;
        std::cout << measure_training(backend, options.files.transformer, weights,
                                      {.width = options.width,
                                       .height = options.height,
                                       .n_references = options.n_references,
                                       .rank = options.train_rank,
                                       .n_repeats = options.n_repeats,
                                       .profile = options.profile});
        return 0;
    }
    if (!options.adapters.empty()) {
        const Checkpoint checkpoint =
            Checkpoint::open(options.files.transformer, Part::transformer);
        std::cout << measure_adapters(
            backend, options.files.transformer, options.adapters, options.weights,
            random_input(read_transformer_sizes(checkpoint), options), options.n_repeats);
        return 0;
    }
    if (!options.files.text_encoder.empty()) {
        bench_text_encoder(bench);
    }
    if (!options.files.transformer.empty()) {
        bench_transformer(bench);
    }
    if (!options.files.vae.empty()) {
        bench_vae(bench);
    }
    if (!options.files.taesd.empty()) {
        bench_tiny(bench);
    }
    check(!bench.stages.empty(), ErrorKind::bad_argument, "no stage has '", options.stage,
          "' in its name; they are text encoder, transformer, vae decode, vae encode, taesd decode "
          "and taesd encode, of files that are given");
    if (options.json) {
        print_json(bench);
    }
    const bool finite = std::all_of(bench.stages.begin(), bench.stages.end(),
                                    [](const StageResult& stage) { return stage.finite; });
    return finite ? 0 : 1;
}

}  // namespace flux2::cli
