// A file of the Hub as a file on this machine: from the cache, else downloaded into it.
#pragma once

#include "downloads/file_download.hpp"
#include "downloads/hub_cache.hpp"
#include "downloads/hub_client.hpp"

#include <filesystem>

namespace flux2::hub {

// Nothing is asked for a file that is in the cache, unless `ask_for_newer`. Of several processes
// that fetch the same file one does, and the others wait for it. Throws as HubClient and
// download().
std::filesystem::path fetch_file(HubClient& client, const FileName& file,
                                 const ProgressSink& progress, bool ask_for_newer = false);

}  // namespace flux2::hub
