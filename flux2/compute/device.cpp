#include "compute/device.hpp"

#include "base/check.hpp"
#include "compute/devices/kinds.hpp"

namespace flux2 {

Device::Device(ggml_backend_dev_t device, const DeviceAbilities& abilities)
    : device_(device), abilities_(abilities) {}

std::string Device::name() const {
    return ggml_backend_dev_name(device_);
}

bool Device::is_cpu() const {
    return ggml_backend_dev_type(device_) == GGML_BACKEND_DEVICE_TYPE_CPU;
}

bool Device::is_lost() const {
    try {
        check_alive();
    } catch (const Error&) {
        return true;
    }
    return false;
}

ggml_backend_ptr Device::start() const {
    return start_queue();
}

ggml_backend_ptr Device::start_queue() const {
    ggml_backend_ptr backend(ggml_backend_dev_init(device_, nullptr));
    check(backend != nullptr, ErrorKind::backend, "the device ", name(),
          " could not be started; check its driver, or use ", Setting::device, " CPU");
    return backend;
}

std::vector<ggml_backend_buffer_type_t> Device::repack_buffer_types(const ggml_tensor*) const {
    return {};
}

std::unique_ptr<Device> open_device(ggml_backend_dev_t device) {
    for (const auto make : {make_cpu_device, make_cuda_device, make_remote_device}) {
        if (std::unique_ptr<Device> made = make(device)) {
            return made;
        }
    }
    return make_ggml_device(device);
}

}  // namespace flux2
