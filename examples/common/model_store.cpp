#include "common/model_store.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "common/cancel.hpp"
#include "common/hub_reference.hpp"
#include "common/user_folders.hpp"
#include "downloads/fetch_file.hpp"
#include "downloads/hub_settings.hpp"

#include <cstdlib>
#include <set>
#include <span>
#include <system_error>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxShownBytes = 1 << 20;

hub::HubSettings settings_for(const StoreOptions& options) {
    hub::HubSettings settings = hub::read_hub_settings();
    if (options.offline) {
        settings.offline_reason = "--offline is given";
    }
    if (options.connections > 0) {
        settings.connections = options.connections;
    }
    settings.http.cancel = &cancel_requested;
    return settings;
}

hub::FileName name_of(const TableFile& file) {
    return {file.repository, file.path};
}

// The file that a variable of the authors' program names; empty when it is not set.
fs::path named_by_variable(const TablePart& part) {
    const char* value =
        part.path_variable.empty() ? nullptr : std::getenv(part.path_variable.c_str());
    if (value == nullptr || *value == '\0') {
        return {};
    }
    check(file_exists(value), ErrorKind::bad_file, part.path_variable, " names ", value,
          ", and there is no such file; correct it or unset it");
    return value;
}

// Remembers that a licence was shown; returns whether it had been before.
bool was_shown(const std::string& licence) {
    const fs::path folder = default_cache_folder();
    if (folder.empty()) {
        return false;
    }
    const fs::path file = folder / "licences-shown";
    std::string shown;
    std::error_code ignored;
    if (fs::is_regular_file(file, ignored) && fs::file_size(file, ignored) <= kMaxShownBytes) {
        shown = read_text_file(file, kMaxShownBytes);
    }
    if (("\n" + shown).find("\n" + licence + "\n") != std::string::npos) {
        return true;
    }
    shown += licence + "\n";
    make_folders(folder);
    write_whole_file(file, std::as_bytes(std::span(shown)));
    return false;
}

}  // namespace

ModelStore::ModelStore(const StoreOptions& options)
    : options_(options),
      table_(read_model_table()),
      client_(settings_for(options)),
      cache_(client_.settings().cache),
      display_(options.tell) {}

fs::path ModelStore::find(const TableFile& file) const {
    return cache_.find(name_of(file));
}

void ModelStore::show_licence(const std::string& what, const TablePart& part) const {
    if (!options_.tell || part.licence.empty() || was_shown(what + ": " + part.licence)) {
        return;
    }
    options_.tell(concat(what, " is under the licence ", part.licence,
                         part.licence_page.empty() ? "" : ": " + part.licence_page));
}

fs::path ModelStore::fetch_part(const TablePart& part, const TableFile& file) {
    const fs::path here = find(file);
    if (!here.empty() && !options_.asks_newer) {
        return here;
    }
    if (here.empty() && client_.settings().offline_reason.empty()) {
        show_licence(part.name, part);
    }
    const fs::path path = hub::fetch_file(
        client_, name_of(file), [&](const hub::FileProgress& progress) { display_.show(progress); },
        options_.asks_newer);
    return path;
}

ModelFiles ModelStore::fetch(const NamedModel& model, const ModelFiles& given) {
    ModelFiles files = given;
    const auto fill = [&](fs::path& file, const TablePart& part, const TableFile& entry) {
        if (file.empty()) {
            file = named_by_variable(part);
        }
        if (file.empty()) {
            file = fetch_part(part, entry);
        }
    };
    fill(files.transformer, model.model.transformer, model.transformer);
    fill(files.text_encoder, model.model.text_encoder, model.text_encoder);
    fill(files.vae, model.model.vae, model.vae);
    return files;
}

std::vector<std::string> ModelStore::names_in(const std::string& repository) {
    std::vector<std::string> names;
    for (const hub::ListedFile& file : client_.list(repository, "main")) {
        names.push_back(file.path);
    }
    return names;
}

fs::path ModelStore::fetch_all(const std::string& repository, const std::string& file,
                               const std::vector<std::string>& names) {
    const auto show = [&](const hub::FileProgress& progress) { display_.show(progress); };
    for (const std::string& other : companions_of(file, names)) {
        hub::fetch_file(client_, {repository, other}, show, options_.asks_newer);
    }
    return hub::fetch_file(client_, {repository, file}, show, options_.asks_newer);
}

fs::path ModelStore::fetch(const std::string& text) {
    const HubReference reference = parse_hub_reference(text);
    // What is here is used without a request, if it holds what is meant.
    const std::vector<std::string> here = cache_.files_of(reference.repository, "main");
    if (!options_.asks_newer && !here.empty()) {
        try {
            const std::string file = choose_hub_file(reference, here);
            const bool is_meant = !reference.what.empty() || here.size() == 1;
            if (is_meant || !client_.settings().offline_reason.empty()) {
                return cache_.find({reference.repository, file});
            }
        } catch (const Error&) {
            // The repository may have more files than are here.
        }
    }
    const std::vector<std::string> names = names_in(reference.repository);
    if (const TableModel* model = model_of_repository(table_, reference.repository)) {
        show_licence(model->transformer.name, model->transformer);
    }
    return fetch_all(reference.repository, choose_hub_file(reference, names), names);
}

uint64_t ModelStore::remove(const NamedModel& model, std::vector<std::string>& removed) {
    const auto key = [](const TableFile& file) { return file.repository + "/" + file.path; };
    std::set<std::string> needed;
    for (const TableModel& other : table_.models) {
        for (const TableFile& file : other.transformer.files) {
            const NamedModel candidate = with_partners(other, file);
            if (candidate.name() != model.name() && !find(file).empty()) {
                for (const TableFile& part : candidate.files()) {
                    needed.insert(key(part));
                }
            }
        }
    }
    uint64_t freed = 0;
    for (const TableFile& file : model.files()) {
        if (!find(file).empty() && !needed.contains(key(file))) {
            removed.push_back(file.repository + ": " + file.path);
            freed += cache_.remove(name_of(file));
        }
    }
    return freed;
}

fs::path ModelStore::converted_folder(const std::string& name, const std::string& type) {
    const fs::path folder = own_models_folder();
    return folder.empty() ? fs::path() : folder / (name + "-" + type);
}

std::string licence_of(const fs::path& file) {
    const hub::HubSettings settings = hub::read_hub_settings();
    if (settings.cache.empty()) {
        return "";
    }
    const std::string repository = hub::HubCache(settings.cache).repository_of(file);
    if (repository.empty()) {
        return "";
    }
    const std::string path = full_path(file).generic_string();
    const ModelTable table = read_model_table();
    for (const TableModel& model : table.models) {
        for (const TablePart& part : {model.transformer, model.text_encoder, model.vae}) {
            for (const TableFile& entry : part.files) {
                if (entry.repository == repository && path.ends_with("/" + entry.path)) {
                    return part.licence +
                           (part.licence_page.empty() ? "" : ", " + part.licence_page);
                }
            }
        }
    }
    return "";
}

}  // namespace flux2::cli
