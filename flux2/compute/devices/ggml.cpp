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

// Some GPUs of Apple's do not, by what ggml says of a weight as a node of a graph.
bool holds_bf16(ggml_backend_dev_t device) {
    const ggml_context_ptr context(
        ggml_init({.mem_size = ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    return ggml_backend_dev_supports_op(device,
                                        ggml_new_tensor_1d(context.get(), GGML_TYPE_BF16, /*n=*/1));
}

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
    const bool bf16 = holds_bf16(device);
    return std::make_unique<GgmlDevice>(
        device,
        DeviceAbilities{
            .multiplies_bf16 = bf16, .holds_bf16 = bf16, .streams_blocks = FLUX2_SETS_ORDER != 0});
}

}  // namespace flux2
