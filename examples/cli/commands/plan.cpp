#include "commands/plan.hpp"

#include <flux2/flux2.hpp>
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
                          {"mapped", s.mapped}});
    }
    return {{"stages", stages},
            {"batch_size", plan.n_pictures},
            {"device_peak", plan.device_peak},
            {"host_peak", plan.host_peak},
            {"mapped_peak", plan.mapped_peak}};
}

void print_row(const std::string& stage, const std::string& placement,
               std::initializer_list<uint64_t> bytes) {
    constexpr uint64_t kMega = 1'000'000;
    std::cout << std::left << std::setw(19) << stage << std::setw(18) << placement << std::right;
    for (const uint64_t value : bytes) {
        std::cout << std::setw(9) << (value + kMega / 2) / kMega;
    }
    std::cout << "\n";
}

void print_plan(const MemoryPlan& plan) {
    if (plan.n_pictures > 1) {
        std::cout << plan.n_pictures << " pictures in one pass\n";
    }
    std::cout
        << "MB                                    device   device      RAM      RAM   mapped\n"
           "stage              runs on           weights  compute  weights  compute    files\n";
    for (const StageMemory& s : plan.stages) {
        print_row(s.stage, s.placement,
                  {s.device_weights, s.device_compute, s.host_weights, s.host_compute, s.mapped});
    }
    constexpr uint64_t kMega = 1'000'000;
    std::cout << "peak: device " << plan.device_peak / kMega << " MB, RAM "
              << plan.host_peak / kMega << " MB, mapped files " << plan.mapped_peak / kMega
              << " MB (the system may drop these)\n";
}

}  // namespace

int plan(int argc, char** argv) {
    cxxopts::Options options("flux2 plan",
                             "Tells what a picture would take in memory, without loading "
                             "weights.\n");
    add_model_options(options);
    add_generate_options(options);
    const auto args = options.parse(argc, argv);
    if (args.count("help") > 0) {
        std::cout << help_of(options);
        return 0;
    }
    check_no_leftovers(args);
    GenerateOptions o;
    read_generate_options(args, o);
    Request request = make_request(o);
    const AdaptedPrompt prompt = resolve_tags({o.prompt.value_or("")}, o).front();
    apply_prompt(prompt, o, request);
    Pipeline pipeline =
        Pipeline::load(choose_files(o.model, o.style != OutputStyle::text), o.model.load);
    const MemoryPlan memory = pipeline.plan(request, o.batch_size);
    if (o.style == OutputStyle::json) {
        std::cout << to_json(memory).dump() << std::endl;
    } else {
        print_plan(memory);
    }
    return 0;
}

}  // namespace flux2::cli
