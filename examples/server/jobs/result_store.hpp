// Finished pictures in a folder of bounded size: ID.png with our texts, ID.json with its settings,
// ID.jpg as its thumbnail once somebody asked for it. Several servers may share a folder.
#pragma once

#include <flux2/image.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace flux2::server {

struct StoreLimits {
    size_t pictures = 1000;
    uint64_t bytes = 4'000'000'000;
};

struct StoredPicture {
    std::string id;
    nlohmann::json facts;
};

// Any thread may call its functions.
class ResultStore {
  public:
    // Creates the folder if it is missing; pictures in it stay. An empty path: a temporary folder,
    // which the destructor removes. Throws bad_file.
    ResultStore(std::filesystem::path folder, const StoreLimits& limits);
    ~ResultStore();
    ResultStore(const ResultStore&) = delete;
    ResultStore& operator=(const ResultStore&) = delete;

    // Returns the id; ids grow with time. The oldest pictures leave when a limit is exceeded, never
    // the new one. Throws as save_image.
    std::string add(const Image& image, const nlohmann::json& facts);

    // The bytes of the PNG, and of a JPEG with no side over 256 pixels. Nothing when the picture is
    // not there (any more).
    std::optional<std::string> png(const std::string& id) const;
    std::optional<std::string> thumbnail(const std::string& id);
    std::optional<nlohmann::json> facts(const std::string& id) const;
    // False when there is no such picture.
    bool remove(const std::string& id);

    // Pictures from new to old: at most `most` of those older than `before` (empty: the newest)
    // whose prompt contains `text` (empty: all; letters of either case).
    std::vector<StoredPicture> page(const std::string& before, size_t most,
                                    const std::string& text = "") const;
    size_t size() const;

  private:
    std::filesystem::path file(const std::string& id, const char* extension) const;
    void remove_files(const std::string& id) const;
    // Reads which pictures the folder holds, since other servers may write to it.
    void list_folder() const;
    void remove_oldest(const std::string& newest);

    std::filesystem::path folder_;
    bool is_temporary_ = false;
    StoreLimits limits_;
    mutable std::mutex mutex_;
    mutable std::map<std::string, uint64_t> sizes_;  // bytes of each picture
};

// A new id, larger than all before it in this process: the time in milliseconds and a random
// number, in hexadecimal digits.
std::string new_id();

}  // namespace flux2::server
