// flux2-convert: checkpoints in, GGUF files out, or a LoRA. This file reads the arguments.
#include <flux2/version.hpp>
#include "base/byte_size.hpp"
#include "base/check.hpp"
#include "base/file.hpp"
#include "base/guarded_main.hpp"
#include "base/image_limits.hpp"
#include "base/parse_arguments.hpp"
#include "base/parse_number.hpp"
#include "convert.hpp"
#include "extract_lora.hpp"
#include "inputs.hpp"
#include "merge.hpp"
#include "progress.hpp"
#include "report.hpp"

#include <cxxopts.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <iostream>
#include <thread>

namespace flux2::convert {
namespace {

namespace fs = std::filesystem;

std::atomic<bool> cancel_requested = false;

void request_cancel(int) {
    cancel_requested = true;
}

cxxopts::Options describe_options() {
    cxxopts::Options options("flux2-convert",
                             "Converts FLUX.2 checkpoints (safetensors or GGUF) to GGUF.\n");
    options.positional_help("INPUT...").custom_help("-o OUT [options]");
    // Numbers are read as texts: cxxopts would accept "4x" as 4, and its errors do not name the
    // option.
    options.add_options()  //
        ("inputs", "files or folders: transformer, text encoder, autoencoder, diffusers folder",
         cxxopts::value<std::vector<std::string>>())  //
        ("o,output", "file to write; a folder for several inputs or a diffusers folder",
         cxxopts::value<std::string>())  //
        ("t,type",
         "F32 F16 BF16 Q8_0 Q6_K Q5_K_M Q5_K_S Q5_1 Q5_0 Q4_K_M Q4_K_S Q4_1 Q4_0 IQ4_NL IQ4_XS "
         "MXFP4 Q3_K_M Q3_K_S Q2_K; Q5_K, Q4_K and Q3_K mean the _M mixes",
         cxxopts::value<std::string>()->default_value("Q8_0"))  //
        ("tensor-type", "REGEX=TYPE: another type for tensors whose name matches (repeatable)",
         cxxopts::value<std::vector<std::string>>())  //
        ("target-size", "instead of --type: the least error in a file of at most this, such as 3G",
         cxxopts::value<std::string>())  //
        ("max-error", "instead of --type: the smallest types within this error, such as 0.05",
         cxxopts::value<std::string>())  //
        ("variant", "klein, base, kv or dev, where the file does not tell",
         cxxopts::value<std::string>())  //
        ("default-steps", "transformer: steps when the user names none",
         cxxopts::value<std::string>())                                               //
        ("default-guidance", "transformer: likewise", cxxopts::value<std::string>())  //
        ("default-size", "transformer: likewise, such as 1024x1024",
         cxxopts::value<std::string>())  //
        ("tokenizer", "tokenizer.json, or vocab.json, for a text encoder that has none beside it",
         cxxopts::value<std::string>())                                               //
        ("trim", "text encoder: leave out layers and head that FLUX.2 does not use")  //
        ("text-layers", "text encoder: layers whose output is used, such as 9,18,27",
         cxxopts::value<std::string>())                                                          //
        ("text-length", "text encoder: prompt length in tokens", cxxopts::value<std::string>())  //
        ("lora", "FILE or FILE:STRENGTH: a LoRA to merge (repeatable)",
         cxxopts::value<std::vector<std::string>>())                                         //
        ("extract-lora", "write the difference of two transformers, BASE TUNED, as a LoRA")  //
        ("rank", "of that LoRA (default: 32)", cxxopts::value<std::string>())                //
        ("allow-requantize", "accept a source that is already quantised")                    //
        ("dry-run", "print what would be written, and write nothing")                        //
        ("verify", "read the result back and print its error against the source")            //
        ("j,threads", "threads to use (default: all cores)", cxxopts::value<std::string>())  //
        ("version", "print the version")                                                     //
        ("h,help", "print this help");
    options.parse_positional({"inputs"});
    return options;
}

// The option for a setting that messages of the library name. The layers that the converter uses
// name only this one of its options.
const char* option_of(Setting setting) {
    return setting == Setting::variant ? "--variant" : to_string(setting);
}

std::vector<int64_t> parse_layers(const std::string& text) {
    std::vector<int64_t> layers;
    for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find(',', begin), text.size());
        const std::string item = text.substr(begin, end - begin);
        check(!item.empty() && item.size() < 6 &&
                  item.find_first_not_of("0123456789") == std::string::npos,
              ErrorKind::bad_argument, "--text-layers '", text,
              "' is not a list of numbers such as 9,18,27");
        layers.push_back(std::stoll(item));
        begin = end + 1;
    }
    return layers;
}

