#include "options.hpp"

#include "base/check.hpp"

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <utility>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;

// Reads an option into a value, if it is given.
template <typename T, typename Target>
void read(const cxxopts::ParseResult& args, const char* name, Target& target) {
    if (args.count(name) > 0) {
        target = args[name].as<T>();
    }
}

std::shared_ptr<cxxopts::Value> text() {
    return cxxopts::value<std::string>();
}

float finite(const cxxopts::ParseResult& args, const char* name) {
    const float value = args[name].as<float>();
    check(std::isfinite(value), ErrorKind::bad_argument, "--", name, " is not a number");
    return value;
}

}  // namespace

void add_model_options(cxxopts::Options& options) {
    options.add_options("Model")                                                      //
        ("m,model", "folder with transformer, text encoder and autoencoder", text())  //
        ("diffusion-model", "transformer, GGUF or safetensors", text())               //
        ("llm,text-encoder", "Qwen3 text encoder", text())                            //
        ("vae", "autoencoder", text())                                                //
        ("variant", "klein, base, kv or dev, where the file does not tell", text())   //
        ("type", "type of the matrices in memory, such as Q8_0 (default: the file's)",
         text())                                                                           //
        ("device", "CPU, CUDA0, ... (see flux2 devices); default: the first GPU", text())  //
        ("t,threads", "CPU threads (default: one per core)", cxxopts::value<int>())        //
        ("max-vram",
         "device memory to use at most, such as 4G; weights that do not fit are "
         "streamed from RAM",
         text())                                                                            //
        ("keep-loaded", "hold all parts in memory between pictures")                        //
        ("cache", "folder for encoded prompts (default: the user's cache folder)", text())  //
        ("no-cache", "keep nothing on disk");
}

void add_generate_options(cxxopts::Options& options) {
    options.add_options("Picture")                                                               //
        ("p,prompt", "what to draw", text())                                                     //
        ("prompt-file", "a prompt per line, a picture each; - reads standard input", text())     //
        ("n,negative-prompt", "what to keep out (models guided by two passes)", text())          //
        ("W,width", "pixels, a multiple of 16 (default 1024)", cxxopts::value<int>())            //
        ("H,height", "pixels, a multiple of 16 (default 1024)", cxxopts::value<int>())           //
        ("fit", "round width and height to multiples of 16")                                     //
        ("steps", "denoising steps (default: the model's)", cxxopts::value<int>())               //
        ("g,guidance,cfg-scale", "guidance (default: the model's)", cxxopts::value<float>())     //
        ("s,seed", "a number; default: random", cxxopts::value<std::string>())                   //
        ("b,batch-count", "pictures per prompt, with seeds counting up", cxxopts::value<int>())  //
        ("r,ref-image", "reference picture, PNG or JPEG (repeatable)",
         cxxopts::value<std::vector<std::string>>())  //
        ("match-ref", "take the size of this reference, the first is 1",
         cxxopts::value<int>())                          //
        ("i,init-img", "picture to start from", text())  //
        ("strength", "how far to leave it, above 0 to 1 (default 0.75)",
         cxxopts::value<float>())                                                            //
        ("alpha", "transparency of pictures: drop or white (default drop)", text())          //
        ("sigmas", "own noise levels, such as 1,0.9,0.7,0", text())                          //
        ("text-length", "tokens of a prompt (default: the model's)", cxxopts::value<int>())  //
        ("rng", "noise as torch draws it: cuda, cuda-f32, cpu, cpu-f32 (default cuda)",
         text())                                                     //
        ("noise", "safetensors file with the tensor noise", text())  //
        ("embeds", "safetensors file with prompt_embeds and negative_prompt_embeds", text());
    options.add_options("Output")  //
        ("o,output",
         "PNG, JPEG or BMP; {seed} and %03d (number) are filled in (default "
         "output.png)",
         text())                                                              //
        ("preview", "write the picture so far here after each step", text())  //
        ("json", "one event per line on standard output, for programs")       //
        ("q,quiet", "only errors")                                            //
        ("v,verbose", "more about what is done")                              //
        ("h,help", "print this help");
}

