#include "commands/generate.hpp"

#include <flux2/device.hpp>
#include "base/check.hpp"
#include "base/comma_list.hpp"
#include "base/file.hpp"
#include "base/letter_case.hpp"
#include "base/log.hpp"
#include "base/parse_arguments.hpp"
#include "base/system.hpp"
#include "base/utf8.hpp"
#include "commands/ordered_work.hpp"
#include "commands/session.hpp"
#include "common/cancel.hpp"
#include "common/lora_tags.hpp"
#include "common/model_choice.hpp"
#include "common/picture_facts.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iostream>
#include <new>
#include <random>
#include <set>
#include <sstream>
#include <utility>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxPromptFileBytes = 16 << 20;
constexpr size_t kMaxPictures = 1'000'000;  // of one run
// Prompts that are encoded before the first picture is drawn; later as many as were drawn before.
constexpr size_t kFirstPrompts = 8;

std::string read_standard_input() {
    const EndsAtOnce while_waiting;
    check(!cancel_requested, ErrorKind::cancelled, "cancelled");
    std::string text;
    for (char c = 0; text.size() <= kMaxPromptFileBytes && std::cin.get(c);) {
        text += c;
    }
    check(text.size() <= kMaxPromptFileBytes, ErrorKind::bad_file, "standard input: has more than ",
          kMaxPromptFileBytes, " bytes of prompts");
    return text;
}

std::vector<std::string> read_prompts(const GenerateOptions& o) {
    if (o.prompt_file.empty()) {
        return {o.prompt.value_or("")};
    }
    const bool piped = o.prompt_file == "-";
    const std::string text = decode_text_file(
        piped ? read_standard_input() : read_text_file(o.prompt_file, kMaxPromptFileBytes),
        piped ? "standard input" : o.prompt_file.string());
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
    check(prompts.size() <= kMaxPictures / static_cast<size_t>(o.batch_count),
          ErrorKind::bad_argument, o.prompt_file.string(), ": ", prompts.size(), " prompts with ",
          o.batch_count, " pictures each are too many; at most ", kMaxPictures,
          " are made in one run");
    return prompts;
}

cxxopts::Options describe_options(const std::string& program, const std::string& positional) {
    cxxopts::Options options(program, "Makes pictures with FLUX.2.\n");
    options.custom_help(positional + "[-m FOLDER] -p PROMPT [options]");
    add_model_options(options);
    add_generate_options(options);
    return options;
}

void check_outputs(const GenerateOptions& o) {
    check_output_pattern(o.output);
    if (!o.preview.empty()) {
        check_output_file(o.preview);
    }
    for (const fs::path& output : {fs::path(o.output), o.preview}) {
        check(!is_standard_output(output) || o.style == OutputStyle::quiet, ErrorKind::bad_argument,
              output.string(), " is where lines about the pictures go; add --quiet");
    }
    std::vector<fs::path> inputs = o.references;
    inputs.push_back(o.init);
    inputs.push_back(o.edit.mask);
    for (const fs::path& input : inputs) {
        std::error_code ignored;
        check(o.preview.empty() || !fs::equivalent(o.preview, input, ignored),
              ErrorKind::bad_argument, "--preview ", o.preview.string(),
              " would overwrite a picture that is read; give it another name");
    }
}

// Names for the pictures of a run.
OutputNames name_pictures(const GenerateOptions& o, size_t n_pictures) {
    using Existing = OutputNames::Existing;
    const std::string pattern = n_pictures > 1 ? pattern_of_several(o.output) : o.output;
    return {pattern, has_number(pattern) && !o.overwrite ? Existing::kept : Existing::replaced};
}

// Calls `save`, which writes a picture to this file.
template <typename Save>
auto when_writable(const fs::path& file, const Save& save) {
    if (is_stream(file)) {
        const EndsAtOnce while_waiting;  // a pipe may wait for its reader
        return save();
    }
    make_folders_for(file);
    return save();
}

// For a picture that is made again: its adapters may have been moved.
void check_adapters_of(const fs::path& picture, const GenerateOptions& o) {
    for (const Adapter& adapter : o.request.adapters) {
        const bool is_stored = o.stored_adapter_hashes.contains(adapter.file.string());
        check(
            !is_stored || file_exists(adapter.file), ErrorKind::bad_file, picture.string(),
            ": was made with the LoRA ", adapter.file.string(),
            ", and there is no such file; name it where it is now: --lora FILE:", adapter.strength);
    }
}

