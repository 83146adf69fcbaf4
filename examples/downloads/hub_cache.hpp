// The cache of files that huggingface_hub, llama.cpp and other programs share:
//   models--OWNER--NAME/blobs/ETAG             contents
//   models--OWNER--NAME/refs/main              the commit of a revision
//   models--OWNER--NAME/snapshots/COMMIT/PATH  a link to the contents
//   .locks/models--OWNER--NAME/ETAG.lock       held while the contents are fetched
#pragma once

#include "downloads/hub_client.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace flux2::hub {

class HubCache {
  public:
    explicit HubCache(std::filesystem::path folder);

    const std::filesystem::path& folder() const { return folder_; }

    // The file of a revision if it is here, else an empty path.
    std::filesystem::path find(const FileName& file) const;
    // Names below a repository's newest snapshot; empty when nothing is here.
    std::vector<std::string> files_of(const std::string& repository,
                                      const std::string& revision) const;

    std::filesystem::path blob(const RemoteFile& file) const;
    std::filesystem::path partial(const RemoteFile& file) const;
    std::filesystem::path lock(const RemoteFile& file) const;

    // Makes the contents, which are in place, visible as a file of its commit and returns that
    // path. Without symbolic links the contents are moved there.
    std::filesystem::path publish(const RemoteFile& file) const;

    // Deletes a file of all snapshots, its contents if no other file has them, and folders that
    // are then empty. Returns the bytes that were freed.
    uint64_t remove(const FileName& file) const;

    // The repository that a path of this cache belongs to; empty for other paths.
    std::string repository_of(const std::filesystem::path& file) const;

  private:
    std::filesystem::path folder_of(const std::string& repository) const;
    // The commit of a revision; empty when it is not known.
    std::string commit_of(const std::string& repository, const std::string& revision) const;

    std::filesystem::path folder_;
};

}  // namespace flux2::hub
