#include "commands/pull.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/parse_arguments.hpp"
#include "base/run_program.hpp"
#include "base/system.hpp"
#include "common/cancel.hpp"
#include "common/closest_names.hpp"
#include "common/model_store.hpp"
#include "common/option_values.hpp"

#include <cxxopts.hpp>

#include <iostream>
#include <string>
#include <vector>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;

struct PullOptions {
    std::vector<std::string> names;         // of the table
    std::vector<std::string> repositories;  // "owner/name:what"
    StoreOptions store;
    std::string convert_to;  // a type; empty: nothing is converted
    fs::path output;         // of the converted model; empty: the user's own folder
    bool only_result = false;
};

cxxopts::Options describe() {
    cxxopts::Options options("flux2 pull",
                             "Fetches models from the Hugging Face Hub into the cache that other\n"
                             "programs share. A download that was interrupted is continued.\n");
    options.add_options()  //
        ("names", "models as flux2 models lists them, such as klein-4b or klein-9b:Q8_0",
         cxxopts::value<std::vector<std::string>>())  //
        ("hf-repo", "-hf: a file of a repository, OWNER/NAME[:TYPE or FILE] (repeatable)",
         cxxopts::value<std::vector<std::string>>())                                       //
        ("update", "ask whether there are newer files; without it, what is here is used")  //
        ("convert", "make files of this type with flux2-convert, such as Q4_K_M", text())  //
        ("o,output", "folder for what --convert makes (default: where -m NAME:TYPE finds it)",
         text())                                                                      //
        ("only-result", "with --convert: delete the fetched files that it replaces")  //
        ("connections", "for one large file, 1 to 16 (default 4)", text())            //
        ("q,quiet", "only errors and the files' names")                               //
        ("h,help", "print this help");
    options.parse_positional("names");
    options.positional_help("NAME[:TYPE]...");
    return options;
}

PullOptions read(const cxxopts::ParseResult& args) {
    PullOptions o;
    if (args.count("names") > 0) {
        o.names = args["names"].as<std::vector<std::string>>();
    }
    if (args.count("hf-repo") > 0) {
        o.repositories = args["hf-repo"].as<std::vector<std::string>>();
    }
    check(!o.names.empty() || !o.repositories.empty(), ErrorKind::bad_argument,
          "which model? flux2 pull klein-4b, or flux2 pull -hf OWNER/NAME:TYPE; flux2 models lists "
          "names");
    o.store.tell = lines_on_stderr(args.count("quiet") > 0);
    o.store.asks_newer = args.count("update") > 0;
    read_int(args, "connections", o.store.connections);
    check(o.store.connections >= 0 && o.store.connections <= 16 &&
              (args.count("connections") == 0 || o.store.connections > 0),
          ErrorKind::bad_argument, "--connections ", o.store.connections,
          " is out of range; use 1 to 16");
    read_text(args, "convert", o.convert_to);
    read_path(args, "output", o.output);
    o.only_result = args.count("only-result") > 0;
    check(
        !o.convert_to.empty() || (o.output.empty() && !o.only_result), ErrorKind::bad_argument,
        "--output and --only-result go with --convert TYPE; fetched files are in the cache of the "
        "Hub");
    check(o.convert_to.empty() || o.repositories.empty(), ErrorKind::bad_argument,
          "--convert takes models by name; for files of a repository run flux2-convert");
    check(o.output.empty() || o.names.size() == 1, ErrorKind::bad_argument,
          "--output takes one model at a time");
    return o;
}

NamedModel named(const ModelStore& store, const std::string& text, const std::string& convert_to) {
    // What is converted is taken in the best type that is published.
    const bool has_type = text.find(':') != std::string::npos;
    const TableModel* model = store.table().find(text.substr(0, text.find(':')));
    check(model != nullptr, ErrorKind::bad_argument, "there is no model '", text,
          "'; flux2 models lists them", closest_names(text, store.table().names()));
    const bool wants_original = !convert_to.empty() && !has_type && !model->is_bundled &&
                                file_of_type(model->transformer, "BF16") != nullptr;
    return *find_named_model(store.table(), wants_original ? text + ":BF16" : text);
}

// Makes a folder with the parts of a model in this type, and returns it.
fs::path convert(const NamedModel& model, const ModelFiles& files, const PullOptions& o) {
    const std::string name = model.model.transformer.name;
    const fs::path folder =
        !o.output.empty() ? o.output : ModelStore::converted_folder(name, o.convert_to);
    check(!folder.empty(), ErrorKind::bad_argument,
          "the system names no folder of the user; name one with --output FOLDER");
    const fs::path program = program_folder() / "flux2-convert";
    make_folders(folder);
    const auto run = [&](const fs::path& from, const std::string& to,
                         const std::vector<std::string>& more) {
        std::vector<std::string> arguments = {from.string(), "-o", (folder / to).string()};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const int code = run_program(program, arguments);
        check(code != exit_code(ErrorKind::cancelled), ErrorKind::cancelled, "cancelled");
        check(code == 0, ErrorKind::bad_file, "flux2-convert ended with code ", code,
              "; the fetched files are still here");
    };
    run(files.transformer, name + "-" + o.convert_to + ".gguf", {"--type", o.convert_to});
    run(files.text_encoder, model.model.text_encoder.name + "-" + o.convert_to + ".gguf",
        {"--type", o.convert_to, "--trim"});
    run(files.vae, "vae.gguf", {});
    return folder;
}

void pull_model(ModelStore& store, const std::string& text, const PullOptions& o) {
    const NamedModel model = named(store, text, o.convert_to);
    if (model.model.is_bundled) {
        std::cout << model.name() << " comes with the programs\n";
        return;
    }
    const ModelFiles files = store.fetch(model, {});
    if (o.convert_to.empty()) {
        for (const fs::path& file : {files.transformer, files.text_encoder, files.vae}) {
            std::cout << file.string() << "\n";
        }
        std::cerr << "next: flux2 -m " << model.name() << " -p \"a red house by the sea\"\n";
        return;
    }
    const fs::path folder = convert(model, files, o);
    if (o.only_result) {
        std::vector<std::string> removed;
        store.remove(model, removed);
    }
    std::cout << folder.string() << "\n";
    std::cerr << "next: flux2 -m "
              << (o.output.empty() ? model.model.transformer.name + ":" + o.convert_to
                                   : folder.string())
              << " -p \"a red house by the sea\"\n";
}

}  // namespace

int pull(int argc, char** argv) {
    cxxopts::Options options = describe();
    const auto args = parse_arguments(options, argc, argv);
    if (args.count("help") > 0) {
        std::cout << options.help();
        return 0;
    }
    const PullOptions o = read(args);
    cancel_on_signals();
    ModelStore store(o.store);
    for (const std::string& name : o.names) {
        pull_model(store, name, o);
    }
    for (const std::string& repository : o.repositories) {
        std::cout << store.fetch(repository).string() << "\n";
    }
    return 0;
}

}  // namespace flux2::cli
