// Command-line options: the tables of options, and their values as structs.
#pragma once

#include <flux2/flux2.hpp>
#include "base/parse_number.hpp"
#include "common/edit_options.hpp"
#include "common/reference_options.hpp"

#include <cxxopts.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace flux2::cli {

// Parts that are fetched from the Hugging Face Hub.
struct HubOptions {
    // "owner/name", "owner/name:TYPE" or "owner/name:FILE"; empty: not asked for.
    std::string transformer, text_encoder, vae;
    bool offline = false;  // use what is here

    bool names_any() const { return !transformer.empty() || !text_encoder.empty() || !vae.empty(); }
};

// Which model, where and how.
struct ModelOptions {
    // -m: a folder, or the name of a model; files named below replace those found in it.
    std::filesystem::path folder;
    ModelFiles files;
    HubOptions hub;
    LoadOptions load;
};

enum class OutputStyle { text, quiet, json };

// What a run says about its adapters; values that are not given leave an adapter's own.
struct AdapterFilters {
    std::optional<std::string> include, exclude, block_strengths;
};

// Everything about a run that makes pictures.
struct GenerateOptions {
    ModelOptions model;
    std::optional<std::string> prompt;  // unset: an interactive session
    std::filesystem::path prompt_file;
    Request request;                                // without prompt and pictures
    std::vector<std::filesystem::path> references;  // their roles are in the request
    std::filesystem::path reference_library;        // of the pictures that @name in prompts means
    std::filesystem::path init;
    std::optional<float> strength;
    EditOptions edit;
    Alpha alpha = Alpha::drop;
    std::filesystem::path lora_folder;  // of the adapters that tags in prompts name
    AdapterFilters adapter_filters;     // already set in the request's adapters
    int batch_count = 1;
    int batch_size = 1;  // of them in one pass
    std::string output = "output.png";
    bool overwrite = false;  // numbers begin at 1 and existing files are replaced
    std::filesystem::path preview;
    OutputStyle style = OutputStyle::text;
    bool verbose = false;
    // For redo: the stored SHA-256 of the model files, by part, and of adapters, by file.
    std::map<std::string, std::string> stored_hashes = {};
    std::map<std::string, std::string> stored_adapter_hashes = {};
    // For redo of another program's picture: the model it names, and settings that are not used.
    std::string stored_model = {};
    std::vector<std::string> not_repeated = {};
};

// Tables of options, each a group of its own in --help.
void add_model_options(cxxopts::Options& options);
void add_generate_options(cxxopts::Options& options);
// For programs that read the user's file of settings: --preset.
void add_settings_options(cxxopts::Options& options);
// Their help, groups in the order in which users need them.
std::string help_of(const cxxopts::Options& options);

// Values that are given replace those already there; the others stay. Throw bad_argument.
void read_model_options(const cxxopts::ParseResult& args, ModelOptions& model);
void read_generate_options(const cxxopts::ParseResult& args, GenerateOptions& options);

// Refuses arguments that belong to no option, mostly a prompt without quotes.
void check_no_leftovers(const cxxopts::ParseResult& args);

// The option for a setting that messages of the library name; that of flux2-convert for its
// settings.
const char* option_of(Setting setting);
// A text of the library with settings replaced by option names.
std::string in_options(const std::string& text);

// Replaces the references and their roles.
void set_references(const std::vector<ReferenceFile>& references, GenerateOptions& options);

// "FILE" or "FILE:0.8" (base/file_and_strength). Throws bad_argument.
Adapter parse_adapter(const std::string& text);
// Replaces what is given in the filters.
void apply_filters(const AdapterFilters& filters, Adapter& adapter);

// "1,0.9,0.7,0"
std::vector<float> parse_floats(const std::string& text);
// "0,0.5", as `name` is given it. Throws bad_argument; the numbers are checked by the library.
GuidanceInterval parse_interval(const std::string& name, const std::string& text);
// Throws bad_argument.
uint64_t parse_seed(const std::string& text);

}  // namespace flux2::cli
