// flux2-convert: checkpoints in, GGUF files out, or a LoRA.
#include <flux2/version.hpp>
#include "base/byte_size.hpp"
#include "base/check.hpp"
#include "base/file.hpp"
#include "base/guarded_main.hpp"
#include "base/parse_arguments.hpp"
#include "convert.hpp"
#include "convert_options.hpp"
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

namespace flux2::convert {
namespace {

namespace fs = std::filesystem;

std::atomic<bool> cancel_requested = false;

void request_cancel(int) {
    cancel_requested = true;
}

// The option for a setting that messages of the library name. The layers that the converter uses
// name only this one of its options.
const char* option_of(Setting setting) {
    return setting == Setting::variant ? "--variant" : to_string(setting);
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

int run_extract(const cxxopts::ParseResult& args) {
    const std::vector<fs::path> inputs = read_inputs(args);
    check(inputs.size() == 2, ErrorKind::bad_argument, "--extract-lora takes two inputs, not ",
          inputs.size(), ": the base and the tuned checkpoint");
    ExtractOptions options = read_extract_options(args);
    options.cancel = &cancel_requested;
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
    ConvertOptions options = read_convert_options(args);
    options.cancel = &cancel_requested;
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
    cxxopts::Options options = describe_convert_options();
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
    return naming_places(options, argc, argv, [&] {
        return args.count("extract-lora") > 0 ? run_extract(args) : run(args);
    });
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
