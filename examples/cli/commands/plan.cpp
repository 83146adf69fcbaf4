#include "commands/plan.hpp"

#include <flux2/flux2.hpp>
#include <flux2/log.hpp>
#include "base/check.hpp"
#include "base/parse_arguments.hpp"
#include "base/text_stream.hpp"
#include "commands/generate.hpp"
#include "common/model_choice.hpp"
#include "common/options.hpp"
#include "common/prompt_tags.hpp"

#include <nlohmann/json.hpp>

#include <iomanip>
#include <iostream>

namespace flux2::cli {
namespace {

nlohmann::json to_json(const MemoryPlan& plan) {
    nlohmann::json stages = nlohmann::json::array();
    for (const StageMemory& s : plan.stages) {
        stages.push_back({{"stage", s.stage},
                          {"placement", s.placement},
                          {"device_weights", s.device_weights},
                          {"device_compute", s.device_compute},
                          {"host_weights", s.host_weights},
                          {"host_compute", s.host_compute},
                          {"mapped", s.mapped},
                          {"seconds", s.seconds}});
    }
    nlohmann::json blocks = nlohmann::json::array();
    for (const BlockPlace& place : plan.blocks) {
        blocks.push_back({{"device", place.device},
                          {"blocks", place.blocks},
                          {"weights", place.weights},
                          {"compute", place.compute}});
    }
    nlohmann::json traffic = nlohmann::json::array();
    for (const StepTraffic& t : plan.traffic) {
        traffic.push_back(
            {{"from", t.from}, {"to", t.to}, {"bytes", t.bytes}, {"activations", t.activations}});
    }
    return {{"stages", stages},
            {"blocks", blocks},
            {"traffic", traffic},
            {"width", plan.width},
            {"height", plan.height},
            {"steps", plan.steps},
            {"batch_size", plan.n_pictures},
            {"device_peak", plan.device_peak},
            {"host_peak", plan.host_peak},
            {"mapped_peak", plan.mapped_peak},
            {"seconds", plan.seconds}};
}

// "0.42", "7.3", "120"; "?" when it could not be measured.
std::string seconds_text(double seconds) {
    if (seconds <= 0) {
        return "?";
    }
    TextStream text;
    text << std::fixed << std::setprecision(seconds < 1 ? 2 : seconds < 100 ? 1 : 0) << seconds;
    return text.str();
}

void print_row(const std::string& stage, const std::string& placement,
               std::initializer_list<uint64_t> bytes, double seconds) {
    constexpr uint64_t kMega = 1'000'000;
    std::cout << std::left << std::setw(19) << stage << std::setw(18) << placement << std::right;
    for (const uint64_t value : bytes) {
        std::cout << std::setw(9) << (value + kMega / 2) / kMega;
    }
    std::cout << std::setw(9) << seconds_text(seconds) << "\n";
}

void print_plan(const MemoryPlan& plan) {
    std::cout << plan.width << "x" << plan.height << ", " << plan.steps
              << (plan.steps == 1 ? " step" : " steps");
    if (plan.n_pictures > 1) {
        std::cout << ", " << plan.n_pictures << " pictures in one pass";
    }
    std::cout
        << "\nMB                                    device   device      RAM      RAM   mapped\n"
           "stage              runs on           weights  compute  weights  compute    files  "
           "seconds\n";
    for (const StageMemory& s : plan.stages) {
        print_row(s.stage, s.placement,
                  {s.device_weights, s.device_compute, s.host_weights, s.host_compute, s.mapped},
                  s.seconds);
    }
    constexpr uint64_t kMega = 1'000'000;
    std::cout << "peak: device " << plan.device_peak / kMega << " MB, RAM "
              << plan.host_peak / kMega << " MB, mapped files " << plan.mapped_peak / kMega
              << " MB (the system may drop these)\n"
              << "time: about " << seconds_text(plan.seconds)
              << " s, without loading the weights\n";
}

void print_where(const MemoryPlan& plan) {
    constexpr double kMega = 1e6;
    std::cout << "where the transformer's blocks are:\n" << std::fixed << std::setprecision(1);
    for (const BlockPlace& place : plan.blocks) {
        std::cout << "  " << std::left << std::setw(8) << place.device << " " << place.blocks
                  << "; weights " << static_cast<double>(place.weights) / kMega << " MB, compute "
                  << static_cast<double>(place.compute) / kMega << " MB\n";
    }
    std::cout << "bytes copied per step, from the second on:\n";
    for (const StepTraffic& traffic : plan.traffic) {
        std::cout << "  " << traffic.from << " -> " << traffic.to << ": " << traffic.bytes << " ("
                  << traffic.activations << " of them tokens)\n";
    }
    for (const DevicePeak& device : plan.devices) {
        std::cout << "peak on " << device.device << ": "
                  << static_cast<double>(device.bytes) / kMega << " MB\n";
    }
}

}  // namespace

int plan(int argc, char** argv) {
    cxxopts::Options options("flux2 plan",
                             "Tells what a picture would take in memory, and how long.\n"
                             "The first time, blocks of the model are timed for some seconds;\n"
                             "--cache keeps the results.\n");
    add_model_options(options);
    add_generate_options(options);
    add_settings_options(options);
    options.add_options("Output")(
        "where", "also which block runs on which device, and what is copied between them");
    const auto args = parse_arguments(options, argc, argv);
    if (args.count("help") > 0) {
        std::cout << help_of(options);
        return 0;
    }
    check_no_leftovers(args);
    GenerateOptions o;
    naming_places(options, argc, argv, [&] { read_generate_options(args, o); });
    if (o.verbose) {
        set_log([](LogLevel, const std::string& line) {
            std::cerr << "flux2: " << in_options(line) << std::endl;
        });
    }
    check(o.model.load.device.find(',') == std::string::npos, ErrorKind::bad_argument,
          "a plan is for one device, not for --device ", o.model.load.device, "; name one of them");
    Request request = make_request(o);
    const AdaptedPrompt prompt = resolve_tags({o.prompt.value_or("")}, o).front();
    apply_prompt(prompt, o, request);
    const LineSink tell = lines_on_stderr(o.style != OutputStyle::text);
    Pipeline pipeline = Pipeline::load(choose_files(o.model, tell), o.model.load);
    const MemoryPlan memory = pipeline.plan(request, o.batch_size);
    if (o.style == OutputStyle::json) {
        std::cout << to_json(memory).dump() << std::endl;
    } else {
        print_plan(memory);
        if (args.count("where") > 0) {
            print_where(memory);
        }
    }
    return 0;
}

}  // namespace flux2::cli
