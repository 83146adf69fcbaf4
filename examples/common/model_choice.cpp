#include "common/model_choice.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "common/closest_names.hpp"
#include "common/hub_reference.hpp"
#include "common/model_store.hpp"
#include "common/user_folders.hpp"

#include <string>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;

std::string file_name(const fs::path& path) {
    return path.empty() ? "none" : path.filename().string();
}

void tell_files(const std::string& name, const ModelFiles& files, const LineSink& tell) {
    if (tell) {
        tell(concat("model: ", name, ": ", file_name(files.transformer), ", ",
                    file_name(files.text_encoder), ", ", file_name(files.vae)));
    }
}

StoreOptions store_options(const ModelOptions& model, const LineSink& tell) {
    StoreOptions options;
    options.offline = model.hub.offline;
    options.tell = tell;
    return options;
}

// The folder of a model that was converted here under the name "klein-4b:Q5_K_M"; empty: none.
fs::path converted_model(const std::string& name) {
    const size_t colon = name.find(':');
    if (colon == std::string::npos) {
        return {};
    }
    const fs::path folder =
        ModelStore::converted_folder(name.substr(0, colon), name.substr(colon + 1));
    std::error_code ignored;
    return !folder.empty() && fs::is_directory(folder, ignored) ? folder : fs::path();
}

// Refuses a name that is neither of a model nor, by its slashes, of a folder.
void check_may_be_folder(const ModelTable& table, const std::string& text) {
    const bool is_path = text.find_first_of("/\\") != std::string::npos;
    check(is_path, ErrorKind::bad_file, text,
          ": no such folder, and no model of this name; flux2 models lists them",
          closest_names(text, table.names()));
}

// -hf and its kin as files.
ModelFiles files_of_hub(const ModelOptions& model, const LineSink& tell) {
    ModelStore store(store_options(model, tell));
    ModelFiles files = model.files;
    const auto fetch = [&](const std::string& reference, fs::path& file) {
        if (!reference.empty() && file.empty()) {
            file = store.fetch(reference);
        }
    };
    fetch(model.hub.transformer, files.transformer);
    fetch(model.hub.text_encoder, files.text_encoder);
    fetch(model.hub.vae, files.vae);
    if (model.hub.transformer.empty() || !model.folder.empty()) {
        return files;
    }
    const HubReference reference = parse_hub_reference(model.hub.transformer);
    if (const TableModel* known = model_of_repository(store.table(), reference.repository)) {
        const TableFile* of_type = file_of_type(known->transformer, reference.what);
        const TableFile& usual = known->transformer.files.front();
        files = store.fetch(with_partners(*known, of_type == nullptr ? usual : *of_type), files);
    }
    tell_files(model.hub.transformer, files, tell);
    return files;
}

}  // namespace

ModelFiles choose_files(const ModelOptions& model, const LineSink& tell) {
    if (model.hub.names_any()) {
        ModelOptions with_files = model;
        with_files.files = files_of_hub(model, tell);
        with_files.hub = {};
        return choose_files(with_files, tell);
    }
    const ModelFiles& named = model.files;
    const bool nothing_named = model.folder.empty() && named.transformer.empty() &&
                               named.text_encoder.empty() && named.vae.empty();
    fs::path folder = nothing_named ? bundled_model() : model.folder;
    if (folder.empty()) {
        return named;
    }
    if (!nothing_named && !file_exists(folder)) {
        const std::string text = model.folder.string();
        const fs::path converted = converted_model(text);
        const ModelTable table = read_model_table();
        const auto found = converted.empty() ? find_named_model(table, text) : std::nullopt;
        if (found && !found->model.is_bundled) {
            ModelStore store(store_options(model, tell));
            const ModelFiles files = store.fetch(*found, named);
            tell_files(found->name(), files, tell);
            return files;
        }
        if (!converted.empty()) {
            folder = converted;
        } else if (found) {
            folder = bundled_model();
        } else {
            check_may_be_folder(table, text);
        }
    }
    const FoundModel found = find_model(folder, model.load.variant, named);
    if (tell) {
        tell(concat(nothing_named ? "no model named (-m FOLDER), so the bundled toy: " : "model: ",
                    found.choice));
    }
    return found.files;
}

fs::path bundled_model() {
    return shared_file("models/tiny");
}

}  // namespace flux2::cli
