// Devices of other machines, through ggml's RPC.
#include "base/check.hpp"
#include "compute/devices/kinds.hpp"
#include "compute/remote.hpp"

namespace flux2 {
namespace {

class RemoteDevice : public Device {
  public:
    using Device::Device;

    void check_alive() const override {
        const auto reason = why_lost(ggml());
        check(!reason, ErrorKind::backend, "the server ", ggml_backend_dev_description(ggml()),
              " (", name(), ") ", reason.value_or(""));
    }
};

}  // namespace

std::unique_ptr<Device> make_remote_device(ggml_backend_dev_t device) {
    if (!is_remote(device)) {
        return nullptr;
    }
    // Nodes of ours are pointers to functions of this process.
    return std::make_unique<RemoteDevice>(
        device,
        DeviceAbilities{.operations = Operations::stock, .streams_blocks = false, .is_far = true});
}

}  // namespace flux2
