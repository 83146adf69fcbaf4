#include "pipeline/tensor_cache.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "formats/safetensors.hpp"
#include "formats/tensor_source.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

namespace flux2 {
namespace fs = std::filesystem;
namespace {

constexpr const char* kSuffix = ".cache.safetensors";

// Changed whenever older entries must no longer be found.
constexpr const char* kFormat = "flux2 cache 2\n";

// The bytes of a text as a tensor of floats, since the file format here only has floats.
FloatTensor as_tensor(const char* name, const std::string& text) {
    FloatTensor tensor{name, {static_cast<int64_t>(text.size())}, {}};
    for (const char c : text) {
        tensor.values.push_back(static_cast<float>(static_cast<unsigned char>(c)));
    }
    return tensor;
}

// Empty when there is no such tensor. Throws bad_file for values that are no bytes.
std::string read_text(const TensorSource& source, const char* name) {
    std::string text;
    if (source.find(name) == nullptr) {
        return text;
    }
    for (const float value : read_tensor(source, name).data) {
        check(value >= 0 && value <= 255 && value == std::floor(value), ErrorKind::bad_file, "its ",
              name, " is no text");
        text += static_cast<char>(static_cast<unsigned char>(value));
    }
    return text;
}

std::string checksum(const std::string& key, const HostTensor& value, const std::string& note) {
    return Hash()
        .add(key)
        .add(note)
        .add(std::as_bytes(std::span(value.ne)))
        .add(std::as_bytes(std::span(value.data)))
        .hex();
}

bool is_finite(const HostTensor& tensor) {
    return std::all_of(tensor.data.begin(), tensor.data.end(),
                       [](float value) { return std::isfinite(value); });
}

std::string shape_text(const std::array<int64_t, 4>& ne) {
    return concat("[", ne[0], ", ", ne[1], ", ", ne[2], ", ", ne[3], "]");
}

// Nothing for an entry of another key. Throws bad_file for one that must not be used.
std::optional<CachedTensor> read_entry(const fs::path& file, const std::string& key,
                                       const std::array<int64_t, 4>& ne) {
    const TensorSource source = TensorSource::open(file);
    const std::string stored_key = read_text(source, "key");
    CachedTensor entry{read_tensor(source, "value"), read_text(source, "note")};
    check(read_text(source, "checksum") == checksum(stored_key, entry.value, entry.note),
          ErrorKind::bad_file, "its checksum is wrong");
    if (stored_key != key) {
        return std::nullopt;
    }
    check(entry.value.ne == ne, ErrorKind::bad_file, "its shape is ", shape_text(entry.value.ne),
          ", expected ", shape_text(ne));
    check(is_finite(entry.value), ErrorKind::bad_file, "it holds values that are not finite");
    return entry;
}

}  // namespace

TensorCache::TensorCache(fs::path folder, uint64_t max_bytes)
    : folder_(std::move(folder)), max_bytes_(max_bytes) {
    std::error_code ignored;
    if (is_used() && fs::is_directory(folder_, ignored)) {
        read_folder();
    }
}

fs::path TensorCache::file_of(const std::string& key) const {
    return folder_ / (WideHash().add(key).hex() + kSuffix);
}

std::optional<CachedTensor> TensorCache::find(const std::string& key,
                                              const std::array<int64_t, 4>& ne) const {
    const std::string full_key = kFormat + key;
    const fs::path file = file_of(full_key);
    std::error_code ignored;
    if (!is_used() || !fs::exists(file, ignored)) {
        return std::nullopt;
    }
    try {
        std::optional<CachedTensor> entry = read_entry(file, full_key, ne);
        fs::last_write_time(file, fs::file_time_type::clock::now(), ignored);
        return entry;
    } catch (const Error& error) {
        if (!fs::exists(file, ignored)) {
            return std::nullopt;  // another pipeline or process removed it
        }
        log(LogLevel::warning, concat("the cached ", file.string(),
                                      " is damaged, removed and made again: ", error.what()));
        fs::remove(file, ignored);
        return std::nullopt;
    }
}

void TensorCache::store(const std::string& key, const HostTensor& tensor,
                        const std::string& note) const {
    const std::string full_key = kFormat + key;
    const uint64_t bytes =
        (tensor.data.size() + full_key.size() + note.size()) * sizeof(float) + 4096;
    if (!is_used() || bytes > max_bytes_ || !is_finite(tensor)) {
        return;
    }
    try {
        fs::create_directories(folder_);
        make_room(bytes);
        std::vector<int64_t> shape(tensor.ne.rbegin(), tensor.ne.rend());  // slowest first
        std::vector<FloatTensor> tensors = {
            as_tensor("key", full_key),
            {"value", std::move(shape), tensor.data},
            as_tensor("checksum", checksum(full_key, tensor, note))};
        if (!note.empty()) {
            tensors.push_back(as_tensor("note", note));
        }
        write_safetensors(file_of(full_key), tensors);
    } catch (const std::exception& error) {
        log(LogLevel::warning,
            concat("nothing is kept in the cache ", folder_.string(), ": ", error.what(),
                   "; switch it off with ", Setting::cache_folder));
    }
}

void TensorCache::store_result_of(const TensorSource& weights, const std::string& key,
                                  const HostTensor& tensor, const std::string& note) const {
    const MappedFile* overwritten = is_used() ? find_overwritten(weights) : nullptr;
    if (overwritten == nullptr) {
        store(key, tensor, note);
        return;
    }
    log(LogLevel::warning,
        concat(overwritten->path().string(),
               ": was written to while it is in use, so results may be wrong and are not kept in "
               "the cache; load the model again, and replace model files by renaming new ones"));
}

TensorCache::Contents TensorCache::read_folder() const {
    Contents contents;
    std::error_code gone;  // another pipeline or process may remove files too
    for (fs::directory_iterator file(folder_, gone), end; !gone && file != end;
         file.increment(gone)) {
        const std::string name = file->path().filename().string();
        const bool is_entry = name.ends_with(kSuffix);
        const bool is_unfinished = is_temporary_name(name) && name.find(kSuffix) != name.npos;
        // What a killed process left is deleted; what another one writes now counts.
        if (!is_entry && (!is_unfinished || remove_abandoned(file->path()))) {
            continue;
        }
        std::error_code error;
        const fs::file_time_type used = file->last_write_time(error);
        const uintmax_t size = error ? 0 : file->file_size(error);
        if (error) {
            continue;
        }
        contents.bytes += size;
        if (is_entry) {
            contents.entries.push_back({used, file->path(), size});
        }
    }
    return contents;
}

void TensorCache::make_room(uint64_t bytes) const {
    Contents contents = read_folder();
    std::vector<Entry>& entries = contents.entries;
    uint64_t total = bytes + contents.bytes;
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
