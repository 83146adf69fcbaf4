#include "compute/device.hpp"

#include "base/check.hpp"
#include "base/letter_case.hpp"
#include "base/ram.hpp"
#include "compute/devices/kinds.hpp"

#include <algorithm>
#include <array>

namespace flux2 {

Device::Device(ggml_backend_dev_t device, const DeviceAbilities& abilities)
    : device_(device), abilities_(abilities) {}

std::string Device::name() const {
    return ggml_backend_dev_name(device_);
}

std::string Device::description() const {
    return ggml_backend_dev_description(device_);
}

DeviceMemory Device::memory() const {
    return memory_of(device_);
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

bool Device::takes(uint64_t bytes) const {
    constexpr size_t kTensors = 2;
    const ggml_context_ptr context(ggml_init(
        {.mem_size = kTensors * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    const auto n = static_cast<int64_t>((bytes + sizeof(float) - 1) / sizeof(float));
    ggml_tensor* x = ggml_new_tensor_1d(context.get(), GGML_TYPE_F32, n);
    return ggml_backend_dev_supports_op(device_, ggml_add(context.get(), x, x));
}

bool Device::multiplies(const ggml_tensor* matrix) const {
    constexpr size_t kTensors = 3;
    constexpr int64_t kColumns = 64;
    const ggml_context_ptr context(ggml_init(
        {.mem_size = kTensors * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    ggml_tensor* w = ggml_dup_tensor(context.get(), matrix);
    ggml_tensor* x = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, w->ne[0], kColumns);
    return ggml_backend_dev_supports_op(device_, ggml_mul_mat(context.get(), w, x));
}

std::vector<ggml_backend_buffer_type_t> Device::repack_buffer_types(const ggml_tensor*) const {
    return {};
}

DeviceMemory memory_of(ggml_backend_dev_t device) {
    size_t free = 0;
    size_t total = 0;
    ggml_backend_dev_memory(device, &free, &total);
    if (ggml_backend_dev_type(device) != GGML_BACKEND_DEVICE_TYPE_CPU) {
        return {free, total};
    }
    const Ram ram = process_ram();
    return {ram.available > 0 ? ram.available : free, ram.total > 0 ? ram.total : total};
}

bool names_software_device(const std::string& description) {
    // Mesa's, Google's and Microsoft's.
    constexpr std::array kNames = {"llvmpipe", "softpipe", "swiftshader", "basic render driver"};
    const std::string name = to_lower(description);
    return std::any_of(kNames.begin(), kNames.end(), [&](const char* software) {
        return name.find(software) != std::string::npos;
    });
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
