#include "downloads/hub_cache.hpp"

#include "base/check.hpp"
#include "base/file.hpp"

#include <algorithm>
#include <set>
#include <span>
#include <system_error>
#include <utility>

namespace flux2::hub {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "models--";
constexpr size_t kMaxRefBytes = 4096;

bool is_commit(const std::string& text) {
    return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
    std::vector<fs::path> entries;
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
        entries.push_back(entry.path());
    }
    return entries;
}

// Deletes the folder and its parents up to `last` as long as they are empty.
void remove_empty(fs::path folder, const fs::path& last) {
    std::error_code ignored;
    while (folder != last && fs::is_empty(folder, ignored) && !ignored) {
        fs::remove(folder, ignored);
        folder = folder.parent_path();
    }
}

// A path of a repository never leaves its folder.
void check_inside(const FileName& file) {
    const fs::path path = file.path;
    const bool leaves =
        path.is_absolute() || std::any_of(path.begin(), path.end(), [](const fs::path& name) {
            return name == ".." || name == ".";
        });
    const size_t slash = file.repository.find('/');
    check(!file.path.empty() && !leaves && file.path.find('\\') == std::string::npos,
          ErrorKind::bad_argument, "'", file.path, "' is no file of a repository");
    check(slash != std::string::npos && slash > 0 && slash + 1 < file.repository.size() &&
              file.repository.find_first_of("\\:") == std::string::npos &&
              file.repository.find("..") == std::string::npos &&
              file.repository.find('/', slash + 1) == std::string::npos,
          ErrorKind::bad_argument, "'", file.repository,
          "' is no repository; expected OWNER/NAME such as Qwen/Qwen3-4B-GGUF");
}

}  // namespace

HubCache::HubCache(fs::path folder) : folder_(std::move(folder)) {
    check(!folder_.empty(), ErrorKind::bad_file,
          "there is no folder for downloaded files; name one in HF_HUB_CACHE");
}

fs::path HubCache::folder_of(const std::string& repository) const {
    std::string name = kPrefix;
    for (const char c : repository) {
        name += c == '/' ? "--" : std::string(1, c);
    }
    return folder_ / name;
}

std::string HubCache::commit_of(const std::string& repository, const std::string& revision) const {
    if (is_commit(revision)) {
        return revision;
    }
    const fs::path ref = folder_of(repository) / "refs" / revision;
    std::error_code ignored;
    if (!fs::is_regular_file(ref, ignored)) {
        return "";
    }
    std::string commit = read_text_file(ref, kMaxRefBytes);
    commit.erase(std::find_if(commit.begin(), commit.end(),
                              [](char c) { return c == '\n' || c == '\r' || c == ' '; }),
                 commit.end());
    return commit;
}

fs::path HubCache::find(const FileName& file) const {
    check_inside(file);
    const fs::path snapshots = folder_of(file.repository) / "snapshots";
    std::error_code ignored;
    const std::string commit = commit_of(file.repository, file.revision);
    const fs::path path = snapshots / commit / file.path;
    if (!commit.empty() && fs::is_regular_file(path, ignored)) {
        return path;
    }
    return {};
}

std::vector<std::string> HubCache::files_of(const std::string& repository,
                                            const std::string& revision) const {
    std::vector<std::string> names;
    const std::string commit = commit_of(repository, revision);
    const fs::path snapshot = folder_of(repository) / "snapshots" / commit;
    std::error_code ignored;
    if (commit.empty() || !fs::is_directory(snapshot, ignored)) {
        return names;
    }
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(snapshot, ignored)) {
        if (entry.is_regular_file(ignored)) {
            names.push_back(entry.path().lexically_relative(snapshot).generic_string());
        }
    }
    std::sort(names.begin(), names.end());
    return names;
}

fs::path HubCache::blob(const RemoteFile& file) const {
    return folder_of(file.name.repository) / "blobs" / file.etag;
}

fs::path HubCache::partial(const RemoteFile& file) const {
    return folder_of(file.name.repository) / "blobs" / (file.etag + ".incomplete");
}

fs::path HubCache::lock(const RemoteFile& file) const {
    return folder_ / ".locks" / folder_of(file.name.repository).filename() / (file.etag + ".lock");
}

fs::path HubCache::publish(const RemoteFile& file) const {
    check_inside(file.name);
    const fs::path repository = folder_of(file.name.repository);
    const fs::path path = repository / "snapshots" / file.commit / file.name.path;
    make_folders(path.parent_path());
    std::error_code error;
    if (!fs::is_regular_file(path, error)) {
        fs::remove(path, error);  // a link that leads nowhere
        const fs::path contents = fs::path(blob(file)).lexically_relative(path.parent_path());
        fs::create_symlink(contents, path, error);
        if (error) {
            fs::rename(blob(file), path, error);
        }
        check(!error, ErrorKind::bad_file, path.string(), ": cannot be made: ", error.message());
    }
    if (file.commit != file.name.revision &&
        commit_of(file.name.repository, file.name.revision) != file.commit) {
        const fs::path ref = repository / "refs" / file.name.revision;
        make_folders(ref.parent_path());
        write_whole_file(ref, std::as_bytes(std::span(file.commit)));
    }
    return path;
}

uint64_t HubCache::remove(const FileName& file) const {
    check_inside(file);
    const fs::path repository = folder_of(file.repository);
    const fs::path snapshots = repository / "snapshots";
    std::set<fs::path> contents;
    std::error_code ignored;
    for (const fs::path& snapshot : entries_of(snapshots)) {
        const fs::path path = snapshot / file.path;
        if (fs::exists(fs::symlink_status(path, ignored))) {
            contents.insert(fs::weakly_canonical(path, ignored));
            const bool is_link = fs::is_symlink(path, ignored);
            if (is_link) {
                fs::remove(path, ignored);
            }
        }
    }
    // Another name of a snapshot may have the same contents.
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(snapshots, ignored)) {
        if (entry.is_symlink(ignored)) {
            contents.erase(fs::weakly_canonical(entry.path(), ignored));
        }
    }
    uint64_t freed = 0;
    for (const fs::path& path : contents) {
        const uintmax_t size = fs::file_size(path, ignored);
        if (!ignored && fs::remove(path, ignored)) {
            freed += size;
        }
    }
    for (const fs::path& snapshot : entries_of(snapshots)) {
        remove_empty((snapshot / file.path).parent_path(), snapshots);
    }
    if (fs::is_empty(snapshots, ignored)) {
        fs::remove(snapshots, ignored);
        remove_empty(repository / "blobs", repository);
        fs::remove_all(repository / "refs", ignored);
        remove_empty(repository, folder_);
    }
    return freed;
}

std::string HubCache::repository_of(const fs::path& file) const {
    const fs::path relative = full_path(file).lexically_relative(full_path(folder_));
    const std::string name = relative.empty() ? "" : relative.begin()->string();
    if (!name.starts_with(kPrefix)) {
        return "";
    }
    const std::string rest = name.substr(std::string(kPrefix).size());
    const size_t dashes = rest.find("--");
    return dashes == std::string::npos ? rest
                                       : rest.substr(0, dashes) + "/" + rest.substr(dashes + 2);
}

}  // namespace flux2::hub
