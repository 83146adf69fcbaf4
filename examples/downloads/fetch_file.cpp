#include "downloads/fetch_file.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/file_lock.hpp"

#include <system_error>

namespace flux2::hub {

namespace fs = std::filesystem;

fs::path fetch_file(HubClient& client, const FileName& file, const ProgressSink& progress,
                    bool ask_for_newer) {
    const HubCache cache(client.settings().cache);
    const fs::path here = cache.find(file);
    if (!here.empty() && !ask_for_newer) {
        return here;
    }
    const RemoteFile remote = client.look_up(file);
    const FileLock lock(cache.lock(remote), [&] {
        check(!client.settings().http.is_cancelled(), ErrorKind::cancelled, "cancelled");
    });
    std::error_code error;
    const FileName as_committed = {file.repository, file.path, remote.commit};
    const fs::path blob = cache.blob(remote);
    if (!fs::is_regular_file(blob, error) && cache.find(as_committed).empty()) {
        make_folders(blob.parent_path());
        download(client, remote, cache.partial(remote), progress);
        fs::rename(cache.partial(remote), blob, error);
        check(!error, ErrorKind::bad_file, blob.string(), ": cannot be made: ", error.message());
    }
    return cache.publish(remote);
}

}  // namespace flux2::hub
