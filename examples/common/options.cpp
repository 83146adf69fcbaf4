#include "common/options.hpp"

#include "base/byte_size.hpp"
#include "base/check.hpp"
#include "base/file.hpp"
#include "base/file_and_strength.hpp"
#include "common/option_values.hpp"
#include "common/user_folders.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

namespace flux2::cli {

namespace fs = std::filesystem;

void add_model_options(cxxopts::Options& options) {
    options.add_options("Model")  //
        ("m,model",
         "folder with transformer, text encoder and autoencoder, or a name such as klein-4b or "
         "klein-4b:Q8_0 that flux2 models lists (default: the bundled toy)",
         text())                                                                              //
        ("diffusion-model", "transformer, GGUF or safetensors", text())                       //
        ("llm,text-encoder", "text encoder: Qwen3 or Mistral Small", text())                  //
        ("vae", "autoencoder", text())                                                        //
        ("taesd", "TAEF2, the tiny autoencoder: previews, and fast, rough pictures", text())  //
        ("hf-repo",
         "-hf: transformer from the Hugging Face Hub, OWNER/NAME[:TYPE or FILE]; what goes with it "
         "is fetched too where it is known",
         text())                                                                     //
        ("hf-text-encoder", "text encoder from the Hub, in the same form", text())   //
        ("hf-vae", "autoencoder from the Hub, in the same form", text())             //
        ("offline", "download nothing; use what is here")                            //
        ("taesd-preview-only", "leave the picture itself to the autoencoder")        //
        ("variant", "klein, base, kv or dev, where the file does not tell", text())  //
        ("type", "type of the matrices in memory, such as Q8_0 (default: the file's)",
         text())  //
        ("device",
         "CPU, CUDA0, ... (see flux2 devices); default: the first GPU. Several with commas: of "
         "many "
         "pictures each device draws some",
         text())  //
        ("rpc",
         "devices RPC0, ... of other machines: HOST:PORT of each flux2-rpc-server, with commas "
         "between them",
         text())                                                                         //
        ("device-diffusion", "device of the transformer, in place of --device", text())  //
        ("split",
         "transformer's blocks on several devices: auto, or proportions such as 2,1; with "
         "--device-diffusion RPC0,RPC1 on these, else on all GPUs, then the CPU",
         text())                                                        //
        ("device-llm", "device of the text encoder, likewise", text())  //
        ("device-vae", "device of the autoencoder, likewise", text())   //
        ("type-diffusion", "type of the transformer's matrices, in place of --type",
         text())                                                               //
        ("type-llm", "type of the text encoder's matrices, likewise", text())  //
        ("type-vae", "type of the autoencoder's matrices, likewise", text())   //
        ("t,threads", "CPU threads (default: one per physical core)", text())  //
        ("max-vram",
         "device memory to use at most, such as 4G; weights that do not fit are "
         "streamed from RAM",
         text())                                                                         //
        ("no-repack", "CPU: leave matrices in the mapped file; slower, needs less RAM")  //
        ("no-unpack",
         "H100, H200: keep quantised matrices as they are; slower, needs less memory")          //
        ("keep-loaded", "hold all parts in memory between pictures, if they fit together")      //
        ("cache", "folder for encoded prompts and pictures (default: the user's own)", text())  //
        ("no-cache", "keep nothing on disk");
}

void add_generate_options(cxxopts::Options& options) {
    options.add_options("Picture")                                                            //
        ("p,prompt", "what to draw", text())                                                  //
        ("prompt-file", "a prompt per line, a picture each; - reads standard input", text())  //
        ("n,negative-prompt", "what to keep out (base models, or with --cfg-scale)", text())  //
        ("W,width", "pixels, a multiple of 16 (default 1024)", text())                        //
        ("H,height", "pixels, a multiple of 16 (default 1024)", text())                       //
        ("fit", "round width and height to multiples of 16")                                  //
        ("steps", "denoising steps (default: the model's)", text())                           //
        ("g,guidance", "guidance (default: the model's)", text())                             //
        ("cfg-scale", "guidance by two passes; on other models than base it doubles the time",
         text())                                                                                  //
        ("cfg-interval", "share of the steps with two passes, FROM,UNTIL such as 0,0.5", text())  //
        ("s,seed", "a number; default: random", text())                                           //
        ("b,batch-count", "pictures per prompt, with seeds counting up", text())                  //
        ("batch-size", "how many of them in one pass; without -b also how many", text())          //
        ("r,ref-image",
         "reference picture, PNG, JPEG or WebP (repeatable); ROLE=FILE says what it is for: style, "
         "pose, depth, subject, face, composition, background, colours or outlines",
         cxxopts::value<std::vector<std::string>>())                                    //
        ("ref-library", "folder of the pictures that @NAME in a prompt means", text())  //
        ("ref-resolution",
         "pixels of each reference at most: full, 500000, or 768x768 (default: 2024x2024 for one, "
         "1024x1024 for several)",
         text())                                                                   //
        ("match-ref", "take the size of this reference, 1 for the first", text())  //
        ("i,init-img", "picture to start from", text())                            //
        ("strength", "how much to change it, above 0 to 1 (default 0.75; with a mask 1)",
         text())                                                                     //
        ("alpha", "transparency of pictures: drop or white (default drop)", text())  //
        ("sigmas", "own noise levels, such as 1,0.9,0.7,0", text())                  //
        ("text-length", "tokens of a prompt (default: the model's)", text())         //
        ("rng", "noise as torch draws it: cuda, cuda-f32, cpu, cpu-f32 (default cuda)",
         text())                                                     //
        ("noise", "safetensors file with the tensor noise", text())  //
        ("embeds", "safetensors file with prompt_embeds and negative_prompt_embeds", text());
    add_edit_options(options);
    options.add_options("Adapters")  //
        ("lora", "LoRA to use, FILE or FILE:STRENGTH such as x.safetensors:0.8 (repeatable)",
         cxxopts::value<std::vector<std::string>>())  //
        ("lora-dir", "folder of the files that <lora:NAME:0.8> in a prompt names",
         text())  //
        ("lora-include", "use only modules whose names match this regular expression",
         text())                                                                        //
        ("lora-exclude", "leave out modules whose names match this one", text())        //
        ("lora-blocks", "factors for blocks, such as double=0.5,single.0-9=0", text())  //
        ("lora-strict", "refuse a LoRA file of which anything cannot be used");
    options.add_options("Output")  //
        ("o,output",
         "PNG, JPEG, WebP or BMP; {seed} and %03d (the next free number) are filled in (default "
         "output.png)",
         text())                                                                            //
        ("overwrite", "number pictures from 1 on and replace those that have the numbers")  //
        ("preview", "write the picture so far here after each step", text())                //
        ("json", "one event per line on standard output, for programs")                     //
        ("q,quiet", "only errors")                                                          //
        ("v,verbose", "more about what is done")                                            //
        ("h,help", "print this help");
}

void add_settings_options(cxxopts::Options& options) {
    options.add_options("Output")(
        "preset", "options under this name in the file of settings; see flux2 config", text());
}

std::string help_of(const cxxopts::Options& options) {
    return options.help({"Model", "Picture", "Editing", "Adapters", "Output"});
}

namespace {

// Of a picture that is made again: the device or type of all parts replaces those of single ones,
// and other devices of the transformer the way its blocks are shared.
void forget_replaced(const cxxopts::ParseResult& args, LoadOptions& load) {
    for (PartOptions* part : {&load.transformer, &load.text_encoder, &load.vae}) {
        if (args.count("device") > 0) {
            part->device.clear();
        }
        if (args.count("type") > 0) {
            part->type.clear();
        }
    }
    if (args.count("device") + args.count("device-diffusion") > 0) {
        load.split.clear();
    }
}

}  // namespace

void read_model_options(const cxxopts::ParseResult& args, ModelOptions& model) {
    if (args.count("model") + args.count("hf-repo") > 0) {
        model.files = {};  // those of a picture that is made again
    }
    read_path(args, "model", model.folder);
    read_text(args, "hf-repo", model.hub.transformer);
    read_text(args, "hf-text-encoder", model.hub.text_encoder);
    read_text(args, "hf-vae", model.hub.vae);
    model.hub.offline = model.hub.offline || args.count("offline") > 0;
    read_path(args, "diffusion-model", model.files.transformer);
    read_path(args, "llm", model.files.text_encoder);
    read_path(args, "vae", model.files.vae);
    read_path(args, "taesd", model.files.taesd);
    if (args.count("taesd-preview-only") > 0) {
        check(!model.files.taesd.empty(), ErrorKind::bad_argument,
              "--taesd-preview-only goes with a tiny autoencoder; add --taesd FILE");
        model.files.taesd_preview_only = true;
    }
    read_text(args, "variant", model.load.variant);
    read_text(args, "type", model.load.type);
    if (args.count("rpc") > 0) {
        add_servers(given(args, "rpc"));
    }
    forget_replaced(args, model.load);
    read_text(args, "device", model.load.device);
    const auto read_part = [&](const std::string& part, PartOptions& target) {
        read_text(args, ("device-" + part).c_str(), target.device);
        read_text(args, ("type-" + part).c_str(), target.type);
    };
    read_text(args, "split", model.load.split);
    read_part("diffusion", model.load.transformer);
    read_part("llm", model.load.text_encoder);
    read_part("vae", model.load.vae);
    read_int(args, "threads", model.load.threads);
    check(model.load.threads >= 0 && model.load.threads <= 512, ErrorKind::bad_argument,
          "--threads ", model.load.threads, " is out of range; 1 to 512 make sense");
    if (args.count("max-vram") > 0) {
        model.load.max_device_bytes =
            parse_bytes("--max-vram", given(args, "max-vram"), "amount of memory");
    }
    model.load.repack = model.load.repack && args.count("no-repack") == 0;
    model.load.unpack = model.load.unpack && args.count("no-unpack") == 0;
    model.load.keep_loaded = model.load.keep_loaded || args.count("keep-loaded") > 0;
    model.load.cache_folder = default_cache_folder();
    read_path(args, "cache", model.load.cache_folder);
    if (args.count("no-cache") > 0) {
        check(args.count("cache") == 0, ErrorKind::bad_argument,
              "--cache and --no-cache contradict each other; leave out one of them");
        model.load.cache_folder.clear();
    }
}

namespace {

Alpha parse_alpha(const std::string& text) {
    check(text == "drop" || text == "white", ErrorKind::bad_argument, "--alpha ", text,
          " is unknown; use drop or white");
    return text == "white" ? Alpha::white : Alpha::drop;
}

void read_guidance_options(const cxxopts::ParseResult& args, GenerateOptions& o) {
    // On base models both are one setting: the one that is given replaces what the picture that is
    // made again stores as the other.
    if (o.model.load.variant == "base" && args.count("guidance") + args.count("cfg-scale") == 1) {
        o.request.guidance.reset();
        o.request.cfg_scale.reset();
    }
    read_float(args, "guidance", o.request.guidance);
    read_float(args, "cfg-scale", o.request.cfg_scale);
    if (args.count("cfg-interval") > 0) {
        o.request.guidance_interval = parse_interval("--cfg-interval", given(args, "cfg-interval"));
    }
}

void read_picture_options(const cxxopts::ParseResult& args, GenerateOptions& o) {
    Request& request = o.request;
    read_text(args, "negative-prompt", request.negative_prompt);
    if (args.count("match-ref") > 0) {
        const int number = parse_int("--match-ref", given(args, "match-ref"));
        check(number >= 1, ErrorKind::bad_argument, "--match-ref ", number,
              " is no reference; the first one is 1");
        request.match_reference = static_cast<size_t>(number - 1);
        request.width.reset();  // those of a picture that is made again
        request.height.reset();
    }
    read_int(args, "width", request.width);
    read_int(args, "height", request.height);
    request.fit_size = request.fit_size || args.count("fit") > 0;
    // Of steps and noise levels, the one that is given replaces the other.
    if (args.count("steps") > 0) {
        request.sigmas.clear();
    } else if (args.count("sigmas") > 0) {
        request.steps.reset();
    }
    read_int(args, "steps", request.steps);
    if (args.count("sigmas") > 0) {
        request.sigmas = parse_floats(given(args, "sigmas"));
    }
    read_guidance_options(args, o);
    if (args.count("seed") > 0) {
        request.seed = parse_seed(given(args, "seed"));
    }
    read_int(args, "text-length", request.text_length);
    read_text(args, "rng", request.generator);
    read_path(args, "noise", request.noise_file);
    read_path(args, "embeds", request.embeds_file);
}

void read_adapter_options(const cxxopts::ParseResult& args, GenerateOptions& o) {
    if (args.count("lora") > 0) {
        o.request.adapters.clear();  // those of a picture that is made again
        for (const std::string& text : args["lora"].as<std::vector<std::string>>()) {
            o.request.adapters.push_back(parse_adapter(text));
        }
    }
    read_path(args, "lora-dir", o.lora_folder);
    check(o.lora_folder.empty() || is_folder(o.lora_folder), ErrorKind::bad_file,
          o.lora_folder.string(), ": no such folder; --lora-dir takes one with LoRA files");
    read_text(args, "lora-include", o.adapter_filters.include);
    read_text(args, "lora-exclude", o.adapter_filters.exclude);
    read_text(args, "lora-blocks", o.adapter_filters.block_strengths);
    for (Adapter& adapter : o.request.adapters) {
        apply_filters(o.adapter_filters, adapter);
    }
    o.request.strict_adapters = args.count("lora-strict") > 0;
    // A session can add adapters later.
    const bool is_session = !o.prompt && o.prompt_file.empty();
    const bool may_have_any = !o.request.adapters.empty() || !o.lora_folder.empty() || is_session;
    for (const char* name : {"lora-include", "lora-exclude", "lora-blocks", "lora-strict"}) {
        check(args.count(name) == 0 || may_have_any, ErrorKind::bad_argument, "--", name,
              " goes with a LoRA; add --lora FILE");
    }
}

void read_reference_options(const cxxopts::ParseResult& args, GenerateOptions& o) {
    if (args.count("ref-image") > 0) {
        std::vector<ReferenceFile> references;
        for (const std::string& text : args["ref-image"].as<std::vector<std::string>>()) {
            references.push_back(parse_reference(text));
        }
        set_references(references, o);
    }
    read_path(args, "ref-library", o.reference_library);
    check(o.reference_library.empty() || is_folder(o.reference_library), ErrorKind::bad_file,
          o.reference_library.string(),
          ": no such folder; --ref-library takes one with named pictures");
    if (args.count("ref-resolution") > 0) {
        o.request.reference_pixels =
            parse_reference_pixels("--ref-resolution", given(args, "ref-resolution"));
    }
}

}  // namespace

void read_generate_options(const cxxopts::ParseResult& args, GenerateOptions& o) {
    read_model_options(args, o.model);
    read_picture_options(args, o);
    check(args.count("prompt") == 0 || args.count("prompt-file") == 0, ErrorKind::bad_argument,
          "one of --prompt and --prompt-file is enough; leave out the other");
    read_text(args, "prompt", o.prompt);
    read_path(args, "prompt-file", o.prompt_file);
    read_adapter_options(args, o);
    read_reference_options(args, o);
    read_path(args, "init-img", o.init);
    check(args.count("strength") == 0 || !o.init.empty(), ErrorKind::bad_argument,
          "--strength goes with a picture to start from; add --init-img FILE");
    read_float(args, "strength", o.strength);
    read_edit_options(args, !o.init.empty(), o.edit);
    if (args.count("alpha") > 0) {
        o.alpha = parse_alpha(given(args, "alpha"));
    }
    read_int(args, "batch-count", o.batch_count);
    check(o.batch_count >= 1 && o.batch_count <= 10000, ErrorKind::bad_argument, "--batch-count ",
          o.batch_count, " is out of range; use 1 to 10000");
    read_int(args, "batch-size", o.batch_size);
    check(o.batch_size >= 1 && o.batch_size <= 64, ErrorKind::bad_argument, "--batch-size ",
          o.batch_size, " is out of range; use 1 to 64");
    if (args.count("batch-size") > 0 && args.count("batch-count") == 0) {
        o.batch_count = o.batch_size;
    }
    read_text(args, "output", o.output);
    check(!o.output.empty(), ErrorKind::bad_argument,
          "--output is given an empty name; name a file or leave it out");
    o.overwrite = o.overwrite || args.count("overwrite") > 0;
    read_path(args, "preview", o.preview);
    check(args.count("json") == 0 || args.count("quiet") == 0, ErrorKind::bad_argument,
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

const char* option_of(Setting setting) {
    switch (setting) {
        case Setting::transformer:
            return "--diffusion-model";
        case Setting::text_encoder:
            return "--llm";
        case Setting::vae:
            return "--vae";
        case Setting::taesd:
            return "--taesd";
        case Setting::folder:
            return "-m";
        case Setting::device:
            return "--device";
        case Setting::type:
            return "--type";
        case Setting::variant:
            return "--variant";
        case Setting::cache_folder:
            return "--no-cache";  // messages say to leave this setting empty
        case Setting::split:
            return "--split";
        case Setting::fit_size:
            return "--fit";
        case Setting::init:
            return "--init-img";
        case Setting::inpaint_area:
            return "--inpaint-area";
        case Setting::mask_invert:
            return "--mask-invert";
        case Setting::reference_pixels:
            return "--ref-resolution";
        case Setting::adapters:
            return "--lora";
        case Setting::cfg_scale:
            return "--cfg-scale";
        case Setting::alpha:
            return "--alpha";
        case Setting::tokenizer:
            return "--tokenizer";
    }
    return to_string(setting);
}

std::string in_options(const std::string& text) {
    return worded(text, option_of);
}

void set_references(const std::vector<ReferenceFile>& references, GenerateOptions& o) {
    o.references.clear();
    o.request.reference_roles.clear();
    for (const ReferenceFile& reference : references) {
        o.references.push_back(reference.file);
        o.request.reference_roles.push_back(reference.role);
    }
}

Adapter parse_adapter(const std::string& text) {
    const FileAndStrength parsed = parse_file_and_strength("--lora", text);
    Adapter adapter;
    adapter.file = parsed.file;
    adapter.strength = parsed.strength;
    return adapter;
}

void apply_filters(const AdapterFilters& filters, Adapter& adapter) {
    adapter.include = filters.include.value_or(adapter.include);
    adapter.exclude = filters.exclude.value_or(adapter.exclude);
    adapter.block_strengths = filters.block_strengths.value_or(adapter.block_strengths);
}

std::vector<float> parse_floats(const std::string& text) {
    check(!text.empty(), ErrorKind::bad_argument,
          "an empty list of noise levels; use numbers such as 1,0.9,0.7,0");
    std::vector<float> values;
    for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find(',', begin), text.size());
        values.push_back(
            parse_float("a list such as 1,0.9,0.7,0", text.substr(begin, end - begin)));
        begin = end + 1;
    }
    return values;
}

GuidanceInterval parse_interval(const std::string& name, const std::string& text) {
    const size_t comma = text.find(',');
    check(comma != std::string::npos, ErrorKind::bad_argument, name, " '", text,
          "' has one number, expected two: FROM,UNTIL such as 0,0.5");
    return {parse_float(name, text.substr(0, comma)), parse_float(name, text.substr(comma + 1))};
}

uint64_t parse_seed(const std::string& text) {
    constexpr size_t kMaxDigits = 19;
    check(!text.empty() && text.size() <= kMaxDigits &&
              text.find_first_not_of("0123456789") == std::string::npos,
          ErrorKind::bad_argument, "a seed is a number from 0 to 9999999999999999999, not '", text,
          "'; leave it out for a random one");
    return std::stoull(text);
}

}  // namespace flux2::cli