// A preview that cannot be written does not stop the run.
void save_preview(const fs::path& file, const Image& preview) {
    try {
        when_writable(file, [&] { save_image(file, preview); });
    } catch (const Error& error) {
        log(LogLevel::warning, concat("the preview is not written: ", error.what()));
    }
}

// The devices that draw side by side; one, unless the options name several.
std::vector<std::string> devices_of(const LoadOptions& load) {
    const std::vector<std::string> devices = split_list(load.device);
    if (devices.size() == 1) {
        return devices;
    }
    check(load.transformer.device.empty() && load.split.empty(), ErrorKind::bad_argument,
          "--device ", load.device,
          " draws a picture on each of these devices; leave out --device-diffusion and --split, or "
          "name one device");
    std::set<std::string> known, named;
    for (const DeviceInfo& device : list_devices()) {
        known.insert(to_lower(device.name));
    }
    for (const std::string& device : devices) {
        check(known.contains(to_lower(device)), ErrorKind::bad_argument, "--device ", load.device,
              " names '", device, "', and there is no such device; flux2 devices lists them");
        check(named.insert(to_lower(device)).second, ErrorKind::bad_argument, "--device ",
              load.device, " names ", device, " twice; name each once");
    }
    return devices;
}

std::string joined(const std::vector<std::string>& items) {
    std::string text;
    for (const std::string& item : items) {
        text += (text.empty() ? "" : ", ") + item;
    }
    return text;
}

int run(const GenerateOptions& o) {
    Display display(o.style, o.verbose);
    const ScopedLog log_to_display(
        [&](LogLevel level, const std::string& line) { display.message(level, in_options(line)); });
    if (!o.not_repeated.empty()) {
        log(LogLevel::warning, concat("another program made the stored picture; not repeated: ",
                                      joined(o.not_repeated)));
    }
    check_outputs(o);
    if (!o.prompt && o.prompt_file.empty() && o.request.embeds_file.empty()) {
        check(stdin_is_terminal() && o.style != OutputStyle::json, ErrorKind::bad_argument,
              "no prompt; add -p \"what to draw\", --prompt-file FILE or --embeds FILE");
        return run_session(o, display);
    }
    // Errors in the given files are reported before a missing part.
    Request request = make_request(o);
    const std::vector<AdaptedPrompt> prompts = resolve_tags(read_prompts(o), o);
    OutputNames names = name_pictures(o, prompts.size() * static_cast<size_t>(o.batch_count));
    tell_first_number(names, display);
    PictureMaker(o, std::move(names), display).draw(o, std::move(request), prompts);
    return 0;
}

std::string without_tags(const std::string& negative_prompt) {
    TaggedPrompt split = split_tags(negative_prompt);
    if (!split.tags.empty()) {
        log(LogLevel::warning, concat("the tag <lora:", split.tags.front().name,
                                      "> in the negative prompt has no effect and is left out; a "
                                      "LoRA goes into the prompt, for both"));
    }
    return split.text;
}

// Whether one call can encode both: adapters change the text encoder, and the sentences about
// references are added to the prompts.
bool encoded_alike(const AdaptedPrompt& a, const AdaptedPrompt& b) {
    return a.references == b.references &&
           std::equal(a.adapters.begin(), a.adapters.end(), b.adapters.begin(), b.adapters.end(),
                      [](const Adapter& one, const Adapter& other) {
                          return one.file == other.file && one.strength == other.strength;
                      });
}

// The options with the files that the prompt adds, as pictures store them.
GenerateOptions with_references_of(const AdaptedPrompt& prompt, GenerateOptions o) {
    for (const ReferenceFile& reference : prompt.references) {
        o.references.push_back(reference.file);
    }
    return o;
}

// Runs a command that makes pictures. With --json every failure becomes an event, also wrong
// options.
template <typename Body>
int telling_errors(int argc, char** argv, const Body& body) {
    cancel_on_signals();
    const bool json = std::any_of(
        argv, argv + argc, [](const char* argument) { return argument == std::string("--json"); });
    const auto tell = [&](ErrorKind kind, const std::string& line) {
        if (json) {
            Display(OutputStyle::json, false).error(exit_code(kind), line);
        }
    };
    try {
        return body();
    } catch (const Error& error) {
        tell(error.kind(), error.message(option_of));
        throw;
    } catch (const cxxopts::exceptions::exception& error) {
        tell(ErrorKind::bad_argument, error.what());
        throw;
    } catch (const std::bad_alloc&) {
        tell(ErrorKind::out_of_memory, "out of memory");
        throw;
    }
}

}  // namespace

