#include "compute/devices/kinds.hpp"

// Not among the headers that ggml installs.
#if __has_include(<ggml-backend-impl.h>)
#include <ggml-backend-impl.h>
#define FLUX2_SETS_ORDER 1
#else
#define FLUX2_SETS_ORDER 0
#endif

namespace flux2 {
namespace {

class GgmlDevice : public Device {
  public:
    using Device::Device;

    ggml_backend_ptr start() const override {
        ggml_backend_ptr backend = Device::start();
#if FLUX2_SETS_ORDER
        // Those of Vulkan and Metal move operations of a block before the end of the last one, when
        // streamed weights are not in place.
        backend->iface.graph_optimize = nullptr;
#endif
        return backend;
    }
};

}  // namespace

std::unique_ptr<Device> make_ggml_device(ggml_backend_dev_t device) {
    return std::make_unique<GgmlDevice>(device,
                                        DeviceAbilities{.keeps_order = FLUX2_SETS_ORDER != 0});
}

}  // namespace flux2
