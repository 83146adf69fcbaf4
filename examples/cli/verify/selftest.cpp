#include "verify/selftest.hpp"

#include <flux2/device.hpp>
#include <flux2/image.hpp>
#include "base/check.hpp"
#include "base/file.hpp"
#include "base/image_limits.hpp"
#include "base/parse_arguments.hpp"
#include "base/parse_number.hpp"
#include "base/system.hpp"
#include "checkpoints/inventory.hpp"
#include "checkpoints/text_config.hpp"
#include "common/cancel.hpp"
#include "common/options.hpp"
#include "image/image.hpp"
#include "models/text_encoder.hpp"
#include "models/transformer.hpp"
#include "models/vae.hpp"
#include "pipeline/denoise.hpp"
#include "pipeline/latents.hpp"
#include "pipeline/loaded_model.hpp"
#include "pipeline/sampler.hpp"
#include "verify/limits.hpp"
#include "verify/op_check.hpp"
#include "verify/recording.hpp"
#include "verify/replay.hpp"
#include "verify/training_check.hpp"

#include <cxxopts.hpp>

#include <algorithm>
#include <iostream>
#include <optional>
#include <string>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;

struct Selftest {
    fs::path folder;
    Backend backend;
    WeightOptions weights;
    Limits limits;
    Report& report;

    bool has(const std::string& file) const { return file_exists(folder / file); }
    Checkpoint open(const std::string& file) const { return Checkpoint::open(folder / file); }
};

// Positions as the reference recorded them: rows of four ids.
std::vector<Position> recorded_positions(const Recording& recording, const std::string& name) {
    const std::vector<int32_t> ids = recording.get_ints(name);
    std::vector<Position> positions;
    for (size_t i = 0; i + 3 < ids.size(); i += 4) {
        positions.push_back({ids[i], ids[i + 1], ids[i + 2], ids[i + 3]});
    }
    return positions;
}

void test_text_encoder(Selftest& test) {
    const Checkpoint checkpoint = test.open("text_encoder.safetensors");
    const TextConfig config = read_text_config(checkpoint);
    TextEncoder encoder(test.backend, read_text_encoder_sizes(checkpoint),
                        text_encoder_facts(config), checkpoint, test.weights);
    const Recording golden(test.folder / "text_encoder.golden.safetensors");
    for (const std::string prefix : {"", "negative_"}) {
        if (!golden.has(prefix + "input_ids")) {
            continue;
        }
        const std::vector<int32_t> mask = golden.get_ints(prefix + "attention_mask");
        const auto n_real = std::count(mask.begin(), mask.end(), 1);
        Taps taps;
        const HostTensor features =
            encoder.encode(golden.get_ints(prefix + "input_ids"), n_real, &taps);
        for (const auto& [name, tensor] : taps) {
            if (golden.has(prefix + name)) {
                test.report.compare("text_encoder", prefix + name, tensor, golden,
                                    test.limits.text);
            }
        }
        test.report.compare("text_encoder", prefix + "prompt_embeds", features, golden,
                            test.limits.text);
    }
}

void test_transformer(Selftest& test, Transformer& transformer) {
    const Recording golden(test.folder / "flux2.golden.safetensors");
    const Recording text(test.folder / "text_encoder.golden.safetensors");
    TransformerInput input;
    input.img = golden.get("latents");
    input.txt = share(text.get("prompt_embeds"));
    input.img_pos = recorded_positions(golden, "img_ids");
    input.txt_pos = recorded_positions(golden, "txt_ids");
    input.timestep = golden.get("timestep").data.front();
    input.guidance = golden.has("guidance") ? golden.get("guidance").data.front() : 0.0f;
    Taps taps;
    const HostTensor velocity = transformer.predict(input, ReferenceMode::joint, &taps);
    for (const auto& [name, tensor] : taps) {
        if (golden.has(name)) {
            test.report.compare("flux2", name, tensor, golden, test.limits.stage);
        }
    }
    test.report.compare("flux2", "velocity", velocity, golden, test.limits.stage);
}

void test_vae(Selftest& test, Vae& vae) {
    const Recording golden(test.folder / "vae.golden.safetensors");
    test.report.compare("vae", "decoded", vae.decode(golden.get("latents")), golden,
                        test.limits.autoencoder);
    test.report.compare("vae", "encoded", vae.encode(golden.get("image")), golden,
                        test.limits.autoencoder);
}

// The first n reference pictures of the folder, encoded.
std::vector<HostTensor> encode_references(const Selftest& test, Vae& vae, size_t n) {
    std::vector<HostTensor> references;
    for (size_t i = 0; i < n; ++i) {
        const Image picture = load_image(test.folder / ("ref_" + std::to_string(i) + ".png"));
        references.push_back(
            vae.encode(to_planes(fit_reference(picture, max_reference_pixels(n)))));
    }
    return references;
}