Request make_request(const GenerateOptions& o) {
    Request request = o.request;
    for (const fs::path& file : {request.noise_file, request.embeds_file}) {
        if (!file.empty()) {
            const MappedFile opened(file);  // throws when the file is missing
        }
    }
    for (const Adapter& adapter : request.adapters) {
        check(file_exists(adapter.file), ErrorKind::bad_file, adapter.file.string(),
              ": no such file; --lora takes a LoRA file, and FILE:0.8 its strength");
    }
    request.negative_prompt = without_tags(request.negative_prompt);
    for (const fs::path& file : o.references) {
        request.references.push_back(load_image(file, o.alpha));
    }
    if (!o.init.empty()) {
        request.init = InitImage{load_image_with_profile(o.init, o.alpha), o.strength};
    }
    apply_edit(o.edit, o.init, request);
    return request;
}

void tell_first_number(const OutputNames& names, Display& display) {
    if (const int first = names.next_number(); first > 1) {
        display.note(concat("pictures are numbered from ", first,
                            " on, after the existing ones; --overwrite starts at 1"));
    }
}

PictureMaker::PictureMaker(const GenerateOptions& o, OutputNames names, Display& display)
    : names_(std::move(names)),
      display_(display),
      devices_(devices_of(o.model.load)),
      files_(choose_files(o.model, lines_on_stderr(display.quiet()))),
      hashes_(files_, o.model.load.cache_folder) {
    open_workers(o, 1);
}

void PictureMaker::open_workers(const GenerateOptions& o, size_t n_batches) {
    while (workers_.size() < std::min(devices_.size(), n_batches)) {
        LoadOptions load = o.model.load;
        load.device = devices_[workers_.size()];
        workers_.push_back({.options = {},
                            .pipeline = Pipeline::load(files_, load),
                            .request = {},
                            .prompt = {},
                            .n_encoded = 0});
    }
}

std::vector<PictureMaker::Batch> PictureMaker::make_batches(const GenerateOptions& o,
                                                            size_t n_prompts) {
    const int n_pictures = static_cast<int>(n_prompts) * o.batch_count;
    std::vector<Batch> batches;
    int number = 0;
    for (size_t i = 0; i < n_prompts; ++i) {
        const uint64_t first_seed = o.request.seed.value_or(std::random_device{}() & 0x7fffffffu);
        for (int b = 0; b < o.batch_count; b += o.batch_size) {
            const int n = std::min(o.batch_size, o.batch_count - b);
            const std::string range = n > 1 ? concat("-", number + n) : "";
            batches.push_back({i, first_seed + static_cast<uint64_t>(b), n,
                               n_pictures > 1 ? concat(number + 1, range, "/", n_pictures) : ""});
            number += n;
        }
    }
    return batches;
}

std::vector<fs::path> PictureMaker::draw(const GenerateOptions& o, Request request,
                                         const std::vector<AdaptedPrompt>& prompts) {
    request.cancel = &cancel_requested;
    const std::vector<Batch> batches = make_batches(o, prompts.size());
    open_workers(o, batches.size());
    for (Worker& worker : workers_) {
        worker.request = request;
        worker.prompt.reset();
        worker.n_encoded = 0;
    }
    std::vector<fs::path> files;
    OrderedWork work(batches.size(), std::min(workers_.size(), batches.size()));
    work.run([&](size_t w, size_t i) {
        Worker& worker = workers_[w];
        const Batch& batch = batches[i];
        // Steps are shown of the picture that is written next.
        const auto show = [&](const Step& step, const std::string& count) {
            if (work.is_next(i)) {
                display_.step(step, count);
                if (step.preview != nullptr && !o.preview.empty()) {
                    save_preview(o.preview, *step.preview);
                }
            }
            return !work.is_useless(i);
        };
        take_prompt(worker, o, prompts, batch.prompt,
                    [&](const Step& step) { return show(step, ""); });
        worker.options.model.load.device = devices_[w];
        worker.request.seed = batch.seed;
        const auto keep_picture = [&](Result result) {
            Request made = worker.request;
            made.seed = result.seed;
            const nlohmann::json facts =
                picture_facts(worker.options, files_, hashes_, worker.pipeline, made, result);
            work.hand_over(
                i, [this, &files, options = worker.options, facts, kept = std::move(result)] {
                    files.push_back(keep(options, kept, facts));
                });
        };
        worker.pipeline.generate_several(worker.request, batch.n, keep_picture,
                                         [&](const Step& step) { return show(step, batch.count); });
    });
    return files;
}

