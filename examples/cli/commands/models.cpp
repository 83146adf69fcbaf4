#include "commands/models.hpp"

#include "base/check.hpp"
#include "base/parse_arguments.hpp"
#include "base/ram.hpp"
#include "base/text_stream.hpp"
#include "common/closest_names.hpp"
#include "common/model_store.hpp"
#include "common/options.hpp"

#include <flux2/device.hpp>

#include <cxxopts.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

namespace flux2::cli {
namespace {

// What is told about a model in one type.
struct ListedModel {
    NamedModel model;
    int n_here = 0;  // of its three files
    std::optional<uint64_t> bytes;
    std::optional<bool> fits;
};

std::optional<uint64_t> total_bytes(const NamedModel& model) {
    uint64_t sum = 0;
    for (const TableFile& file : model.files()) {
        if (!file.bytes) {
            return std::nullopt;
        }
        sum += *file.bytes;
    }
    return sum;
}

// The memory that parts can be in, one after another: the largest of this machine's.
uint64_t largest_memory() {
    uint64_t most = available_ram_bytes();
    for (const DeviceInfo& device : list_devices()) {
        most = std::max<uint64_t>(most, device.free_bytes);
    }
    return most;
}

ListedModel describe(const ModelStore& store, const NamedModel& model, uint64_t memory) {
    ListedModel listed = {model, 0, total_bytes(model), std::nullopt};
    for (const TableFile& file : model.files()) {
        listed.n_here += store.find(file).empty() ? 0 : 1;
    }
    if (model.transformer.memory_gb && memory > 0) {
        constexpr double kBesides = 1.1;  // activations and the program itself
        listed.fits = *model.transformer.memory_gb * 1e9 * kBesides <= static_cast<double>(memory);
    }
    return listed;
}

std::string gate_text(const NamedModel& model) {
    for (const TableFile& file : model.files()) {
        if (file.gated.value_or(false)) {
            return ", gated: accept its licence first";
        }
    }
    return "";
}

void print(const ListedModel& listed) {
    const TableFile& transformer = listed.model.transformer;
    TextStream line;
    line << "  " << std::left << std::setw(8) << transformer.type << std::setw(10)
         << (listed.n_here == 3   ? "here"
             : listed.n_here == 0 ? "-"
                                  : "partly")
         << std::setw(10) << (listed.bytes ? readable_bytes(*listed.bytes) : "size ?");
    if (transformer.memory_gb) {
        line << "memory " << *transformer.memory_gb << " GB"
             << (!listed.fits   ? ""
                 : *listed.fits ? ", fits"
                                : ", too large for this machine");
    } else {
        line << "memory ?";
    }
    std::cout << line.str() << gate_text(listed.model) << "\n";
}

nlohmann::json to_json(const ListedModel& listed, const ModelStore& store) {
    nlohmann::json files = nlohmann::json::array();
    for (const TableFile& file : listed.model.files()) {
        nlohmann::json entry = {{"repository", file.repository},
                                {"file", file.path},
                                {"path", store.find(file).string()}};
        entry["bytes"] = file.bytes ? nlohmann::json(*file.bytes) : nlohmann::json();
        entry["sha256"] = file.sha256.empty() ? nlohmann::json() : nlohmann::json(file.sha256);
        entry["gated"] = file.gated ? nlohmann::json(*file.gated) : nlohmann::json();
        files.push_back(entry);
    }
    const TablePart& part = listed.model.model.transformer;
    return {{"name", listed.model.name()},
            {"licence", part.licence},
            {"licence_page", part.licence_page},
            {"here", listed.n_here == 3},
            {"files", files}};
}

void list_all(const ModelStore& store, bool as_json) {
    const uint64_t memory = largest_memory();
    nlohmann::json all = nlohmann::json::array();
    for (const TableModel& model : store.table().models) {
        if (!as_json) {
            std::cout << model.transformer.name << ": " << model.about << " ("
                      << model.transformer.licence << ")\n";
        }
        for (const TableFile& file : model.transformer.files) {
            const ListedModel listed = describe(store, with_partners(model, file), memory);
            all.push_back(to_json(listed, store));
            if (!as_json) {
                print(listed);
            }
        }
    }
    if (as_json) {
        std::cout << all.dump(2) << "\n";
        return;
    }
    std::cout << "flux2 pull NAME:TYPE fetches one, and so does flux2 -m NAME:TYPE; without a type "
                 "the first.\nSizes are those of all three parts; the largest of them must fit "
                 "into memory.\nCache: "
              << store.cache().folder().string() << "\n";
}

}  // namespace

int models(int argc, char** argv) {
    cxxopts::Options options("flux2 models",
                             "Lists the models that can be named: what is here, what exists.\n");
    options.add_options()                                  //
        ("json", "print one JSON array instead of lines")  //
        ("h,help", "print this help");
    const auto args = parse_arguments(options, argc, argv);
    if (args.count("help") > 0) {
        std::cout << options.help();
        return 0;
    }
    check_no_leftovers(args);
    list_all(ModelStore({}), args.count("json") > 0);
    return 0;
}

int remove_models(int argc, char** argv) {
    cxxopts::Options options(
        "flux2 rm",
        "Deletes fetched models from the cache of the Hub, except files that\n"
        "other models here need. Programs that share the cache lose them too.\n");
    options.add_options()  //
        ("names", "models as flux2 models lists them, such as klein-4b:Q4_K_M",
         cxxopts::value<std::vector<std::string>>())  //
        ("h,help", "print this help");
    options.parse_positional("names");
    options.positional_help("NAME[:TYPE]...");
    const auto args = parse_arguments(options, argc, argv);
    if (args.count("help") > 0) {
        std::cout << options.help();
        return 0;
    }
    check(args.count("names") > 0, ErrorKind::bad_argument,
          "which model? flux2 rm klein-4b; flux2 models lists what is here");
    ModelStore store({});
    for (const std::string& name : args["names"].as<std::vector<std::string>>()) {
        const auto model = find_named_model(store.table(), name);
        check(model.has_value(), ErrorKind::bad_argument, "there is no model '", name,
              "'; flux2 models lists them", closest_names(name, store.table().names()));
        check(!model->model.is_bundled, ErrorKind::bad_argument, name,
              " comes with the programs and cannot be deleted");
        std::vector<std::string> removed;
        const uint64_t freed = store.remove(*model, removed);
        for (const std::string& file : removed) {
            std::cout << "deleted " << file << "\n";
        }
        std::cout << model->name() << ": " << readable_bytes(freed) << " freed\n";
    }
    return 0;
}

}  // namespace flux2::cli