// "1024x768"
DefaultOptions::Size parse_size(const std::string& text) {
    const size_t x = text.find('x');
    const auto side = [&](const std::string& digits) {
        const bool number = !digits.empty() && digits.size() <= 4 &&
                            digits.find_first_not_of("0123456789") == std::string::npos;
        const int value = number ? std::stoi(digits) : 0;
        check(is_image_side(value), ErrorKind::bad_argument, "--default-size ", text,
              " is no size such as 1024x768; sides are multiples of ", kImageGrid, " from ",
              kMinSide, " to ", kMaxSide);
        return value;
    };
    return {side(text.substr(0, x)), side(x == std::string::npos ? "" : text.substr(x + 1))};
}

int int_option(const cxxopts::ParseResult& args, const std::string& name) {
    return parse_int("--" + name, args[name].as<std::string>());
}

float float_option(const cxxopts::ParseResult& args, const std::string& name) {
    return parse_float("--" + name, args[name].as<std::string>());
}

DefaultOptions read_defaults(const cxxopts::ParseResult& args) {
    DefaultOptions defaults;
    if (args.count("default-steps") > 0) {
        defaults.steps = int_option(args, "default-steps");
        check(*defaults.steps >= 1 && *defaults.steps <= 1000, ErrorKind::bad_argument,
              "--default-steps ", *defaults.steps, " is out of range; use 1 to 1000");
    }
    if (args.count("default-guidance") > 0) {
        defaults.guidance = float_option(args, "default-guidance");
        check(*defaults.guidance >= 0 && *defaults.guidance <= 100, ErrorKind::bad_argument,
              "--default-guidance ", *defaults.guidance, " is out of range; use 0 to 100");
    }
    if (args.count("default-size") > 0) {
        defaults.size = parse_size(args["default-size"].as<std::string>());
    }
    return defaults;
}

TypeRequest read_types(const cxxopts::ParseResult& args) {
    check(args.count("type") + args.count("target-size") + args.count("max-error") <= 1,
          ErrorKind::bad_argument,
          "--type, --target-size and --max-error each choose the types; give one of them");
    TypeRequest types;
    types.file_type = &parse_file_type(args["type"].as<std::string>());
    if (args.count("tensor-type") > 0) {
        for (const std::string& text : args["tensor-type"].as<std::vector<std::string>>()) {
            types.overrides.push_back(parse_type_override(text));
        }
    }
    if (args.count("target-size") > 0) {
        types.target_bytes =
            parse_bytes("--target-size", args["target-size"].as<std::string>(), "size of a file");
    }
    if (args.count("max-error") > 0) {
        const float limit = float_option(args, "max-error");
        check(limit > 0 && limit <= 1, ErrorKind::bad_argument, "--max-error ", limit,
              " is out of range; use a share of the output above 0 and up to 1, such as 0.05");
        types.max_error = static_cast<double>(limit);
    }
    return types;
}

int read_threads(const cxxopts::ParseResult& args) {
    if (args.count("threads") == 0) {
        return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    }
    const int n_threads = int_option(args, "threads");
    check(n_threads >= 1 && n_threads <= 1024, ErrorKind::bad_argument, "--threads ", n_threads,
          " is out of range; 1 to 1024 make sense");
    return n_threads;
}

ConvertOptions read_options(const cxxopts::ParseResult& args) {
    ConvertOptions options;
    options.types = read_types(args);
    options.cancel = &cancel_requested;
    if (args.count("variant") > 0) {
        options.variant = parse_variant(args["variant"].as<std::string>());
    }
    options.defaults = read_defaults(args);
    if (args.count("tokenizer") > 0) {
        options.text_encoder.tokenizer = args["tokenizer"].as<std::string>();
    }
    if (args.count("text-layers") > 0) {
        options.text_encoder.layers = parse_layers(args["text-layers"].as<std::string>());
    }
    if (args.count("text-length") > 0) {
        options.text_encoder.text_length = int_option(args, "text-length");
    }
    options.text_encoder.trim = args.count("trim") > 0;
    options.allow_requantize = args.count("allow-requantize") > 0;
    if (args.count("lora") > 0) {
        options.adapters = open_adapters(args["lora"].as<std::vector<std::string>>());
    }
    options.n_threads = read_threads(args);
    return options;
}

