// The bytes of one file: continued where they ended, over several connections, checked.
#pragma once

#include "downloads/hub_client.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace flux2::hub {

// How far a file is.
struct FileProgress {
    std::string path;    // in its repository
    uint64_t begun = 0;  // bytes that were there before
    uint64_t done = 0;   // with these
    std::optional<uint64_t> size;
};

// Called often, from one thread at a time.
using ProgressSink = std::function<void(const FileProgress&)>;

// Fills `partial` and returns when it is complete and has the hash that the Hub promises. Its bytes
// are continued; at any moment it is a beginning of the file, so that another call, also of another
// program, can continue it. Retries as HubClient does, without limit while bytes arrive. Throws
// bad_file, out_of_disk and cancelled; the bytes so far stay, unless their hash is wrong. The
// caller holds the lock of the file.
void download(HubClient& client, const RemoteFile& file, const std::filesystem::path& partial,
              const ProgressSink& progress);

}  // namespace flux2::hub
