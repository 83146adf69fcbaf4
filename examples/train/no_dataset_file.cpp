// What is built without a package that reads TOML.
#include "train/dataset_file.hpp"

#include "base/check.hpp"

namespace flux2::cli {

std::vector<DatasetSource> read_dataset_file(const std::filesystem::path& file, Problems&) {
    fail(ErrorKind::unsupported, file.string(),
         ": this build reads no TOML; name a folder of pictures with --dataset, or build "
         "flux2-train "
         "with libtomlplusplus-dev installed");
}

}  // namespace flux2::cli
