// The adapters of a request: their files opened, checked against the model, and matched with its
// networks.
#pragma once

#include <flux2/flux2.hpp>
#include "adapters/adapter_set.hpp"
#include "pipeline/model.hpp"

#include <memory>
#include <string>
#include <vector>

namespace flux2 {

// What changes each network; null where nothing does.
struct AdapterSets {
    std::shared_ptr<const AdapterSet> transformer, text_encoder;
};

// Empty for null.
std::string identity_of(const std::shared_ptr<const AdapterSet>& adapters);

// Keeps the files of the last request open, so that the next one need not read them again.
class AdapterStore {
  public:
    // Reads headers only. Logs what is used of each file, what is not and why, and warns when an
    // adapter was trained on the other kind of model. Throws bad_file or unsupported for a file
    // that is broken or for another model or of which nothing is used, bad_argument for a bad
    // strength or filter.
    AdapterSets resolve(const Request& request, const Model& model);

  private:
    std::shared_ptr<const AdapterFile> open(const std::filesystem::path& path);

    std::vector<std::shared_ptr<const AdapterFile>> files_;
    std::string reported_;  // the adapters whose use was logged last
};

}  // namespace flux2
