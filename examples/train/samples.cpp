#include "train/samples.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/log.hpp"

#include <cstdio>
#include <utility>

namespace flux2::cli {

Samples::Samples(ModelFiles files, LoadOptions load, std::vector<Request> requests,
                 std::filesystem::path folder, std::string name, const std::atomic<bool>* cancel)
    : files_(std::move(files)),
      load_(std::move(load)),
      requests_(std::move(requests)),
      folder_(std::move(folder)),
      name_(std::move(name)),
      cancel_(cancel) {}

void Samples::make(int64_t step, const std::filesystem::path& adapter) {
    try {
        make_folders(folder_);
        // Loaded again each time: between samples the memory belongs to the training.
        Pipeline pipeline = Pipeline::load(files_, load_);
        for (size_t i = 0; i < requests_.size(); ++i) {
            Request request = requests_[i];
            request.cancel = cancel_;
            Adapter so_far;
            so_far.file = adapter;
            request.adapters = {so_far};
            char number[40];
            std::snprintf(number, sizeof(number), "_%08lld_%02zu.png", static_cast<long long>(step),
                          i);
            save_image(folder_ / (name_ + number), pipeline.generate(request).image);
        }
    } catch (const Error& error) {
        if (error.kind() == ErrorKind::cancelled) {
            throw;
        }
        log(LogLevel::warning, concat("no pictures after step ", step, ": ", error.what()));
    }
}

}  // namespace flux2::cli