void read_model_options(const cxxopts::ParseResult& args, ModelOptions& model) {
    read<std::string>(args, "model", model.folder);
    read<std::string>(args, "diffusion-model", model.files.transformer);
    read<std::string>(args, "llm", model.files.text_encoder);
    read<std::string>(args, "vae", model.files.vae);
    read<std::string>(args, "variant", model.load.variant);
    read<std::string>(args, "type", model.load.type);
    read<std::string>(args, "device", model.load.device);
    read<int>(args, "threads", model.load.threads);
    check(model.load.threads >= 0 && model.load.threads <= 512, ErrorKind::bad_argument,
          "--threads ", model.load.threads, " is out of range; 1 to 512 make sense");
    if (args.count("max-vram") > 0) {
        model.load.max_device_bytes = parse_bytes(args["max-vram"].as<std::string>());
    }
    model.load.keep_loaded = model.load.keep_loaded || args.count("keep-loaded") > 0;
    model.load.cache_folder = default_cache_folder();
    read<std::string>(args, "cache", model.load.cache_folder);
    if (args.count("no-cache") > 0) {
        check(args.count("cache") == 0, ErrorKind::bad_argument,
              "--cache and --no-cache contradict each other; leave out one of them");
        model.load.cache_folder.clear();
    }
}

namespace {

uint64_t parse_seed(const std::string& text) {
    constexpr size_t kMaxDigits = 19;
    check(!text.empty() && text.size() <= kMaxDigits &&
              text.find_first_not_of("0123456789") == std::string::npos,
          ErrorKind::bad_argument, "--seed ", text,
          " is no number from 0 to 9999999999999999999; leave it out for a random one");
    return std::stoull(text);
}

Alpha parse_alpha(const std::string& text) {
    check(text == "drop" || text == "white", ErrorKind::bad_argument, "--alpha ", text,
          " is unknown; use drop or white");
    return text == "white" ? Alpha::white : Alpha::drop;
}

void read_picture_options(const cxxopts::ParseResult& args, GenerateOptions& o) {
    Request& request = o.request;
    read<std::string>(args, "negative-prompt", request.negative_prompt);
    read<int>(args, "width", request.width);
    read<int>(args, "height", request.height);
    request.fit_size = request.fit_size || args.count("fit") > 0;
    if (args.count("steps") > 0) {
        request.steps = args["steps"].as<int>();
        request.sigmas.clear();
    }
    if (args.count("guidance") > 0) {
        request.guidance = finite(args, "guidance");
    }
    if (args.count("seed") > 0) {
        request.seed = parse_seed(args["seed"].as<std::string>());
    }
    if (args.count("match-ref") > 0) {
        const int number = args["match-ref"].as<int>();
        check(number >= 1, ErrorKind::bad_argument, "--match-ref ", number,
              " is no reference; the first one is 1");
        request.match_reference = static_cast<size_t>(number - 1);
    }
    if (args.count("sigmas") > 0) {
        request.sigmas = parse_floats(args["sigmas"].as<std::string>());
    }
    read<int>(args, "text-length", request.text_length);
    read<std::string>(args, "rng", request.generator);
    read<std::string>(args, "noise", request.noise_file);
    read<std::string>(args, "embeds", request.embeds_file);
}

}  // namespace

