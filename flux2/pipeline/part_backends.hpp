// Which device and which type each part of a model has, and the backends of these devices: one for
// each device, shared by the parts on it.
#pragma once

#include <flux2/flux2.hpp>
#include "compute/backend.hpp"
#include "models/transformer.hpp"
#include "networks/part.hpp"

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace flux2 {

// What the options say for a part, else for all of them.
const std::string& chosen_device(const LoadOptions& options, Part part);
const std::string& chosen_type(const LoadOptions& options, Part part);

// One of the devices that share the transformer's blocks.
struct DeviceShare {
    std::string device;
    double share;
};

// The options with `transformer.device` and `split` settled: devices by name, proportions as
// numbers. To be called once, since free memory changes. Throws bad_argument.
LoadOptions with_settled_split(LoadOptions options);
// Settled options without devices that were lost: the first device that is left, else any other of
// this machine, takes their part.
LoadOptions without_devices(LoadOptions options, const std::vector<std::string>& lost);
// Of settled options; one, unless it is split.
std::vector<DeviceShare> transformer_devices(const LoadOptions& options);

class PartBackends {
  public:
    // Borrows the options, which are settled, and starts the devices they name. Throws bad_argument
    // for an unknown one.
    explicit PartBackends(const LoadOptions& options, BackendUse use = BackendUse::compute);

    // Of the device that was chosen for the part, the first of a split transformer's.
    Backend& of(Part part);
    // Of all devices of the transformer.
    std::vector<BlockShare> of_blocks();
    bool splits_transformer() const { return transformer_devices(options_).size() > 1; }
    // For parts that do not fit it; started when it is asked for first.
    Backend& cpu();
    // All that are started.
    std::vector<Backend*> all();

    // As Backend::set_cancel, for those that are started later too.
    void set_cancel(const std::atomic<bool>* flag);

  private:
    Backend& named(const std::string& device);

    const LoadOptions& options_;
    BackendUse use_;
    std::vector<std::unique_ptr<Backend>> backends_;
    std::map<std::string, Backend*> by_request_;  // by the name that was asked for
    const std::atomic<bool>* cancel_ = nullptr;
};

}  // namespace flux2
