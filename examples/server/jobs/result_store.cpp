#include "jobs/result_store.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/letter_case.hpp"
#include "common/picture_facts.hpp"
#include "jobs/thumbnail.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <random>
#include <span>

namespace flux2::server {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kThumbnailSide = 256;
constexpr size_t kIdLength = 20;

bool is_id(const std::string& text) {
    return text.size() == kIdLength &&
           text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string hexadecimal(uint64_t value, size_t digits) {
    std::string text(digits, '0');
    for (size_t i = digits; i-- > 0; value >>= 4) {
        text[i] = "0123456789abcdef"[value & 15];
    }
    return text;
}

// Whole, or not at all: a part of a picture would look like an answer.
std::optional<std::string> read_bytes(const fs::path& file) {
    std::ifstream in(file, std::ios::binary | std::ios::ate);
    if (!in) {
        return std::nullopt;
    }
    const std::streamoff size = in.tellg();
    std::string bytes(static_cast<size_t>(std::max<std::streamoff>(size, 0)), '\0');
    in.seekg(0);
    in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    check(size >= 0 && in.gcount() == size, ErrorKind::bad_file, file.string(),
          ": the stored file cannot be read; check that disk");
    return bytes;
}

// Under another name first, so that nobody reads half a file. Not synced to the disk: that would
// take longer than small pictures do.
void write_bytes(const fs::path& file, std::span<const char> bytes) {
    const fs::path unfinished = file.string() + ".part";
    std::ofstream out(unfinished, std::ios::binary | std::ios::trunc);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    out.close();
    std::error_code problem;
    if (out) {
        fs::rename(unfinished, file, problem);
    }
    if (!out || problem) {
        std::error_code ignored;
        fs::remove(unfinished, ignored);
        fail(ErrorKind::out_of_disk, file.string(),
             ": the picture cannot be written; make room on that disk");
    }
}

std::span<const char> chars_of(const std::vector<std::byte>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::string new_id() {
    // Of the last id in this process: a later one is larger, also within a millisecond.
    static std::mutex mutex;
    static uint64_t time = 0, number = 0;
    static std::mt19937 random(std::random_device{}());
    const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::system_clock::now().time_since_epoch());
    const std::lock_guard lock(mutex);
    if (const auto later = static_cast<uint64_t>(now.count()); later > time) {
        time = later;
        number = random() >> 1;
    } else {
        number += 1 + (random() >> 16);
    }
    return hexadecimal(time, 12) + hexadecimal(number, 8);
}

ResultStore::ResultStore(fs::path folder, const StoreLimits& limits)
    : folder_(std::move(folder)), is_temporary_(folder_.empty()), limits_(limits) {
    if (is_temporary_) {
        folder_ = fs::temp_directory_path() / ("flux2-server-" + new_id());
    }
    make_folders(folder_);
    list_folder();
}

ResultStore::~ResultStore() {
    if (is_temporary_) {
        std::error_code ignored;
        fs::remove_all(folder_, ignored);
    }
}

std::string ResultStore::add(const Image& image, const json& facts) {
    const std::string id = new_id();
    const std::string text = facts.dump(-1, ' ', false, json::error_handler_t::replace);
    const std::vector<std::byte> png =
        encode_image(image, ImageFormat::png, cli::picture_texts(facts));
    write_bytes(file(id, ".json"), text);
    write_bytes(file(id, ".png"), chars_of(png));
    const std::lock_guard lock(mutex_);
    sizes_[id] = png.size() + text.size();
    remove_oldest(id);
    return id;
}

std::optional<std::string> ResultStore::png(const std::string& id) const {
    return is_id(id) ? read_bytes(file(id, ".png")) : std::nullopt;
}

std::optional<std::string> ResultStore::thumbnail(const std::string& id) {
    if (!is_id(id)) {
        return std::nullopt;
    }
    if (std::optional<std::string> made = read_bytes(file(id, ".jpg"))) {
        return made;
    }
    const std::optional<std::string> bytes = png(id);
    if (!bytes) {
        return std::nullopt;
    }
    const Image image = decode_image(std::as_bytes(std::span(*bytes)), id + ".png");
    const std::vector<std::byte> small =
        encode_image(shrink(image, kThumbnailSide), ImageFormat::jpeg);
    write_bytes(file(id, ".jpg"), chars_of(small));
    return std::string(chars_of(small).begin(), chars_of(small).end());
}

std::optional<json> ResultStore::facts(const std::string& id) const {
    const auto text = is_id(id) ? read_bytes(file(id, ".json")) : std::nullopt;
    json found = text ? json::parse(*text, nullptr, false) : json();
    return found.is_object() ? std::optional(std::move(found)) : std::nullopt;
}

bool ResultStore::remove(const std::string& id) {
    std::error_code ignored;
    if (!is_id(id) || !fs::exists(file(id, ".png"), ignored)) {
        return false;
    }
    remove_files(id);
    const std::lock_guard lock(mutex_);
    sizes_.erase(id);
    return true;
}

std::vector<StoredPicture> ResultStore::page(const std::string& before, size_t most,
                                             const std::string& text) const {
    std::vector<std::string> ids;
    {
        const std::lock_guard lock(mutex_);
        list_folder();
        for (auto at = sizes_.rbegin(); at != sizes_.rend(); ++at) {
            if (before.empty() || at->first < before) {
                ids.push_back(at->first);
            }
        }
    }
    std::vector<StoredPicture> found;
    for (const std::string& id : ids) {
        if (found.size() == most) {
            break;
        }
        std::optional<json> stored = facts(id);
        const bool fits =
            stored && (text.empty() || to_lower(stored->value("prompt", "")).find(to_lower(text)) !=
                                           std::string::npos);
        if (fits) {
            found.push_back({id, std::move(*stored)});
        }
    }
    return found;
}

size_t ResultStore::size() const {
    const std::lock_guard lock(mutex_);
    return sizes_.size();
}

fs::path ResultStore::file(const std::string& id, const char* extension) const {
    return folder_ / (id + extension);
}

void ResultStore::remove_files(const std::string& id) const {
    for (const char* extension : {".png", ".json", ".jpg"}) {
        std::error_code ignored;
        fs::remove(file(id, extension), ignored);
    }
}

void ResultStore::list_folder() const {
    sizes_.clear();
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_, ignored)) {
        const std::string id = entry.path().stem().string();
        if (is_id(id) && entry.path().extension() == ".png") {
            sizes_[id] = entry.file_size(ignored);
        }
    }
}

void ResultStore::remove_oldest(const std::string& newest) {
    uint64_t bytes = 0;
    for (const auto& [id, size] : sizes_) {
        bytes += size;
    }
    // Ids of a server with another clock may be larger than the newest.
    for (auto at = sizes_.begin();
         at != sizes_.end() && (sizes_.size() > limits_.pictures || bytes > limits_.bytes);) {
        if (at->first == newest) {
            ++at;
            continue;
        }
        bytes -= at->second;
        remove_files(at->first);
        at = sizes_.erase(at);
    }
}

}  // namespace flux2::server
