#include "pipeline/tensor_cache.hpp"

#include "base/check.hpp"
#include "base/log.hpp"
#include "store/safetensors.hpp"
#include "store/tensor_source.hpp"

#include <algorithm>
#include <chrono>
#include <iomanip>
#include <sstream>
#include <utility>
#include <vector>

namespace flux2 {
namespace fs = std::filesystem;
namespace {

constexpr const char* kSuffix = ".cache.safetensors";

// FNV-1a, for file names only: entries are told apart by their keys.
uint64_t hash(const std::string& text, uint64_t start) {
    uint64_t h = start;
    for (const char c : text) {
        h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
    }
    return h;
}

// The key's bytes as a tensor of floats, since that is what the file format here holds.
std::vector<float> as_floats(const std::string& key) {
    std::vector<float> values;
    for (const char c : key) {
        values.push_back(static_cast<float>(static_cast<unsigned char>(c)));
    }
    return values;
}

}  // namespace

TensorCache::TensorCache(fs::path folder, uint64_t max_bytes)
    : folder_(std::move(folder)), max_bytes_(max_bytes) {}

fs::path TensorCache::file_of(const std::string& key) const {
    std::ostringstream name;
    name << std::hex << std::setfill('0') << std::setw(16) << hash(key, 14695981039346656037u)
         << std::setw(16) << hash(key, 1099511628211u) << kSuffix;
    return folder_ / name.str();
}

std::optional<HostTensor> TensorCache::find(const std::string& key) const {
    std::error_code ignored;
    if (folder_.empty() || !fs::exists(file_of(key), ignored)) {
        return std::nullopt;
    }
    try {
        const TensorSource source = TensorSource::open(file_of(key));
        if (read_tensor(source, "key").data != as_floats(key)) {
            return std::nullopt;
        }
        fs::last_write_time(file_of(key), fs::file_time_type::clock::now(), ignored);
        return read_tensor(source, "value");
    } catch (const Error& error) {
        log(LogLevel::warning, concat("a cached entry is left unused: ", error.what()));
        fs::remove(file_of(key), ignored);
        return std::nullopt;
    }
}

void TensorCache::store(const std::string& key, const HostTensor& tensor) const {
    const uint64_t bytes = tensor.data.size() * sizeof(float) + key.size() * sizeof(float) + 4096;
    if (folder_.empty() || bytes > max_bytes_) {
        return;
    }
    try {
        fs::create_directories(folder_);
        make_room(bytes);
        std::vector<int64_t> shape(tensor.ne.rbegin(), tensor.ne.rend());  // slowest first
        write_safetensors(file_of(key),
                          {{"key", {static_cast<int64_t>(key.size())}, as_floats(key)},
                           {"value", std::move(shape), tensor.data}});
    } catch (const std::exception& error) {
        log(LogLevel::warning, concat("nothing is kept in the cache ", folder_.string(), ": ",
                                      error.what(), "; --no-cache does without it"));
    }
}

void TensorCache::make_room(uint64_t bytes) const {
    struct Entry {
        fs::file_time_type used;
        fs::path file;
        uint64_t bytes;
    };
    std::vector<Entry> entries;
    uint64_t total = bytes;
    for (const fs::directory_entry& file : fs::directory_iterator(folder_)) {
        if (file.path().string().ends_with(kSuffix)) {
            entries.push_back({file.last_write_time(), file.path(), file.file_size()});
            total += entries.back().bytes;
        }
    }
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.used < b.used; });
    for (const Entry& entry : entries) {
        if (total <= max_bytes_) {
            break;
        }
        std::error_code ignored;
        fs::remove(entry.file, ignored);
        total -= entry.bytes;
    }
}

}  // namespace flux2
