// Where graphs run: a device chosen by name, with the CPU behind it for what the device lacks.
#pragma once

#include <flux2/device.hpp>

#include <ggml-backend.h>
#include <ggml-cpp.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace flux2 {

// What a backend is for.
enum class BackendUse {
    compute,
    measure,  // weights and graphs are laid out and their sizes told, but nothing is allocated
};

// Whose operations a graph is made of, where there is a choice.
enum class Operations {
    stock,  // ggml's
    cpu,    // on CPUs: ours where we have faster ones (compute/cpu)
    cuda,   // on NVIDIA GPUs: ours where we have them (compute/cuda)
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

// A buffer that holds tensors.
struct TensorBuffer {
    ggml_backend_buffer_ptr buffer;
    uint64_t bytes = 0;
};

// A device and the CPU. Graphs and weights borrow it, so it must outlive them.
class Backend {
  public:
    // `device` is a name from list_devices() in any case, or "auto": the first GPU, else the CPU.
    // n_threads 0: one per physical core. Throws bad_argument for an unknown name, backend when it
    // fails.
    explicit Backend(const std::string& device = "auto", int n_threads = 0,
                     BackendUse use = BackendUse::compute);

    const std::string& name() const { return name_; }
    bool is_cpu() const { return device_ == nullptr; }
    bool measures_only() const { return use_ == BackendUse::measure; }
    int n_threads() const { return n_threads_; }
    // Whether BF16 matrices are multiplied at the speed of other types. On CPUs other than x86 ggml
    // has only plain code for them, twenty times slower than for F16.
    bool multiplies_bf16() const;

    // What is best here, unless it was told to take only ggml's.
    Operations operations() const { return operations_; }
    void use_stock_operations() { operations_ = Operations::stock; }

    // Host memories of ggml's that repack a matrix for this CPU's kernels when it is written in one
    // go, the fastest first. Empty when there is none for its type and size, and on a device.
    std::vector<ggml_backend_buffer_type_t> repack_buffer_types(const ggml_tensor* matrix) const;
    // The first of them, or null.
    ggml_backend_buffer_type_t repack_buffer_type(const ggml_tensor* matrix) const;

    // Whether tensors on the device may be written from several threads at once.
    bool takes_parallel_writes() const;

    // Memory for weights on the device.
    ggml_backend_buffer_type_t buffer_type() const;
    // Plain host memory.
    ggml_backend_buffer_type_t cpu_buffer_type() const;
    // Host memory that the device can copy from while it computes, where it has such.
    ggml_backend_buffer_type_t upload_buffer_type() const;

    // Puts the tensors one after another into a new buffer; for measuring, only its size is real.
    // Throws out_of_memory saying that `what` does not fit.
    TensorBuffer allocate(std::span<ggml_tensor* const> tensors, ggml_backend_buffer_type_t type,
                          const std::string& what) const;

    // A scheduler over device and CPU for graphs of up to max_nodes.
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
    // With it, computations run one operation at a time and tell the seconds of each.
    using OnOperation = std::function<void(const ggml_tensor& result, double seconds)>;
    void set_on_operation(OnOperation on_operation);
    const OnOperation& on_operation() const { return on_operation_; }

  private:
    std::string name_;
    BackendUse use_;
    int n_threads_;
    ggml_backend_ptr device_;  // null when the CPU was chosen
    ggml_backend_ptr cpu_;
    std::vector<ggml_backend_buffer_type_t> repack_;  // the fastest first
    Operations operations_ = Operations::stock;
    const std::atomic<bool>* cancel_ = nullptr;
    std::function<void(double share)> on_progress_;
    OnOperation on_operation_;
};

}  // namespace flux2
