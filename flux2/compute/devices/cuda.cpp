// NVIDIA GPUs: with our kernels where they run, else with ggml's operations.
#include "compute/cuda/backend.hpp"
#include "compute/devices/kinds.hpp"

#include <string>
#include <utility>

namespace flux2 {
namespace {

class CudaDevice : public Device {
  public:
    using Device::Device;

    ggml_backend_ptr start() const override {
        ggml_backend_ptr backend = Device::start();
        if (abilities().operations == Operations::cuda) {
            backend = cuda::extend(std::move(backend));
        }
        return backend;
    }
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(ggml_backend_dev_t device) {
    const std::string kind = ggml_backend_reg_name(ggml_backend_dev_backend_reg(device));
    if (kind != "CUDA") {
        return nullptr;
    }
    const bool has_kernels = cuda::runs_on(device);
    return std::make_unique<CudaDevice>(
        device, DeviceAbilities{
                    .operations = has_kernels ? Operations::cuda : Operations::stock,
                    .unpacks_matrices = has_kernels && cuda::has_hopper_kernels(device),
                    .takes_parallel_writes = true,  // ggml copies on a stream of the calling thread
                });
}

}  // namespace flux2
