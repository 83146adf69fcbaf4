#include "convert_options.hpp"

#include "base/byte_size.hpp"
#include "base/check.hpp"
#include "base/image_limits.hpp"
#include "base/parse_number.hpp"
#include "base/system.hpp"
#include "inputs.hpp"
#include "merge.hpp"

#include <algorithm>

namespace flux2::convert {
namespace {

namespace fs = std::filesystem;

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
        return logical_cores();
    }
    const int n_threads = int_option(args, "threads");
    check(n_threads >= 1 && n_threads <= 1024, ErrorKind::bad_argument, "--threads ", n_threads,
          " is out of range; 1 to 1024 make sense");
    return n_threads;
}

}  // namespace

cxxopts::Options describe_convert_options() {
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

ConvertOptions read_convert_options(const cxxopts::ParseResult& args) {
    ConvertOptions options;
    options.types = read_types(args);
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
    if (args.count("rank") > 0) {
        options.rank = int_option(args, "rank");
        check(options.rank >= 1 && options.rank <= 4096, ErrorKind::bad_argument, "--rank ",
              options.rank, " is out of range; use 1 to 4096");
    }
    return options;
}

}  // namespace flux2::convert
