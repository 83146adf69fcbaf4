// The models that a server offers, by name, and which of them each device has open.
#pragma once

#include <flux2/flux2.hpp>
#include "common/line_sink.hpp"
#include "common/model_hash.hpp"
#include "common/options.hpp"

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace flux2::server {

struct ModelEntry {
    std::string name;  // how requests name it
    ModelFiles files;
    FileInfo info;  // of the transformer
    std::unique_ptr<cli::ModelHashes> hashes;
};

class ModelPool {
  public:
    // The model of `options` (the bundled one when it names none), then those in `models_folder`:
    // every folder in it that holds a whole model, under the folder's name. Empty: none. Opens
    // headers only and starts hashing the files. Throws bad_file, for a model of `options` that is
    // broken or when there is no model at all; others that cannot be used are left out with a
    // warning. What is downloaded, and what is chosen, is told.
    ModelPool(const cli::ModelOptions& options, const std::filesystem::path& models_folder,
              const cli::LineSink& tell);

    const std::vector<ModelEntry>& entries() const { return entries_; }
    // An empty name is the first model. Null for an unknown one.
    const ModelEntry* find(const std::string& name) const;
    const LoadOptions& load_options() const { return load_; }
    // The SHA-256 of a model's transformer; empty while it is computed.
    std::string hash(const ModelEntry& entry) const;
    // A text without the folders of this machine: files keep their names only.
    std::string without_folders(const std::string& text) const;

  private:
    void add(const std::string& name, const ModelFiles& files);

    LoadOptions load_;
    std::vector<std::filesystem::path> folders_;
    std::vector<ModelEntry> entries_;
};

// The model that one device has open. Used by the thread of that device; name() by any.
class OpenModel {
  public:
    OpenModel(const ModelPool& pool, std::string device);

    // Opens the model unless it is open, after closing the one that is. Throws as Pipeline::load.
    Pipeline& open(const ModelEntry& entry);
    // Frees its memory.
    void close();
    // Of the open model; empty when none is.
    std::string name() const;
    const std::string& device() const { return device_; }

  private:
    const ModelPool& pool_;
    std::string device_;
    mutable std::mutex mutex_;
    std::string name_;
    std::optional<Pipeline> pipeline_;
};

}  // namespace flux2::server
