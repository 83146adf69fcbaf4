// The models that are on this machine or can be fetched to it: the table, the Hub's cache, and
// models that were converted here.
#pragma once

#include "common/download_display.hpp"
#include "common/line_sink.hpp"
#include "common/model_names.hpp"
#include "common/options.hpp"
#include "downloads/hub_cache.hpp"
#include "downloads/hub_client.hpp"

#include <flux2/flux2.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace flux2::cli {

struct StoreOptions {
    bool offline = false;
    bool asks_newer = false;  // whether the Hub has a newer file
    int connections = 0;      // for one file; 0: the usual number
    LineSink tell;            // about downloads and licences
};

// Downloads are cancelled by cancel_requested.
class ModelStore {
  public:
    explicit ModelStore(const StoreOptions& options);

    const ModelTable& table() const { return table_; }
    const hub::HubCache& cache() const { return cache_; }
    const hub::HubSettings& settings() const { return client_.settings(); }

    // A file of the table on this machine; empty when it is not here.
    std::filesystem::path find(const TableFile& file) const;
    // The files of a model, downloaded where they are not here. Files that `given` names are left
    // out, and so are those that variables of the authors' program name. The licence is shown
    // before the first download. Throws as hub::fetch_file.
    ModelFiles fetch(const NamedModel& model, const ModelFiles& given);
    // A file that "owner/name:what" means, with what it needs.
    std::filesystem::path fetch(const std::string& reference);

    // Deletes the files of a model that no other model here needs. Returns the bytes that were
    // freed; adds the names of the files to `removed`.
    uint64_t remove(const NamedModel& model, std::vector<std::string>& removed);

    // The folder of the model converted here to this type; empty when there is none.
    static std::filesystem::path converted_folder(const std::string& name, const std::string& type);

  private:
    std::filesystem::path fetch_part(const TablePart& part, const TableFile& file);
    std::filesystem::path fetch_all(const std::string& repository, const std::string& file,
                                    const std::vector<std::string>& names);
    void show_licence(const std::string& what, const TablePart& part) const;
    std::vector<std::string> names_in(const std::string& repository);

    StoreOptions options_;
    ModelTable table_;
    hub::HubClient client_;
    hub::HubCache cache_;
    DownloadDisplay display_;
};

// The licence of a file, by the repository in whose cache it is: "Apache-2.0, https://..."; empty
// when that is not known.
std::string licence_of(const std::filesystem::path& file);

}  // namespace flux2::cli