// Writes one file and prints one line. Returns whether it passed verification, if that was asked.
bool run_plan(const ConversionPlan& plan, const ConvertOptions& options, bool verify) {
    const auto start = std::chrono::steady_clock::now();
    const std::string label = plan.output.filename().string();
    const uint64_t total = source_bytes(plan.tensors);
    {
        Progress progress(label, total);
        write_plan(plan, options.n_threads, cancel_requested,
                   [&](uint64_t done) { progress.show(done); });
    }
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    std::cout << plan.output.string() << ": " << plan.tensors.size() << " tensors, "
              << readable_bytes(total) << " -> " << readable_bytes(plan.output_bytes()) << " in "
              << std::fixed << std::setprecision(1) << elapsed.count() << " s" << std::defaultfloat
              << std::endl;
    if (!verify) {
        return true;
    }
    Progress progress("verifying " + label, total);
    return print_errors(std::cout, verify_plan(plan, options.n_threads, cancel_requested,
                                               [&](uint64_t done) { progress.show(done); }));
}

// Makes a plan for each part and prints what it is, its types, and warnings.
std::vector<ConversionPlan> make_plans(const std::vector<Checkpoint>& checkpoints,
                                       const std::vector<fs::path>& outputs,
                                       const ConvertOptions& options) {
    check(checkpoints.size() == 1 || !options.types.target_bytes, ErrorKind::bad_argument,
          "--target-size is the size of one file, and these inputs make ", checkpoints.size(),
          "; convert the parts one by one");
    std::vector<ConversionPlan> plans;
    for (size_t i = 0; i < checkpoints.size(); ++i) {
        plans.push_back(make_plan(checkpoints[i], outputs[i], options));
        std::cout << checkpoints[i].file() << ": " << worded(plans.back().summary, option_of)
                  << std::endl;
        if (!plans.back().type_summary.empty()) {
            std::cout << plans.back().type_summary << std::endl;
        }
        for (const std::string& warning : plans.back().warnings) {
            std::cerr << "warning: " << warning << std::endl;
        }
    }
    check_adapters_used(plans, options.adapters);
    check_overrides_match(plans, options.types);
    check_parts_fit(plans);
    return plans;
}

void warn_of_unused_keys(const std::vector<UsedAdapter>& adapters) {
    for (const UsedAdapter& adapter : adapters) {
        const std::vector<UnusedKey>& unused = adapter.file->unused();
        if (!unused.empty()) {
            std::cerr << "warning: " << adapter.file->file() << ": " << unused.size()
                      << " keys have no effect, " << unused.front().key << " ("
                      << unused.front().reason << ") among them" << std::endl;
        }
    }
}

std::vector<fs::path> read_inputs(const cxxopts::ParseResult& args) {
    check(args.count("inputs") > 0, ErrorKind::bad_argument,
          "no input given; try flux2-convert --help");
    check(args.count("output") > 0, ErrorKind::bad_argument,
          "no output given; add -o FILE, or -o FOLDER for several inputs");
    check(!args["output"].as<std::string>().empty(), ErrorKind::bad_argument,
          "-o is given an empty name; name a file, or a folder for several inputs");
    const auto& texts = args["inputs"].as<std::vector<std::string>>();
    return {texts.begin(), texts.end()};
}

// The options that have a meaning with --extract-lora.
ExtractOptions read_extract_options(const cxxopts::ParseResult& args) {
    for (const char* name :
         {"lora", "type", "tensor-type", "target-size", "max-error", "variant", "default-steps",
          "default-guidance", "default-size", "tokenizer", "trim", "text-layers", "text-length",
          "allow-requantize", "dry-run", "verify"}) {
        check(args.count(name) == 0, ErrorKind::bad_argument, "--", name,
              " has no effect with --extract-lora; leave it out");
    }
    ExtractOptions options;
    options.n_threads = read_threads(args);
    options.cancel = &cancel_requested;
    if (args.count("rank") > 0) {
        options.rank = int_option(args, "rank");
        check(options.rank >= 1 && options.rank <= 4096, ErrorKind::bad_argument, "--rank ",
              options.rank, " is out of range; use 1 to 4096");
    }
    return options;
}

