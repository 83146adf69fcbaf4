// Pictures made with the LoRA so far, while it is trained.
#pragma once

#include <flux2/flux2.hpp>

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace flux2::cli {

class Samples {
  public:
    Samples(ModelFiles files, LoadOptions load, std::vector<Request> requests,
            std::filesystem::path folder, std::string name, const std::atomic<bool>* cancel);

    // Makes a picture of each prompt, "NAME_00000100_00.png" in the folder; `adapter` is the LoRA
    // after so many steps. A failure other than being cancelled is reported as a warning: training
    // goes on.
    void make(int64_t step, const std::filesystem::path& adapter);

  private:
    const ModelFiles files_;
    const LoadOptions load_;
    const std::vector<Request> requests_;
    const std::filesystem::path folder_;
    const std::string name_;
    const std::atomic<bool>* cancel_;
};

}  // namespace flux2::cli
