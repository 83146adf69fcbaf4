// The kinds of devices, a file each: of a device of ggml's each makes ours, or nothing when it is
// of another kind.
#pragma once

#include "compute/device.hpp"

#include <memory>

namespace flux2 {

std::unique_ptr<Device> make_cpu_device(ggml_backend_dev_t device);
std::unique_ptr<Device> make_cuda_device(ggml_backend_dev_t device);
std::unique_ptr<Device> make_remote_device(ggml_backend_dev_t device);
// Any other: Vulkan, Metal and whatever else ggml was built with.
std::unique_ptr<Device> make_ggml_device(ggml_backend_dev_t device);

}  // namespace flux2