int run_extract(const cxxopts::ParseResult& args) {
    const std::vector<fs::path> inputs = read_inputs(args);
    check(inputs.size() == 2, ErrorKind::bad_argument, "--extract-lora takes two inputs, not ",
          inputs.size(), ": the base and the tuned checkpoint");
    ExtractOptions options = read_extract_options(args);
    const fs::path output = args["output"].as<std::string>();
    check(output.extension() == ".safetensors", ErrorKind::bad_argument, output.string(),
          ": a LoRA is written as safetensors; give a name that ends in .safetensors");
    std::vector<Checkpoint> checkpoints;
    for (const fs::path& input : inputs) {
        checkpoints.push_back(Checkpoint::open(input, Part::transformer));
    }
    check_outputs({output}, checkpoints, {});
    check_writable(output);
    make_folders_for(output);
    Extracted extracted;
    {
        Progress progress(output.filename().string(), source_bytes(checkpoints.front()));
        options.progress = [&](uint64_t done) { progress.show(done); };
        extracted = extract_lora(checkpoints[0], checkpoints[1], output, options);
    }
    for (const std::string& warning : extracted.warnings) {
        std::cerr << "warning: " << warning << std::endl;
    }
    std::cout << output.string() << ": " << extracted.all.n_modules << " modules, rank "
              << options.rank << ", " << readable_bytes(fs::file_size(output)) << std::endl;
    print_errors(std::cout, extracted);
    return 0;
}

int run(const cxxopts::ParseResult& args) {
    const std::vector<fs::path> inputs = read_inputs(args);
    check(args.count("rank") == 0, ErrorKind::bad_argument,
          "--rank is for --extract-lora; leave it out");
    const bool dry_run = args.count("dry-run") > 0;
    const ConvertOptions options = read_options(args);
    const std::vector<Checkpoint> checkpoints = open_inputs(inputs);
    const std::vector<fs::path> outputs =
        name_outputs(inputs, checkpoints, args["output"].as<std::string>());
    check_outputs(outputs, checkpoints, options.text_encoder.tokenizer, options.adapters);
    warn_of_unused_keys(options.adapters);
    if (!dry_run) {
        std::for_each(outputs.begin(), outputs.end(), check_writable);
    }
    const std::vector<ConversionPlan> plans = make_plans(checkpoints, outputs, options);
    bool good = true;
    for (const ConversionPlan& plan : plans) {
        if (dry_run) {
            print_table(std::cout, plan);
            continue;
        }
        make_folders_for(plan.output);
        good = run_plan(plan, options, args.count("verify") > 0) && good;
    }
    check(good, ErrorKind::internal,
          "verification failed: the values read back are further from the source than their type "
          "explains; do not use the file, check disk and memory");
    return 0;
}

int main_checked(int argc, char** argv) {
    cxxopts::Options options = describe_options();
    const cxxopts::ParseResult args = parse_arguments(options, argc, argv);
    if (args.count("help") > 0) {
        std::cout << options.help()
                  << "\nExit codes: 0 ok, 1 verification failed or internal error, 2 usage,\n"
                     "3 file, 4 memory or disk, 130 cancelled\n";
        return 0;
    }
    if (args.count("version") > 0) {
        std::cout << "flux2-convert " << version() << "\n";
        return 0;
    }
    return args.count("extract-lora") > 0 ? run_extract(args) : run(args);
}

}  // namespace
}  // namespace flux2::convert

int main(int argc, char** argv) {
    std::signal(SIGINT, flux2::convert::request_cancel);
    std::signal(SIGTERM, flux2::convert::request_cancel);
    return flux2::guarded_main<cxxopts::exceptions::exception>(
        "flux2-convert", flux2::convert::option_of,
        [&] { return flux2::convert::main_checked(argc, argv); });
}