// A whole run from recorded noise and text features; its name tells the kind of run.
void test_run(Selftest& test, const std::string& run, Transformer& transformer, Vae& vae) {
    const Recording golden(test.folder / (run + ".golden.safetensors"));
    const Recording text(test.folder / "text_encoder.golden.safetensors");
    const HostTensor noise = golden.get("noise");
    const int64_t n_steps = golden.get("sigmas").elements() - 1;
    HostTensor sigmas({n_steps + 1, 1, 1, 1});
    sigmas.data = schedule(noise.ne[0] * noise.ne[1], n_steps);
    test.report.compare(run, "sigmas", sigmas, golden, Limits::kSigmas);

    const bool guided = run.find("base_cfg") != std::string::npos;
    const size_t n_references = run.ends_with("_edit1") ? 1 : run.ends_with("_edit2") ? 2 : 0;
    Conditioning conditioning{.txt = share(text.get("prompt_embeds")),
                              .negative_txt = {},
                              .references = encode_references(test, vae, n_references)};
    if (guided) {
        conditioning.negative_txt = share(text.get("negative_prompt_embeds"));
    }
    Denoiser denoiser(
        transformer, std::move(conditioning), noise.ne[0], noise.ne[1],
        {.cfg_scale = guided ? 4.0f : 1.0f, .kv_references = run.find("kv_") != std::string::npos});
    const HostTensor tokens = sample(
        to_tokens(noise), sigmas.data,
        [&](const HostTensor& x, float sigma, size_t step) {
            return denoiser.velocity(x, sigma, step);
        },
        [&](const HostTensor& x, size_t step, const HostTensor&) {
            const std::string name = "latents_" + std::to_string(step);
            if (golden.has(name)) {
                test.report.compare(run, name, x, golden,
                                    step == 0 ? test.limits.first_step : test.limits.run);
            }
        });
    if (golden.has("image")) {
        const HostTensor pixels = vae.decode(from_tokens(tokens, noise.ne[0], noise.ne[1]));
        test.report.compare(run, "image", to_unit_range(pixels), golden, test.limits.run);
    }
}

void run_all(Selftest& test) {
    const bool text = test.has("text_encoder.golden.safetensors");
    if (text && test.has("text_encoder.safetensors")) {
        test_text_encoder(test);
    } else {
        test.report.note("text_encoder: not recorded here");
    }
    std::optional<Checkpoint> vae_file;
    std::optional<Vae> vae;
    if (test.has("vae.safetensors")) {
        vae_file = test.open("vae.safetensors");
        vae.emplace(test.backend, read_vae_sizes(*vae_file), *vae_file, test.weights);
    }
    if (vae && test.has("vae.golden.safetensors")) {
        test_vae(test, *vae);
    } else {
        test.report.note("vae: not recorded here");
    }
    if (!text || !test.has("flux2.safetensors")) {
        test.report.note("flux2 and whole runs: not recorded here");
        return;
    }
    const Checkpoint checkpoint = test.open("flux2.safetensors");
    Transformer transformer(test.backend, read_transformer_sizes(checkpoint), checkpoint,
                            test.weights);
    if (test.has("flux2.golden.safetensors")) {
        test_transformer(test, transformer);
    }
    for (const char* run : {"pipeline_klein_t2i", "pipeline_klein_edit1", "pipeline_klein_edit2",
                            "pipeline_kv_edit2", "pipeline_base_cfg"}) {
        if (vae && test.has(std::string(run) + ".golden.safetensors")) {
            test_run(test, run, transformer, *vae);
        } else {
            test.report.note(std::string(run) + ": not recorded here");
        }
    }
}

// The bundled recordings, relative to the programs in the build tree or as installed.
fs::path bundled_recordings() {
    return program_folder() / ".." / "share" / "flux2" / "selftest";
}

cxxopts::Options known_options() {
    const auto text = [] { return cxxopts::value<std::string>(); };
    cxxopts::Options options("flux2 selftest",
                             "Compares every network with recorded results of the reference,\n"
                             "or replays recorded runs with a model's own files.\n");
    options.add_options()  //
        ("golden", "folder of recordings (default: those that come with the program)",
         text())  //
        ("replay", "recorded runs (FILE...) to replay with the model below",
         cxxopts::value<std::vector<std::string>>())  //
        ("lora", "LoRA for these runs, FILE:STRENGTH (repeatable; default: the recorded ones)",
         cxxopts::value<std::vector<std::string>>())                                       //
        ("steps", "compute only the first N steps of these runs, and no picture", text())  //
        ("training", "recorded training run of a LoRA (FILE) to compute again with the model below",
         text())                                                                            //
        ("ops", "compare our own operations on the device with their plain forms instead")  //
        ("m,model",
         "folder with the model; of several transformers the one the recording names: base, kv or "
         "dev, else distilled",
         text())                                                                           //
        ("diffusion-model", "transformer, GGUF or safetensors", text())                    //
        ("llm,text-encoder", "text encoder", text())                                       //
        ("vae", "autoencoder", text())                                                     //
        ("type", "type of the matrices in memory", text()->default_value("F32"))           //
        ("device", "CPU, CUDA0, ... (see flux2 devices)", text()->default_value("CPU"))    //
        ("rpc", "devices RPC0, ... of other machines: HOST:PORT, with commas", text())     //
        ("threads", "CPU threads (0: one per physical core)", text()->default_value("0"))  //
        ("dump", "write every tensor that was computed to this safetensors file", text())  //
        ("h,help", "print this help");
    options.parse_positional("replay");
    options.positional_help("[--replay FILE...]");
    options.show_positional_help();
    return options;
}

