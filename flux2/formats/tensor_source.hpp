// One interface to read tensors from a safetensors or GGUF file, a sharded checkpoint, or a folder
// that contains one of these.
#pragma once

#include "base/file.hpp"
#include "base/host_tensor.hpp"
#include "formats/tensor_directory.hpp"

#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace flux2 {

enum class FileFormat { safetensors, gguf };

// The checkpoints directly in a folder, sorted by name; a sharded one is listed once, by its index
// or its first shard. Hidden files do not count. Throws bad_file for an unreadable folder.
std::vector<std::filesystem::path> checkpoints_in(const std::filesystem::path& folder);

// Owns the mapped files; the bytes of its tensors are valid while it lives. Move-only.
class TensorSource {
  public:
    // A file of either format, one shard of several (its siblings are opened too), a
    // *.safetensors.index.json, or a folder with one checkpoint in it. Throws bad_file.
    static TensorSource open(const std::filesystem::path& path);

    const std::vector<TensorInfo>& tensors() const { return directory_.tensors; }
    // Null when there is no such tensor.
    const TensorInfo* find(std::string_view name) const;
    const Metadata& metadata() const { return directory_.metadata; }

    FileFormat format() const { return format_; }
    const std::filesystem::path& path() const { return path_; }
    const std::vector<MappedFile>& files() const { return files_; }

  private:
    TensorSource(std::filesystem::path path, FileFormat format);
    static TensorSource open_file(const std::filesystem::path& path);
    static TensorSource open_index(const std::filesystem::path& index);
    static TensorSource open_shards(const std::filesystem::path& shard);
    static TensorSource open_folder(const std::filesystem::path& folder);
    TensorDirectory map_file(const std::filesystem::path& path);
    void build_index();

    std::filesystem::path path_;
    FileFormat format_;
    std::vector<MappedFile> files_;
    TensorDirectory directory_;
    std::unordered_map<std::string_view, size_t> index_;
};

// Path of every file and its stamp when it was opened, to notice whether a checkpoint has changed:
// what is read from `source` belongs to this identity, whatever has that path now.
std::string identity(const TensorSource& source);
// The first of its files that was written to since it was opened, so that what is read from it may
// belong to no identity; null when none was.
const MappedFile* find_overwritten(const TensorSource& source);

// The values of a tensor. Throws bad_file, naming it, when it is missing or holds no numbers.
HostTensor read_tensor(const TensorSource& source, const std::string& name);

}  // namespace flux2
