#include "compute/devices/kinds.hpp"

namespace flux2 {

std::unique_ptr<Device> make_ggml_device(ggml_backend_dev_t device) {
    return std::make_unique<Device>(device, DeviceAbilities{});
}

}  // namespace flux2
