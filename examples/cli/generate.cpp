#include "generate.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "output_name.hpp"
#include "picture_facts.hpp"
#include "session.hpp"

#include <algorithm>
#include <iostream>
#include <iterator>
#include <random>
#include <sstream>

namespace flux2::cli {

std::atomic<bool> cancel_requested = false;

namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxPromptFileBytes = 16 << 20;
// Prompts that are encoded ahead in one go; the library holds as many.
constexpr size_t kPromptsAhead = 8;

LoadOptions with_cancel(LoadOptions load) {
    load.cancel = &cancel_requested;
    return load;
}

std::vector<std::string> read_prompts(const GenerateOptions& o) {
    if (o.prompt_file.empty()) {
        return {o.prompt.value_or("")};
    }
    std::string text;
    if (o.prompt_file == "-") {
        text.assign(std::istreambuf_iterator<char>(std::cin), {});
    } else {
        text = read_text_file(o.prompt_file, kMaxPromptFileBytes);
    }
    std::vector<std::string> prompts;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
        if (line.ends_with('\r')) {
            line.pop_back();
        }
        if (!line.empty()) {
            prompts.push_back(line);
        }
    }
    check(!prompts.empty(), ErrorKind::bad_file, o.prompt_file.string(),
          ": holds no prompt; write one per line");
    return prompts;
}

cxxopts::Options describe_options(const std::string& program, const std::string& positional) {
    cxxopts::Options options(program, "Makes pictures with FLUX.2.\n");
    options.custom_help(positional + "-m FOLDER -p PROMPT [options]");
    add_model_options(options);
    add_generate_options(options);
    return options;
}

int run(const GenerateOptions& o) {
    Display display(o.style, o.verbose);
    set_log([&](LogLevel level, const std::string& line) { display.message(level, line); });
    try {
        if (!o.prompt && o.prompt_file.empty()) {
            check(stdin_is_terminal(), ErrorKind::bad_argument,
                  "no prompt; add -p \"what to draw\" or --prompt-file FILE");
            return run_session(o, display);
        }
        check_output_pattern(o.output);
        const std::vector<std::string> prompts = read_prompts(o);
        Studio(o, display).draw(o, prompts);
        return 0;
    } catch (const Error& error) {
        display.error(exit_code(error.kind()), error.what());
        throw;
    }
}

}  // namespace

Request make_request(const GenerateOptions& o) {
    Request request = o.request;
    for (const fs::path& file : o.references) {
        request.references.push_back(load_image(file, o.alpha));
    }
    if (!o.init.empty()) {
        request.init = InitImage{load_image(o.init, o.alpha), o.strength};
    }
    return request;
}

Studio::Studio(const GenerateOptions& o, Display& display)
    : display_(display),
      files_(choose_files(o.model, display.quiet())),
      pipeline_(Pipeline::load(files_, with_cancel(o.model.load))),
      hashes_(files_, o.model.load.cache_folder) {}

std::vector<fs::path> Studio::draw(const GenerateOptions& o,
                                   const std::vector<std::string>& prompts) {
    Request request = make_request(o);
    const int n_pictures = static_cast<int>(prompts.size()) * o.batch_count;
    std::vector<fs::path> files;
    int number = 0;
    for (size_t i = 0; i < prompts.size(); ++i) {
        if (prompts.size() > 1 && i % kPromptsAhead == 0) {
            std::vector<Request> ahead(std::min(kPromptsAhead, prompts.size() - i), o.request);
            for (size_t j = 0; j < ahead.size(); ++j) {
                ahead[j].prompt = prompts[i + j];
            }
            pipeline_.encode_prompts(ahead, [&](const Step& step) {
                display_.step(step, "");
                return !cancel_requested;
            });
        }
        request.prompt = prompts[i];
        const uint64_t first_seed = o.request.seed.value_or(std::random_device{}() & 0x7fffffffu);
        for (int b = 0; b < o.batch_count; ++b) {
            request.seed = first_seed + static_cast<uint64_t>(b);
            files.push_back(draw_one(o, request, ++number, n_pictures));
        }
    }
    return files;
}

fs::path Studio::draw_one(const GenerateOptions& o, const Request& request, int number,
                          int n_pictures) {
    const std::string count = n_pictures > 1 ? concat(number, "/", n_pictures) : "";
    const Result result = pipeline_.generate(request, [&](const Step& step) {
        display_.step(step, count);
        if (step.preview != nullptr && !o.preview.empty()) {
            save_image(o.preview, *step.preview);
        }
        return !cancel_requested;
    });
    const nlohmann::json facts = picture_facts(o, files_, hashes_, pipeline_, request, result);
    const fs::path file = output_name(o.output, result.seed, number, n_pictures);
    save_image(file, result.image, picture_texts(facts));
    display_.picture(file, result, facts);
    return file;
}

int generate(int argc, char** argv) {
    cxxopts::Options options = describe_options("flux2", "");
    const auto args = options.parse(argc, argv);
    if (args.count("help") > 0) {
        std::cout << options.help() << "\nflux2 help lists the other commands.\n";
        return 0;
    }
    check_no_leftovers(args);
    GenerateOptions o;
    read_generate_options(args, o);
    return run(o);
}

int redo(int argc, char** argv) {
    cxxopts::Options options = describe_options("flux2 redo", "PICTURE ");
    options.add_options()("picture", "", cxxopts::value<std::string>());
    options.parse_positional({"picture"});
    const auto args = options.parse(argc, argv);
    if (args.count("help") > 0) {
        std::cout << "Makes a picture again from the settings stored in it; options change them.\n"
                  << options.help({"Model", "Picture", "Output"});
        return 0;
    }
    check_no_leftovers(args);
    check(args.count("picture") > 0, ErrorKind::bad_argument,
          "which picture? flux2 redo PICTURE.png [changes]");
    const fs::path picture = args["picture"].as<std::string>();
    GenerateOptions o = options_from_facts(read_picture_facts(picture), picture);
    read_generate_options(args, o);
    return run(o);
}

}  // namespace flux2::cli
