#include "jobs/model_pool.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "base/system.hpp"
#include "common/model_choice.hpp"

#include <algorithm>
#include <utility>

namespace flux2::server {
namespace {

namespace fs = std::filesystem;

// The folder of -m, else the transformer's file.
std::string name_of(const cli::ModelOptions& options, const ModelFiles& files) {
    const fs::path folder =
        full_path(options.folder.empty() ? cli::bundled_model() : options.folder);
    const bool from_folder = !options.folder.empty() ||
                             (options.files.transformer.empty() && options.hub.transformer.empty());
    if (!from_folder) {
        return files.transformer.stem().string();
    }
    return folder.has_filename() ? folder.filename().string()
                                 : folder.parent_path().filename().string();
}

std::vector<fs::path> folders_in(const fs::path& folder) {
    std::vector<fs::path> folders;
    std::error_code problem;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, problem)) {
        if (entry.is_directory(problem)) {
            folders.push_back(entry.path());
        }
    }
    check(!problem, ErrorKind::bad_file, folder.string(), ": cannot be read: ", problem.message(),
          "; --models-dir takes a folder of models");
    std::sort(folders.begin(), folders.end());
    return folders;
}

// Replaces every occurrence.
void replace_all(std::string& text, const std::string& from, const std::string& to) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
        text.replace(at, from.size(), to);
        at += to.size();
    }
}

// Whether an absolute path can begin at this place of a sentence.
bool begins_path(const std::string& text, size_t at) {
    constexpr std::string_view kBefore = " '\"(:=,`\n";
    return text[at] == '/' && (at == 0 || kBefore.find(text[at - 1]) != std::string_view::npos) &&
           at + 1 < text.size() && text[at + 1] != ' ';
}

}  // namespace

ModelPool::ModelPool(const cli::ModelOptions& options, const fs::path& models_folder,
                     const cli::LineSink& tell)
    : load_(options.load) {
    const bool names_a_model =
        !options.folder.empty() || !options.files.transformer.empty() || options.hub.names_any();
    if (names_a_model || models_folder.empty()) {
        const ModelFiles files = cli::choose_files(options, tell);
        add(name_of(options, files), files);
    }
    if (!models_folder.empty()) {
        for (const fs::path& folder : folders_in(models_folder)) {
            const std::string name = folder.filename().string();
            try {
                if (find(name) == nullptr) {  // else it is the one of -m
                    add(name, find_model(folder, options.load.variant).files);
                }
            } catch (const Error& error) {
                log(LogLevel::warning, concat("left out: ", error.what()));
            }
        }
    }
    check(!entries_.empty(), ErrorKind::bad_file, models_folder.string(),
          ": none of its folders holds a model that can be used; name one with -m FOLDER");
    for (const fs::path& folder :
         {options.folder, models_folder, load_.cache_folder, cli::bundled_model()}) {
        if (!folder.empty()) {
            folders_.push_back(folder);
            folders_.push_back(full_path(folder));
        }
    }
}

void ModelPool::add(const std::string& name, const ModelFiles& files) {
    // Refuses parts that are missing or do not fit together.
    const Pipeline opened = Pipeline::load(files, load_);
    entries_.push_back({name, files, opened.model(),
                        std::make_unique<cli::ModelHashes>(files, load_.cache_folder)});
}

const ModelEntry* ModelPool::find(const std::string& name) const {
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const ModelEntry& entry) {
        return name.empty() || entry.name == name;
    });
    return found == entries_.end() ? nullptr : &*found;
}

std::string ModelPool::hash(const ModelEntry& entry) const {
    return entry.hashes->find(entry.files.transformer);
}

std::string ModelPool::without_folders(const std::string& text) const {
    std::string found = text;
    for (const fs::path& folder : folders_) {
        replace_all(found, (folder / "").string(), "");
        replace_all(found, folder.string(), folder.filename().string());
    }
    std::string result;
    for (size_t at = 0; at < found.size();) {
        if (!begins_path(found, at)) {
            result += found[at++];
            continue;
        }
        const size_t end = std::min(found.find_first_of(" '\"(),;`\n", at), found.size());
        const size_t name = found.rfind('/', end - 1) + 1;
        result += found.substr(name, end - name);
        at = end;
    }
    return result;
}

OpenModel::OpenModel(const ModelPool& pool, std::string device)
    : pool_(pool), device_(std::move(device)) {}

Pipeline& OpenModel::open(const ModelEntry& entry) {
    if (name() != entry.name || !pipeline_) {
        close();
        LoadOptions options = pool_.load_options();
        options.device = device_;
        pipeline_ = Pipeline::load(entry.files, options);
        const std::lock_guard lock(mutex_);
        name_ = entry.name;
    }
    return *pipeline_;
}

void OpenModel::close() {
    {
        const std::lock_guard lock(mutex_);
        name_.clear();
    }
    if (pipeline_) {
        pipeline_.reset();
        return_unused_memory();
    }
}

std::string OpenModel::name() const {
    const std::lock_guard lock(mutex_);
    return name_;
}

}  // namespace flux2::server
