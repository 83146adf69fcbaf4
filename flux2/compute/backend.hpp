// Where graphs run: a device chosen by name, with the CPU for what the device lacks.
#pragma once

#include "compute/device.hpp"

#include <flux2/device.hpp>

#include <ggml-backend.h>
#include <ggml-cpp.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace flux2 {

// What a backend is for.
enum class BackendUse {
    compute,
    measure,  // sizes of weights and graphs are computed, but nothing is allocated
};

// Bytes by where they lie. On a CPU everything is host memory.
struct MemoryUse {
    uint64_t device = 0;
    uint64_t host = 0;

    MemoryUse& operator+=(const MemoryUse& other) {
        device += other.device;
        host += other.host;
        return *this;
    }
};

// What holds tensors.
struct TensorBuffer {
    std::vector<ggml_backend_buffer_ptr> buffers;  // several where one cannot be that large
    uint64_t bytes = 0;

    void set_usage(ggml_backend_buffer_usage usage) const;
};

// The name of the device that Backend would choose for this one. Throws bad_argument for an unknown
// name.
std::string device_name(const std::string& device);

// A device and the CPU. Graphs and weights borrow it, so it must outlive them.
class Backend {
  public:
    // `device` is a name from list_devices() in any case, or "auto": the first GPU that is no
    // software, else the CPU.
    // n_threads 0: one per physical core. Throws bad_argument for an unknown name, backend when it
    // fails.
    explicit Backend(const std::string& device = "auto", int n_threads = 0,
                     BackendUse use = BackendUse::compute);

    const std::string& name() const { return name_; }
    // The product's name, as in list_devices().
    std::string description() const { return device_->description(); }
    bool is_cpu() const { return device_->is_cpu(); }
    // What was chosen, to be asked what it can do.
    const Device& device() const { return *device_; }
    bool measures_only() const { return use_ == BackendUse::measure; }
    int n_threads() const { return n_threads_; }
    bool multiplies_bf16() const { return device_->abilities().multiplies_bf16; }
    bool takes_parallel_writes() const { return device_->abilities().takes_parallel_writes; }

    // Throws backend when the device was lost: to be called after what it should have done.
    void check_alive() const { device_->check_alive(); }

    // Bytes that graphs have copied to and from the device so far, without weights.
    struct Traffic {
        uint64_t sent = 0, received = 0;
    };
    Traffic& traffic() const { return *traffic_; }

    // What is best here, unless it was told to take only ggml's.
    Operations operations() const { return operations_; }
    void use_stock_operations() { operations_ = Operations::stock; }

    // The fastest memory that repacks such a matrix (Device::repack_buffer_types), or null.
    ggml_backend_buffer_type_t repack_buffer_type(const ggml_tensor* matrix) const;

    // Memory for weights on the device.
    ggml_backend_buffer_type_t buffer_type() const;
    // Plain host memory.
    ggml_backend_buffer_type_t cpu_buffer_type() const;
    // The first of them, or the second for a tensor that the device cannot take. Operations on
    // such a tensor run on the CPU.
    ggml_backend_buffer_type_t memory_for(const ggml_tensor* tensor) const;
    // Host memory that the device can copy from while it computes, where it has such.
    ggml_backend_buffer_type_t upload_buffer_type() const;

    // Puts the tensors one after another into new buffers; for measuring, only the sizes are real.
    // Throws out_of_memory saying that `what` does not fit.
    TensorBuffer allocate(std::span<ggml_tensor* const> tensors, ggml_backend_buffer_type_t type,
                          const std::string& what) const;

    // A scheduler over device and CPU for graphs of up to max_nodes. Throws std::bad_alloc.
    ggml_backend_sched_ptr make_scheduler(size_t max_nodes) const;
    // A second queue of the device, for uploads beside the computation.
    ggml_backend_ptr make_upload_queue() const;

    // Once *flag is true, computations end with an Error cancelled: on the CPU after the running
    // operation, on a device after the running block. Null: never.
    void set_cancel(const std::atomic<bool>* flag);
    bool cancel_requested() const { return cancel_ != nullptr && *cancel_; }
    // Called during computations with the share of blocks that are done.
    void set_on_progress(std::function<void(double share)> on_progress);
    const std::function<void(double share)>& on_progress() const { return on_progress_; }
    // With it, computations run one operation at a time and report the seconds of each.
    using OnOperation = std::function<void(const ggml_tensor& result, double seconds)>;
    void set_on_operation(OnOperation on_operation);
    const OnOperation& on_operation() const { return on_operation_; }

  private:
    std::string name_;
    BackendUse use_;
    int n_threads_;
    std::unique_ptr<Device> device_;
    ggml_backend_ptr accelerator_;  // the device, started; null when it is the CPU
    ggml_backend_ptr cpu_;
    Operations operations_;
    const std::atomic<bool>* cancel_ = nullptr;
    std::function<void(double share)> on_progress_;
    OnOperation on_operation_;
    std::unique_ptr<Traffic> traffic_ = std::make_unique<Traffic>();
};

}  // namespace flux2
