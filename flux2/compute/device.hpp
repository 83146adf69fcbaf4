// A device that graphs run on, and what it can do. Every kind of device is a file in
// compute/devices; callers ask what it can do, never what kind it is.
#pragma once

#include <ggml-backend.h>
#include <ggml-cpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace flux2 {

// Whose operations a graph is made of, where there is a choice.
enum class Operations {
    stock,  // ggml's
    cpu,    // on CPUs: ours where we have faster ones (compute/cpu)
    cuda,   // on NVIDIA GPUs: ours where we have them (compute/cuda)
};

// The defaults hold for a device of which nothing more is known than that ggml has it.
struct DeviceAbilities {
    // Whose operations are best there; it computes nodes of ours (compute/plain) unless stock.
    Operations operations = Operations::stock;
    // BF16 matrices are multiplied at the speed of other types.
    bool multiplies_bf16 = true;
    // Tensors on it may be BF16. Where they may not, ggml ends the program when it meets one.
    bool holds_bf16 = true;
    // Many tokens are multiplied faster with a matrix that is unpacked to BF16 just before than
    // with a quantised one.
    bool unpacks_matrices = false;
    // Tensors on it may be written from several threads at once.
    bool takes_parallel_writes = false;
    // A computation that fails ends with an Error. Elsewhere ggml may end the program, so a lack of
    // memory must be found before.
    bool fails_softly = false;
    // Blocks of weights may be copied to it in turn while it computes.
    bool streams_blocks = true;
    // It lies behind a network: it keeps the last graph that it was sent, if that is computed
    // without a pause, and tensors that are written in one go.
    bool is_far = false;
};

struct DeviceMemory {
    uint64_t free = 0;
    uint64_t total = 0;
};

class Device {
  public:
    Device(ggml_backend_dev_t device, const DeviceAbilities& abilities);
    virtual ~Device() = default;

    std::string name() const;
    // The product's name.
    std::string description() const;
    bool is_cpu() const;
    DeviceMemory memory() const;
    const DeviceAbilities& abilities() const { return abilities_; }
    // Throws backend when it was lost; what was read from it since is worthless.
    virtual void check_alive() const {}
    // The same as an answer.
    bool is_lost() const;

    // What graphs run on. Throws backend when it fails.
    virtual ggml_backend_ptr start() const;
    // A second queue, for uploads beside the computation; computes ggml's operations only.
    ggml_backend_ptr start_queue() const;

    // Whether it holds and computes with a tensor of that size. A device has a largest buffer, and
    // a largest part of a buffer that an operation can reach.
    bool takes(uint64_t bytes) const;
    // Whether it multiplies such a matrix, of this type and size.
    bool multiplies(const ggml_tensor* matrix) const;

    // Host memories of ggml's that repack a matrix for its kernels when it is written in one go,
    // the fastest first. Empty when there is none for its type and size.
    virtual std::vector<ggml_backend_buffer_type_t> repack_buffer_types(
        const ggml_tensor* matrix) const;

  protected:
    ggml_backend_dev_t ggml() const { return device_; }

  private:
    ggml_backend_dev_t device_;  // ggml's, which lives as long as the program
    DeviceAbilities abilities_;
};

// What ggml tells; of a CPU what this process may use.
DeviceMemory memory_of(ggml_backend_dev_t device);

// Whether a GPU of that description is one that the CPU imitates, such as Mesa's llvmpipe.
bool names_software_device(const std::string& description);

// Of the kind that ggml's device is of.
std::unique_ptr<Device> open_device(ggml_backend_dev_t device);

}  // namespace flux2
