#include "compute/devices/kinds.hpp"

namespace flux2 {
namespace {

// Some GPUs of Apple's do not, by what ggml says of a weight as a node of a graph.
bool holds_bf16(ggml_backend_dev_t device) {
    const ggml_context_ptr context(
        ggml_init({.mem_size = ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    return ggml_backend_dev_supports_op(device,
                                        ggml_new_tensor_1d(context.get(), GGML_TYPE_BF16, /*n=*/1));
}

}  // namespace

std::unique_ptr<Device> make_ggml_device(ggml_backend_dev_t device) {
    const bool bf16 = holds_bf16(device);
    return std::make_unique<Device>(device,
                                    DeviceAbilities{.multiplies_bf16 = bf16, .holds_bf16 = bf16});
}

}  // namespace flux2
