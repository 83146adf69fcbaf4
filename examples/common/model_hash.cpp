#include "common/model_hash.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "formats/json_file.hpp"
#include "formats/sha256.hpp"
#include "formats/tensor_source.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <mutex>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxMemoryBytes = 1 << 20;

// Empty when the file is missing or broken: that must not stop a run.
nlohmann::json read_memory(const fs::path& file) {
    std::error_code ignored;
    if (file.empty() || !fs::is_regular_file(file, ignored) ||
        fs::file_size(file, ignored) > kMaxMemoryBytes) {
        return nlohmann::json::object();
    }
    nlohmann::json memory = parse_json(read_text_file(file, kMaxMemoryBytes));
    return memory.is_object() ? memory : nlohmann::json::object();
}

void remember(const fs::path& file, const std::string& identity, const std::string& hash) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    nlohmann::json memory = read_memory(file);
    memory[identity] = hash;
    const std::string text = memory.dump(1);
    make_folders_for(file);
    write_whole_file(file, std::as_bytes(std::span(text)));
}

// Empty when it is not in the cache.
std::string recall(const fs::path& file, const std::string& identity) {
    try {
        return read_memory(file).value(identity, "");
    } catch (const std::exception&) {
        return "";  // remember() reports the reason
    }
}

ModelHashes::Hash hash_of(const fs::path& path, const fs::path& memory,
                          const std::atomic<bool>& stop) {
    ModelHashes::Hash hash;
    try {
        const TensorSource source = TensorSource::open(path);
        const std::string key = identity(source);
        hash.text = recall(memory, key);
        if (hash.text.empty()) {
            hash.text = sha256(source.files(), stop);
            if (!memory.empty() && find_overwritten(source) == nullptr) {
                remember(memory, key, hash.text);
            }
        }
    } catch (const std::exception& error) {
        hash.trouble = error.what();
    }
    return hash;
}

}  // namespace

ModelHashes::ModelHashes(const ModelFiles& files, fs::path cache_folder)
    : memory_(cache_folder.empty() ? fs::path() : cache_folder / "hashes.json") {
    for (const fs::path& path : {files.transformer, files.text_encoder, files.vae, files.taesd}) {
        add(path);
    }
}

void ModelHashes::add(const fs::path& path) {
    const std::lock_guard lock(mutex_);
    const bool is_known = std::any_of(entries_.begin(), entries_.end(),
                                      [&](const Entry& entry) { return entry.path == path; });
    if (!path.empty() && !is_known) {
        entries_.push_back(
            {path, std::async(std::launch::async | std::launch::deferred, [this, path] {
                       return hash_of(path, memory_, stop_);
                   }).share()});
    }
}

ModelHashes::~ModelHashes() {
    stop_ = true;
}

std::shared_future<ModelHashes::Hash> ModelHashes::future_of(const fs::path& path) const {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.path == path; });
    return found == entries_.end() ? std::shared_future<Hash>() : found->hash;
}

std::string ModelHashes::get(const fs::path& path) {
    const std::shared_future<Hash> future = future_of(path);
    if (!future.valid()) {
        return "";
    }
    const Hash& hash = future.get();
    if (!hash.trouble.empty()) {
        log(LogLevel::warning,
            concat(hash.text.empty() ? "the picture goes without the hash of a model file: "
                                     : "hashes of model files are not remembered: ",
                   hash.trouble));
    }
    return hash.text;
}

std::string ModelHashes::find(const fs::path& path) const {
    const std::shared_future<Hash> future = future_of(path);
    const bool is_known =
        future.valid() && future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    return is_known ? future.get().text : "";
}

}  // namespace flux2::cli
