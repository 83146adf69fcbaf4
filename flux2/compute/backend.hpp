// Where graphs run: a device chosen by name, with the CPU behind it for what the device lacks.
#pragma once

#include <ggml-backend.h>
#include <ggml-cpp.h>

#include <cstdint>
#include <string>
#include <vector>

namespace flux2 {

struct DeviceInfo {
    std::string name;         // "CPU", "CUDA0", ...: what --device takes
    std::string description;  // the product's name
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
};

std::vector<DeviceInfo> list_devices();

// A device and the CPU. Graphs and weights borrow it, so it must outlive them.
class Backend {
  public:
    // `device` is a name from list_devices() in any case, or "auto": the first GPU, else the CPU.
    // n_threads 0: one per core. Throws bad_argument for an unknown name, backend when it fails.
    explicit Backend(const std::string& device = "auto", int n_threads = 0);

    const std::string& name() const { return name_; }
    bool is_cpu() const { return device_ == nullptr; }

    // Memory for weights on the device.
    ggml_backend_buffer_type_t buffer_type() const;
    // A scheduler over device and CPU for graphs of up to max_nodes.
    ggml_backend_sched_ptr make_scheduler(size_t max_nodes) const;

  private:
    std::string name_;
    ggml_backend_ptr device_;  // null when the CPU was chosen
    ggml_backend_ptr cpu_;
};

}  // namespace flux2