int threads_of(const cxxopts::ParseResult& args) {
    const int n_threads = parse_int("--threads", args["threads"].as<std::string>());
    check(n_threads >= 0 && n_threads <= 512, ErrorKind::bad_argument, "--threads ", n_threads,
          " is out of range; 1 to 512 make sense");
    return n_threads;
}

void run_golden(const cxxopts::ParseResult& args, Report& report) {
    for (const char* option : {"model", "diffusion-model", "llm", "vae", "lora"}) {
        check(args.count(option) == 0, ErrorKind::bad_argument, "--", option,
              " goes with --replay FILE; the recordings of --golden bring their own models");
    }
    check(args.count("steps") == 0, ErrorKind::bad_argument, "--steps goes with --replay FILE");
    check(args.unmatched().empty(), ErrorKind::bad_argument, "selftest takes no argument '",
          args.unmatched().empty() ? "" : args.unmatched().front(),
          "'; a folder of recordings is given by --golden");
    const TensorType type = parse_matrix_type(args["type"].as<std::string>());
    const fs::path folder = args.count("golden") > 0 ? fs::path(args["golden"].as<std::string>())
                                                     : bundled_recordings();
    check(is_folder(folder), ErrorKind::bad_file, folder.string(),
          ": no such folder; give one with recordings by --golden");
    Backend backend(args["device"].as<std::string>(), threads_of(args));
    const Limits limits = limits_for(backend, type);
    Selftest test{folder, std::move(backend), {.type = type}, limits, report};
    run_all(test);
    check(report.n_compared() > 0, ErrorKind::bad_file, folder.string(),
          ": holds no recordings; a folder with text_encoder.golden.safetensors and the like is "
          "expected");
}

void run_replay(const cxxopts::ParseResult& args, Report& report) {
    check(args.count("golden") == 0, ErrorKind::bad_argument,
          "--replay and --golden are two different tests; leave out one of them");
    ModelOptions model;
    read_model_options(args, model);
    model.load.type = args["type"].as<std::string>();
    model.load.device = args["device"].as<std::string>();
    int max_steps = 0;
    if (args.count("steps") > 0) {
        max_steps = parse_int("--steps", args["steps"].as<std::string>());
        check(max_steps >= 1, ErrorKind::bad_argument, "--steps ", max_steps,
              " is out of range; use 1 or more");
    }
    std::vector<Adapter> adapters;
    if (args.count("lora") > 0) {
        for (const std::string& text : args["lora"].as<std::vector<std::string>>()) {
            adapters.push_back(parse_adapter(text));
        }
    }
    const auto files = args["replay"].as<std::vector<std::string>>();
    replay({files.begin(), files.end()}, model, adapters, static_cast<size_t>(max_steps), report);
}

void run_training(const cxxopts::ParseResult& args, Report& report) {
    for (const char* option : {"golden", "replay", "lora", "steps"}) {
        check(args.count(option) == 0, ErrorKind::bad_argument, "--", option,
              " does not go with --training FILE; leave out one of them");
    }
    ModelOptions model;
    read_model_options(args, model);
    model.load.type = args["type"].as<std::string>();
    model.load.device = args["device"].as<std::string>();
    check_training(args["training"].as<std::string>(), model, threads_of(args), report);
}

}  // namespace

int selftest(int argc, char** argv) {
    cxxopts::Options options = known_options();
    const auto args = parse_arguments(options, argc, argv);
    if (args.count("help") > 0) {
        std::cout << options.help();
        return 0;
    }
    if (args.count("dump") > 0) {
        check_writable(args["dump"].as<std::string>());
    }
    if (args.count("rpc") > 0) {
        add_servers(args["rpc"].as<std::string>());
    }
    Report report(std::cout);
    if (args.count("ops") > 0) {
        check_operations(args["device"].as<std::string>(), threads_of(args), report);
    } else if (args.count("training") > 0) {
        run_training(args, report);
    } else if (args.count("replay") > 0) {
        run_replay(args, report);
    } else {
        run_golden(args, report);
    }
    if (args.count("dump") > 0) {
        cancel_on_signals();  // files that are being written are completed
        report.dump(args["dump"].as<std::string>());
    }
    std::cout << report.n_compared() - report.n_failed() << " passed, " << report.n_failed()
              << " failed" << std::endl;
    return report.n_failed() == 0 ? 0 : 1;
}

}  // namespace flux2::cli