// Makes the worker's request one for this prompt. Encodes it, and with it the next prompts that
// have the same adapters and references, when there are several.
void PictureMaker::take_prompt(Worker& worker, const GenerateOptions& o,
                               const std::vector<AdaptedPrompt>& prompts, size_t i,
                               const Shows& show) {
    if (worker.prompt == i) {
        return;
    }
    apply_prompt(prompts[i], o, worker.request);
    worker.options = with_references_of(prompts[i], o);
    for (const Adapter& adapter : worker.request.adapters) {
        hashes_.add(adapter.file);
    }
    if (prompts.size() > 1 && i >= worker.n_encoded) {
        std::vector<std::string> texts;
        while (texts.size() < std::max(kFirstPrompts, i) && i + texts.size() < prompts.size() &&
               encoded_alike(prompts[i + texts.size()], prompts[i])) {
            texts.push_back(prompts[i + texts.size()].text);
        }
        worker.n_encoded = i + worker.pipeline.encode_prompts(worker.request, texts, show);
    }
    worker.request.prompt = prompts[i].text;
    worker.prompt = i;
}

fs::path PictureMaker::keep(const GenerateOptions& o, const Result& result,
                            const nlohmann::json& facts) {
    for (const std::string& line : other_model_files(o, facts)) {
        display_.message(LogLevel::warning, line);
    }
    const fs::path file = save(result, picture_texts(facts));
    display_.picture(file, result, facts);
    return file;
}

fs::path PictureMaker::save(const Result& result, const std::vector<ImageText>& texts) {
    for (;;) {
        const fs::path file = names_.next(result.seed);
        const bool saved = when_writable(file, [&] {
            if (names_.keeps_existing()) {
                return save_new_image(file, result.image, texts);
            }
            save_image(file, result.image, texts);
            return true;
        });
        if (saved) {
            return file;
        }
    }
}

int generate(int argc, char** argv) {
    return telling_errors(argc, argv, [&] {
        cxxopts::Options options = describe_options("flux2", "");
        add_settings_options(options);
        const auto args = parse_arguments(options, argc, argv);
        if (args.count("help") > 0) {
            std::cout << help_of(options) << "\nflux2 help lists the other commands.\n";
            return 0;
        }
        check_no_leftovers(args);
        GenerateOptions o;
        naming_places(options, argc, argv, [&] { read_generate_options(args, o); });
        return run(o);
    });
}

int redo(int argc, char** argv) {
    return telling_errors(argc, argv, [&] {
        cxxopts::Options options = describe_options("flux2 redo", "PICTURE ");
        options.add_options()("picture", "", cxxopts::value<std::string>());
        options.parse_positional({"picture"});
        options.positional_help("");  // the usage line shows it first
        const auto args = parse_arguments(options, argc, argv);
        if (args.count("help") > 0) {
            std::cout << "Makes a picture again from the settings stored in it; options change "
                         "them.\n"
                      << help_of(options);
            return 0;
        }
        check_no_leftovers(args);
        check(args.count("picture") > 0, ErrorKind::bad_argument,
              "which picture? flux2 redo PICTURE.png [changes]");
        const fs::path picture = args["picture"].as<std::string>();
        GenerateOptions o = options_of_picture(picture);
        read_generate_options(args, o);
        check(!o.model.folder.empty() || !o.model.files.transformer.empty() ||
                  o.model.hub.names_any(),
              ErrorKind::bad_file, picture.string(), ": its settings name no transformer",
              o.stored_model.empty() ? "" : " file, only the model '" + o.stored_model + "'",
              "; add -m FOLDER");
        check_adapters_of(picture, o);
        return run(o);
    });
}

}  // namespace flux2::cli
