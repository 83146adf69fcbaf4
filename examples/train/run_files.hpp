// The files of a training run: the LoRA and the state so far, their names, which are kept.
#pragma once

#include "pipeline/model.hpp"
#include "train/dataset.hpp"
#include "train/train_options.hpp"
#include "train/trainer.hpp"
#include "train/training_state.hpp"

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace flux2::cli {

// Everything that the result depends on, by the names of options.
RunSettings settings_of(const TrainOptions& options, const Model& model,
                        const std::vector<DatasetSource>& sources,
                        const std::vector<DatasetPicture>& pictures, const TrainedAdapter& adapter);

class RunFiles {
  public:
    // Makes the folder. `facts` are written into every LoRA file. Throws bad_file.
    RunFiles(const TrainOptions& options, RunSettings settings,
             std::map<std::string, std::string> facts);

    // The state to continue from, if the options ask for it and there is one. Throws bad_argument
    // for one with other settings, bad_file for a damaged one.
    std::optional<TrainingState> find_state() const;

    // Writes both files and removes those that are not to be kept. Throws out_of_disk.
    void save(Trainer& trainer, const TrainedAdapter& adapter) const;
    // The finished LoRA. Returns its name.
    std::filesystem::path save_result(Trainer& trainer, const TrainedAdapter& adapter) const;
    // For pictures of the LoRA so far.
    void write_adapter(const std::filesystem::path& file, Trainer& trainer,
                       const TrainedAdapter& adapter) const;

    // Of the last save; empty: none yet.
    std::filesystem::path last_state() const;
    std::filesystem::path in_folder(const std::string& ending) const;

  private:
    void remove_old(int64_t step) const;

    const TrainOptions& options_;
    const RunSettings settings_;
    const std::map<std::string, std::string> facts_;
};

}  // namespace flux2::cli