void read_generate_options(const cxxopts::ParseResult& args, GenerateOptions& o) {
    read_model_options(args, o.model);
    read_picture_options(args, o);
    check(args.count("prompt") + args.count("prompt-file") <= 1, ErrorKind::bad_argument,
          "one of --prompt and --prompt-file is enough; leave out the other");
    read<std::string>(args, "prompt", o.prompt);
    read<std::string>(args, "prompt-file", o.prompt_file);
    if (args.count("ref-image") > 0) {
        o.references.clear();
        for (const std::string& file : args["ref-image"].as<std::vector<std::string>>()) {
            o.references.emplace_back(file);
        }
    }
    read<std::string>(args, "init-img", o.init);
    if (args.count("strength") > 0) {
        o.strength = finite(args, "strength");
        check(!o.init.empty(), ErrorKind::bad_argument,
              "--strength goes with a picture to start from; add --init-img FILE");
    }
    if (args.count("alpha") > 0) {
        o.alpha = parse_alpha(args["alpha"].as<std::string>());
    }
    read<int>(args, "batch-count", o.batch_count);
    check(o.batch_count >= 1 && o.batch_count <= 10000, ErrorKind::bad_argument, "--batch-count ",
          o.batch_count, " is out of range; use 1 to 10000");
    read<std::string>(args, "output", o.output);
    read<std::string>(args, "preview", o.preview);
    check(args.count("json") + args.count("quiet") <= 1, ErrorKind::bad_argument,
          "--json and --quiet contradict each other; leave out one of them");
    o.style = args.count("json") > 0    ? OutputStyle::json
              : args.count("quiet") > 0 ? OutputStyle::quiet
                                        : OutputStyle::text;
    o.verbose = args.count("verbose") > 0;
    o.request.preview = !o.preview.empty();
}

void check_no_leftovers(const cxxopts::ParseResult& args) {
    check(args.unmatched().empty(), ErrorKind::bad_argument, "what is '",
          args.unmatched().empty() ? "" : args.unmatched().front(),
          "'? A prompt of several words needs quotes: -p \"a red house\"; flux2 --help lists the "
          "options");
}

uint64_t parse_bytes(const std::string& text) {
    size_t used = 0;
    double value = 0;
    try {
        value = std::stod(text, &used);
    } catch (const std::exception&) {
        used = 0;
    }
    std::string unit = text.substr(used);
    if (unit.ends_with("B") || unit.ends_with("b")) {
        unit.pop_back();
    }
    double factor = unit.empty() ? 1 : 0;
    for (const auto& [letters, size] : {std::pair{"kK", 1e3}, {"mM", 1e6}, {"gG", 1e9}}) {
        if (unit.size() == 1 && std::string(letters).find(unit) != std::string::npos) {
            factor = size;
        }
    }
    constexpr double kMost = 1e15;
    check(used > 0 && factor > 0 && value > 0 && value * factor <= kMost, ErrorKind::bad_argument,
          "'", text, "' is no amount of memory; use a number and a unit, such as 4G or 3500M");
    return static_cast<uint64_t>(value * factor);
}

std::vector<float> parse_floats(const std::string& text) {
    std::vector<float> values;
    std::istringstream in(text);
    for (std::string item; std::getline(in, item, ',');) {
        size_t used = 0;
        try {
            values.push_back(std::stof(item, &used));
        } catch (const std::exception&) {
            used = 0;
        }
        check(used == item.size() && !item.empty(), ErrorKind::bad_argument, "'", text,
              "' is no list of numbers such as 1,0.9,0.7,0");
    }
    check(!values.empty(), ErrorKind::bad_argument,
          "an empty list of noise levels; use numbers such as 1,0.9,0.7,0");
    return values;
}

ModelFiles choose_files(const ModelOptions& model, bool quiet) {
    if (model.folder.empty()) {
        return model.files;
    }
    const FoundModel found = find_model(model.folder, model.load.variant, model.files);
    if (!quiet) {
        std::cerr << "model: " << found.choice << std::endl;
    }
    return found.files;
}

fs::path default_cache_folder() {
    // What Linux, Windows and macOS name, in this order.
    for (const auto& [variable, below] : {std::pair{"XDG_CACHE_HOME", ""},
                                          {"LOCALAPPDATA", ""},
                                          {"HOME", "Library/Caches"},
                                          {"HOME", ".cache"}}) {
        const char* value = std::getenv(variable);
        const fs::path folder = value == nullptr ? fs::path() : fs::path(value) / below;
        std::error_code ignored;
        const bool made_here = std::string(below) == ".cache";
        if (value != nullptr && *value != '\0' && (made_here || fs::exists(folder, ignored))) {
            return folder / "flux2";
        }
    }
    return {};
}

}  // namespace flux2::cli
